//! Clients, the proxy and servers on the loopback interface, by plain TCP.

mod ahead;
mod datagrams;
mod faults;
mod framing;
mod full;
mod limits;
mod own_stack;
mod runtimes;
mod tls;
mod via;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polypath_stack::Engine;
use polypath_stack::engine::KernelEngine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Carried, Connector, Entrance, EntranceKind, Outcome, Proxy, Settings, Timeouts};
use crate::access::{Network, Rule, Rules, Verdict};
use crate::proxy_protocol::ProxyProtocolVersion;
use crate::target::Target;

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A proxy, where it listens, and what it told.
struct Fixture {
    proxy: Proxy,
    at: SocketAddr,
    told: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    async fn new(kind: EntranceKind) -> Self {
        Self::with(Entrance::from(kind), Settings::default()).await
    }

    async fn with(entrance: Entrance, settings: Settings) -> Self {
        let engine = Engine::from(KernelEngine::plain_tcp());
        let listener = engine.listen(HERE).await.expect("a listener");
        let at = listener.local_addr().expect("its address");
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = told.clone();
        let proxy = Proxy::new(Connector::new(engine), settings, move |end| {
            telling.lock().unwrap().push(format!("{} {}", end.user.unwrap_or(end.protocol), end.ending));
        });
        let serving = proxy.clone();
        tokio::spawn(async move { serving.serve(listener, entrance).await });
        Self { proxy, at, told }
    }

    async fn forward_to(server: &TcpListener) -> Self {
        Self::new(EntranceKind::Forward(Target::from(server.local_addr().unwrap()))).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.expect("a connection to the proxy")
    }

    /// What it told once nobody is within.
    async fn told(&self) -> Vec<String> {
        assert!(self.proxy.drain(Duration::from_secs(20)).await, "somebody stays");
        self.told.lock().unwrap().clone()
    }
}

async fn server() -> TcpListener {
    TcpListener::bind(HERE).await.expect("a server")
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[tokio::test]
async fn each_half_ends_by_itself_and_every_byte_arrives() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    let (sent, answered) = (pattern(9_000_001), pattern(7_000_003));
    let client = async {
        let mut stream = fixture.connect().await;
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let serving = async {
        let (mut stream, _) = server.accept().await.unwrap();
        let mut request = Vec::new();
        stream.read_to_end(&mut request).await.unwrap();
        // Only now: the other half is open as long as it wants.
        stream.write_all(&answered).await.unwrap();
        request
    };
    let (answer, request) = tokio::join!(client, serving);
    assert!(request == sent && answer == answered);
    let carried = Carried { to_server_bytes: 9_000_001, to_client_bytes: 7_000_003 };
    // Whether it is within still or has left.
    assert_eq!(fixture.proxy.counts().carried, carried);
    assert_eq!(fixture.told().await, ["forward ended"]);
    let counts = fixture.proxy.counts();
    assert_eq!((counts.carried, counts.present.len()), (carried, 0));
    assert_eq!(counts.ended, [(("forward", Outcome::Complete), 1)].into());
}

#[tokio::test]
async fn a_reset_reaches_the_other_side_as_one() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    let mut client = fixture.connect().await;
    let (mut stream, _) = server.accept().await.unwrap();
    stream.write_all(b"half of it").await.unwrap();
    let mut begun = [0; 10];
    client.read_exact(&mut begun).await.unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    let error = client.read(&mut begun).await.expect_err("no end that looks whole");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let told = fixture.told().await;
    assert!(told[0].starts_with("forward the server's connection broke"), "{told:?}");
}

#[tokio::test]
async fn a_client_hears_all_of_a_server_that_hears_no_more() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    let answered = pattern(300_000);
    let (heard, all_heard) = tokio::sync::oneshot::channel();
    let serving = async {
        let (mut stream, _) = server.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(&answered).await.unwrap();
        stream.shutdown().await.unwrap();
        all_heard.await.unwrap();
        // Much of what the client sends is unread: its system answers with a reset.
    };
    let client = async {
        let mut stream = fixture.connect().await;
        let (mut reading, mut writing) = stream.split();
        let mut answer = Vec::new();
        let sending = async { while writing.write_all(&[7; 100_000]).await.is_ok() {} };
        let hearing = async {
            reading.read_to_end(&mut answer).await.unwrap();
            heard.send(()).unwrap();
        };
        tokio::join!(hearing, sending);
        answer
    };
    let (answer, ()) = tokio::join!(client, serving);
    assert!(answer == answered, "{} of {} bytes", answer.len(), answered.len());
    // What the client has sent is not at its server.
    let told = fixture.told().await;
    assert!(told[0].starts_with("forward the server's connection broke"), "{told:?}");
}

#[tokio::test]
async fn an_upload_to_a_server_that_has_ended_and_gone_is_not_said_to_have_arrived() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    let mut client = fixture.connect().await;
    client.write_all(b"put").await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.read_exact(&mut [0; 3]).await.unwrap();
    stream.write_all(b"OK").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"OK");
    stream.set_zero_linger().unwrap();
    drop(stream);
    // It goes on until it hears that nobody does.
    let error = loop {
        if let Err(error) = client.write_all(&[7; 100_000]).await {
            break error;
        }
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    let told = fixture.told().await;
    assert!(told[0].starts_with("forward the server's connection broke"), "{told:?}");
}

#[tokio::test]
async fn a_slow_client_has_all_of_its_answer_before_it_hears_that_its_server_has_gone() {
    for half_closes in [true, false] {
        let server = server().await;
        let fixture = Fixture::forward_to(&server).await;
        let mut client = fixture.connect().await;
        client.write_all(b"get").await.unwrap();
        let (mut stream, _) = server.accept().await.unwrap();
        stream.read_exact(&mut [0; 3]).await.unwrap();
        // The proxy takes that ahead of a client that reads nothing.
        let answered = pattern(250_000);
        stream.write_all(&answered).await.unwrap();
        stream.shutdown().await.unwrap();
        let taking = async {
            while fixture.proxy.counts().carried.to_client_bytes < 250_000 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), taking).await.expect("all of it taken");
        stream.set_zero_linger().unwrap();
        drop(stream);
        client.write_all(&[7; 10_000]).await.unwrap();
        if half_closes {
            client.shutdown().await.unwrap();
        }
        // Longer than it is waited for what a client still sends.
        tokio::time::sleep(Duration::from_millis(2200)).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("all of it, and its end");
        assert!(answer == answered, "{} of {} bytes, {half_closes}", answer.len(), answered.len());
        let told = fixture.told().await;
        assert!(told[0].starts_with("forward the server's connection broke"), "{told:?}");
    }
}

#[tokio::test]
async fn nobody_is_led_back_into_the_proxy() {
    let fixture = Fixture::new(EntranceKind::Socks).await;
    for host in [[127, 0, 0, 1], [127, 9, 9, 9]] {
        let mut client = fixture.connect().await;
        let mut said = vec![5, 1, 0, 5, 1, 0, 1];
        said.extend(host);
        said.extend(fixture.at.port().to_be_bytes());
        client.write_all(&said).await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        // The second is another address, at which nobody listens.
        let expected = if host[3] == 1 { 2 } else { 5 };
        assert_eq!(heard[..4], [5, 0, 5, expected], "{host:?}");
    }
}

#[tokio::test]
async fn who_leaves_while_its_server_is_being_reached_holds_nothing() {
    // A server whose queue is full answers no more attempts.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&HERE.into()).unwrap();
    full.listen(0).unwrap();
    let at = full.local_addr().unwrap().as_socket().unwrap();
    let _first = TcpStream::connect(at).await.unwrap();
    // Another one takes what is asked, and never answers.
    let silent = server().await;
    let silent_at = silent.local_addr().unwrap();
    for (kind, asks) in [
        (EntranceKind::Forward(Target::from(at)), String::new()),
        (EntranceKind::Http, format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n")),
        (EntranceKind::Http, format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n")),
        (EntranceKind::Http, format!("GET http://{silent_at}/ HTTP/1.1\r\nHost: {silent_at}\r\n\r\n")),
    ] {
        let fixture = Fixture::new(kind).await;
        let mut client = fixture.connect().await;
        client.write_all(asks.as_bytes()).await.unwrap();
        while fixture.proxy.sessions().states().first().is_none_or(|session| session.target.is_none()) {
            tokio::task::yield_now().await;
        }
        client.set_zero_linger().unwrap();
        drop(client);
        // Long before the time to reach it is over, which would be told otherwise.
        let told = fixture.told().await;
        assert!(told[0].contains(" the client's connection broke"), "{asks}: {told:?}");
    }
}

#[tokio::test]
async fn nobody_at_home_is_a_reset_of_a_forwarded_connection() {
    let at = server().await.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Forward(Target::from(at))).await;
    let mut client = fixture.connect().await;
    assert!(client.read(&mut [0; 1]).await.is_err());
    assert_eq!(fixture.told().await, ["forward the server refuses the connection"]);
}

#[tokio::test]
async fn socks_leads_to_where_the_client_says() {
    let server = server().await;
    let port = server.local_addr().unwrap().port();
    let fixture = Fixture::new(EntranceKind::Socks).await;
    let mut client = fixture.connect().await;
    // Greeting, request and data at once.
    let mut said = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    said.extend(port.to_be_bytes());
    said.extend(b"early");
    client.write_all(&said).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    let mut early = [0; 5];
    stream.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"early");
    stream.write_all(b"late").await.unwrap();
    drop(stream);
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard[..4], [5, 0, 5, 0]);
    assert!(heard.ends_with(b"late"), "{heard:?}");
    drop(client);

    let mut client = fixture.connect().await;
    drop(server);
    client.write_all(&said[..13]).await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard[..4], [5, 0, 5, 5]);
    drop(client);
    assert_eq!(fixture.told().await, ["socks ended", "socks the server refuses the connection"]);
    let ended = [(("socks", Outcome::Complete), 1), (("socks", Outcome::NotReached), 1)];
    assert_eq!(fixture.proxy.counts().ended, ended.into());
}

#[tokio::test]
async fn datagrams_go_there_and_back() {
    let echo = tokio::net::UdpSocket::bind(HERE).await.unwrap();
    let fixture = Fixture::new(EntranceKind::Socks).await;
    let mut client = fixture.connect().await;
    client.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let mut reply = [0; 12];
    client.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[..6], [5, 0, 5, 0, 0, 1]);
    let at = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([reply[10], reply[11]])));
    let socket = tokio::net::UdpSocket::bind(HERE).await.unwrap();
    let mut datagram = vec![0, 0, 0, 1, 127, 0, 0, 1];
    datagram.extend(echo.local_addr().unwrap().port().to_be_bytes());
    datagram.extend(b"ping");
    socket.send_to(&datagram, at).await.unwrap();
    let mut buffer = [0; 100];
    let (count, source) = echo.recv_from(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..count], b"ping");
    echo.send_to(b"pong", source).await.unwrap();
    let (count, _) = socket.recv_from(&mut buffer).await.unwrap();
    assert_eq!(buffer[..4], [0, 0, 0, 1]);
    assert_eq!(&buffer[10..count], b"pong");
    drop(client);
    assert_eq!(fixture.told().await, ["socks ended"]);
}

/// Answers each request that comes with this, and then closes or resets.
async fn answer_with(server: &TcpListener, answer: &str, resets: bool) -> String {
    let (mut stream, _) = server.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    if resets {
        stream.set_zero_linger().unwrap();
    }
    String::from_utf8(request).unwrap()
}

#[tokio::test]
async fn a_request_with_a_whole_url_goes_to_its_server() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Http).await;
    let mut client = fixture.connect().await;
    let asked = format!(
        "GET http://{at}/a?b HTTP/1.1\r\nHost: other\r\nProxy-Connection: close\r\nConnection: close\r\n\r\n"
    );
    client.write_all(asked.as_bytes()).await.unwrap();
    let request =
        answer_with(&server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: x\r\n\r\nhello", false)
            .await;
    assert!(request.starts_with("GET /a?b HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: {at}\r\n")) && !request.contains("other"), "{request}");
    assert!(
        request.contains("via: 1.1 polypath\r\n") && !request.to_lowercase().contains("proxy"),
        "{request}"
    );
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(!answer.to_lowercase().contains("keep-alive: x"), "{answer}");
    drop(client);
    assert_eq!(fixture.told().await, ["http ended"]);
}

#[tokio::test]
async fn an_answer_that_is_cut_off_does_not_look_whole() {
    for (answer, resets) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false),
        // Without a length its end is the end of the connection, but a reset is none.
        ("HTTP/1.1 200 OK\r\n\r\nhello", true),
    ] {
        let server = server().await;
        let at = server.local_addr().unwrap();
        let fixture = Fixture::new(EntranceKind::Http).await;
        let mut client = fixture.connect().await;
        // The answer to such a client has no length either.
        client.write_all(format!("GET http://{at}/ HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        answer_with(&server, answer, resets).await;
        let mut heard = Vec::new();
        let read = client.read_to_end(&mut heard).await;
        assert!(
            read.is_err() || heard.starts_with(b"HTTP/1.0 502"),
            "{answer:?}: {:?}",
            String::from_utf8_lossy(&heard)
        );
        drop(client);
        let told = fixture.told().await;
        assert!(told[0].contains("server"), "{told:?}");
    }
}

#[tokio::test]
async fn connect_leads_through_and_a_failure_has_a_status() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Http).await;
    let mut client = fixture.connect().await;
    client.write_all(format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\nearly").as_bytes()).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    let mut early = [0; 5];
    stream.read_exact(&mut early).await.unwrap();
    stream.write_all(b"late").await.unwrap();
    drop(stream);
    let mut heard = String::new();
    client.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && heard.ends_with("\r\n\r\nlate"), "{heard}");
    drop((client, server));

    for (asked, status) in [
        (format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n"), "502"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), "400"),
        (format!("POST http://{at}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), "400"),
        (
            format!(
                "POST http://{at}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
            ),
            "400",
        ),
        ("nonsense\r\n\r\n".into(), "400"),
    ] {
        let mut client = fixture.connect().await;
        client.write_all(asked.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = String::new();
        let _ = client.read_to_string(&mut heard).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{asked:?}: {heard:?}");
    }
}

fn with_users() -> Settings {
    let users = |name: &[u8], password: &[u8]| (name, password) == (b"ann", b"secret");
    Settings { users: Some(Arc::new(users)), ..Settings::default() }
}

#[tokio::test]
async fn who_does_not_say_who_it_is_goes_nowhere() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::with(EntranceKind::Http.into(), with_users()).await;
    for (field, status) in [("", "407"), ("Proxy-Authorization: Basic YW5uOndyb25n\r\n", "407")] {
        let mut client = fixture.connect().await;
        client.write_all(format!("CONNECT {at} HTTP/1.1\r\n{field}\r\n").as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        assert!(
            heard.starts_with(&format!("HTTP/1.1 {status} ")) && heard.contains("Basic realm"),
            "{heard}"
        );
    }
    let mut client = fixture.connect().await;
    let asked = format!(
        "GET http://{at}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n"
    );
    client.write_all(asked.as_bytes()).await.unwrap();
    let request = answer_with(&server, "HTTP/1.1 204 No Content\r\n\r\n", false).await;
    assert!(!request.to_lowercase().contains("authorization"), "{request}");
    let mut heard = String::new();
    client.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 204 "), "{heard}");
    drop(client);
    let told = fixture.told().await;
    assert!(told[0].starts_with("http refused: no user name"), "{told:?}");
    assert_eq!(told[2], "ann ended");

    let fixture = Fixture::with(EntranceKind::Socks.into(), with_users()).await;
    let mut client = fixture.connect().await;
    client.write_all(&[5, 1, 0]).await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, [5, 0xff]);
}

#[tokio::test]
async fn a_rule_denies_a_target() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let mut rule = Rule::new(Verdict::Deny);
    rule.ports = vec![at.port().into()];
    let settings = Settings { rules: Rules::new(vec![rule], Verdict::Allow), ..Settings::default() };
    let fixture = Fixture::with(EntranceKind::Http.into(), settings).await;
    let mut client = fixture.connect().await;
    client.write_all(format!("CONNECT {at} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = String::new();
    client.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 403 "), "{heard}");
}

#[tokio::test]
async fn a_server_is_told_who_the_client_is_by_who_is_believed() {
    let server = server().await;
    let here: Network = "127.0.0.0/8".parse().unwrap();
    let entrance = Entrance {
        proxy_protocol_from: vec![here],
        proxy_protocol_to_servers: Some(ProxyProtocolVersion::V1),
        ..EntranceKind::Forward(Target::from(server.local_addr().unwrap())).into()
    };
    let fixture = Fixture::with(entrance, Settings::default()).await;
    let mut client = fixture.connect().await;
    client.write_all(b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 80\r\nhello").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    let port = server.local_addr().unwrap().port();
    assert_eq!(heard, format!("PROXY TCP4 192.0.2.7 127.0.0.1 4711 {port}\r\nhello"));
    drop((stream, client));

    let mut client = fixture.connect().await;
    client.write_all(b"hello, I have no header").await.unwrap();
    let error = client.read_u8().await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "an end would be an empty answer");
    drop(client);
    assert!(fixture.told().await[1].contains("no header of the PROXY protocol"));
}

#[tokio::test]
async fn who_does_not_say_for_whom_it_comes_holds_a_place() {
    let server = server().await;
    let entrance = Entrance {
        proxy_protocol_from: vec!["127.0.0.0/8".parse().unwrap()],
        ..EntranceKind::Forward(Target::from(server.local_addr().unwrap())).into()
    };
    let mut settings = Settings::default();
    settings.limits.all.connections = 2;
    // Of those behind it, not of who leads them here.
    settings.limits.each.connections = 1;
    let fixture = Fixture::with(entrance, settings).await;
    let [mut one, _two, mut three] =
        [fixture.connect().await, fixture.connect().await, fixture.connect().await];
    let error = three.read_u8().await.expect_err("there is no place");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    one.write_all(b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 80\r\nhello").await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.read_exact(&mut [0; 5]).await.unwrap();
    assert_eq!(
        fixture.told.lock().unwrap()[..],
        ["forward refused: all clients together have as many connections as may be"]
    );
}

#[tokio::test]
async fn who_has_to_leave_does_not_take_it_for_the_end() {
    for kind in ["forward", "http"] {
        let server = server().await;
        let at = server.local_addr().unwrap();
        let fixture = match kind {
            "forward" => Fixture::forward_to(&server).await,
            _ => Fixture::new(EntranceKind::Http).await,
        };
        let mut client = fixture.connect().await;
        client.write_all(format!("GET http://{at}/ HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let (mut stream, _) = server.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf").await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"half") {
            assert!(client.read_buf(&mut heard).await.unwrap() > 0);
        }
        assert!(!fixture.proxy.drain(Duration::ZERO).await, "somebody was within");
        let error = client.read_buf(&mut heard).await.expect_err("no end that looks whole");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{kind}");
    }
}

#[tokio::test]
async fn a_reset_while_the_client_sends_is_no_end_either() {
    let server = server().await;
    let fixture = Fixture::forward_to(&server).await;
    let client = fixture.connect().await;
    let (mut reading, mut writing) = client.into_split();
    let sending = async {
        loop {
            if let Err(error) = writing.write_all(&[7; 100_000]).await {
                return error.kind();
            }
        }
    };
    let serving = async {
        let (mut stream, _) = server.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(b"part").await.unwrap();
        // Unread bytes fill the way up, so that whoever writes there meets the reset first.
        tokio::time::sleep(Duration::from_millis(200)).await;
        stream.set_zero_linger().unwrap();
    };
    let hearing = async {
        let mut heard = Vec::new();
        reading.read_to_end(&mut heard).await.map(|_| heard)
    };
    let (heard, (), unsent) = tokio::join!(hearing, serving, sending);
    // A system gives such an error once: the client has it by reading, or by writing.
    assert!(heard.is_err() || unsent == ErrorKind::ConnectionReset, "{heard:?} looks whole, {unsent}");
    assert!(fixture.told().await[0].starts_with("forward the server's connection broke"));
}

#[tokio::test]
async fn the_body_of_a_get_in_chunks_is_passed_on() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Http).await;
    let mut client = fixture.connect().await;
    let asked = format!(
        "GET http://{at}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    );
    client.write_all(asked.as_bytes()).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n0\r\n\r\n") {
        assert!(stream.read_buf(&mut request).await.unwrap() > 0, "{}", String::from_utf8_lossy(&request));
    }
    let request = String::from_utf8(request).unwrap();
    assert!(
        request.contains("transfer-encoding: chunked\r\n") && request.contains("\r\n\r\n5\r\nhello"),
        "{request}"
    );
}

#[tokio::test]
async fn an_upload_that_is_cut_off_is_a_reset_for_its_server_and_the_clients_fault() {
    for (framing, cut) in [("Transfer-Encoding: chunked", "3\r\nabcXX"), ("Content-Length: 9", "abc")] {
        let server = server().await;
        let at = server.local_addr().unwrap();
        let fixture = Fixture::new(EntranceKind::Http).await;
        let mut client = fixture.connect().await;
        client
            .write_all(format!("PUT http://{at}/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let (mut stream, _) = server.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        client.write_all(cut.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let heard = stream.read_to_end(&mut request).await;
        assert_eq!(heard.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset), "{framing}");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{framing}: {answer}");
    }
}

#[tokio::test]
async fn a_connect_with_a_body_leads_nowhere() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Http).await;
    let mut client = fixture.connect().await;
    client
        .write_all(format!("CONNECT {at} HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").as_bytes())
        .await
        .unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
}

fn short(asking: u64, answering: u64, idle: u64) -> Settings {
    let [asking, answering, idle] = [asking, answering, idle].map(Duration::from_millis);
    let timeouts = Timeouts { asking, answering, idle: Some(idle), ..Timeouts::default() };
    Settings { timeouts, ..Settings::default() }
}

#[tokio::test]
async fn a_client_that_rests_still_gets_all_of_its_answer() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::with(EntranceKind::Http.into(), short(100, 60_000, 60_000)).await;
    let mut client = fixture.connect().await;
    client.write_all(format!("GET http://{at}/ HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let body = "x".repeat(200_000);
    answer_with(&server, &format!("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n{body}"), false).await;
    // Nobody is within once the proxy has closed it, and nothing has been read by then.
    fixture.proxy.sessions().drained().await;
    let mut heard = String::new();
    client.read_to_string(&mut heard).await.expect("an end in order");
    assert!(heard.ends_with(&body), "{} bytes", heard.len());
}

#[tokio::test]
async fn an_upload_that_moves_is_not_given_up_and_one_that_stalls_is() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::with(EntranceKind::Http.into(), short(60_000, 2_000, 60_000)).await;
    let mut client = fixture.connect().await;
    let asked = format!("PUT http://{at}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n");
    client.write_all(asked.as_bytes()).await.unwrap();
    let slowly = async {
        for _ in 0..12 {
            tokio::time::sleep(Duration::from_millis(250)).await;
            client.write_all(b"x").await.unwrap();
        }
    };
    let serving = async {
        let mut request = String::new();
        let (mut stream, _) = server.accept().await.unwrap();
        while !request.ends_with("xxxxxxxxxxxx") {
            request.push(stream.read_u8().await.unwrap() as char);
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        stream
    };
    let ((), _open) = tokio::join!(slowly, serving);
    let mut heard = vec![0; 12];
    client.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, b"HTTP/1.1 204");

    let mut client = fixture.connect().await;
    client.write_all(asked.as_bytes()).await.unwrap();
    let mut heard = vec![0; 12];
    client.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, b"HTTP/1.1 504");
}

#[tokio::test]
async fn an_answer_that_stalls_is_given_up() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::with(EntranceKind::Http.into(), short(60_000, 60_000, 200)).await;
    let mut client = fixture.connect().await;
    client.write_all(format!("GET http://{at}/ HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.read_u8().await.unwrap();
    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf").await.unwrap();
    let mut heard = Vec::new();
    assert!(client.read_to_end(&mut heard).await.is_err(), "{heard:?} looks whole");
}

#[tokio::test]
async fn both_connections_are_shown_while_requests_are_answered() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::new(EntranceKind::Http).await;
    let mut client = fixture.connect().await;
    client.write_all(format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut stream, from) = server.accept().await.unwrap();
    stream.read_exact(&mut [0; 16]).await.unwrap();
    let [state] = &fixture.proxy.sessions().states()[..] else { panic!("one within") };
    assert_eq!(state.server, Some(at));
    let ends = |side: &Option<polypath_stack::engine::StreamInfo>| {
        let [path] = &side.as_ref().expect("a connection").subflows[..] else { panic!("one path") };
        (SocketAddr::from(path.tuple.local), SocketAddr::from(path.tuple.remote))
    };
    assert_eq!(ends(&state.client_side), (fixture.at, client.local_addr().unwrap()));
    assert_eq!(ends(&state.server_side), (from, at));
    drop((stream, client));
    assert_eq!(fixture.told().await.len(), 1);
}
