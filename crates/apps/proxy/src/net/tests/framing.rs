//! Where messages of HTTP end, and what is told of those that say it wrongly.

use super::*;

/// What a client hears of a server that answers with that and ends, and what is told.
async fn heard_of(method: &str, version: &str, fields: &str, answer: &str) -> (String, Vec<String>) {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Http).await;
    let mut client = fixture.connect().await;
    let asked = format!("{method} http://{at}/ {version}\r\nHost: {at}\r\nConnection: close\r\n{fields}\r\n");
    client.write_all(asked.as_bytes()).await.unwrap();
    answer_with(&server, answer, false).await;
    let mut heard = String::new();
    let end = client.read_to_string(&mut heard).await;
    assert!(end.is_ok(), "{asked:?}, {answer:?}: {end:?}");
    drop(client);
    (heard, fixture.told().await)
}

async fn heard_of_get(answer: &str) -> (String, Vec<String>) {
    heard_of("GET", "HTTP/1.1", "", answer).await
}

#[tokio::test]
async fn an_answer_in_chunks_has_no_other_length() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: Chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n";
    let (heard, told) = heard_of_get(answer).await;
    assert!(heard.starts_with("HTTP/1.1 200 ") && !heard.contains("content-length"), "{heard}");
    assert!(heard.ends_with("\r\n0123456789\r\n0\r\n\r\n"), "{heard}");
    assert_eq!(told, ["http ended"]);
    // Of old clients, the end of the connection is the end.
    let (heard, _) = heard_of("GET", "HTTP/1.0", "", answer).await;
    assert!(!heard.contains("content-length") && heard.ends_with("\r\n\r\n0123456789"), "{heard}");
}
