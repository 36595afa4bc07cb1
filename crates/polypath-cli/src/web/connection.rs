//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use polypath_stack::engine::Stream;
use polypath_tcp::ConnectionOption;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::Body;
use super::files::FileServer;
use super::http2::{self, Activity, LOOK, Pieces, Slots, Verdict, Watch};
use super::limits::{BODY_LIMIT, FIELDS_BYTES, HEADER_LIMIT, LEAST_BODY_BYTES};
use super::progress::SlowReaderLimit;
use super::throttled::Throttle;
use super::tls::{Tls, is_http2};
use crate::places::{self, Requests};

/// What is read of a connection at once.
const READ_BYTES: usize = 128 << 10;

/// A request and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Who asked.
    pub client: SocketAddr,
    /// This end's address, as the network knows it.
    pub own: Option<IpAddr>,
    /// How.
    pub method: Method,
    /// For what.
    pub path: String,
    /// In which words.
    pub version: Version,
    /// The answer.
    pub status: StatusCode,
    /// Length of the answer's body, if it was told beforehand.
    pub bytes: Option<u64>,
}

/// HTTPS, as all connections have it.
#[derive(Clone, Debug)]
pub(super) struct Security {
    pub(super) tls: Tls,
    /// Requests of HTTP/2 that are answered at a time, besides one of each connection.
    pub(super) streams: Arc<Semaphore>,
}

/// What answers the requests of one connection.
#[derive(Debug)]
pub(super) struct Answers<L> {
    pub(super) files: FileServer,
    pub(super) client: SocketAddr,
    pub(super) requests: Requests,
    pub(super) log: Arc<L>,
}

impl<L: Fn(&Access)> Answers<L> {
    /// The answer, and what wraps its body.
    async fn answer(
        &self,
        own: Option<IpAddr>,
        request: Request<Incoming>,
        wrapped: impl FnOnce(Body) -> Body,
    ) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_string());
        let version = request.version();
        let mut response: Response<Body> = self.files.respond(request).await;
        response.headers_mut().insert(SERVER, HeaderValue::from_static("polypath"));
        let told =
            response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let bytes = told.or_else(|| response.body().size_hint().exact());
        let (client, status) = (self.client, response.status());
        (self.log)(&Access { client, own, method, path, version, status, bytes });
        if !response.body().is_end_stream() {
            if let Some(bytes) = bytes {
                // The wrapped body does not tell it any more.
                response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
            }
            response = response.map(wrapped);
        }
        response
    }

    async fn answer_http2(
        &self,
        own: Option<IpAddr>,
        mut request: Request<Incoming>,
        slots: Slots,
        activity: Arc<Activity>,
    ) -> Response<Body> {
        activity.begin();
        let answering = self.requests.begin();
        let slot = slots.take().await;
        // What HTTP/1.1 has in `Host`.
        let host = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        if let Some(host) = host {
            request.headers_mut().entry(HOST).or_insert(host);
        }
        self.answer(own, request, |body| Pieces::of(body, activity, (answering, slot))).await
    }
}

/// A body that is a part of its request until the last of it is on its way.
fn counted(body: Body, answering: places::Request) -> Body {
    let counted = body.map_frame(move |frame| {
        let _ = &answering;
        frame
    });
    counted.boxed()
}

/// Serves a connection until its end, or until its requests are answered once `is_stopping`.
pub(super) async fn connection<L: Fn(&Access) + Send + Sync + 'static>(
    answers: Answers<L>,
    security: Option<Security>,
    throttle: Throttle,
    stream: Stream,
    mut is_stopping: watch::Receiver<bool>,
) {
    let own = stream.local_addr().map(|local| local.ip()).ok();
    send_at_once(&stream);
    let stream = throttle.hold(SlowReaderLimit::new(stream, BODY_LIMIT, LEAST_BODY_BYTES));
    let held_up = stream.held_up();
    let Some(Security { tls, streams }) = security else {
        return serve_http1(&answers, own, stream, is_stopping).await;
    };
    let accepted = tokio::select! {
        accepted = timeout(HEADER_LIMIT, tls.accept(stream)) => accepted,
        _ = is_stopping.wait_for(|stopping| *stopping) => return,
    };
    match accepted {
        Ok(Some(stream)) if is_http2(&stream) => {
            serve_http2(answers, own, stream, Slots::new(streams), held_up, is_stopping).await;
        }
        Ok(Some(stream)) => serve_http1(&answers, own, stream, is_stopping).await,
        _ => {}
    }
}

/// The fields of an answer leave before its body has been read. A short body would wait, behind them, until the client's system
/// has acknowledged them, which takes 40 ms where it waits for more itself.
fn send_at_once(stream: &Stream) {
    match stream {
        Stream::Stack(stream) => stream.set_option(ConnectionOption::NoDelay(true)),
        // What has ended has no options.
        Stream::Kernel(stream) => drop(stream.as_tokio().set_nodelay(true)),
        _ => {}
    }
}

async fn serve_http1(
    answers: &Answers<impl Fn(&Access)>,
    own: Option<IpAddr>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut is_stopping: watch::Receiver<bool>,
) {
    let service = service_fn(|request| async move {
        let answering = answers.requests.begin();
        Ok::<_, Infallible>(answers.answer(own, request, |body| counted(body, answering)).await)
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .half_close(true)
        .max_header_size(FIELDS_BYTES)
        .max_buf_size(READ_BYTES);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // What goes wrong on a connection is the client's business, and it knows.
        _ = served.as_mut() => return,
        _ = is_stopping.wait_for(|stopping| *stopping) => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}

async fn serve_http2<L: Fn(&Access) + Send + Sync + 'static>(
    answers: Answers<L>,
    own: Option<IpAddr>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    slots: Slots,
    held_up: Arc<AtomicBool>,
    mut is_stopping: watch::Receiver<bool>,
) {
    let (answers, activity) = (Arc::new(answers), Arc::new(Activity::new(held_up)));
    let (answering, seen) = (answers.clone(), activity.clone());
    let service = service_fn(move |request| {
        let (answers, slots, activity) = (answering.clone(), slots.clone(), seen.clone());
        async move { Ok::<_, Infallible>(answers.answer_http2(own, request, slots, activity).await) }
    });
    let mut served = pin!(http2::builder().serve_connection(TokioIo::new(stream), service));
    let mut watch = Watch::default();
    let mut is_told = false;
    loop {
        tokio::select! {
            // As above.
            _ = served.as_mut() => return,
            _ = is_stopping.wait_for(|stopping| *stopping), if !is_told => {
                is_told = true;
                served.as_mut().graceful_shutdown();
            }
            () = sleep(LOOK) => match watch.look(LOOK, answers.requests.count(), &activity) {
                Verdict::Leave => {}
                Verdict::Finish => served.as_mut().graceful_shutdown(),
                Verdict::End => return,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use polypath_stack::Engine;
    use polypath_stack::engine::{KernelEngine, Stream};
    use tokio::net::TcpStream;

    use super::send_at_once;

    #[tokio::test]
    async fn nothing_waits_for_acknowledgments() {
        let engine = Engine::Kernel(KernelEngine::plain_tcp());
        let listener = engine.listen(([127, 0, 0, 1], 0).into()).await.expect("a listener");
        let to = listener.local_addr().expect("its address");
        let (near, accepted) = tokio::join!(TcpStream::connect(to), listener.accept());
        let (stream, _) = accepted.expect("a connection");
        send_at_once(&stream);
        let Stream::Kernel(stream) = &stream else { panic!("another engine") };
        assert!(stream.as_tokio().nodelay().expect("an option"));
        drop(near);
    }
}
