//! Streams from servers of all kinds, over two ways, on one of which something else may answer.

mod cookies;
mod site;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use self::site::{Answers, Asked, answer, fetch, fetch_late, fetch_until, file, site};
use super::Options;
use crate::schedule::Sizing;

const SEGMENTS: usize = 20;

fn options() -> Options {
    Options { silence: Some(Duration::from_secs(20)), ..Options::default() }
}

fn small_requests() -> Options {
    Options { sizing: Sizing::Fixed { segment_bytes: 5000, pipelined: 2 }, ..options() }
}

/// Each has its own bytes, and a length of its own.
fn segment(at: usize) -> Vec<u8> {
    (0..30_000 + at as u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8 ^ at as u8).collect()
}

fn playlist(name: impl Fn(usize) -> String) -> String {
    let segments: String = (0..SEGMENTS).map(|at| format!("#EXTINF:2,\n{}\n", name(at))).collect();
    format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{segments}#EXT-X-ENDLIST\n")
}

fn film() -> Answers {
    let mut files = vec![("/film.m3u8".to_owned(), playlist(|at| format!("{at}.ts")).into_bytes())];
    files.extend((0..SEGMENTS).map(|at| (format!("/{at}.ts"), segment(at))));
    site(&files.iter().map(|(path, content)| (path.as_str(), content.clone())).collect::<Vec<_>>())
}

fn all() -> Vec<Vec<u8>> {
    (0..SEGMENTS).map(segment).collect()
}

/// What answers in the server's place, to everything.
fn portals() -> Vec<(&'static str, Answers)> {
    let html = [("Content-Type", "text/html")];
    let small = answer(200, &html, b"<html>Please log in</html>");
    let large = answer(200, &html, &[b'x'; 200_000]);
    let untyped = answer(200, &[], &[b'x'; 200_000]);
    let login = answer(200, &[], b"<html>Please log in</html>");
    let elsewhere = answer(302, &[("Location", "http://portal.example/login")], b"");
    let refusal = answer(511, &[], b"no");
    let short = answer(206, &[("Content-Range", "bytes 0-1/2")], b"no");
    let always = |answer: Vec<u8>| -> Answers { Arc::new(move |_: &Asked| Some(answer.clone())) };
    vec![
        ("small", always(small)),
        ("large", always(large)),
        ("untyped", always(untyped)),
        (
            "302",
            Arc::new(move |asked: &Asked| {
                Some(if asked.path == "/login" { login.clone() } else { elsewhere.clone() })
            }),
        ),
        ("511", always(refusal)),
        // Everything is there, and is two bytes.
        ("two", Arc::new(|asked: &Asked| Some(file(asked, b"no", "\"a\"")))),
        ("206", always(short)),
    ]
}

/// One server, and another one after so many answers.
fn after(answers: usize, first: Answers, then: Answers) -> Answers {
    let count = AtomicUsize::new(0);
    Arc::new(
        move |asked| {
            if count.fetch_add(1, Ordering::Relaxed) < answers { first(asked) } else { then(asked) }
        },
    )
}

#[tokio::test(start_paused = true)]
async fn what_answers_for_the_server_on_one_path_takes_away_that_path() {
    for (kind, portal) in portals() {
        for at in 0..2 {
            let mut servers = [film(), film()];
            servers[at] = portal.clone();
            let came = fetch("http://h.example/film.m3u8", &options(), &servers).await;
            assert!(came.outcome.is_ok(), "{kind} {at}: {:?}", came.outcome);
            assert!(came.bytes() == all(), "{kind} {at}");
            assert!(came.lost.iter().all(|(path, _)| *path == at), "{kind} {at}: {:?}", came.lost);
            assert!(!came.lost.is_empty(), "{kind} {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_is_taken_away_in_the_middle_and_comes_back() {
    for (kind, portal) in portals() {
        for at in 0..2 {
            let mut servers = [film(), film()];
            servers[at] = after(8, film(), after(3, portal.clone(), film()));
            let came = fetch("http://h.example/film.m3u8", &small_requests(), &servers).await;
            assert!(came.outcome.is_ok(), "{kind} {at}: {:?}", came.outcome);
            assert!(came.bytes() == all(), "{kind} {at}");
            let late = came.asked.iter().filter(|(way, _)| *way == at).skip(12);
            let is_segment = |asked: &Asked| asked.range.is_some_and(|(first, last)| last > first);
            assert!(
                late.filter(|(_, asked)| is_segment(asked)).count() > 0,
                "{kind} {at}: it never came back"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_that_hangs_before_it_is_believed_gets_another_connection() {
    let count = AtomicUsize::new(0);
    let hanging: Answers = Arc::new(move |asked| match asked.path.ends_with(".ts") {
        true if count.fetch_add(1, Ordering::Relaxed) == 0 => None,
        _ => film()(asked),
    });
    // So little in advance that the stream is not over before.
    let mut options = small_requests();
    options.buffering.capacity = polypath_units::Duration::from_secs(4);
    let came = fetch("http://h.example/film.m3u8", &options, &[film(), hanging]).await;
    let summary = came.outcome.as_ref().expect("a stream");
    assert!(came.bytes() == all() && summary.path_bytes[1] > 0, "{summary:?}");
}

#[tokio::test(start_paused = true)]
async fn segments_may_be_very_short() {
    let files: Vec<_> = (0..SEGMENTS).map(|at| (format!("/{at}.ts"), vec![at as u8; at])).skip(1).collect();
    let list = playlist(|at| format!("{at}.ts")).replace("#EXTINF:2,\n0.ts\n", "");
    let mut files: Vec<_> = files.iter().map(|(path, content)| (path.as_str(), content.clone())).collect();
    files.push(("/film.m3u8", list.into()));
    let came = fetch("http://h.example/film.m3u8", &options(), &[site(&files), site(&files)]).await;
    assert!(came.outcome.is_ok(), "{:?}", came.outcome);
    assert!(came.bytes().iter().eq((1..SEGMENTS).map(|at| vec![at as u8; at]).collect::<Vec<_>>().iter()));
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_segment_are_of_one_version() {
    let other: Answers =
        Arc::new(|asked| match asked.path.strip_suffix(".ts").and_then(|at| at[1..].parse().ok()) {
            Some(at) => {
                let content: Vec<u8> = segment(at).iter().map(|byte| !byte).collect();
                Some(file(asked, &content, "\"b\""))
            }
            None => film()(asked),
        });
    let came = fetch("http://h.example/film.m3u8", &options(), &[film(), other]).await;
    assert!(came.outcome.is_ok() && came.bytes() == all(), "{:?}", came.outcome);
    assert!(came.lost.iter().any(|(path, cause)| *path == 1 && cause.contains("ETag")), "{:?}", came.lost);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_gives_the_same_twice_is_an_error() {
    let count = AtomicUsize::new(0);
    let fickle: Answers = Arc::new(move |asked| match asked.path.ends_with(".ts") {
        true => {
            let number = count.fetch_add(1, Ordering::Relaxed);
            Some(file(asked, &segment(0), &format!("\"{number}\"")))
        }
        false => film()(asked),
    });
    for servers in [vec![fickle.clone()], vec![fickle.clone(), fickle]] {
        let came = fetch("http://h.example/film.m3u8", &small_requests(), &servers).await;
        assert!(came.error().contains("the file changed on the server: its ETag was"), "{}", came.error());
        assert_eq!(came.segments.len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_file_is_a_part_whatever_other_qualities_are() {
    let main = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000000\na.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=200000000\nb.m3u8\n";
    let parts = playlist(|at| format!("#EXT-X-BYTERANGE:5000@{}\nbig.ts", at * 5000));
    let big: Vec<u8> = (0..400_000_u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let server = site(&[
        ("/m.m3u8", main.into()),
        ("/a.m3u8", parts.into()),
        ("/b.m3u8", playlist(|at| format!("{at}.ts")).into()),
        ("/big.ts", big.clone()),
    ]);
    let came = fetch("http://h.example/m.m3u8", &options(), &[server.clone(), server]).await;
    assert!(came.outcome.is_ok(), "{:?}", came.outcome);
    assert!(came.bytes().iter().eq(big.chunks(5000).take(SEGMENTS)));
}

/// Segments are on another server.
fn redirecting(to: &'static str) -> Answers {
    Arc::new(move |asked| {
        if asked.host == "http://h.example" && asked.path.ends_with(".ts") {
            return Some(answer(302, &[("Location", &format!("{to}{}", asked.path))], b"over there"));
        }
        let path = asked.path.strip_prefix("/cdn").unwrap_or(&asked.path).to_owned();
        film()(&Asked { path, ..asked.clone() })
    })
}

#[tokio::test(start_paused = true)]
async fn redirected_segments_are_followed_and_credentials_are_not() {
    let fields = vec![("Authorization".into(), "Bearer x".into()), ("Referer".into(), "y".into())];
    let options = Options { fields, ..options() };
    for to in ["http://cdn.example/cdn", "https://cdn.example"] {
        let servers = [redirecting(to), redirecting(to)];
        let came = fetch("http://h.example/film.m3u8", &options, &servers).await;
        assert!(came.outcome.is_ok() && came.bytes() == all(), "{:?}", came.outcome);
        for (_, asked) in &came.asked {
            let is_home = asked.host == "http://h.example";
            assert_eq!(asked.text.contains("Authorization"), is_home, "{}", asked.text);
            assert!(asked.text.contains("Referer"), "{}", asked.text);
        }
        let summary = came.outcome.expect("a summary");
        assert!(summary.path_bytes.iter().all(|bytes| *bytes > 0), "{:?}", summary.path_bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirection_within_a_server_is_followed() {
    let server: Answers = Arc::new(|asked| match asked.path.strip_prefix("/there") {
        Some(path) => film()(&Asked { path: path.into(), ..asked.clone() }),
        None if asked.path.ends_with(".ts") => {
            Some(answer(307, &[("Location", &format!("/there{}", asked.path))], b"over there"))
        }
        None => film()(asked),
    });
    let came = fetch("http://h.example/film.m3u8", &options(), &[server.clone(), server]).await;
    assert!(came.outcome.is_ok() && came.bytes() == all(), "{:?}", came.outcome);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_one_line_without_a_password() {
    let of_segments = |status: u16, location: &'static str| -> Answers {
        Arc::new(move |asked| match asked.path.ends_with(".ts") {
            true => Some(answer(status, &[("Location", location)], b"")),
            false => film()(asked),
        })
    };
    let page = site(&[("/film.m3u8", b"<html>".to_vec())]);
    for (server, scheme, problem) in [
        (of_segments(404, ""), "http", "http://h.example/0.ts: the server says 404"),
        (of_segments(302, "/1.ts"), "http", "more than 10 redirections"),
        (
            of_segments(302, "http://h.example/1.ts"),
            "https",
            "the server sends from https to http://h.example/1.ts",
        ),
        (of_segments(302, "ftp://bob:TOPSECRET@h.example/"), "http", "expected http or https"),
        (page, "http", "neither an MPEG-DASH manifest nor an HLS playlist"),
        (site(&[]), "http", "404"),
    ] {
        for count in 1..3 {
            let url = format!("{scheme}://bob:TOPSECRET@h.example/film.m3u8");
            let came = fetch(&url, &options(), &vec![server.clone(); count]).await;
            let said = came.error();
            assert!(said.contains(problem) && said.lines().count() == 1, "{said}");
            let lost = came.lost.iter().map(|(_, cause)| cause);
            assert!(lost.chain([&said]).all(|said| !said.contains("TOPSECRET")), "{said} {:?}", came.lost);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_one_path_can_read_is_read() {
    for (kind, portal) in portals() {
        let came = fetch("http://h.example/film.m3u8", &options(), &[portal, film()]).await;
        assert!(came.outcome.is_ok(), "{kind}: {:?}", came.outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_holds_up_neither_the_end_nor_the_error() {
    let with_init =
        format!("#EXTM3U\n#EXT-X-MAP:URI=\"init.mp4\"\n{}", playlist(|at| format!("{at}.ts")).split_off(8));
    let server: Answers = Arc::new(move |asked| match asked.path.as_str() {
        "/init.m3u8" => Some(file(asked, with_init.as_bytes(), "\"a\"")),
        "/init.mp4" => None,
        _ => film()(asked),
    });
    let stop = tokio::time::sleep(Duration::from_secs(3));
    let came = fetch_until("http://h.example/init.m3u8", &options(), &[server.clone(), server], stop).await;
    assert!(came.outcome.is_ok() && came.took < Duration::from_millis(3100), "{:?}", came.took);
    // Sixty playlists that never come.
    let main: String =
        (1..61).map(|at| format!("#EXT-X-STREAM-INF:BANDWIDTH={at}\nhang/{at}.m3u8\n")).collect();
    let main = format!("#EXTM3U\n{main}");
    let server: Answers =
        Arc::new(move |asked| (asked.path == "/m.m3u8").then(|| file(asked, main.as_bytes(), "\"a\"")));
    let options = Options { silence: Some(Duration::from_secs(5)), ..options() };
    let came = fetch("http://h.example/m.m3u8", &options, &[server.clone(), server]).await;
    assert!(came.error().contains("nothing came for 5 s"), "{}", came.error());
    assert!(came.took < Duration::from_secs(7), "{:?}", came.took);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_in_place_of_segments_is_given_up() {
    let server: Answers =
        Arc::new(|asked| if asked.path.ends_with(".ts") { Some(Vec::new()) } else { film()(asked) });
    let options = Options { silence: Some(Duration::from_secs(5)), ..options() };
    for servers in [vec![server.clone()], vec![server.clone(), server.clone()]] {
        let limit = tokio::time::sleep(Duration::from_secs(60));
        let came = fetch_until("http://h.example/film.m3u8", &options, &servers, limit).await;
        assert!(came.error().contains("nothing came for 5 s"), "{}", came.error());
        assert!(came.took < Duration::from_secs(10), "{:?}", came.took);
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_stream_that_never_goes_on_ends() {
    let list = playlist(|at| format!("{at}.ts")).replace("#EXT-X-ENDLIST\n", "");
    let server: Answers = Arc::new(move |asked| match asked.path.as_str() {
        "/live.m3u8" => Some(file(asked, list.as_bytes(), "\"a\"")),
        _ => film()(asked),
    });
    for (silence, expected) in [(5, 6), (9, 9)] {
        let options = Options { silence: Some(Duration::from_secs(silence)), ..options() };
        let came = fetch("http://h.example/live.m3u8", &options, &[server.clone(), server.clone()]).await;
        assert_eq!(came.error(), format!("the live stream has had nothing new for {expected} s"));
        assert_eq!(came.segments.len(), 3);
        assert!(came.took < Duration::from_secs(expected + 2), "{:?}", came.took);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_is_measured_by_its_part_of_the_file() {
    // All segments are parts of one file, which is longer than a segment may be.
    let mut list = "#EXTM3U\n#EXT-X-VERSION:4\n#EXT-X-TARGETDURATION:2\n".to_owned();
    let mut start = 0;
    for part in all() {
        list += &format!("#EXTINF:2,\n#EXT-X-BYTERANGE:{}@{start}\nfilm.ts\n", part.len());
        start += part.len();
    }
    list += "#EXT-X-ENDLIST\n";
    let film: Answers = Arc::new(move |asked| {
        let Some((first, last)) = asked.range.filter(|_| asked.path == "/film.ts") else {
            return Some(file(asked, list.as_bytes(), "\"l\""));
        };
        let range = format!("bytes {first}-{last}/1000000000");
        let fields = [("ETag", "\"a\""), ("Content-Type", "video/mp2t"), ("Content-Range", &range)];
        Some(answer(206, &fields, &all().concat()[first..=last]))
    });
    // The second path answers when the first has brought what it was asked for.
    let servers = [(film.clone(), usize::MAX), (film, 4)];
    let came = fetch_late("http://h.example/film.m3u8", &options(), &servers, std::future::pending()).await;
    assert!(came.outcome.is_ok() && came.bytes() == all(), "{:?}", came.outcome);
    assert!(came.asked.iter().any(|(way, asked)| *way == 1 && asked.path == "/film.ts"), "it was asked");
    assert_eq!(came.lost, []);
}
