//! What is taken from one side for another that reads nothing.

use polypath_stack::engine::{ConnectOptions, KernelStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

use super::*;

/// More than buffers of two sockets and a pipe grow to by themselves.
const SENT_BYTES: usize = 24 << 20;
/// Two buffers, what is under way between them, and what the system of who reads takes.
const MOST_TAKEN_BYTES: u64 = 3 << 20;
/// Nothing moves any more.
const STILL: Duration = Duration::from_millis(300);

/// A client's connection, or a server's.
trait Side: AsyncRead + AsyncWrite + Unpin {
    fn unacknowledged_bytes(&self) -> u64;
}

impl Side for KernelStream {
    fn unacknowledged_bytes(&self) -> u64 {
        self.unacknowledged_bytes().expect("a count")
    }
}

impl Side for TlsStream<KernelStream> {
    fn unacknowledged_bytes(&self) -> u64 {
        Side::unacknowledged_bytes(self.get_ref().0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    is_http: bool,
    by_tls: bool,
    is_upload: bool,
}

/// Both sides, from where the one has to send and the other to read. None: this system can't hold buffers.
async fn joined(case: Case) -> Option<(Fixture, Box<dyn Side>, Box<dyn Side>)> {
    let engine = KernelEngine::plain_tcp();
    let listener = engine.listen(HERE).expect("a server");
    let at = listener.local_addr().expect("its address");
    let kind = if case.is_http { EntranceKind::Http } else { EntranceKind::Forward(Target::from(at)) };
    let entrance = if case.by_tls { tls::entrance(kind, false) } else { kind.into() };
    let fixture = Fixture::with(entrance, Settings::default()).await;
    let client = engine.connect(fixture.at, &ConnectOptions::default()).await.expect("the proxy");
    let _ = client.growing_receive_buffer_bytes()?;
    let mut client: Box<dyn Side> =
        if case.by_tls { Box::new(tls::secured(client, None).await.unwrap()) } else { Box::new(client) };
    if case.is_http {
        let (method, length) = if case.is_upload { ("PUT", SENT_BYTES) } else { ("GET", 0) };
        let request =
            format!("{method} http://{at}/ HTTP/1.1\r\nHost: {at}\r\nContent-Length: {length}\r\n\r\n");
        client.write_all(request.as_bytes()).await.expect("room");
        client.flush().await.expect("room");
    }
    let (mut server, _) = listener.accept().await.expect("a connection");
    if case.is_http {
        skip_head(&mut server).await;
        if !case.is_upload {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SENT_BYTES}\r\n\r\n");
            server.write_all(head.as_bytes()).await.expect("room");
            skip_head(&mut *client).await;
        }
    }
    let server: Box<dyn Side> = Box::new(server);
    Some(if case.is_upload { (fixture, client, server) } else { (fixture, server, client) })
}

async fn skip_head(stream: &mut (impl AsyncRead + Unpin + ?Sized)) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
}

/// How much of it is taken while nobody reads it. All of it arrives once somebody does.
async fn taken(mut source: Box<dyn Side>, mut reader: Box<dyn Side>, sent: &[u8]) -> u64 {
    let mut written = 0;
    while let Ok(count) = tokio::time::timeout(STILL, source.write(&sent[written..])).await {
        written += count.expect("who takes it");
        if written == sent.len() {
            break;
        }
    }
    let taken = written as u64 - source.unacknowledged_bytes();
    let sending = async {
        source.write_all(&sent[written..]).await.expect("who takes it");
        source.flush().await.expect("who takes it");
    };
    let reading = async {
        let mut heard = vec![0; sent.len()];
        reader.read_exact(&mut heard).await.expect("all of it");
        heard
    };
    let ((), heard) = tokio::join!(sending, reading);
    assert!(heard == sent);
    taken
}

#[tokio::test]
async fn little_is_taken_for_who_reads_nothing_and_all_for_who_reads() {
    let sent = pattern(SENT_BYTES);
    let each = |case: u8| Case { is_http: case & 1 != 0, by_tls: case & 2 != 0, is_upload: case & 4 != 0 };
    for case in (0..8).map(each) {
        let Some((_fixture, source, reader)) = joined(case).await else {
            eprintln!("SKIPPED: this kernel can't hold receive buffers (Linux 5.14 can)");
            return;
        };
        let taken = taken(source, reader, &sent).await;
        eprintln!("{taken} bytes by {case:?}");
        assert!((1..MOST_TAKEN_BYTES).contains(&taken), "{taken} bytes by {case:?}");
    }
}
