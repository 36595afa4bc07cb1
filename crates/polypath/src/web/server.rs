//! Connections become requests.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use polypath_net::engine::{Listener, Stream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::{Body, FileServer};

/// Connections at once; further ones wait.
const MAX_CONNECTIONS: usize = 8192;
/// How long a client may take for the fields of a request, and rest between requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A request and what came of it.
#[derive(Clone, Debug)]
pub struct Access {
    /// Who asked.
    pub client: SocketAddr,
    /// How.
    pub method: Method,
    /// For what.
    pub path: String,
    /// The answer.
    pub status: StatusCode,
    /// Length of the answer's body, if it was told beforehand.
    pub bytes: Option<u64>,
}

/// Serves until `stop` completes, then finishes what is under way. Dropping the future ends everything at once.
pub async fn serve(
    files: FileServer,
    listener: Listener,
    stop: impl Future<Output = ()>,
    log: impl Fn(&Access) + Send + Sync + 'static,
) {
    let (stopping, is_stopping) = watch::channel(false);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let log = Arc::new(log);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            () = &mut stop => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let client = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    let (files, log, is_stopping) = (files.clone(), log.clone(), is_stopping.clone());
                    connections.spawn(async move {
                        connection(files, stream, client, is_stopping, &*log).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    // Nobody may be left to hear it.
    let _ = stopping.send(true);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    files: FileServer,
    stream: Stream,
    client: SocketAddr,
    mut is_stopping: watch::Receiver<bool>,
    log: &impl Fn(&Access),
) {
    let service = service_fn(|request: Request<Incoming>| async {
        let (method, path) = (request.method().clone(), request.uri().path().to_string());
        let mut response: Response<Body> = files.respond(request).await;
        response.headers_mut().insert(SERVER, HeaderValue::from_static("polypath"));
        let told =
            response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let bytes = told.or_else(|| response.body().size_hint().exact());
        log(&Access { client, method, path, status: response.status(), bytes });
        Ok::<_, Infallible>(response)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).half_close(true);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // What goes wrong on a connection is the client's business, and it knows.
        _ = served.as_mut() => return,
        _ = is_stopping.wait_for(|stopping| *stopping) => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}
