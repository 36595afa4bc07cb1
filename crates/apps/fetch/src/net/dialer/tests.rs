use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::super::TlsOptions;
use super::*;

/// A certificate for `localhost`, and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Identity {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn of_an_authority() -> Self {
        Self::with(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained))
    }

    fn with(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        Self { certificate: params.self_signed(&key).unwrap().der().clone(), key }
    }

    fn acceptor(&self, alpn: &[u8]) -> TlsAcceptor {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let mut config = builder.with_single_cert(vec![self.certificate.clone()], key.into()).unwrap();
        config.alpn_protocols = vec![alpn.to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// What trusts it alone.
    fn tls(&self) -> Tls {
        let folder = tempfile::tempdir().unwrap();
        let file: PathBuf = folder.path().join("ca.pem");
        let text = BASE64_STANDARD.encode(&self.certificate);
        std::fs::write(&file, format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"))
            .unwrap();
        Tls::new(&TlsOptions { ca_file: Some(file), ..TlsOptions::default() }).unwrap()
    }
}

fn no_tls() -> Tls {
    Tls::new(&TlsOptions { is_unverified: true, ..TlsOptions::default() }).unwrap()
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn url(text: &str) -> Url {
    text.parse().unwrap()
}

/// Answers each connection with what it sends, in small letters.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut asked = [0; 5];
    stream.read_exact(&mut asked).await.unwrap();
    stream.write_all(&asked.to_ascii_lowercase()).await.unwrap();
    let _ = stream.shutdown().await;
}

async fn ask(mut stream: Stream) -> String {
    stream.write_all(b"HELLO").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A server with TLS; returns its port.
async fn tls_server(identity: &Identity, alpn: &[u8]) -> u16 {
    let (listener, port) = listener().await;
    let acceptor = identity.acceptor(alpn);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer(stream).await;
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_connection_goes_over_the_interface_that_is_named() {
    let (listener, port) = listener().await;
    tokio::spawn(async move { answer(listener.accept().await.unwrap().0).await });
    let dialer = Dialer::new(Some("lo"), no_tls());
    // A name with addresses of both families: nobody listens at one of them.
    let stream = dialer.dial(&url(&format!("http://localhost:{port}/"))).await.unwrap();
    assert!(!stream.is_tls());
    assert_eq!(stream.peer_addr().unwrap(), SocketAddr::from(([127, 0, 0, 1], port)));
    assert!(stream.local_addr().unwrap().ip().is_loopback());
    // The handshake measured it.
    assert!(stream.round_trip_time().unwrap().is_some());
    assert_eq!(ask(stream).await, "hello");
}

#[tokio::test]
async fn tls_is_opened_to_whom_the_certificate_names() {
    let identity = Identity::new();
    let port = tls_server(&identity, b"http/1.1").await;
    let dialer = Dialer::new(Some("lo"), identity.tls());
    let stream = dialer.dial(&url(&format!("https://localhost:{port}/"))).await.unwrap();
    assert!(stream.is_tls() && stream.round_trip_time().unwrap().is_some());
    assert_eq!(ask(stream).await, "hello");
    // The same server under a name that is not in the certificate.
    let error = dialer.dial(&url(&format!("https://127.0.0.1:{port}/"))).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::Tls(_)), "{error}");
    let expected = format!("127.0.0.1:{port} over lo: TLS: the server's certificate is for another name");
    assert_eq!(error.to_string(), expected);
    // Unless nothing is verified.
    let unverified = Dialer::new(Some("lo"), no_tls());
    let stream = unverified.dial(&url(&format!("https://127.0.0.1:{port}/"))).await.unwrap();
    assert_eq!(ask(stream).await, "hello");
}

#[tokio::test]
async fn a_certificate_of_somebody_else_is_refused() {
    let port = tls_server(&Identity::new(), b"http/1.1").await;
    let dialer = Dialer::new(None, Identity::new().tls());
    let error = dialer.dial(&url(&format!("https://localhost:{port}/"))).await.unwrap_err();
    let expected = "TLS: the server's certificate is signed by nobody that this host trusts";
    assert_eq!(error.to_string(), format!("localhost:{port}: {expected}"));
}

/// As openssl makes it by `req -x509`.
#[tokio::test]
async fn a_certificate_signed_by_itself_is_taken_for_its_names_by_whoever_names_it() {
    let identity = Identity::of_an_authority();
    let port = tls_server(&identity, b"http/1.1").await;
    let dialer = Dialer::new(None, identity.tls());
    let stream = dialer.dial(&url(&format!("https://localhost:{port}/"))).await.unwrap();
    assert_eq!(ask(stream).await, "hello");
    let error = dialer.dial(&url(&format!("https://127.0.0.1:{port}/"))).await.unwrap_err();
    assert!(error.to_string().ends_with("TLS: the server's certificate is for another name"), "{error}");
    let other = Dialer::new(None, Identity::of_an_authority().tls());
    let error = other.dial(&url(&format!("https://localhost:{port}/"))).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::Tls(_)), "{error}");
}

#[tokio::test]
async fn a_server_of_another_protocol_is_refused() {
    let identity = Identity::new();
    let port = tls_server(&identity, b"h2").await;
    let error = Dialer::new(None, identity.tls()).dial(&url(&format!("https://localhost:{port}/"))).await;
    assert!(matches!(error.unwrap_err().failure(), Failure::Tls(_) | Failure::Protocol));
}

#[tokio::test]
async fn tls_that_ends_without_a_word_is_no_end() {
    let identity = Identity::new();
    let (listener, port) = listener().await;
    let acceptor = identity.acceptor(b"http/1.1");
    tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        stream.write_all(b"hel").await.unwrap();
        stream.flush().await.unwrap();
        // Only TCP ends.
        stream.get_mut().0.shutdown().await.unwrap();
        // Not before the client has read it all: what it sent would reset the connection.
        let _ = stream.get_mut().0.read(&mut [0; 100]).await;
    });
    let dialer = Dialer::new(None, identity.tls());
    let mut stream = dialer.dial(&url(&format!("https://localhost:{port}/"))).await.unwrap();
    let mut read = Vec::new();
    let error = stream.read_to_end(&mut read).await.unwrap_err();
    assert_eq!((error.kind(), read.as_slice()), (io::ErrorKind::UnexpectedEof, &b"hel"[..]));
}

#[tokio::test]
async fn an_interface_that_is_unknown_says_so() {
    let dialer = Dialer::new(Some("no-such0"), no_tls());
    assert_eq!(dialer.interface(), Some("no-such0"));
    let error = dialer.dial(&url("http://127.0.0.1:9/")).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::UnknownInterface { .. }));
    let begin = "127.0.0.1:9 over no-such0: there is no such interface; there are ";
    assert!(error.to_string().starts_with(begin) && error.to_string().contains("lo"), "{error}");
}

#[tokio::test]
async fn what_can_not_be_reached_is_said_in_one_line() {
    let (listener, port) = listener().await;
    drop(listener);
    let dialer = Dialer::new(Some("lo"), no_tls());
    let error = dialer.dial(&url(&format!("http://127.0.0.1:{port}/"))).await.unwrap_err().to_string();
    assert_eq!(error, format!("127.0.0.1:{port} over lo: 127.0.0.1:{port}: Connection refused"));
    let error = dialer.dial(&url("ftp://me:secret@host/file")).await.unwrap_err().to_string();
    let expected = "expected a URL such as http://HOST/FILE or https://HOST/FILE";
    assert_eq!(error, format!("ftp://host/file over lo: {expected}"));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for_longer_than_asked() {
    let (_listener, port) = listener().await;
    let dialer = Dialer::new(None, no_tls()).with_patience(Duration::from_millis(50));
    let error = dialer.dial(&url(&format!("https://127.0.0.1:{port}/"))).await.unwrap_err().to_string();
    assert_eq!(error, format!("127.0.0.1:{port}: no connection within 0.05 s"));
}

/// Reads a head, as text.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A proxy for `me` with the password `pass`, that connects to a port whatever it is asked for.
async fn http_proxy(to: u16) -> u16 {
    let (listener, port) = listener().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = read_head(&mut stream).await;
                let authorization =
                    format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode("me:pass"));
                if !head.contains(&authorization) {
                    let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
                    return stream.write_all(refusal.as_bytes()).await.unwrap();
                }
                if !head.starts_with("CONNECT host.invalid:443 HTTP/1.1\r\nHost: host.invalid:443\r\n") {
                    return stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await.unwrap();
                }
                let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 Connected\r\nVia: test\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_proxy_with_a_password_carries_tls() {
    let port = http_proxy(tls_server(&Identity::new(), b"http/1.1").await).await;
    let by = |user: &str| {
        let proxy = format!("http://{user}127.0.0.1:{port}").parse().unwrap();
        Dialer::new(Some("lo"), no_tls()).with_proxy(proxy)
    };
    // Only the proxy resolves the name.
    let to = url("https://host.invalid/file");
    assert_eq!(ask(by("me:pass@").dial(&to).await.unwrap()).await, "hello");
    let error = by("me:other@").dial(&to).await.unwrap_err().to_string();
    let expected = "host.invalid:443 over lo: the proxy wants a user and a password";
    assert_eq!(error, format!("{expected}: those that were sent are wrong"));
    let error = by("").dial(&to).await.unwrap_err().to_string();
    assert_eq!(error, format!("{expected}: none were given"));
    let error = by("me:pass@").dial(&url("https://other.invalid/")).await.unwrap_err().to_string();
    assert_eq!(error, "other.invalid:443 over lo: the proxy answers with status 502");
}

#[tokio::test]
async fn requests_are_written_as_server_or_proxy_wants_them() {
    let written = |dialer: &Dialer, text: &str| {
        let mut connection = crate::http1::Connection::new();
        connection.request(dialer.request(Method::Get, &url(text)).unwrap());
        String::from_utf8(connection.poll_transmit().unwrap().to_vec()).unwrap()
    };
    let (direct, basic) = (Dialer::new(None, no_tls()), BASE64_STANDARD.encode("me:pass"));
    let text = "http://me:pass@host:8080/a%20b?c#d";
    assert_eq!(
        written(&direct, text),
        format!("GET /a%20b?c HTTP/1.1\r\nHost: host:8080\r\nAuthorization: Basic {basic}\r\n\r\n")
    );
    assert_eq!(written(&direct, "https://[::1]:443"), "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n");
    let proxied = direct.clone().with_proxy("http://me:pass@proxy:3128".parse().unwrap());
    assert_eq!(
        written(&proxied, "http://host/file"),
        format!("GET http://host/file HTTP/1.1\r\nHost: host\r\nProxy-Authorization: Basic {basic}\r\n\r\n")
    );
    assert_eq!(written(&proxied, "https://host/file"), "GET /file HTTP/1.1\r\nHost: host\r\n\r\n");
    assert!(direct.request(Method::Get, &url("mailto:me@host")).is_err());
}

#[tokio::test]
async fn a_socks_proxy_resolves_the_name() {
    let (listener, port) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // Version 5; methods: none, and user with password. The latter is chosen.
        let mut begin = [0; 2];
        stream.read_exact(&mut begin).await.unwrap();
        let mut methods = vec![0; begin[1].into()];
        stream.read_exact(&mut methods).await.unwrap();
        assert!(begin[0] == 5 && methods.contains(&2));
        stream.write_all(&[5, 2]).await.unwrap();
        let mut user = [0; 10];
        stream.read_exact(&mut user).await.unwrap();
        assert_eq!(&user, b"\x01\x02me\x05pa:ss");
        stream.write_all(&[1, 0]).await.unwrap();
        let mut target = [0; 4 + 1 + 12 + 2];
        stream.read_exact(&mut target).await.unwrap();
        assert_eq!(&target, b"\x05\x01\x00\x03\x0chost.invalid\x00\x50");
        stream.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 80]).await.unwrap();
        answer(stream).await;
    });
    let proxy = format!("socks5h://me:pa%3Ass@127.0.0.1:{port}").parse().unwrap();
    let dialer = Dialer::new(Some("lo"), no_tls()).with_proxy(proxy);
    let stream = dialer.dial(&url("http://host.invalid/")).await.unwrap();
    assert_eq!(ask(stream).await, "hello");
    server.await.unwrap();
}
