//! Servers behind another proxy: a converter of ours, one that says what it is told to, and proxies of SOCKS and HTTP.

use super::*;
use crate::convert::{CookieKey, OptionKind, ServerConfig, SupportedExtensions};

/// No server of this address is asked: what is asked for it goes to a proxy on the way.
const SERVER: &str = "192.0.2.7:443";
/// Greeting and request of a client of SOCKS for it.
const ASKED_BY_SOCKS: [u8; 13] = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 7, 1, 187];
/// What a client of ours asks a converter for it.
const ASKED: [u8; 24] =
    [1, 6, 0x22, 0x63, 10, 5, 1, 187, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 7];
const CONNECTED: [u8; 4] = [1, 1, 0x22, 0x63];

fn via(scheme: &str, at: impl std::fmt::Display) -> Settings {
    let upstream = format!("{scheme}://{at}").parse().expect("a proxy");
    Settings { via: Some(Arc::new(upstream)), ..Settings::default() }
}

fn converter(config: ServerConfig) -> EntranceKind {
    EntranceKind::Convert(Arc::new(config))
}

fn multipath() -> ServerConfig {
    ServerConfig::new(SupportedExtensions::new([OptionKind::MULTIPATH_TCP]))
}

/// A proxy of HTTP that is the server as well: it is asked for it, and speaks first.
async fn server_behind_http(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    assert!(request.starts_with(&format!("CONNECT {SERVER} HTTP/1.1\r\n")), "{request}");
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nwelcome").await.unwrap();
    stream
}

/// What a client says and hears, both ways at once, to the end.
async fn exchange(mut client: TcpStream, said: &[u8]) -> Vec<u8> {
    let mut heard = Vec::new();
    let (mut reading, mut writing) = client.split();
    let saying = async {
        writing.write_all(said).await.unwrap();
        writing.shutdown().await.unwrap();
    };
    let (_, read) = tokio::join!(saying, reading.read_to_end(&mut heard));
    read.unwrap();
    heard
}

#[tokio::test]
async fn our_client_and_our_converter_lead_to_a_server() {
    for with_cookies in [false, true] {
        let behind = server().await;
        let config =
            if with_cookies { multipath().with_cookies(CookieKey::new([5; 16])) } else { multipath() };
        let convert =
            Fixture::with(converter(config).into(), via("http", behind.local_addr().unwrap())).await;
        let fixture = Fixture::with(EntranceKind::Socks.into(), via("convert", convert.at)).await;
        let (sent, answered) = (pattern(700_001), pattern(900_003));
        for _ in 0..2 {
            let serving = async {
                let mut stream = server_behind_http(&behind).await;
                let mut request = Vec::new();
                stream.read_to_end(&mut request).await.unwrap();
                stream.write_all(&answered).await.unwrap();
                request
            };
            let said = [&ASKED_BY_SOCKS[..], &sent].concat();
            let (request, heard) = tokio::join!(serving, exchange(fixture.connect().await, &said));
            assert!(request == sent);
            assert_eq!(heard[..4], [5, 0, 5, 0]);
            assert_eq!(heard[12..19], *b"welcome");
            assert!(heard[19..] == answered);
        }
        assert_eq!(fixture.told().await, ["socks ended", "socks ended"]);
        let told = convert.told().await;
        let expected = usize::from(with_cookies) + 2;
        assert_eq!(told.len(), expected, "a cookie is given once: {told:?}");
    }
}

/// A converter that answers one connection after the other with these, and what it was asked. Each is open until all is over.
async fn scripted(answers: Vec<Vec<u8>>) -> (SocketAddr, tokio::task::JoinHandle<Vec<Vec<u8>>>) {
    let listener = server().await;
    let at = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut asked, mut open) = (Vec::new(), Vec::new());
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4];
            stream.read_exact(&mut request).await.unwrap();
            request.resize(usize::from(request[1]) * 4, 0);
            stream.read_exact(&mut request[4..]).await.unwrap();
            stream.write_all(&answer).await.unwrap();
            asked.push(request);
            open.push(stream);
        }
        asked
    });
    (at, serving)
}

fn refusal(error: &[u8]) -> Vec<u8> {
    let words = u8::try_from(error.len() / 4).unwrap();
    [&[1, words + 2, 0x22, 0x63, 30, words + 1], error].concat()
}

#[tokio::test]
async fn each_error_of_a_converter_has_its_answer() {
    let unsupported = "the proxy on the way does not do this";
    for (answer, socks, http, said) in [
        // Each TLV with an error.
        (refusal(&[0, 1]), 1, "502", unsupported),
        (refusal(&[1, 0]), 1, "502", unsupported),
        (refusal(&[2, 0]), 1, "502", unsupported),
        (refusal(&[3, 0]), 1, "502", unsupported),
        (refusal(&[32, 0]), 2, "403", "the proxy on the way does not allow this connection"),
        (refusal(&[33, 30]), 1, "502", unsupported),
        (refusal(&[64, 0]), 1, "503", "the proxy on the way takes no connections now"),
        (refusal(&[65, 9]), 1, "503", "the proxy on the way takes no connections now"),
        (refusal(&[96, 0]), 5, "502", "the server refuses the connection"),
        (refusal(&[97, 0]), 3, "502", "no way leads to the server's network"),
        (refusal(&[97, 1]), 4, "502", "the server's host is unreachable"),
        (refusal(&[97, 3]), 5, "502", "the server refuses the connection"),
        (refusal(&[200, 1]), 1, "502", unsupported),
        // What no converter says.
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            1,
            "502",
            "the proxy on the way answers with what makes no sense",
        ),
        (ASKED.to_vec(), 1, "502", "the proxy on the way answers with what makes no sense"),
        (
            vec![1, 2, 0x22, 0x63, 30, 9, 0, 0],
            1,
            "502",
            "the proxy on the way answers with what makes no sense",
        ),
        (vec![], 1, "502", "the proxy on the way ends the connection without an answer"),
        (
            vec![1, 255, 0x22, 0x63, 30],
            1,
            "502",
            "the proxy on the way ends the connection without an answer",
        ),
    ] {
        for kind in ["socks", "http", "forward"] {
            let (at, serving) = scripted(vec![answer.clone()]).await;
            let entrance = match kind {
                "socks" => EntranceKind::Socks,
                "http" => EntranceKind::Http,
                _ => EntranceKind::Forward(SERVER.parse().unwrap()),
            };
            let fixture = Fixture::with(entrance.into(), via("convert", at)).await;
            let mut client = fixture.connect().await;
            let mut heard = Vec::new();
            match kind {
                "socks" => {
                    client.write_all(&ASKED_BY_SOCKS).await.unwrap();
                    client.read_to_end(&mut heard).await.unwrap();
                    assert_eq!(heard[2..4], [5, socks], "{answer:?}");
                }
                "http" => {
                    let asked = format!("CONNECT {SERVER} HTTP/1.1\r\n\r\n");
                    client.write_all(asked.as_bytes()).await.unwrap();
                    client.shutdown().await.unwrap();
                    client.read_to_end(&mut heard).await.unwrap();
                    let heard = String::from_utf8_lossy(&heard);
                    assert!(heard.starts_with(&format!("HTTP/1.1 {http} ")), "{answer:?}: {heard}");
                }
                _ => assert!(client.read(&mut [0; 1]).await.is_err(), "no end that looks whole"),
            }
            drop(client);
            assert_eq!(fixture.told().await, [format!("{kind} {said}")], "{answer:?}");
            assert_eq!(serving.await.unwrap(), [ASKED]);
        }
    }
}

#[tokio::test]
async fn what_the_client_says_goes_with_the_request() {
    let converting = server().await;
    let at = converting.local_addr().unwrap();
    let fixture = Fixture::with(EntranceKind::Socks.into(), via("convert", at)).await;
    let mut client = fixture.connect().await;
    client.write_all(&[&ASKED_BY_SOCKS[..], b"early"].concat()).await.unwrap();
    let (mut stream, _) = converting.accept().await.unwrap();
    // Before there is an answer.
    let mut request = vec![0; ASKED.len() + 5];
    stream.read_exact(&mut request).await.unwrap();
    assert_eq!(request, [&ASKED[..], b"early"].concat());
    stream.write_all(&[&CONNECTED[..], b"at once"].concat()).await.unwrap();
    client.write_all(b" and late").await.unwrap();
    // What went with the request counts as well.
    while fixture.proxy.sessions().states()[0].flow.to_server_bytes() < 14 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b" and late");
    drop(stream);
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert!(heard.ends_with(b"at once"), "{heard:?}");
    drop(client);
    assert_eq!(fixture.told().await, ["socks ended"]);
}

#[tokio::test]
async fn a_header_for_the_server_comes_before_all_else() {
    let converting = server().await;
    let at = converting.local_addr().unwrap();
    let entrance = Entrance {
        proxy_protocol_to_servers: Some(ProxyProtocolVersion::V1),
        ..EntranceKind::Forward(SERVER.parse().unwrap()).into()
    };
    let fixture = Fixture::with(entrance, via("convert", at)).await;
    let mut client = fixture.connect().await;
    client.write_all(b"hello").await.unwrap();
    let (mut stream, _) = converting.accept().await.unwrap();
    stream.write_all(&CONNECTED).await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.unwrap();
    let port = client.local_addr().unwrap().port();
    let header = format!("PROXY TCP4 127.0.0.1 192.0.2.7 {port} 443\r\nhello");
    assert_eq!(heard, [&ASKED[..], header.as_bytes()].concat());
}

#[tokio::test]
async fn a_cookie_that_has_expired_is_asked_for_anew() {
    let given = |octet| refusal(&[3, 0, octet, octet, octet, octet]);
    let answers = vec![given(1), CONNECTED.into(), refusal(&[32, 0]), given(2), CONNECTED.into()];
    let (at, serving) = scripted(answers).await;
    let fixture = Fixture::with(EntranceKind::Socks.into(), via("convert", at)).await;
    for _ in 0..2 {
        let mut client = fixture.connect().await;
        client.write_all(&ASKED_BY_SOCKS).await.unwrap();
        let mut heard = [0; 12];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard[..4], [5, 0, 5, 0]);
    }
    let shown: Vec<Option<u8>> =
        serving.await.unwrap().iter().map(|asked| asked.get(ASKED.len() + 4).copied()).collect();
    assert_eq!(shown, [None, Some(1), Some(1), None, Some(2)]);
}

#[tokio::test]
async fn a_converter_that_gives_cookies_without_end_is_given_up() {
    let given = refusal(&[3, 0, 1, 2, 3, 4]);
    let (at, serving) = scripted(vec![given.clone(), given]).await;
    let fixture = Fixture::with(EntranceKind::Socks.into(), via("convert", at)).await;
    let mut client = fixture.connect().await;
    client.write_all(&ASKED_BY_SOCKS).await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard[2..4], [5, 1]);
    assert_eq!(serving.await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_full_converter_is_left_alone_as_long_as_it_says() {
    let (at, serving) = scripted(vec![refusal(&[64, 255])]).await;
    let fixture = Fixture::with(EntranceKind::Socks.into(), via("convert", at)).await;
    for _ in 0..3 {
        let mut client = fixture.connect().await;
        client.write_all(&ASKED_BY_SOCKS).await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard[2..4], [5, 1]);
    }
    assert_eq!(serving.await.unwrap().len(), 1, "it was asked once");
}

#[tokio::test]
async fn a_converter_that_says_nothing_is_given_up() {
    let silent = server().await;
    let mut settings = via("convert", silent.local_addr().unwrap());
    settings.timeouts.connecting = Duration::from_millis(100);
    let fixture = Fixture::with(EntranceKind::Http.into(), settings).await;
    let mut client = fixture.connect().await;
    client.write_all(format!("CONNECT {SERVER} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = String::new();
    client.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 504 "), "{heard}");
}

#[tokio::test]
async fn what_no_converter_leads_to_is_not_asked_for() {
    let nobody = server().await.local_addr().unwrap();
    let fixture = Fixture::with(EntranceKind::Socks.into(), via("convert", nobody)).await;
    for (address, code) in [([127, 0, 0, 1], 2), ([192, 0, 2, 7], 1)] {
        let mut client = fixture.connect().await;
        let asked = [&[5, 1, 0, 5, 1, 0, 1][..], &address, &[0, 80]].concat();
        client.write_all(&asked).await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard[2..4], [5, code]);
    }
    // No converter carries datagrams.
    let mut client = fixture.connect().await;
    client.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard[2..4], [5, 1]);
    drop(client);
    let told = fixture.told().await;
    assert!(told[0].ends_with("can't be asked for an address of this kind"), "{told:?}");
    assert!(told[1].ends_with("the proxy on the way can't be reached"), "{told:?}");
}

#[tokio::test]
async fn proxies_of_socks_and_http_are_asked_too() {
    for (scheme, kind) in [("socks5", EntranceKind::Socks), ("http", EntranceKind::Http)] {
        let server = server().await;
        let to = EntranceKind::Forward(Target::from(server.local_addr().unwrap()));
        for (user, outcome) in [
            ("ann:secret", "ended"),
            ("ann:wrong", "the proxy on the way does not take who this is"),
            ("ann:%73ecret", "ended"),
        ] {
            let second = Fixture::with(kind.clone().into(), with_users()).await;
            let place = format!("{user}@{}", second.at);
            let first = Fixture::with(to.clone().into(), via(scheme, place)).await;
            let mut client = first.connect().await;
            if outcome == "ended" {
                let serving = async {
                    let (mut stream, _) = server.accept().await.unwrap();
                    let mut request = Vec::new();
                    stream.read_to_end(&mut request).await.unwrap();
                    assert_eq!(request, b"early");
                    stream.write_all(b"hello").await.unwrap();
                };
                let (heard, ()) = tokio::join!(exchange(client, b"early"), serving);
                assert_eq!(heard, b"hello");
            } else {
                assert!(client.read(&mut [0; 1]).await.is_err());
                drop(client);
            }
            assert_eq!(first.told().await, [format!("forward {outcome}")], "{scheme} {user}");
        }
    }
}

#[tokio::test]
async fn statuses_of_http_are_failures() {
    for (status, code) in
        [("403 No", 2), ("502 No", 4), ("504 No", 6), ("503 No", 1), ("500 No", 1), ("x", 1)]
    {
        let proxy = server().await;
        let at = proxy.local_addr().unwrap();
        let fixture = Fixture::with(EntranceKind::Socks.into(), via("http", at)).await;
        let mut client = fixture.connect().await;
        client.write_all(&ASKED_BY_SOCKS).await.unwrap();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno");
        answer_with(&proxy, &answer, false).await;
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard[2..4], [5, code], "{status}");
    }
}

#[tokio::test]
async fn a_proxy_does_not_ask_itself() {
    for scheme in ["socks5", "http", "convert"] {
        let kind = match scheme {
            "socks5" => EntranceKind::Socks,
            "http" => EntranceKind::Http,
            _ => converter(multipath()),
        };
        let fixture = Fixture::new(kind).await;
        fixture.proxy.set_settings(via(scheme, fixture.at));
        let entrance = Fixture::new(EntranceKind::Forward(SERVER.parse().unwrap())).await;
        entrance.proxy.set_settings(via(scheme, fixture.at));
        let mut client = entrance.connect().await;
        let mut heard = Vec::new();
        let _ = client.read_to_end(&mut heard).await;
        assert_eq!(heard, b"");
        drop(client);
        entrance.told().await;
        let told = fixture.told().await;
        assert!(told.len() == 1, "{told:?}");
        assert!(told[0].ends_with(" the proxy on the way is this proxy itself"), "{told:?}");
    }
    let fixture = Fixture::new(EntranceKind::Forward(SERVER.parse().unwrap())).await;
    fixture.proxy.set_settings(via("http", fixture.at));
    assert_eq!(fixture.connect().await.read_to_end(&mut Vec::new()).await.ok(), None);
    assert_eq!(fixture.told().await, ["forward the proxy on the way is this proxy itself"]);
}
