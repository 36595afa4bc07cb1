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

#[tokio::test]
async fn an_answer_whose_coding_or_length_is_not_understood_is_none() {
    for (method, field) in [
        ("GET", "Transfer-Encoding: gzip, chunked"),
        ("GET", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"),
        ("GET", "Transfer-Encoding: gzip"),
        ("GET", "Transfer-Encoding: xchunked"),
        ("GET", "Content-Length: 5, 6"),
        ("HEAD", "Content-Length: 5, 6"),
        ("HEAD", "Content-Length: +5"),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n");
        let (heard, told) = heard_of(method, "HTTP/1.1", "", &answer).await;
        assert!(heard.starts_with("HTTP/1.1 502 "), "{method}, {field}: {heard}");
        assert_eq!(told, ["http the server's answer makes no sense"], "{method}, {field}");
    }
}

#[tokio::test]
async fn a_length_that_is_said_twice_is_passed_on_once() {
    for field in ["Content-Length: 5, 5", "Content-Length: 5\r\nContent-Length: 5"] {
        let answer = format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\nhello");
        let (heard, told) = heard_of_get(&answer).await;
        assert!(heard.starts_with("HTTP/1.1 200 ") && heard.ends_with("\r\n\r\nhello"), "{field}: {heard}");
        assert!(heard.contains("content-length: 5\r\n"), "{field}: {heard}");
        assert_eq!(heard.matches("content-length").count(), 1, "{field}: {heard}");
        assert_eq!(told, ["http ended"], "{field}");
    }
}

#[tokio::test]
async fn an_answer_with_trailers_is_whole() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n";
    for (version, fields, end) in [
        ("HTTP/1.0", "", "\r\n\r\nhello"),
        ("HTTP/1.1", "", "\r\n5\r\nhello\r\n0\r\n\r\n"),
        ("HTTP/1.1", "TE: trailers\r\n", "\r\n5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n"),
    ] {
        let (heard, told) = heard_of("GET", version, fields, answer).await;
        assert!(heard.ends_with(end), "{version}, {fields}: {heard}");
        assert_eq!(told, ["http ended"], "{version}, {fields}");
    }
}

#[tokio::test]
async fn a_request_with_trailers_is_whole() {
    for announced in ["", "Trailer: X-Sum\r\n"] {
        let server = server().await;
        let at = server.local_addr().unwrap();
        let fixture = Fixture::new(EntranceKind::Http).await;
        let mut client = fixture.connect().await;
        let asked = format!(
            "PUT http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{announced}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
        );
        client.write_all(asked.as_bytes()).await.unwrap();
        let (mut stream, _) = server.accept().await.unwrap();
        let mut request = String::new();
        while !(request.contains("\r\n0\r\n") && request.ends_with("\r\n\r\n")) {
            request.push(stream.read_u8().await.unwrap() as char);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK").await.unwrap();
        let mut heard = String::new();
        while !heard.ends_with("OK") {
            heard.push(client.read_u8().await.unwrap() as char);
        }
        drop(client);
        let left = stream.read_to_string(&mut request).await;
        assert!(matches!(left, Ok(0)), "{announced}: {left:?}");
        assert_eq!(fixture.told().await, ["http ended"], "{announced}");
    }
}

#[tokio::test]
async fn behind_a_request_that_is_refused_nothing_is_read_and_the_log_says_why() {
    let twice = "Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    for (method, fields, why) in [
        ("POST", twice, "a body whose length can be understood in two ways"),
        ("GET", "", "no Host, or several: expected one"),
        ("CONNECT", "Host: x\r\nContent-Length: 1\r\n\r\n", "a CONNECT with a body"),
        ("GET", "Host: x\r\nX: not for a proxy\r\n", "a request for a server"),
    ] {
        // Nobody is there any more: whatever were passed on would get an answer of its own.
        let at = server().await.local_addr().unwrap();
        let fixture = Fixture::new(EntranceKind::Http).await;
        let mut client = fixture.connect().await;
        let uri = match method {
            "CONNECT" => at.to_string(),
            _ if why.contains("for a server") => "/".into(),
            _ => format!("http://{at}/"),
        };
        let asked = format!(
            "{method} {uri} HTTP/1.1\r\n{fields}\r\nGET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
        );
        client.write_all(asked.as_bytes()).await.unwrap();
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        assert!(heard.starts_with("HTTP/1.1 400 ") && heard.contains("connection: close\r\n"), "{heard}");
        assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{asked}: {heard}");
        drop(client);
        let told = fixture.told().await;
        let [line] = &told[..] else { panic!("{asked}: {told:?}") };
        assert!(line.starts_with(&format!("http refused: {why}")), "{line}");
    }
}

#[tokio::test]
async fn an_answer_may_have_many_fields() {
    let cookies: String = (0..900).map(|at| format!("Set-Cookie: a{at}=b\r\n")).collect();
    let (heard, told) =
        heard_of_get(&format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 5\r\n\r\nhello")).await;
    assert!(heard.starts_with("HTTP/1.1 200 ") && heard.ends_with("\r\n\r\nhello"), "{heard}");
    assert_eq!(heard.matches("set-cookie: ").count(), 900);
    assert_eq!(told, ["http ended"]);
}

#[tokio::test]
async fn requests_that_the_proxy_gives_up_are_not_the_clients_fault() {
    let upload = "HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc";
    for (said, has_answered) in
        [("HTTP/1.0\r\n\r\n", false), ("HTTP/1.0\r\n\r\n", true), (upload, false), (upload, true)]
    {
        for (is_stopped, expected) in
            [(true, "http the proxy ended"), (false, "http nothing moved for too long")]
        {
            let server = server().await;
            let at = server.local_addr().unwrap();
            let limits = if is_stopped { Settings::default() } else { short(60_000, 60_000, 200) };
            let fixture = Fixture::with(EntranceKind::Http.into(), limits).await;
            let mut client = fixture.connect().await;
            client.write_all(format!("PUT http://{at}/ {said}").as_bytes()).await.unwrap();
            let (mut stream, _) = server.accept().await.unwrap();
            let mut request = Vec::new();
            while !(request.ends_with(b"abc") || said != upload && request.ends_with(b"\r\n\r\n")) {
                request.push(stream.read_u8().await.unwrap());
            }
            let mut heard = Vec::new();
            if has_answered {
                stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf").await.unwrap();
                while !heard.windows(4).any(|part| part == b"half") {
                    assert!(client.read_buf(&mut heard).await.unwrap() > 0);
                }
            }
            if is_stopped {
                assert!(!fixture.proxy.drain(Duration::ZERO).await, "somebody was within");
            }
            let _ = client.read_to_end(&mut heard).await;
            // What was to go to the server may be dropped a little later.
            while fixture.told().await.is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(fixture.told().await, [expected], "{said}, {has_answered}");
        }
    }
}

#[tokio::test]
async fn who_came_just_before_the_end_is_answered() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Http).await;
    let mut client = fixture.connect().await;
    while fixture.proxy.sessions().count() == 0 {
        tokio::task::yield_now().await;
    }
    let proxy = fixture.proxy.clone();
    let draining = tokio::spawn(async move { proxy.drain(Duration::from_secs(20)).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    client.write_all(format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall").await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 200") && heard.ends_with("all"), "{heard}");
    assert!(draining.await.unwrap());
}
