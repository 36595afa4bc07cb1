//! Servers in memory, each behind a way of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use url::Url;

use crate::download::{Dial, Dialing, Wire};
use crate::http1;
use crate::streaming::{Fetched, Options, StreamError, Summary, Told, stream};

/// A request, as far as servers look at it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) host: String,
    pub(super) path: String,
    pub(super) range: Option<(usize, usize)>,
    pub(super) text: String,
}

/// What answers on a way; it hangs where there is no answer, and closes the connection in place of an empty one.
pub(super) type Answers = Arc<dyn Fn(&Asked) -> Option<Vec<u8>> + Send + Sync>;

pub(super) fn answer(status: u16, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A file of a server with ranges.
pub(super) fn file(asked: &Asked, content: &[u8], etag: &str) -> Vec<u8> {
    let media_type = if asked.path.ends_with(".ts") { "video/mp2t" } else { "application/octet-stream" };
    let fields = [("ETag", etag), ("Content-Type", media_type)];
    let Some((first, last)) = asked.range else { return answer(200, &fields, content) };
    let total = content.len();
    if first >= total {
        return answer(416, &[("Content-Range", &format!("bytes */{total}"))], b"");
    }
    let last = last.min(total - 1);
    let range = format!("bytes {first}-{last}/{total}");
    answer(206, &[fields[0], fields[1], ("Content-Range", &range)], &content[first..=last])
}

/// A server of files, by their paths.
pub(super) fn site(files: &[(&str, Vec<u8>)]) -> Answers {
    let files: HashMap<String, Vec<u8>> =
        files.iter().map(|(path, content)| ((*path).to_owned(), content.clone())).collect();
    Arc::new(move |asked| {
        Some(match files.get(&asked.path) {
            Some(content) => file(asked, content, "\"a\""),
            None => answer(404, &[], b"no"),
        })
    })
}

const ROUND_TRIP: Duration = Duration::from_millis(20);
/// Others are asked by then.
const LATE: Duration = Duration::from_secs(3);

struct Way {
    name: String,
    answers: Answers,
    asked: Arc<Mutex<Vec<(usize, Asked)>>>,
    number: usize,
    /// From this answer on, they are late.
    late_from: usize,
}

impl Dial for Way {
    fn name(&self) -> &str {
        &self.name
    }

    fn dial<'a>(&'a self, _: &'a Url) -> Dialing<'a> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (answers, asked, number) = (self.answers.clone(), self.asked.clone(), self.number);
        let late_from = self.late_from;
        Box::pin(async move {
            tokio::time::sleep(ROUND_TRIP).await;
            tokio::spawn(serve(theirs, answers, asked, number, late_from));
            Ok(Box::new(ours) as Box<dyn Wire>)
        })
    }

    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest> {
        http1::Request::new(http1::Method::Get, &url.origin().ascii_serialization(), url.path())
    }
}

async fn serve(
    mut wire: DuplexStream,
    answers: Answers,
    log: Arc<Mutex<Vec<(usize, Asked)>>>,
    number: usize,
    late_from: usize,
) {
    let (mut input, mut count) = (Vec::new(), 0);
    loop {
        while let Some(end) = input.windows(4).position(|part| part == b"\r\n\r\n") {
            let text = String::from_utf8(input.drain(..end + 4).collect()).expect("text");
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
            let range = field("Range: bytes=").and_then(|range| range.split_once('-'));
            let range = range
                .map(|(first, last)| (first.parse().expect("a number"), last.parse().unwrap_or(usize::MAX)));
            let host = field("Host: ").expect("a host").to_owned();
            let path = text.split(' ').nth(1).expect("a path").to_owned();
            let asked = Asked { host, path, range, text };
            log.lock().expect("a lock").push((number, asked.clone()));
            tokio::time::sleep(if count < late_from { ROUND_TRIP } else { LATE }).await;
            count += 1;
            let Some(answer) = answers(&asked) else { return std::future::pending().await };
            if answer.is_empty() || wire.write_all(&answer).await.is_err() {
                return;
            }
        }
        match wire.read_buf(&mut input).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
}

/// What came of a stream.
pub(super) struct Came {
    pub(super) outcome: Result<Summary, StreamError>,
    pub(super) segments: Vec<Fetched>,
    /// Which path was lost, and why.
    pub(super) lost: Vec<(usize, String)>,
    pub(super) asked: Vec<(usize, Asked)>,
    pub(super) took: Duration,
}

impl Came {
    pub(super) fn bytes(&self) -> Vec<Vec<u8>> {
        self.segments.iter().map(|segment| segment.bytes.to_vec()).collect()
    }

    pub(super) fn error(&self) -> String {
        self.outcome.as_ref().expect_err("an error").to_string()
    }
}

pub(super) async fn fetch(url: &str, options: &Options, servers: &[Answers]) -> Came {
    fetch_until(url, options, servers, std::future::pending()).await
}

pub(super) async fn fetch_until(
    url: &str,
    options: &Options,
    servers: &[Answers],
    stop: impl Future<Output = ()>,
) -> Came {
    let servers: Vec<_> = servers.iter().map(|answers| (answers.clone(), usize::MAX)).collect();
    fetch_late(url, options, &servers, stop).await
}

/// The answers of each server are late from that one on.
pub(super) async fn fetch_late(
    url: &str,
    options: &Options,
    servers: &[(Answers, usize)],
    stop: impl Future<Output = ()>,
) -> Came {
    let (sender, ways) = mpsc::channel(servers.len());
    let log = Arc::new(Mutex::new(Vec::new()));
    for (number, (answers, late_from)) in servers.iter().enumerate() {
        let (name, answers, asked) = (format!("if{number}"), answers.clone(), log.clone());
        let way = Way { name, answers, asked, number, late_from: *late_from };
        sender.try_send(Arc::new(way) as Arc<dyn Dial>).expect("room");
    }
    drop(sender);
    let (mut segments, mut lost) = (Vec::new(), Vec::new());
    let began = tokio::time::Instant::now();
    let told = |told: Told| match told {
        Told::Segment(segment) => segments.push(*segment),
        Told::Lost { path, cause } => lost.push((path, cause)),
        _ => {}
    };
    let url = Url::parse(url).expect("a URL");
    let outcome = stream(url, options, ways, stop, told).await;
    let asked = log.lock().expect("a lock").clone();
    Came { outcome, segments, lost, asked, took: began.elapsed() }
}
