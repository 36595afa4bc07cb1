//! By CONNECT of HTTP (RFC 9110 §9.3.6).

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{Method, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;

use super::super::connect::ServerSide;
use super::super::leg::Leg;
use super::dialer::Dialer;
use super::tls::failure_in;
use super::user::User;
use crate::failure::{ConnectFailure, UpstreamFailure};

/// What an answer may have before it is known.
const ANSWER_BYTES: usize = 32 << 10;

/// Asks for a connection to a server.
pub(super) async fn connect(
    dialer: &Dialer<'_>,
    server: SocketAddr,
    user: Option<&User>,
) -> Result<ServerSide, ConnectFailure> {
    let garbled = ConnectFailure::Upstream(UpstreamFailure::Garbled);
    let mut request = Request::builder().method(Method::CONNECT).uri(server.to_string());
    request = request.header(HOST, server.to_string());
    if let Some(User { name, password }) = user {
        let value = format!("Basic {}", BASE64.encode(format!("{name}:{password}")));
        request = request.header(PROXY_AUTHORIZATION, value);
    }
    // An address is a target, and what is encoded is a field.
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| garbled)?;
    let stream = dialer.dial().await?;
    let mut builder = Builder::new();
    builder.max_buf_size(ANSWER_BYTES);
    let begun = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|error| failure_of(&error))?;
    let asking = async move {
        let answer = sender.send_request(request).await.map_err(|error| failure_of(&error))?;
        match answer.status() {
            status if status.is_success() => hyper::upgrade::on(answer).await.map_err(|_| garbled),
            status => Err(failure_of_status(status)),
        }
    };
    // It ends when it is handed over, or when nobody asks any more; what goes wrong, who asks is told.
    let (upgraded, _) = tokio::join!(asking, connection.with_upgrades());
    let parts = upgraded?.downcast::<TokioIo<Leg>>().map_err(|_| garbled)?;
    Ok(ServerSide { stream: parts.io.into_inner(), address: server, early: parts.read_buf })
}

fn failure_of(error: &hyper::Error) -> ConnectFailure {
    let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    ConnectFailure::Upstream(if let Some(failure) = io.and_then(failure_in) {
        failure
    } else if error.is_parse() {
        UpstreamFailure::Garbled
    } else {
        UpstreamFailure::Silent
    })
}

/// Proxies have no more than statuses for it, and use them each in its way.
fn failure_of_status(status: StatusCode) -> ConnectFailure {
    ConnectFailure::Upstream(match status {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED | StatusCode::UNAUTHORIZED => UpstreamFailure::Unauthorized,
        StatusCode::FORBIDDEN => UpstreamFailure::NotAllowed,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => UpstreamFailure::Full,
        StatusCode::BAD_GATEWAY => return ConnectFailure::HostUnreachable,
        StatusCode::GATEWAY_TIMEOUT => return ConnectFailure::TimedOut,
        _ => UpstreamFailure::Unsupported,
    })
}
