//! Many files at once, over two ways that both lead through the loopback interface.

use std::fs;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::sync::mpsc;
use url::Url;

use super::server::{Behaviour, Server};
use crate::download::{
    Dial, DownloadError, FileEnded, ManyEvent, Options, Pool, Progress, Wanted, download_many,
};
use crate::net::{Dialer, Tls, TlsOptions};

/// What became of a number of files, each with its own name, in a folder.
struct Outcome {
    folder: TempDir,
    ended: Vec<FileEnded>,
    /// Over each way.
    way_bytes: [u64; 2],
}

impl Outcome {
    fn errors(&self) -> Vec<&DownloadError> {
        self.ended.iter().filter_map(|ended| ended.result.as_ref().err()).collect()
    }

    /// The contents of the files that are there. Nothing else is.
    fn files(&self) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(self.folder.path()).expect("a folder");
        entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("a file")).collect()
    }
}

async fn fetch(urls: &[Url], most_at_once: usize, stop: impl Future<Output = ()>) -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |number: usize| folder.path().join(number.to_string());
    let files = urls.iter().enumerate().map(|(number, url)| Wanted {
        url: url.clone(),
        place: place(number),
        resume: false,
    });
    let (pool, (sender, ways)) = (Pool::default(), mpsc::channel(2));
    for _ in 0..2 {
        let tls = Tls::new(&TlsOptions::default()).expect("TLS");
        let way: Arc<dyn Dial> = Arc::new(Dialer::new(None, tls));
        sender.try_send(pool.over(way)).expect("room");
    }
    let (mut ended, mut way_bytes) = (Vec::new(), [0; 2]);
    let tell = |event| match event {
        ManyEvent::Ended(file) => ended.push(file),
        ManyEvent::Progress(Progress::Bytes { path, bytes }) => way_bytes[path] += bytes,
        ManyEvent::Progress(_) => {}
    };
    let options = Options { silence: Some(Duration::from_secs(3)), ..Options::default() };
    download_many(files.collect(), most_at_once, options, ways, stop, tell).await;
    Outcome { folder, ended, way_bytes }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 / 3) as u8).collect()
}

#[tokio::test]
async fn small_files_come_by_one_request_each_on_connections_that_are_kept() {
    let server = Server::start(content(3000), Behaviour::default()).await;
    let outcome = fetch(&vec![server.url(); 200], 4, pending()).await;
    assert_eq!((outcome.ended.len(), outcome.errors().len()), (200, 0));
    assert_eq!(outcome.files(), vec![content(3000); 200]);
    let came = |ended: &FileEnded| ended.history.as_ref()?.course().last();
    assert!(outcome.ended.iter().all(|ended| came(ended).is_some_and(|end| end.in_order_bytes == 3000)));
    assert_eq!(outcome.way_bytes.iter().sum::<u64>(), 200 * 3000);
    assert_eq!(server.requests().len(), 200);
    assert!(server.connections() <= 4, "{}", server.connections());
}

#[tokio::test]
async fn a_connection_that_the_server_closes_between_files_is_replaced() {
    for closes_after in [1, 3] {
        let behaviour = Behaviour { closes_after: Some(closes_after), ..Behaviour::default() };
        let server = Server::start(content(100), behaviour).await;
        let outcome = fetch(&vec![server.url(); 40], 5, pending()).await;
        assert!(outcome.errors().is_empty(), "{:?}", outcome.errors());
        assert_eq!(outcome.files(), vec![content(100); 40]);
    }
}

#[tokio::test]
async fn one_that_fails_leaves_the_others_alone() {
    let server = Server::start(content(100), Behaviour::default()).await;
    let none = Server::start(Vec::new(), Behaviour { status: Some(404), ..Behaviour::default() }).await;
    let digest = Some([7; 32]);
    let wrong = Server::start(content(50), Behaviour { digest, ..Behaviour::default() }).await;
    let nobody = Url::parse("http://127.0.0.1:9/file").expect("a URL");
    let mut urls = vec![server.url(); 20];
    (urls[3], urls[7], urls[11]) = (none.url(), wrong.url(), nobody);
    let outcome = fetch(&urls, 4, pending()).await;
    let mut failed: Vec<_> = outcome.ended.iter().filter(|ended| ended.result.is_err()).collect();
    failed.sort_by_key(|ended| ended.number);
    let numbers: Vec<usize> = failed.iter().map(|ended| ended.number).collect();
    assert_eq!(numbers, [3, 7, 11]);
    assert!(matches!(failed[0].result, Err(DownloadError::Refused { status: 404, .. })));
    assert!(matches!(failed[1].result, Err(DownloadError::Digest { .. })));
    assert!(matches!(failed[2].result, Err(DownloadError::Unreachable(_))));
    assert_eq!(outcome.files(), vec![content(100); 17]);
}

#[tokio::test]
async fn larger_files_go_on_over_all_ways_where_the_first_answer_ends() {
    let large = content(1_000_000);
    let sum: [u8; 32] = Sha256::digest(&large).into();
    let behaviour = Behaviour { digest: Some(sum), ..Behaviour::default() };
    let server = Server::start(large.clone(), behaviour).await;
    let outcome = fetch(&vec![server.url(); 4], 2, pending()).await;
    assert!(outcome.errors().is_empty(), "{:?}", outcome.errors());
    assert!(outcome.ended.iter().all(|ended| ended.bytes == 1_000_000));
    assert_eq!(outcome.files(), vec![large; 4]);
    assert!(server.requests().iter().any(|request| request.contains("Range: bytes=262144-")));
}

#[tokio::test]
async fn servers_of_all_kinds_give_whole_files() {
    let plain = Behaviour::default;
    let behaviours = [
        Behaviour { has_ranges: false, ..plain() },
        Behaviour { has_ranges: false, is_chunked: true, ..plain() },
        Behaviour { etag: None, ..plain() },
        // The first connections break in the middle.
        Behaviour { breaks_after: vec![10, 2000, 4000], ..plain() },
    ];
    for behaviour in behaviours {
        for bytes in [0, 5000, 400_000] {
            let server = Server::start(content(bytes), behaviour.clone()).await;
            let outcome = fetch(&vec![server.url(); 6], 3, pending()).await;
            assert!(outcome.errors().is_empty(), "{behaviour:?} {bytes}: {:?}", outcome.errors());
            assert_eq!(outcome.files(), vec![content(bytes); 6], "{behaviour:?} {bytes}");
        }
    }
}

#[tokio::test]
async fn a_redirection_is_followed() {
    let server = Server::start(content(100), Behaviour::default()).await;
    let location = Some(server.url().into());
    let sends_elsewhere = Server::start(Vec::new(), Behaviour { location, ..Behaviour::default() }).await;
    let mut urls = vec![server.url(); 10];
    urls[5] = sends_elsewhere.url();
    let outcome = fetch(&urls, 2, pending()).await;
    assert!(outcome.errors().is_empty(), "{:?}", outcome.errors());
    assert_eq!(outcome.files(), vec![content(100); 10]);
}

#[tokio::test]
async fn whoever_stops_it_has_whole_files_only() {
    let behaviour = Behaviour { bytes_per_second: Some(100_000), ..Behaviour::default() };
    let server = Server::start(content(20_000), behaviour).await;
    let stop = tokio::time::sleep(Duration::from_millis(500));
    let outcome = fetch(&vec![server.url(); 100], 2, stop).await;
    let interrupted = outcome.errors().iter().all(|error| matches!(error, DownloadError::Interrupted { .. }));
    assert!(interrupted && outcome.ended.len() < 100, "{:?}", outcome.errors());
    assert!(outcome.files().iter().all(|file| *file == content(20_000)));
}
