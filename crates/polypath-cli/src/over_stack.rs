//! The tools over our own stack.

use std::net::SocketAddr;
use std::time::Duration;

use polypath_stack::Engine;
use polypath_testbed::{Side, is_root_or_skip};
use two_stacks::Hosts;

use crate::perf::{self, Amount, Direction, Parameters};
use crate::web;

// Shared with the tests of the command.
#[path = "../tests/two_stacks/mod.rs"]
mod two_stacks;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn perf_measures_both_directions_over_two_paths() {
    if !is_root_or_skip("perf over the stack") {
        return;
    }
    let hosts = Hosts::new();
    let at = SocketAddr::from((Side::Server.stack_v4(0), perf::DEFAULT_PORT));
    let mut server = perf::Server::bind(&Engine::Stack(hosts.server.clone()), at).await.expect("a server");
    for direction in [Direction::Upload, Direction::Download, Direction::Both] {
        let bytes = 40_000_000;
        let parameters =
            Parameters { direction, streams: 2, amount: Amount::Bytes(bytes), ..Parameters::default() };
        let client = perf::Client::new(Engine::Stack(hosts.client.clone()), at, parameters);
        let (sent, served) = tokio::join!(client.run(std::future::pending(), |_| ()), server.run_one(|_| ()));
        let (sent, served) = (sent.expect("a report"), served.expect("a report"));
        assert_eq!(
            (sent.end.sum_received.carried.bytes, served.end.sum_received.carried.bytes),
            (bytes, bytes)
        );
        for stream in &sent.end.streams {
            assert!(stream.is_multipath && stream.paths.len() >= 2, "{stream:?}");
            let sender = stream.sender.as_ref().expect("TCP");
            assert!(!sender.sender || sender.tcp.is_some(), "{stream:?}");
        }
        assert_eq!(sent.end.sender_tcp_congestion.as_deref(), Some("cubic"));
    }
    // By time: what is under way at the end is dropped, and the next measurement begins at once.
    for _ in 0..2 {
        let parameters =
            Parameters { amount: Amount::Time(Duration::from_millis(300)), ..Parameters::default() };
        let client = perf::Client::new(Engine::Stack(hosts.client.clone()), at, parameters);
        let (sent, served) = tokio::join!(client.run(std::future::pending(), |_| ()), server.run_one(|_| ()));
        assert!(sent.expect("a report").end.sum_received.carried.bytes > 1_000_000);
        assert!(served.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_served_over_two_paths() {
    use http_body_util::BodyExt;
    if !is_root_or_skip("files over the stack") {
        return;
    }
    let hosts = Hosts::new();
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> =
        (0..10_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.path().join("file"), &content).expect("a file");
    let at = SocketAddr::from((Side::Server.stack_v4(0), 80));
    let listener = Engine::Stack(hosts.server.clone()).listen(at).await.expect("a listener");
    let files = web::FileServer::new(folder.path(), true).expect("a directory");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let end = async { drop(stopped.await) };
    let serving = tokio::spawn(web::serve(files, listener, web::ServeOptions::default(), end, |_| ()));
    let client = web::Client::new(Engine::Stack(hosts.client.clone()));
    let url = web::Client::parse(&format!("http://{}/file", at.ip())).expect("a URL");
    let fetched = client.get(hyper::Method::GET, &url, &[]).await.expect("an answer");
    let body = fetched.response.into_body().collect().await.expect("all of it").to_bytes();
    assert!(body == content);
    let again = web::Client::parse(&format!("http://{}/again", at.ip())).expect("a URL");
    let file = std::fs::File::open(folder.path().join("file")).expect("the file");
    let upload = web::file_body(file, 0, content.len() as u64, |_| ()).expect("a body");
    let stored = client.put(&again, &[], upload).await.expect("an answer");
    assert!(stored.response.status().is_success());
    assert_eq!(stored.digest(), web::digest_of(&folder.path().join("file"), None).await.ok());
    assert!(std::fs::read(folder.path().join("again")).expect("the copy") == content);
    stop.send(()).expect("a server");
    serving.await.expect("an end in order");
}
