//! A server that does what it is told, good or bad, over a connection in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::Reason;
use h2::server::{self, SendResponse};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::Connection;
use crate::http1::{Event, Method, Request};

const BODY: &[u8] = &[7; 1000];

/// What a server does with a request.
#[derive(Clone, Copy, Debug)]
enum Act {
    Answer,
    /// It breaks off in the middle.
    Reset,
    Refuse,
    /// It says that the body has so many bytes, and sends [`BODY`].
    Lie(&'static [&'static str]),
    Announce(usize),
    /// It takes no more requests, and answers this one.
    Leave,
    /// The connection breaks in the middle.
    Break,
}

fn request() -> Request {
    Request::new(Method::Get, "example.org", "/file").expect("a request")
}

/// A connection to a server that does so with one request after the other.
async fn connected(acts: &'static [Act]) -> (Connection<usize, DuplexStream>, JoinHandle<()>) {
    let (ours, theirs) = duplex(1 << 16);
    let connection = Connection::begin(ours).await.expect("a connection");
    let serving = tokio::spawn(async move {
        let mut server = server::handshake(theirs).await.expect("a client");
        let mut acts = acts.iter();
        let mut kept = Vec::new();
        while let Some(Ok((_, respond))) = server.accept().await {
            match acts.next().expect("an act") {
                Act::Leave => {
                    server.graceful_shutdown();
                    answer(respond, Act::Answer, &mut kept);
                }
                Act::Break => {
                    answer(respond, Act::Break, &mut kept);
                    // What is there is sent.
                    let _ = tokio::time::timeout(std::time::Duration::ZERO, server.accept()).await;
                    return;
                }
                act => answer(respond, *act, &mut kept),
            }
        }
    });
    (connection, serving)
}

fn answer(mut respond: SendResponse<Bytes>, act: Act, kept: &mut Vec<h2::SendStream<Bytes>>) {
    if let Act::Announce(count) = act {
        for _ in 0..count {
            respond.send_informational(http::Response::builder().status(103).body(()).unwrap()).unwrap();
        }
    }
    let mut response = http::Response::builder().status(200);
    match act {
        Act::Refuse => return respond.send_reset(Reason::REFUSED_STREAM),
        Act::Lie(lengths) => {
            for length in lengths {
                response = response.header("content-length", *length);
            }
        }
        _ => {}
    }
    let mut body = respond.send_response(response.body(()).unwrap(), false).unwrap();
    let is_whole = !matches!(act, Act::Reset | Act::Break);
    body.send_data(Bytes::from_static(BODY), is_whole).unwrap();
    match act {
        Act::Reset => body.send_reset(Reason::INTERNAL_ERROR),
        _ => kept.push(body),
    }
}

/// What happens with each of some requests, in letters: its head, data, its end, cut off, or not answered; and why it ended.
async fn outcome(acts: &'static [Act]) -> (Vec<String>, Option<String>) {
    let (mut connection, serving) = connected(acts).await;
    for id in 0..acts.len() {
        connection.ask(id, &request());
    }
    let mut told = vec![String::new(); acts.len()];
    let mut left = acts.len();
    while left > 0 {
        let Some(event) = connection.next().await else { break };
        let letter = match &event {
            Event::Head { .. } => 'h',
            Event::Data { .. } => 'd',
            Event::End { .. } => 'e',
            Event::Truncated { .. } => 't',
            Event::Unanswered { .. } => 'u',
        };
        left -= usize::from(!"hd".contains(letter));
        told[*event.id()].push(letter);
    }
    serving.abort();
    (told, connection.cause().map(str::to_owned))
}

#[tokio::test]
async fn answers_are_told_as_those_of_http1_are() {
    let (told, cause) = outcome(&[Act::Answer, Act::Lie(&["1000", "1000"]), Act::Announce(16)]).await;
    assert_eq!((told, cause), (vec!["hde".into(); 3], None));
}

#[tokio::test]
async fn answers_that_lie_or_break_off_end_the_connection() {
    let broken: [(&'static [Act], &str, &str); 6] = [
        (&[Act::Lie(&["999"])], "", "not as long as it had said"),
        (&[Act::Lie(&["1001"])], "", "not as long as it had said"),
        (&[Act::Lie(&["1000", "1001"])], "u", "not as long as it had said"),
        (&[Act::Lie(&["+1000"])], "u", "not as long as it had said"),
        (&[Act::Announce(17)], "u", "announces an answer again and again"),
        (&[Act::Reset], "", "the server broke an answer off"),
    ];
    for (acts, expected, why) in broken {
        let (told, cause) = outcome(acts).await;
        // What came before may have been taken or not.
        let ends = if expected.is_empty() { ["u", "t"] } else { [expected; 2] };
        assert!(ends.iter().any(|end| told[0].ends_with(end)), "{acts:?}: {told:?}");
        assert!(!told[0].contains('e'), "{acts:?}: {told:?}");
        assert!(cause.as_ref().is_some_and(|cause| cause.contains(why)), "{acts:?}: {cause:?}");
    }
}

#[tokio::test]
async fn what_a_server_leaves_is_asked_again() {
    // Whoever is answered goes on to the end.
    let (told, cause) = outcome(&[Act::Answer, Act::Refuse, Act::Answer]).await;
    assert_eq!((told, cause), (vec!["hde".into(), "u".into(), "hde".into()], None));
    let (told, cause) = outcome(&[Act::Refuse]).await;
    assert_eq!((&*told[0], cause.as_deref()), ("u", Some("the server refuses requests")));
    let (told, cause) = outcome(&[Act::Break]).await;
    assert!(["u", "ht", "hdt"].contains(&&*told[0]) && cause.is_some(), "{told:?} {cause:?}");
}

#[tokio::test]
async fn a_server_that_leaves_answers_what_it_was_asked() {
    let (mut connection, serving) = connected(&[Act::Leave]).await;
    connection.ask(0, &request());
    let mut told = Vec::new();
    while let Some(event) = connection.next().await {
        told.push(event);
    }
    assert!(matches!(told[..], [Event::Head { .. }, Event::Data { .. }, Event::End { id: 0 }]), "{told:?}");
    assert_eq!(connection.cause(), None);
    connection.ask(1, &request());
    assert_eq!(connection.next().await, Some(Event::Unanswered { id: 1 }));
    assert_eq!(connection.next().await, None);
    serving.await.expect("a server");
}

/// More than all windows, as it is taken.
async fn send_much(mut respond: SendResponse<Bytes>, bytes: usize, sent: Arc<AtomicUsize>) {
    let response = http::Response::new(());
    let mut body = respond.send_response(response, false).expect("a client");
    while sent.load(Ordering::Relaxed) < bytes {
        body.reserve_capacity(1 << 14);
        let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await.expect("a client").expect("room");
        body.send_data(Bytes::from(vec![0; room]), false).expect("a client");
        sent.fetch_add(room, Ordering::Relaxed);
    }
    body.send_data(Bytes::new(), true).expect("a client");
}

#[tokio::test]
async fn what_nobody_takes_is_not_read() {
    const BYTES: usize = 40 << 20;
    let (ours, theirs) = duplex(1 << 16);
    let mut connection = Connection::begin(ours).await.expect("a connection");
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let serving = tokio::spawn(async move {
        let mut server = server::handshake(theirs).await.expect("a client");
        let mut sending: Vec<JoinHandle<()>> = Vec::new();
        while let Some(Ok((_, respond))) = server.accept().await {
            sending.push(tokio::spawn(send_much(respond, BYTES, count.clone())));
        }
    });
    connection.ask(0, &request());
    assert!(matches!(connection.next().await, Some(Event::Head { id: 0, .. })));
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    let before = sent.load(Ordering::Relaxed);
    assert!(before < 20 << 20, "{before} bytes");
    let mut came = 0;
    loop {
        match connection.next().await.expect("a connection") {
            Event::Data { bytes, .. } => came += bytes.len(),
            Event::End { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(came, sent.load(Ordering::Relaxed));
    serving.abort();
}

#[tokio::test]
async fn a_server_of_another_protocol_is_told() {
    let (ours, mut theirs) = duplex(1 << 16);
    let mut connection = Connection::begin(ours).await.expect("a connection");
    connection.ask(0, &request());
    theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("a client");
    assert_eq!(connection.next().await, Some(Event::Unanswered { id: 0 }));
    assert_eq!(connection.next().await, None);
    assert!(connection.cause().is_some_and(|cause| cause.contains("no HTTP/2")), "{:?}", connection.cause());
}
