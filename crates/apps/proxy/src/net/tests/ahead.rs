//! What is taken from a server for a client that reads nothing.

use polypath_stack::engine::KernelStream;

use super::*;

/// More than buffers of two sockets and a pipe grow to by themselves.
const ASKED_BYTES: usize = 24 << 20;
/// Two buffers, what is under way between them, and what the client's system takes.
const MOST_TAKEN_BYTES: u64 = 4 << 20;
/// Nothing moves any more.
const STILL: Duration = Duration::from_millis(300);

/// Answers without end until it could write all, if somebody took it, and then the rest. Returns what was taken of it while the client did nothing.
async fn taken(server: &mut KernelStream, answer: &[u8], client: impl Future<Output = Vec<u8>>) -> u64 {
    let mut written = 0;
    while let Ok(Ok(())) = tokio::time::timeout(STILL, server.as_tokio().writable()).await {
        match server.as_tokio().try_write(&answer[written..]) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    let taken = written as u64 - server.unacknowledged_bytes().expect("a count");
    let sending = async {
        server.write_all(&answer[written..]).await.expect("who takes it");
        server.finish_writing().expect("an end");
    };
    let ((), heard) = tokio::join!(sending, client);
    assert!(heard.ends_with(answer), "{} of {} bytes", heard.len(), answer.len());
    taken
}

#[tokio::test]
async fn little_is_taken_for_who_reads_nothing_and_all_for_who_reads() {
    for kind in ["forward", "http"] {
        let listener = KernelEngine::plain_tcp().listen(HERE).expect("a server");
        let at = listener.local_addr().expect("its address");
        let fixture = Fixture::new(match kind {
            "http" => EntranceKind::Http,
            _ => EntranceKind::Forward(Target::from(at)),
        })
        .await;
        let mut client = fixture.connect().await;
        if kind == "http" {
            let request = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).await.expect("room");
        }
        let (mut server, _) = listener.accept().await.expect("a connection");
        if kind == "http" {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(server.read_u8().await.expect("a request"));
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {ASKED_BYTES}\r\n\r\n");
            server.write_all(head.as_bytes()).await.expect("room");
        }
        let answer = pattern(ASKED_BYTES);
        let reading = async {
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.expect("all of it");
            heard
        };
        let taken = taken(&mut server, &answer, reading).await;
        assert!((1..MOST_TAKEN_BYTES).contains(&taken), "{taken} bytes by {kind}");
    }
}
