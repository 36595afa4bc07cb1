//! The same by HTTP/2: a connection that would be closed is left by GOAWAY, and an answer that would break off is reset.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, SendStream};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Shared, answer};

pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    shared: Arc<Shared>,
    breaks_after: Option<usize>,
) {
    let Ok(mut connection) = server::handshake(stream).await else { return };
    let mut answered = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        let mut text = format!("{} {} HTTP/2\r\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            let name = if name == "range" { "Range" } else { name.as_str() };
            text += &format!("{name}: {}\r\n", value.to_str().expect("text"));
        }
        shared.requests.lock().expect("a lock").push(text.clone());
        let (head, body) = answer(&text, &shared);
        tokio::spawn(send(respond, head, body, breaks_after, shared.behaviour.bytes_per_second));
        answered += 1;
        if shared.behaviour.closes_after == Some(answered) {
            connection.graceful_shutdown();
        }
    }
}

async fn send(
    mut respond: SendResponse<Bytes>,
    head: String,
    body: Vec<u8>,
    breaks_after: Option<usize>,
    rate: Option<u64>,
) -> Option<()> {
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?;
    let mut response = http::Response::builder().status(status);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        response = response.header(name, value);
    }
    let mut stream = respond.send_response(response.body(()).ok()?, body.is_empty()).ok()?;
    let breaks = breaks_after.filter(|most| body.len() > *most);
    let body = Bytes::from(body);
    let body = body.slice(..breaks.unwrap_or(body.len()));
    let mut at = 0;
    while at < body.len() {
        let sent = write(&mut stream, body.slice(at..body.len().min(at + (16 << 10)))).await?;
        at += sent;
        if let Some(rate) = rate {
            tokio::time::sleep(Duration::from_secs_f64(sent as f64 / rate as f64)).await;
        }
    }
    match breaks {
        Some(_) => stream.send_reset(Reason::INTERNAL_ERROR),
        None if !body.is_empty() => stream.send_data(Bytes::new(), true).ok()?,
        None => {}
    }
    Some(())
}

/// Sends as much of it as there is room for, and says how much that is.
async fn write(stream: &mut SendStream<Bytes>, bytes: Bytes) -> Option<usize> {
    stream.reserve_capacity(bytes.len());
    let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
    let length = room.min(bytes.len());
    stream.send_data(bytes.slice(..length), false).ok()?;
    Some(length)
}
