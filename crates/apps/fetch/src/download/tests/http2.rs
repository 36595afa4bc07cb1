//! The same where a server may choose HTTP/2.

use super::server::{Behaviour, Server};
use super::{Case, content};

const BOTH: Option<&[&str]> = Some(&["h2", "http/1.1"]);

#[tokio::test]
async fn a_file_comes_over_both_ways_by_http2() {
    let file = content(6_000_000);
    let behaviour = Behaviour { bytes_per_second: Some(3_000_000), alpn: BOTH, ..Behaviour::default() };
    let server = Server::start(file.clone(), behaviour).await;
    let mut case = Case::new();
    let done = case.fetch(&server).await.expect("a file");
    assert!(case.has(&file));
    assert!(done.path_bytes.iter().all(|bytes| *bytes > 0), "{:?}", done.path_bytes);
    let requests = server.requests();
    let is_as_wanted = |request: &String| {
        request.starts_with("GET https://127.0.0.1:")
            && request.contains("/file.bin?x=1 HTTP/2\r\n")
            && request.contains("priority: u=3\r\n")
    };
    assert!(requests.iter().all(is_as_wanted), "{requests:?}");
}

#[tokio::test]
async fn servers_of_all_kinds_give_the_file_by_http2() {
    let file = content(700_000);
    let kinds = [
        ("plain", Behaviour::default()),
        ("without ranges", Behaviour { has_ranges: false, ..Behaviour::default() }),
        ("without validators", Behaviour { etag: None, ..Behaviour::default() }),
        ("leaves after each answer", Behaviour { closes_after: Some(1), ..Behaviour::default() }),
        ("resets", Behaviour { breaks_after: vec![50_000, 10_000, 120_000], ..Behaviour::default() }),
        (
            "resets without ranges",
            Behaviour { breaks_after: vec![50_000], has_ranges: false, ..Behaviour::default() },
        ),
    ];
    for (name, behaviour) in kinds {
        let server = Server::start(file.clone(), Behaviour { alpn: BOTH, ..behaviour }).await;
        let mut case = Case::new();
        let done = case.fetch(&server).await;
        assert!(done.is_ok() && case.has(&file), "{name}: {done:?}");
        assert_eq!(
            case.lost.iter().any(|cause| cause.contains("broke an answer off")),
            name.contains("reset")
        );
    }
    for len in [0, 1, 65_536] {
        let file = content(len);
        let server = Server::start(file.clone(), Behaviour { alpn: BOTH, ..Behaviour::default() }).await;
        let mut case = Case::new();
        let done = case.fetch(&server).await;
        assert!(done.is_ok() && case.has(&file), "{len} bytes: {done:?}");
    }
}

#[tokio::test]
async fn a_server_without_http2_is_asked_by_http1() {
    let file = content(200_000);
    let without: [&[&str]; 2] = [&["http/1.1"], &[]];
    for alpn in without {
        let server =
            Server::start(file.clone(), Behaviour { alpn: Some(alpn), ..Behaviour::default() }).await;
        let mut case = Case::new();
        let done = case.fetch(&server).await;
        assert!(done.is_ok() && case.has(&file), "{alpn:?}: {done:?}");
        assert!(server.requests().iter().all(|request| request.contains(" HTTP/1.1\r\n")));
    }
}
