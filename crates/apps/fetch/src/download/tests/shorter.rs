//! Answers that end earlier than was asked for.

use super::*;

#[tokio::test]
async fn a_shorter_range_is_taken_and_the_rest_is_asked_for_again() {
    let file = content(1_500_000);
    for behaviour in [
        Behaviour { most_of_range: Some(40_000), ..Behaviour::default() },
        Behaviour { halves_ranges: true, ..Behaviour::default() },
    ] {
        let server = Server::start(file.clone(), behaviour.clone()).await;
        let mut case = Case::new();
        let done = case.fetch(&server).await;
        assert!(done.is_ok() && case.has(&file), "{behaviour:?}: {done:?}");
        assert!(case.lost.is_empty(), "{:?}", case.lost);
    }
    // One way alone asks for all that is left.
    let server =
        Server::start(file.clone(), Behaviour { most_of_range: Some(200_000), ..Behaviour::default() }).await;
    let case = Case::new();
    let (sender, one) = mpsc::channel::<Arc<dyn Dial>>(1);
    sender.try_send(Arc::new(Way("wlan0", Dialer::new(None, tls())))).expect("room");
    let target = Target::File { place: case.place(), resume: false };
    let done = download(server.url(), &case.options, one, target, pending(), |_| {}).await;
    assert!(done.is_ok() && case.has(&file), "{done:?}");
}

#[tokio::test]
async fn a_server_that_never_comes_to_an_end_is_given_up_with_one_line() {
    let file = content(1_500_000);
    let byte_by_byte = Behaviour { most_of_range: Some(1), ..Behaviour::default() };
    let cut_off = Behaviour { is_cut_off: true, ..Behaviour::default() };
    for (behaviour, words) in [(byte_by_byte, "next to nothing"), (cut_off, "breaks off each answer")] {
        let server = Server::start(file.clone(), behaviour).await;
        let mut case = Case::new();
        case.options.silence = Some(Duration::from_secs(60));
        let failed = case.fetch(&server).await.expect_err(words);
        let line = failed.to_string();
        assert!(line.contains(words) && line.lines().count() == 1, "{line}");
        assert!(!case.place().exists());
        // What came is there for another attempt.
        assert!(case.folder.path().join("file.parts.json").exists(), "{words}");
    }
}

#[tokio::test]
async fn a_shorter_range_of_a_file_whose_versions_nobody_can_tell_apart_is_not_mixed() {
    let behaviour = Behaviour { etag: None, most_of_range: Some(100_000), ..Behaviour::default() };
    let server = Server::start(content(700_000), behaviour).await;
    let mut case = Case::new();
    let failed = case.fetch(&server).await.expect_err("no file").to_string();
    assert!(failed.contains("asked were"), "{failed}");
    assert!(!case.place().exists());
}
