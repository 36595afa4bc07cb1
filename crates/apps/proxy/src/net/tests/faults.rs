//! What servers and clients do wrong, through each way in: nobody takes less than all for all.

use std::io;

use polypath_units::BitRate;
use tokio::io::{AsyncRead, AsyncWrite};

use super::*;
use crate::throttle::Limit;

/// What a server does with whoever comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Nobody is there.
    Refuses,
    /// Resets the connection once something was said.
    Resets,
    /// Ends it, and says nothing.
    ClosesEarly,
    /// Ends it in the middle of an answer.
    ClosesInTheMiddle,
    /// Resets it in the middle of an answer.
    ResetsInTheMiddle,
    /// Says what is no HTTP, and ends.
    Garbles,
    /// Says nothing, for longer than anybody waits.
    Stalls,
}

/// By which way a client comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forward,
    Socks,
    Connect,
    Get,
}

/// What a client hears: all until an end in order, or what came before it broke.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Whole(Vec<u8>),
    Broken,
}

const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello";
const GARBAGE: &str = "\u{1}\u{2}\u{3} nothing that is known\r\n\r\n";

impl Origin {
    async fn serve(self, listener: TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        // Nothing is left unread, which would make a reset of an end.
        let mut rest = [0; 1000];
        while let Ok(Ok(1..)) = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut rest)).await
        {
        }
        match self {
            Self::Refuses => unreachable!("it listens nowhere"),
            Self::ClosesEarly => {}
            Self::Resets => stream.set_zero_linger().unwrap(),
            Self::ClosesInTheMiddle => stream.write_all(HALF.as_bytes()).await.unwrap(),
            Self::ResetsInTheMiddle => {
                stream.write_all(HALF.as_bytes()).await.unwrap();
                // What was said is there before the reset, which takes along what is not.
                tokio::time::sleep(Duration::from_millis(50)).await;
                stream.set_zero_linger().unwrap();
            }
            Self::Garbles => stream.write_all(GARBAGE.as_bytes()).await.unwrap(),
            Self::Stalls => std::future::pending().await,
        }
    }
}

impl Way {
    fn entrance(self, at: SocketAddr) -> EntranceKind {
        match self {
            Self::Forward => EntranceKind::Forward(Target::from(at)),
            Self::Socks => EntranceKind::Socks,
            Self::Connect | Self::Get => EntranceKind::Http,
        }
    }

    /// What the client says, with a request to the server behind it, and how long what it hears of the proxy itself is.
    fn asked(self, at: SocketAddr) -> (Vec<u8>, usize) {
        let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").into_bytes();
        match self {
            Self::Forward => (request, 0),
            Self::Socks => {
                let mut said = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
                said.extend(at.port().to_be_bytes());
                said.extend(request);
                (said, 12)
            }
            Self::Connect => {
                let said = format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n").into_bytes();
                ([said, request].concat(), 0)
            }
            Self::Get => {
                (format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").into(), 0)
            }
        }
    }
}

/// A connection, in the clear or not.
trait Both: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Both for S {}

async fn hear(client: &mut (impl AsyncRead + Unpin), of: &str) -> Heard {
    let mut heard = Vec::new();
    match client.read_to_end(&mut heard).await {
        Ok(_) => Heard::Whole(heard),
        Err(error) => {
            assert_eq!(
                error.kind(),
                io::ErrorKind::ConnectionReset,
                "{of}: {}",
                String::from_utf8_lossy(&heard)
            );
            Heard::Broken
        }
    }
}

/// What an end in order has to be, or none where the connection has to break.
fn expected(way: Way, origin: Origin) -> Option<Vec<u8>> {
    let after_greeting = |answer: &str| Some(answer.as_bytes().to_vec());
    match (way, origin) {
        (Way::Forward, Origin::Refuses) => None,
        (Way::Socks, Origin::Refuses) => Some(vec![5, 0, 5, 5]),
        (Way::Connect, Origin::Refuses) => after_greeting("HTTP/1.1 502 "),
        (Way::Get, Origin::Refuses | Origin::Resets | Origin::ClosesEarly | Origin::Garbles) => {
            after_greeting("HTTP/1.1 502 ")
        }
        (Way::Get, Origin::Stalls) => after_greeting("HTTP/1.1 504 "),
        (Way::Get, Origin::ClosesInTheMiddle | Origin::ResetsInTheMiddle) => None,
        (_, Origin::Resets | Origin::ResetsInTheMiddle | Origin::Stalls) => None,
        // What ends in order there ends in order here: whether it is all, its reader knows.
        (_, Origin::ClosesEarly) => after_greeting(""),
        (_, Origin::ClosesInTheMiddle) => after_greeting(HALF),
        (_, Origin::Garbles) => after_greeting(GARBAGE),
    }
}

#[tokio::test]
async fn no_fault_of_a_server_looks_like_all_of_an_answer() {
    let limits = short(60_000, 400, 800);
    let origins = [
        Origin::Refuses,
        Origin::Resets,
        Origin::ClosesEarly,
        Origin::ClosesInTheMiddle,
        Origin::ResetsInTheMiddle,
        Origin::Garbles,
        Origin::Stalls,
    ];
    let ways = [Way::Forward, Way::Socks, Way::Connect, Way::Get];
    let cases =
        ways.into_iter().flat_map(|way| [(way, false, false), (way, true, false), (way, false, true)]);
    for (way, by_tls, is_limited) in cases {
        for origin in origins {
            let listener = server().await;
            let at = listener.local_addr().unwrap();
            let serving = if origin == Origin::Refuses {
                drop(listener);
                None
            } else {
                Some(tokio::spawn(origin.serve(listener)))
            };
            let entrance = way.entrance(at);
            let entrance = if by_tls { tls::entrance(entrance, false) } else { entrance.into() };
            let fixture = Fixture::with(entrance, limits.clone()).await;
            if is_limited {
                // It holds nobody back, and is asked.
                let mut limit = Limit::new("much");
                limit.rate = Some(BitRate::from_mbps(100_000));
                fixture.proxy.set_limit(limit).unwrap();
            }
            let mut client: Box<dyn Both> = if by_tls {
                Box::new(fixture.connect_by_tls().await)
            } else {
                Box::new(fixture.connect().await)
            };
            let (said, greeting_bytes) = way.asked(at);
            client.write_all(&said).await.unwrap();
            let heard = hear(&mut client, &format!("{way:?}, {origin:?}, by TLS: {by_tls}")).await;
            match (expected(way, origin), heard) {
                (None, Heard::Broken) => {}
                (Some(text), Heard::Whole(heard)) if way == Way::Get || origin == Origin::Refuses => {
                    assert!(
                        heard.starts_with(&text),
                        "{way:?}, {origin:?}: {}",
                        String::from_utf8_lossy(&heard)
                    );
                }
                (Some(text), Heard::Whole(heard)) => {
                    let head = String::from_utf8_lossy(&heard).into_owned();
                    let greeting = match way {
                        Way::Connect => head.find("\r\n\r\n").expect("the head of a 200") + 4,
                        _ => greeting_bytes,
                    };
                    assert_eq!(heard[greeting..], text, "{way:?}, {origin:?}: {head}");
                }
                (expected, heard) => panic!("{way:?}, {origin:?}: {heard:?}, expected {expected:?}"),
            }
            // By TLS, who leaves says so. Where it is broken, nothing can be said.
            let _ = client.shutdown().await;
            drop(client);
            let told = fixture.told().await;
            let is_told_as_whole = told[0].ends_with(" ended");
            let may_be_whole = way != Way::Get
                && matches!(origin, Origin::ClosesEarly | Origin::ClosesInTheMiddle | Origin::Garbles);
            assert_eq!(is_told_as_whole, may_be_whole, "{way:?}, {origin:?}: {told:?}");
            if let Some(serving) = serving {
                serving.abort();
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_vanishes_is_no_end_for_its_server() {
    for way in [Way::Forward, Way::Socks, Way::Connect] {
        let listener = server().await;
        let at = listener.local_addr().unwrap();
        let fixture = Fixture::new(way.entrance(at)).await;
        let mut client = fixture.connect().await;
        client.write_all(&way.asked(at).0).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        client.set_zero_linger().unwrap();
        drop(client);
        let error = stream.read_to_end(&mut Vec::new()).await.expect_err("no end in order");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{way:?}");
        let told = fixture.told().await;
        assert!(told[0].contains("the client's connection broke"), "{way:?}: {told:?}");
    }
}

#[tokio::test]
async fn who_comes_when_all_places_are_taken_is_told_so() {
    let listener = server().await;
    let at = listener.local_addr().unwrap();
    let mut settings = Settings::default();
    settings.limits.each.connections = 2;
    let fixture = Fixture::with(Way::Forward.entrance(at).into(), settings).await;
    let held = [fixture.connect().await, fixture.connect().await];
    for _ in &held {
        listener.accept().await.unwrap();
    }
    let mut refused = fixture.connect().await;
    assert_eq!(hear(&mut refused, "no place").await, Heard::Broken);
    drop(held);
    let told = fixture.told().await;
    assert_eq!(told.iter().filter(|line| line.starts_with("forward refused: ")).count(), 1, "{told:?}");
}

#[tokio::test]
async fn what_is_no_request_of_http_is_told_of() {
    async fn answer(mut client: impl AsyncRead + AsyncWrite + Unpin, said: &[u8]) -> Vec<u8> {
        let mut heard = Vec::new();
        // Who says too much may be left before it has said all.
        if client.write_all(said).await.is_ok() {
            let _ = client.read_to_end(&mut heard).await;
        }
        heard
    }
    const TOO_MUCH: &str =
        "too many fields, or too long: expected 100, and 32768 bytes of URL and fields, at most";
    let request = |fields: &str| format!("GET http://192.0.2.1/ HTTP/1.1\r\n{fields}\r\n");
    let old = "GET http://192.0.2.1/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (said, status, says) in [
        ("\x05\x01\x00".into(), "400", "method"),
        ("nonsense\r\n\r\n".into(), "400", "method"),
        (request("Foo bar: x\r\n"), "400", "header"),
        (request("Content-Length: 5, 6\r\n"), "400", "content-length"),
        (old.into(), "400", "transfer-encoding"),
        // It is told nothing that it would understand.
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), "", "it is of HTTP/2, expected HTTP/1.1"),
        (request(&"a: bc\r\n".repeat(101)), "431", TOO_MUCH),
        // Not all of it may be read, which resets the connection.
        (request(&format!("X: {}\r\n", "x".repeat(40_000))), "", TOO_MUCH),
    ] {
        for is_by_tls in [false, true] {
            let entrance =
                if is_by_tls { tls::entrance(EntranceKind::Http, false) } else { EntranceKind::Http.into() };
            let fixture = Fixture::with(entrance, Settings::default()).await;
            let heard = if is_by_tls {
                answer(fixture.connect_by_tls().await, said.as_bytes()).await
            } else {
                answer(fixture.connect().await, said.as_bytes()).await
            };
            let heard = String::from_utf8_lossy(&heard);
            assert!(status.is_empty() || heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
            let told = fixture.told().await;
            let [line] = &told[..] else { panic!("{said}: {told:?}") };
            let why = line.strip_prefix("http refused: no request that can be read: ").expect(line);
            assert!(why.contains(says) && !why.contains("Foo"), "{said}: {why}");
        }
    }
}
