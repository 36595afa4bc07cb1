//! Files that several servers have, of which some have another one, or nothing at all.

use super::*;
use crate::download::Pieces;

/// Slow enough that all of them have their part.
fn slow() -> Behaviour {
    Behaviour { bytes_per_second: Some(3_000_000), ..Behaviour::default() }
}

fn sha256(file: &[u8]) -> Digest {
    Digest { algorithm: DigestAlgorithm::Sha256, value: Sha256::digest(file).to_vec() }
}

/// A case with mirrors, and with a digest of a file that a person gave.
fn case(mirrors: &[&Server], digest_of: Option<&[u8]>) -> Case {
    let mut case = Case::new();
    case.options.mirrors = mirrors.iter().map(|server| server.url()).collect();
    case.options.digests = digest_of.map(sha256).into_iter().collect();
    case
}

/// A file of the same length, all of whose bytes are others.
fn other(file: &[u8]) -> Vec<u8> {
    file.iter().map(|byte| !byte).collect()
}

/// How many notices are of a server.
fn notices_of(case: &Case, server: &Server) -> usize {
    let url = server.url().to_string();
    case.notices.iter().filter(|notice| notice.starts_with(&url)).count()
}

#[tokio::test]
async fn pieces_come_from_all_places_of_a_file_whose_digest_is_known() {
    let file = content(5_000_000);
    let [first, second, third] = [slow(), slow(), Behaviour { etag: Some("\"b\"".into()), ..slow() }]
        .map(|behaviour| Server::start(file.clone(), behaviour));
    let (first, second, third) = tokio::join!(first, second, third);
    let mut case = case(&[&second, &third], Some(&file));
    let done = case.fetch(&first).await.expect("a file");
    assert!(case.has(&file) && done.path_bytes.len() == 2, "{done:?}");
    assert_eq!(done.path_bytes.iter().sum::<u64>(), 5_000_000);
    for server in [&first, &second, &third] {
        assert!(!server.requests().is_empty());
    }
    assert_eq!(case.notices, Vec::<String>::new());
}

#[tokio::test]
async fn a_digest_counts_that_the_first_server_told_by_https_and_no_other() {
    let file = content(3_000_000);
    let digest: [u8; 32] = Sha256::digest(&file).into();
    let telling = Behaviour { digest: Some(digest), ..slow() };
    let secure = Behaviour { alpn: Some(&["http/1.1"]), ..telling.clone() };
    for (behaviour, is_asked) in [(telling, false), (secure, true)] {
        let (first, second) = tokio::join!(
            Server::start(file.clone(), behaviour.clone()),
            Server::start(file.clone(), Behaviour { digest: Some(digest), ..slow() }),
        );
        let mut told = case(&[&second], None);
        told.fetch(&first).await.expect("a file");
        assert!(told.has(&file));
        assert_eq!(!second.requests().is_empty(), is_asked, "{behaviour:?}");
        // Without one, it is for when the first is of no use.
        let reserve = Server::start(file.clone(), slow()).await;
        let mut untold = case(&[&reserve], None);
        untold.options.verifies = false;
        untold.fetch(&first).await.expect("a file");
        assert_eq!(reserve.requests().len(), 0);
    }
}

#[tokio::test]
async fn a_place_that_is_of_no_use_is_left_out_with_one_notice() {
    let file = content(2_500_000);
    let shorter = content(2_499_999);
    let kinds = [
        ("404", file.clone(), Behaviour { status: Some(404), ..Behaviour::default() }),
        ("500", file.clone(), Behaviour { status: Some(500), ..Behaviour::default() }),
        ("2499999 bytes", shorter, Behaviour::default()),
        ("no ranges", file.clone(), Behaviour { has_ranges: false, ..Behaviour::default() }),
        ("asked were", file.clone(), Behaviour { shifts_ranges_by: 1, ..Behaviour::default() }),
        ("its ETag", file.clone(), Behaviour { changes_after: Some(1), ..slow() }),
        ("sha-256", file.clone(), Behaviour { digest: Some([7; 32]), ..Behaviour::default() }),
        ("bytes as the bytes", file.clone(), Behaviour { sends_more_by: 5, ..Behaviour::default() }),
        (
            "http://",
            file.clone(),
            Behaviour { location: Some("ftp://192.0.2.1/".into()), ..Behaviour::default() },
        ),
    ];
    for (words, content, behaviour) in kinds {
        let (first, useless) =
            tokio::join!(Server::start(file.clone(), slow()), Server::start(content, behaviour));
        let mut case = case(&[&useless], Some(&file));
        let done = case.fetch(&first).await;
        assert!(done.is_ok() && case.has(&file), "{words}: {done:?}");
        assert_eq!(notices_of(&case, &useless), 1, "{words}: {:?}", case.notices);
        assert!(case.notices[0].contains(words), "{words}: {:?}", case.notices);
    }
    // One that is away.
    let (first, away) = tokio::join!(Server::start(file.clone(), slow()), Server::start(Vec::new(), slow()));
    away.pause().await;
    let mut case = case(&[&away], Some(&file));
    case.fetch(&first).await.expect("a file");
    assert!(case.has(&file) && notices_of(&case, &away) == 1, "{:?}", case.notices);
}

#[tokio::test]
async fn a_place_that_sends_elsewhere_is_followed_and_told_no_password() {
    let file = content(3_000_000);
    let (first, target) =
        tokio::join!(Server::start(file.clone(), slow()), Server::start(file.clone(), slow()));
    let sending = Behaviour { location: Some(target.url().into()), ..Behaviour::default() };
    let sending = Server::start(Vec::new(), sending).await;
    let mut case = case(&[&sending], Some(&file));
    case.options.fields = vec![("Authorization".into(), "Basic x".into()), ("Cookie".into(), "a=b".into())];
    case.fetch(&first).await.expect("a file");
    assert!(case.has(&file) && case.notices.is_empty(), "{:?}", case.notices);
    assert!(first.requests().iter().all(|request| request.contains("Basic x")));
    for server in [&sending, &target] {
        let requests = server.requests();
        assert!(!requests.is_empty());
        assert!(requests.iter().all(|request| !request.contains("Basic x") && !request.contains("a=b")));
    }
}

#[tokio::test]
async fn wrong_pieces_of_one_place_make_no_file_and_the_others_bring_it() {
    let file = content(3_000_000);
    for is_first_wrong in [false, true] {
        let contents =
            if is_first_wrong { [other(&file), file.clone()] } else { [file.clone(), other(&file)] };
        let [first, second] = contents.map(|content| Server::start(content, slow()));
        let (first, second) = tokio::join!(first, second);
        let mut case = case(&[&second], Some(&file));
        let done = case.fetch(&first).await;
        assert!(done.is_ok() && case.has(&file), "{done:?}");
        let told = case.notices.iter().filter(|notice| notice.contains("alone")).count();
        assert_eq!(told, 1, "{:?}", case.notices);
    }
    // Where nobody has it, there is none.
    let (first, second) =
        tokio::join!(Server::start(other(&file), slow()), Server::start(other(&file), slow()));
    let mut case = case(&[&second], Some(&file));
    let failed = case.fetch(&first).await.expect_err("no file").to_string();
    assert!(failed.starts_with("none of its places brings the file: http://"), "{failed}");
    assert!(!case.place().exists() && fs::read_dir(case.folder.path()).expect("a folder").count() == 0);
}

#[tokio::test]
async fn without_a_digest_another_place_is_for_when_the_first_is_of_no_use() {
    let file = content(1_500_000);
    let kinds = [
        Behaviour { status: Some(404), ..Behaviour::default() },
        Behaviour { status: Some(503), ..Behaviour::default() },
        Behaviour { location: Some("ftp://192.0.2.1/".into()), ..Behaviour::default() },
        Behaviour { is_page: true, has_ranges: false, etag: None, ..Behaviour::default() },
        Behaviour { shifts_ranges_by: 1, ..Behaviour::default() },
    ];
    for behaviour in kinds {
        let page = b"<html>gone".to_vec();
        let content = if behaviour.is_page { page } else { file.clone() };
        let (first, refusing, second) = tokio::join!(
            Server::start(content, behaviour.clone()),
            Server::start(Vec::new(), Behaviour { status: Some(404), ..Behaviour::default() }),
            Server::start(file.clone(), Behaviour::default()),
        );
        let mut case = case(&[&refusing, &second], None);
        let done = case.fetch(&first).await;
        assert!(done.is_ok() && case.has(&file), "{behaviour:?}: {done:?} {:?}", case.notices);
        assert_eq!(case.notices.len(), 2, "{:?}", case.notices);
    }
    // The first is good: nobody else is asked.
    let (first, second) =
        tokio::join!(Server::start(file.clone(), slow()), Server::start(file.clone(), slow()));
    let mut case = case(&[&second], None);
    case.fetch(&first).await.expect("a file");
    assert!(case.has(&file) && second.requests().is_empty());
}

/// Both tell the same ETag and length, which says nothing.
#[tokio::test]
async fn a_place_that_is_lost_in_the_middle_is_mixed_with_no_other_unless_a_digest_is_known() {
    let file = content(3_000_000);
    for has_digest in [false, true] {
        let other = if has_digest { file.clone() } else { other(&file) };
        let (first, second) =
            tokio::join!(Server::start(file.clone(), slow()), Server::start(other.clone(), slow()));
        if has_digest {
            // It comes when the first is lost.
            second.pause().await;
        }
        let case = case(&[&second], has_digest.then_some(&*file));
        let enough = came(1_000_000);
        let target = Target::File { place: case.place(), resume: false };
        let mut bytes = 0;
        let note = |progress| {
            if let Progress::Bytes { bytes: came, .. } = progress {
                enough.note(came);
                bytes += came;
            }
        };
        let away = async {
            enough.wait().await;
            first.pause().await;
            if has_digest {
                second.resume().await;
            }
        };
        let fetching = download(first.url(), &case.options, ways(), target, pending(), note);
        let (done, ()) = tokio::join!(fetching, away);
        assert!(done.is_ok() && case.has(&other), "{has_digest}: {done:?}");
        // What was there is kept only where it is the same file's for sure.
        assert_eq!(bytes == 3_000_000, has_digest, "{bytes}");
    }
}

#[tokio::test]
async fn parts_of_several_places_are_compared_by_the_next_attempt_too() {
    let file = content(2_500_000);
    let (first, second) =
        tokio::join!(Server::start(file.clone(), slow()), Server::start(file.clone(), slow()));
    for is_damaged in [false, true] {
        let mut case = case(&[&second], Some(&file));
        let stopped = case.fetch_until(&first, &came(2_000_000)).await;
        assert!(matches!(stopped, Err(DownloadError::Interrupted { .. })), "{stopped:?}");
        let parts = case.folder.path().join("file.parts");
        let mut bytes = fs::read(&parts).expect("parts");
        if is_damaged {
            bytes[100] ^= 1;
            fs::write(&parts, bytes).expect("parts");
        }
        // Nobody tells the digest again.
        case.options.digests.clear();
        case.options.mirrors.clear();
        let done = case.fetch(&first).await;
        match is_damaged {
            false => assert!(done.is_ok() && case.has(&file), "{done:?}"),
            true => assert!(matches!(done, Err(DownloadError::Digest { .. })), "{done:?}"),
        }
    }
}

#[tokio::test]
async fn an_attempt_goes_on_only_with_the_place_of_which_its_part_is() {
    let file = content(3_000_000);
    let refusing = Behaviour { status: Some(404), ..Behaviour::default() };
    let (refusing, second) =
        tokio::join!(Server::start(Vec::new(), refusing), Server::start(other(&file), slow()));
    let mut case = case(&[&second], None);
    let stopped = case.fetch_until(&refusing, &came(1_000_000)).await;
    assert!(matches!(stopped, Err(DownloadError::Interrupted { .. })), "{stopped:?}");
    let done = case.fetch(&refusing).await.expect("a file");
    assert!(case.has(&other(&file)) && done.path_bytes.iter().sum::<u64>() < 2_100_000, "{done:?}");
    assert!(case.notices.len() == 1, "{:?}", case.notices);
}

#[tokio::test]
async fn a_silent_server_does_not_hold_up_another_place() {
    let file = content(300_000);
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a listener");
    let url = Url::parse(&format!("http://{}/file.bin", silent.local_addr().expect("an address")));
    let second = Server::start(file.clone(), Behaviour::default()).await;
    let case = case(&[&second], None);
    let target = Target::File { place: case.place(), resume: false };
    let done = download(url.expect("a URL"), &case.options, ways(), target, pending(), |_| {}).await;
    assert!(done.is_ok() && case.has(&file), "{done:?}");
}

#[tokio::test]
async fn whoever_asks_by_https_gets_nothing_by_http_that_nobody_can_compare() {
    let file = content(300_000);
    let refusing = Behaviour { status: Some(404), alpn: Some(&["http/1.1"]), ..Behaviour::default() };
    let (first, second) =
        tokio::join!(Server::start(Vec::new(), refusing), Server::start(file.clone(), Behaviour::default()));
    let mut plain = case(&[&second], None);
    let failed = plain.fetch(&first).await.expect_err("no file").to_string();
    assert!(failed.contains("not by https") && second.requests().is_empty(), "{failed}");
    let mut compared = case(&[&second], Some(&file));
    let done = compared.fetch(&first).await;
    assert!(done.is_ok() && compared.has(&file), "{done:?}");
}

/// Pieces of 100 000 bytes.
fn pieces(file: &[u8]) -> Option<Pieces> {
    let digests = file.chunks(100_000).map(|piece| Sha256::digest(piece).to_vec()).collect();
    Pieces::new(DigestAlgorithm::Sha256, 100_000, digests)
}

#[tokio::test]
async fn a_wrong_piece_is_fetched_anew_and_whoever_brought_it_brings_no_other() {
    let file = content(2_500_000);
    for is_first_wrong in [false, true] {
        let contents =
            if is_first_wrong { [other(&file), file.clone()] } else { [file.clone(), other(&file)] };
        let [first, second] = contents.map(|content| Server::start(content, slow()));
        let (first, second) = tokio::join!(first, second);
        let mut case = case(&[&second], Some(&file));
        case.options.pieces = pieces(&file);
        case.options.size_bytes = Some(2_500_000);
        let done = case.fetch(&first).await;
        assert!(done.is_ok() && case.has(&file), "{done:?}");
        let wrong = if is_first_wrong { &first } else { &second };
        let told = |words: &str| case.notices.iter().filter(|notice| notice.contains(words)).count();
        assert!(notices_of(&case, wrong) == 1 && told("is wrong") > 0, "{:?}", case.notices);
    }
    // Alone, it brings nothing that counts.
    let wrong = Server::start(other(&file), slow()).await;
    let mut case = case(&[], Some(&file));
    case.options.pieces = pieces(&file);
    let failed = case.fetch(&wrong).await.expect_err("no file");
    assert!(matches!(failed, DownloadError::Piece { .. }) && !case.place().exists(), "{failed}");
    assert!(wrong.requests().len() < 10, "{}", wrong.requests().len());
}

#[tokio::test]
async fn pieces_of_an_earlier_attempt_and_of_answers_without_ranges_are_compared_too() {
    let file = content(2_500_000);
    let server = Server::start(file.clone(), slow()).await;
    // Nobody knew the pieces then.
    let mut resumed = case(&[], None);
    let stopped = resumed.fetch_until(&server, &came(2_000_000)).await;
    assert!(matches!(stopped, Err(DownloadError::Interrupted { .. })), "{stopped:?}");
    let parts = resumed.folder.path().join("file.parts");
    let mut bytes = fs::read(&parts).expect("parts");
    bytes[100] ^= 1;
    fs::write(&parts, bytes).expect("parts");
    resumed.options.pieces = pieces(&file);
    let failed = resumed.fetch(&server).await.expect_err("no file");
    assert!(
        matches!(failed, DownloadError::Piece { number: 0, .. }) && !resumed.place().exists(),
        "{failed}"
    );
    // What is wrong is not gone on with.
    resumed.fetch(&server).await.expect("a file");
    assert!(resumed.has(&file));
    // Whose length is known at the end.
    let whole = Behaviour { has_ranges: false, is_chunked: true, ..Behaviour::default() };
    for (content, size) in [(other(&file), None), (file[..2_000_000].to_vec(), Some(2_500_000))] {
        let server = Server::start(content, whole.clone()).await;
        let mut case = case(&[], None);
        (case.options.pieces, case.options.size_bytes) = (pieces(&file).filter(|_| size.is_none()), size);
        let failed = case.fetch(&server).await.expect_err("no file");
        let is_known = matches!(failed, DownloadError::Piece { .. } | DownloadError::Answer { .. });
        assert!(is_known && !case.place().exists(), "{failed}");
    }
}

#[tokio::test]
async fn a_file_of_another_length_than_it_is_known_to_have_is_another() {
    let file = content(300_000);
    let (first, second) = tokio::join!(
        Server::start(content(299_999), Behaviour::default()),
        Server::start(file.clone(), Behaviour::default())
    );
    let mut alone = case(&[], None);
    alone.options.size_bytes = Some(300_000);
    let failed = alone.fetch(&first).await.expect_err("no file").to_string();
    assert!(failed.contains("its file has 299999 bytes; expected 300000"), "{failed}");
    let mut case = case(&[&second], None);
    case.options.size_bytes = Some(300_000);
    let done = case.fetch(&first).await;
    assert!(done.is_ok() && case.has(&file), "{done:?}");
}

#[tokio::test]
async fn what_is_for_the_host_that_told_of_a_file_goes_to_no_place_of_it() {
    let server = Server::start(content(1000), Behaviour::default()).await;
    for home in ["https://example.org/file.meta4", "file:///file.meta4"] {
        let mut case = case(&[], None);
        case.options.fields = vec![("Authorization".into(), "Basic x".into())];
        case.options.home = Url::parse(home).ok();
        case.fetch(&server).await.expect("a file");
        assert!(server.requests().iter().all(|request| !request.contains("Basic x")), "{home}");
    }
}
