//! What is taken from a server for a client that reads nothing.

use super::*;

/// More than buffers of two sockets and a pipe grow to by themselves.
const ASKED_BYTES: usize = 24 << 20;
/// Two buffers, what is under way between them, and what the client's system takes.
const MOST_TAKEN_BYTES: u64 = 4 << 20;
/// Nothing moves any more.
const STILL: Duration = Duration::from_millis(300);

#[tokio::test]
async fn little_is_taken_for_who_reads_nothing_and_all_for_who_reads() {
    let listener = KernelEngine::plain_tcp().listen(HERE).expect("a server");
    let fixture =
        Fixture::new(EntranceKind::Forward(Target::from(listener.local_addr().expect("its address")))).await;
    let mut client = fixture.connect().await;
    let (mut server, _) = listener.accept().await.expect("a connection");
    let answer = pattern(ASKED_BYTES);
    let mut written = 0;
    // It could write all, if somebody took it.
    while let Ok(Ok(())) = tokio::time::timeout(STILL, server.as_tokio().writable()).await {
        match server.as_tokio().try_write(&answer[written..]) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    let taken = written as u64 - server.unacknowledged_bytes().expect("a count");
    assert!((1..MOST_TAKEN_BYTES).contains(&taken), "{taken} bytes");
    let sending = async {
        server.write_all(&answer[written..]).await.expect("who takes it");
        server.finish_writing().expect("an end");
    };
    let reading = async {
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.expect("all of it");
        heard
    };
    let ((), heard) = tokio::join!(sending, reading);
    assert!(heard == answer, "{} of {ASKED_BYTES} bytes", heard.len());
}
