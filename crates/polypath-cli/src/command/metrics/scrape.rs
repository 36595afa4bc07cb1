//! An HTTP server of one page. Whoever reads slowly holds a place for a while, and there are few.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use polypath_metrics::Format;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::collect::{Collector, Source};

/// Scrapers at once. Further ones wait.
const MOST_SCRAPERS: usize = 64;
/// How long one may take from its connection to the last byte.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// What the fields of a request may have.
const FIELDS_BYTES: usize = 16 << 10;

/// Serves until it is dropped.
pub(super) async fn serve<S: Source>(listener: TcpListener, collector: Collector<S>) {
    let places = Arc::new(Semaphore::new(MOST_SCRAPERS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let collector = collector.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, &collector));
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .max_header_size(FIELDS_BYTES)
                .max_buf_size(FIELDS_BYTES);
            // What goes wrong on a connection is the scraper's business, and it knows.
            let _ =
                tokio::time::timeout(PATIENCE, builder.serve_connection(TokioIo::new(stream), service)).await;
            drop(place);
        });
    }
}

async fn answer<S: Source>(
    request: Request<Incoming>,
    collector: &Collector<S>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "expected GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    if request.uri().path() != "/metrics" {
        return Ok(plain(StatusCode::NOT_FOUND, "the figures are at /metrics\n"));
    }
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let mut response = Response::new(Full::from(collector.text(format).await));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use polypath_metrics::Totals;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    struct Nothing;

    impl Source for Nothing {
        async fn refresh(&self, _: &mut Totals) {}
    }

    async fn ask(at: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("room");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_there_and_those_who_say_nothing_keep_nobody_out_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("its address");
        tokio::spawn(serve(listener, Collector::new(Nothing)));
        let mut idle = Vec::new();
        for _ in 0..2 * MOST_SCRAPERS {
            idle.push(TcpStream::connect(at).await.expect("a connection"));
        }
        let answer = ask(at, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("polypath_build_info{"), "{answer}");
        assert!(answer.contains("version=0.0.4"), "{answer}");
        let answer = ask(at, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("the figures are at /metrics\n"));
        let answer = ask(at, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    }
}
