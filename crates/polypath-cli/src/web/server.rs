//! Connections become requests.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polypath_stack::engine::Listener;
use polypath_system::process::descriptor_limit;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::connection::{Access, Answers, Security, connection};
use super::files::FileServer;
use super::throttled::{Rates, Throttle};
use super::tls::Tls;
use crate::places::Places;

/// Connections at once, if there are descriptors for so many.
pub(crate) const MAX_CONNECTIONS: usize = 4096;
/// Connections at once, however few descriptors there are.
const LEAST_CONNECTIONS: usize = 16;
/// Descriptors that are for something else than connections.
const OTHER_DESCRIPTORS: u64 = 64;
/// Of a connection: its socket, the file, and the same once more where it is hashed or watched.
const DESCRIPTORS: u64 = 4;
/// By HTTP/2, a connection may be answered several requests at a time, for which it has some more: not the socket again, but
/// the rest for one connection in so many.
const DESCRIPTORS_OF_STREAMS: u64 = 1;
const STREAMS_SHARE: usize = 3;
/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// How files are served, besides what they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeOptions {
    /// By HTTPS.
    pub tls: Option<Tls>,
    /// No faster than so.
    pub rates: Rates,
    /// Connections of one client at once, if there is a bound to them.
    pub most_of_client: Option<usize>,
}

/// Serves until `stop` completes, then finishes what is under way. Dropping the future ends everything at once.
pub(crate) async fn serve(
    files: FileServer,
    listener: Listener,
    options: ServeOptions,
    stop: impl Future<Output = ()>,
    log: impl Fn(&Access) + Send + Sync + 'static,
) {
    let files = if options.tls.is_some() { files.by_https() } else { files };
    let (stopping, is_stopping) = watch::channel(false);
    let each = if options.tls.is_some() { DESCRIPTORS + DESCRIPTORS_OF_STREAMS } else { DESCRIPTORS };
    let most = most_connections(descriptor_limit(), each);
    let places = Arc::new(Mutex::new(Places::new(most).with_most_of_client(options.most_of_client)));
    let streams = Arc::new(Semaphore::new(most / STREAMS_SHARE));
    let throttle = Throttle::new(options.rates);
    let security = options.tls.map(|tls| Security { tls, streams });
    let log = Arc::new(log);
    let mut is_told = false;
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let client = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    if lock(&places).is_full() && !std::mem::replace(&mut is_told, true) {
                        tracing::warn!("{}", full(descriptor_limit(), each));
                    }
                    // Without a place, the connection closes here.
                    let Some((number, requests)) = lock(&places).take(client.ip()) else { continue };
                    let place = Place { number, places: places.clone() };
                    let answers = Answers { files: files.clone(), client, requests, log: log.clone() };
                    let (security, throttle) = (security.clone(), throttle.clone());
                    let is_stopping = is_stopping.clone();
                    let task = connections.spawn(async move {
                        connection(answers, security, throttle, stream, is_stopping).await;
                        drop(place);
                    });
                    lock(&places).set_task(number, task);
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!("no connection can be accepted: {error}; it is tried again and again");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    // Nobody may be left to hear it.
    let _ = stopping.send(true);
    while connections.join_next().await.is_some() {}
}

/// As many as there are descriptors for.
fn most_connections(descriptors: u64, each: u64) -> usize {
    let fitting = descriptors.saturating_sub(OTHER_DESCRIPTORS) / each;
    usize::try_from(fitting).unwrap_or(usize::MAX).clamp(LEAST_CONNECTIONS, MAX_CONNECTIONS)
}

/// What is said when all places are taken, with what would make more.
fn full(descriptors: u64, each: u64) -> String {
    let most = most_connections(descriptors, each);
    let now = "more come than that, so that some are closed";
    if most == MAX_CONNECTIONS {
        return format!("{most} connections at once are the most that are served; {now}");
    }
    let enough = MAX_CONNECTIONS as u64 * each + OTHER_DESCRIPTORS;
    format!(
        "{descriptors} descriptors are enough for {most} connections at once; {now}; expected up to {enough} descriptors \
         (`ulimit -Hn`, or LimitNOFILE= of a unit)"
    )
}

fn lock(places: &Mutex<Places>) -> MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place that is given back however the connection ends.
struct Place {
    number: u64,
    places: Arc<Mutex<Places>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places).give_back(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use polypath_stack::Engine;
    use polypath_stack::engine::KernelEngine;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::Instant;

    use super::*;
    use crate::web::limits::{BODY_LIMIT, FIELDS_BYTES, HEADER_LIMIT};

    /// What comes back for a request that is never completed, and after how many seconds the connection ends. `drip` follows
    /// it each second.
    async fn answer(request: &str, drip: &str) -> (String, u64) {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = Engine::Kernel(KernelEngine::plain_tcp());
        let listener = engine.listen(([127, 0, 0, 1], 0).into()).await.expect("a listener");
        let at = listener.local_addr().expect("its address");
        let files = FileServer::new(folder.path(), true).expect("a directory");
        let serving = tokio::spawn(serve(files, listener, ServeOptions::default(), pending(), |_| ()));
        let stream = TcpStream::connect(at).await.expect("a connection");
        let (mut reader, mut writer) = stream.into_split();
        writer.write_all(request.as_bytes()).await.expect("room");
        let began = Instant::now();
        let mut answer = Vec::new();
        let dripping = async {
            while !drip.is_empty() && writer.write_all(drip.as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            pending::<()>().await;
        };
        tokio::select! {
            // A reset is an end, too.
            _ = reader.read_to_end(&mut answer) => {}
            () = dripping => {}
        }
        serving.abort();
        (String::from_utf8_lossy(&answer).into_owned(), began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_slow_is_let_go() {
        let get = "GET / HTTP/1.1\r\nHost: x\r\n";
        for (request, drip) in [("", ""), (get, ""), (get, "A: b\r\n"), (get, "a")] {
            let (_, seconds) = answer(request, drip).await;
            assert_eq!(seconds, HEADER_LIMIT.as_secs(), "{request:?}, {drip:?}");
        }
        let put = "PUT /file HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 100000\r\n\r\nbegun";
        for drip in ["", "a"] {
            let (answer, seconds) = answer(put, drip).await;
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
            assert!((BODY_LIMIT.as_secs()..2 * BODY_LIMIT.as_secs()).contains(&seconds), "{seconds}");
        }
    }

    #[test]
    fn whoever_lacks_descriptors_learns_how_many_are_enough() {
        let told = full(1024, DESCRIPTORS);
        assert!(told.starts_with("1024 descriptors are enough for 240 connections at once"), "{told}");
        let enough = told.split_once("up to ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        assert_eq!(
            enough.map(|enough| most_connections(enough, DESCRIPTORS)),
            Some(MAX_CONNECTIONS),
            "{told}"
        );
        assert!(!full(1 << 20, DESCRIPTORS).contains("descriptors"), "more of them would not help");
    }

    #[tokio::test]
    async fn fields_have_a_bound_however_much_is_read_at_once() {
        let long = "a".repeat(FIELDS_BYTES);
        let begun = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: ";
        let cases = [(&long[..], "", 431), (&long, "\r\n\r\n", 431), (&long[100..], "\r\n\r\n", 200)];
        for (value, end, status) in cases {
            let (answer, _) = answer(&format!("{begun}{value}{end}"), "").await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }
}
