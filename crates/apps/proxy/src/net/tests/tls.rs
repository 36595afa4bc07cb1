//! Clients that come by TLS.

mod via;

use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::net::EntranceTls;

/// Who vouches for others.
struct Authority {
    own: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub(super) struct Shown(CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap().der().clone();
        Self { own, issuer: Issuer::new(params, key) }
    }

    fn vouch(&self, name: &str, until: i32) -> Shown {
        self.vouch_for(name, "127.0.0.1", (2020, until), Vec::new())
    }

    fn vouch_for(
        &self,
        name: &str,
        place: &str,
        (from, until): (i32, i32),
        purposes: Vec<ExtendedKeyUsagePurpose>,
    ) -> Shown {
        let mut params = CertificateParams::new([place.into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        params.extended_key_usages = purposes;
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        Shown(made.der().clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    fn alone(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.own.clone()).unwrap();
        roots
    }
}

impl Shown {
    fn with_key(self) -> CertifiedKey {
        let Self(certificate, key) = self;
        CertifiedKey::from_der(vec![certificate], key, &ring::default_provider()).unwrap()
    }
}

/// The one that is known here.
fn authority() -> &'static Authority {
    static KNOWN: OnceLock<Authority> = OnceLock::new();
    KNOWN.get_or_init(|| Authority::new("the one"))
}

/// Shows clients a certificate; they have to show one, too, if `is_mutual`.
pub(super) fn entrance(kind: EntranceKind, is_mutual: bool) -> Entrance {
    showing(authority().vouch("proxy", 2090), kind, is_mutual)
}

fn showing(shown: Shown, kind: EntranceKind, is_mutual: bool) -> Entrance {
    let clients = is_mutual.then(|| authority().alone());
    let protocol = matches!(kind, EntranceKind::Http).then_some(&b"http/1.1"[..]);
    Entrance { tls: Some(EntranceTls::new(shown.with_key(), clients, protocol).unwrap()), ..kind.into() }
}

/// The handshake of a client that shows this.
pub(super) async fn secured<S>(stream: S, shown: Option<Shown>) -> std::io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(authority().alone().into(), provider.clone());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_webpki_verifier(verifier.build().unwrap());
    let config = match shown {
        Some(Shown(certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// What is heard while all of this is said and then the end.
async fn exchange(stream: impl AsyncRead + AsyncWrite, said: &[u8]) -> Vec<u8> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let saying = async {
        writing.write_all(said).await.unwrap();
        writing.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let ((), read) = tokio::join!(saying, reading.read_to_end(&mut heard));
    // An end of TLS that is not said would be an error.
    read.unwrap();
    heard
}

/// Between a client of the proxy and its server.
async fn exchange_with(
    client: impl AsyncRead + AsyncWrite,
    server: &TcpListener,
    [sent, answered]: [&[u8]; 2],
) {
    let serving = async { exchange(server.accept().await.unwrap().0, answered).await };
    let (answer, request) = tokio::join!(exchange(client, sent), serving);
    assert!(request == sent && answer == answered, "{} {}", request.len(), answer.len());
}

impl Fixture {
    /// A client without a certificate.
    pub(super) async fn connect_by_tls(&self) -> TlsStream<TcpStream> {
        secured(self.connect().await, None).await.expect("a handshake")
    }

    /// A client that shows this, and asks to be led to that server: what it hears.
    async fn ask_for(&self, at: SocketAddr, shown: Option<Shown>) -> std::io::Result<String> {
        let mut client = secured(self.connect().await, shown).await?;
        let asked = format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n");
        client.write_all(asked.as_bytes()).await?;
        let mut heard = String::new();
        client.read_to_string(&mut heard).await?;
        client.shutdown().await.map(|()| heard)
    }
}

#[tokio::test]
async fn every_byte_arrives_by_tls_and_each_half_ends_by_itself() {
    for proxies in [1, 2] {
        let server = server().await;
        let (sent, answered) = (pattern(5_000_001), pattern(7_000_003));
        let behind = Fixture::forward_to(&server).await;
        let target = if proxies == 1 { server.local_addr().unwrap() } else { behind.at };
        let kind = EntranceKind::Forward(Target::from(target));
        let fixture = Fixture::with(entrance(kind, false), Settings::default()).await;
        exchange_with(fixture.connect_by_tls().await, &server, [&sent, &answered]).await;
        assert_eq!(fixture.told().await, ["forward ended"]);
        let carried = Carried { to_server_bytes: 5_000_001, to_client_bytes: 7_000_003 };
        assert_eq!(fixture.proxy.counts().carried, carried);
    }
}

#[tokio::test]
async fn socks_and_requests_come_by_tls_too() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::with(entrance(EntranceKind::Socks, false), Settings::default()).await;
    let mut client = fixture.connect_by_tls().await;
    let mut said = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    said.extend(at.port().to_be_bytes());
    client.write_all(&said).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    drop(stream);
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert!(heard.starts_with(&[5, 0, 5, 0]) && heard.ends_with(b"hello"), "{heard:?}");
    // Its datagrams would be in the clear.
    let mut client = fixture.connect_by_tls().await;
    client.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard[..4], [5, 0, 5, 2]);

    let fixture = Fixture::with(entrance(EntranceKind::Http, false), Settings::default()).await;
    let mut client = fixture.connect_by_tls().await;
    // Two requests, one after the other.
    for _ in 0..2 {
        let asked = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n");
        client.write_all(asked.as_bytes()).await.unwrap();
        answer_with(&server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", false)
            .await;
        let mut heard = Vec::new();
        while !heard.ends_with(b"hello") {
            assert!(client.read_buf(&mut heard).await.unwrap() > 0, "{:?}", String::from_utf8_lossy(&heard));
        }
    }
    client.shutdown().await.unwrap();
    client.read_to_end(&mut Vec::new()).await.expect("an end that was said");
    assert_eq!(fixture.told().await, ["http ended", "http ended"]);
}

#[tokio::test]
async fn who_shows_the_right_certificate_comes_in_by_its_name_and_nobody_else() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let fixture = Fixture::with(entrance(EntranceKind::Http, true), Settings::default()).await;
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = server.accept().await.unwrap();
            stream.write_all(b"welcome").await.unwrap();
        }
    });
    let heard = fixture.ask_for(at, Some(authority().vouch("ann", 2090))).await.expect("to come in");
    assert!(heard.starts_with("HTTP/1.1 200 ") && heard.ends_with("welcome"), "{heard}");
    for (shown, says) in [
        (None, "CertificateRequired"),
        (Some(authority().vouch("ann", 2021)), "CertificateExpired"),
        (Some(Authority::new("another").vouch("ann", 2090)), "UnknownCA"),
    ] {
        let error = fixture.ask_for(at, shown).await.expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    let told = fixture.told().await;
    let says = [
        "ann ended",
        "http refused: it shows no certificate, which is wanted here",
        "http refused: its certificate is not taken here: it has expired",
        "http refused: its certificate is not taken here: no authority that is trusted here has signed it",
    ];
    assert_eq!(told.len(), says.len(), "{told:?}");
    assert!(told.iter().zip(says).all(|(line, says)| line.starts_with(says)), "{told:?}");
    assert_eq!(fixture.proxy.counts().ended[&("http", Outcome::Refused)], 3);
    serving.abort();
}

#[tokio::test]
async fn rules_of_users_hold_for_the_names_in_certificates() {
    let server = server().await;
    let at = server.local_addr().unwrap();
    let mut rule = Rule::new(Verdict::Allow);
    rule.users = ["ann".into()].into();
    let settings = Settings { rules: Rules::new(vec![rule], Verdict::Deny), ..Settings::default() };
    let fixture = Fixture::with(entrance(EntranceKind::Http, true), settings).await;
    let heard = fixture.ask_for(at, Some(authority().vouch("ben", 2090))).await;
    // It is told so, and may ask again.
    assert!(heard.is_err() || heard.is_ok_and(|heard| heard.starts_with("HTTP/1.1 403 ")));
    let asking = fixture.ask_for(at, Some(authority().vouch("ann", 2090)));
    let (heard, ()) = tokio::join!(asking, async { drop(server.accept().await.unwrap()) });
    assert!(heard.is_ok_and(|heard| heard.starts_with("HTTP/1.1 200 ")));
}

#[tokio::test]
async fn an_end_that_is_not_said_is_none() {
    for kind in ["forward", "http"] {
        let server = server().await;
        let at = server.local_addr().unwrap();
        let entered = if kind == "forward" { EntranceKind::Forward(at.into()) } else { EntranceKind::Http };
        let fixture = Fixture::with(entrance(entered, false), Settings::default()).await;
        let mut client = fixture.connect_by_tls().await;
        if kind == "http" {
            client
                .write_all(format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())
                .await
                .unwrap();
        }
        client.write_all(b"a part of it").await.unwrap();
        let (mut stream, _) = server.accept().await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        // What carries it ends in order, of which anybody on the way may be the cause.
        let (mut carrying, _) = client.into_inner();
        carrying.shutdown().await.unwrap();
        let error = stream.read_to_end(&mut Vec::new()).await.expect_err("no end in order");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        drop(carrying);
        let told = fixture.told().await;
        assert!(told[0].starts_with(&format!("{kind} the client's connection broke")), "{told:?}");
    }
}

#[tokio::test]
async fn who_says_nothing_holds_a_place_as_long_as_it_may_ask() {
    let mut settings = short(300, 60_000, 60_000);
    settings.limits.each.connections = 1;
    let fixture = Fixture::with(entrance(EntranceKind::Http, true), settings).await;
    let mut silent = fixture.connect().await;
    while fixture.proxy.sessions().count() == 0 {
        tokio::task::yield_now().await;
    }
    let mut other = fixture.connect().await;
    assert!(other.read(&mut [0; 1]).await.is_err(), "there is no place");
    assert!(matches!(silent.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    let told = fixture.told().await;
    assert!(told[0].starts_with("http refused: this client has"), "{told:?}");
    assert_eq!(told[1], "http the client came through no handshake of TLS in the time for it");
    assert_eq!(fixture.proxy.counts().ended[&("http", Outcome::Unasked)], 1);
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_of() {
    let fixture = Fixture::with(entrance(EntranceKind::Http, false), Settings::default()).await;
    let mut client = fixture.connect().await;
    client.write_all(b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    // An alert, and nothing that looks like an answer.
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard.first(), Some(&21), "{heard:?}");
    assert_eq!(fixture.told().await, ["http refused: it does not speak TLS, which is spoken here"]);
}

#[tokio::test]
async fn who_leaves_before_the_handshake_is_over_is_told_of() {
    let fixture = Fixture::with(entrance(EntranceKind::Http, false), Settings::default()).await;
    let mut client = fixture.connect().await;
    // The begin of a record of a handshake.
    client.write_all(&[22, 3, 1]).await.unwrap();
    client.shutdown().await.unwrap();
    assert!(matches!(client.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    assert_eq!(fixture.told().await, ["http the client left before the handshake of TLS was over"]);
}

#[tokio::test]
async fn a_header_of_the_proxy_protocol_comes_before_tls() {
    let server = server().await;
    let mut entrance = entrance(EntranceKind::Forward(server.local_addr().unwrap().into()), false);
    entrance.proxy_protocol_from = vec!["127.0.0.0/8".parse().unwrap()];
    entrance.proxy_protocol_to_servers = Some(ProxyProtocolVersion::V1);
    let fixture = Fixture::with(entrance, Settings::default()).await;
    let mut carrying = fixture.connect().await;
    carrying.write_all(b"PROXY TCP4 192.0.2.9 192.0.2.1 4000 443\r\n").await.unwrap();
    let mut client = secured(carrying, None).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("PROXY TCP4 192.0.2.9 ") && heard.ends_with("\r\nhello"), "{heard}");
}

#[tokio::test]
async fn limits_hold_back_who_comes_by_tls() {
    let server = server().await;
    let kind = EntranceKind::Forward(server.local_addr().unwrap().into());
    let fixture = Fixture::with(entrance(kind, false), Settings::default()).await;
    let mut limit = crate::throttle::Limit::new("slow");
    limit.rate = Some(polypath_units::BitRate::from_mbps(20));
    fixture.proxy.set_limit(limit).unwrap();
    let (sent, answered) = (pattern(400_000), pattern(300_000));
    let client = fixture.connect_by_tls().await;
    let exchanging = exchange_with(client, &server, [&sent, &answered]);
    tokio::join!(exchanging, limits::held_back(&fixture.proxy));
}
