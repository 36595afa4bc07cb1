//! Clients of HTTPS and HTTP/2 that mean no good, and one that does.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, client};
use hyper::Request;
use polypath_stack::Engine;
use polypath_stack::engine::KernelEngine;
use rcgen::generate_simple_self_signed;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::web::certificate::Certificate;
use crate::web::files::FileServer;
use crate::web::limits::{BODY_LIMIT, HEADER_LIMIT};
use crate::web::server::{ServeOptions, serve};
use crate::web::tls::Tls;

const BYTES: usize = 1_000_000;

/// A server of one file.
struct Site {
    _folder: TempDir,
    at: SocketAddr,
    files: FileServer,
    connector: TlsConnector,
    serving: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Site {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), vec![7; BYTES]).expect("room");
        let made = generate_simple_self_signed(["localhost".into()]).expect("a certificate");
        let certificate = made.cert.der().clone();
        let pair = Certificate::of_der(certificate.to_vec(), made.signing_key.serialize_der());
        let tls = Tls::new(pair.expect("a pair")).expect("TLS");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let engine = Engine::Kernel(KernelEngine::plain_tcp());
        let listener = engine.listen(([127, 0, 0, 1], 0).into()).await.expect("a listener");
        let at = listener.local_addr().expect("its address");
        let files = FileServer::new(folder.path(), false).expect("a directory");
        let options = ServeOptions { tls: Some(tls), ..ServeOptions::default() };
        let serving = tokio::spawn(serve(files.clone(), listener, options, pending(), |_| ()));
        Self { _folder: folder, at, files, connector: TlsConnector::from(Arc::new(config)), serving }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.at).await.expect("a connection");
        let name = ServerName::try_from("localhost").expect("a name");
        self.connector.connect(name, stream).await.expect("TLS")
    }

    /// A client whose window has so many bytes; what its connection ends with.
    async fn client(&self, window: u32) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
        let mut builder = client::Builder::new();
        builder.initial_window_size(window).max_concurrent_reset_streams(1 << 20);
        let (send, connection) = builder.handshake(self.connect().await).await.expect("HTTP/2");
        (send, tokio::spawn(connection))
    }

    /// Fetches the file, by a client of its own.
    async fn fetched(&self) -> usize {
        let (send, _connection) = self.client(1 << 20).await;
        let mut send = send.ready().await.expect("a connection");
        let (answer, _) = send.send_request(request(), true).expect("a request");
        let mut body = answer.await.expect("an answer").into_body();
        let mut bytes = 0;
        while let Some(data) = body.data().await {
            let data = data.expect("no error");
            body.flow_control().release_capacity(data.len()).expect("what came");
            bytes += data.len();
        }
        bytes
    }
}

fn request() -> Request<()> {
    Request::get("https://localhost/file").body(()).expect("a request")
}

#[tokio::test(start_paused = true)]
async fn whoever_begins_with_tls_and_does_not_go_on_is_let_go() {
    let site = Site::new().await;
    for begun in [&[][..], &[22], &[22, 3, 1, 2, 0, 1]] {
        let mut stream = TcpStream::connect(site.at).await.expect("a connection");
        stream.write_all(begun).await.expect("room");
        let began = Instant::now();
        // A reset is an end, too.
        let _ = stream.read_to_end(&mut Vec::new()).await;
        assert_eq!(began.elapsed().as_secs(), HEADER_LIMIT.as_secs(), "{begun:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_nothing_by_http2_is_let_go() {
    let site = Site::new().await;
    for begun in [
        &b""[..],
        b"PRI * HT",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        let mut stream = site.connect().await;
        stream.write_all(begun).await.expect("room");
        let began = Instant::now();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        let limit = HEADER_LIMIT.as_secs();
        assert!((limit..=2 * limit + 1).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_opens_no_window_is_let_go() {
    let site = Site::new().await;
    let (send, connection) = site.client(10).await;
    let mut send = send.ready().await.expect("a connection");
    let (answer, _) = send.send_request(request(), true).expect("a request");
    let began = Instant::now();
    let _body = answer.await.expect("an answer").into_body();
    let _ = connection.await.expect("no panic");
    let limit = BODY_LIMIT.as_secs();
    assert!((limit..=limit + 10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(site.fetched().await, BYTES);
}

#[tokio::test]
async fn requests_that_are_taken_back_unseen_end_the_connection() {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let (headers, reset, settings, go_away) = (1, 3, 4, 7);
    let ends = 0x05;
    // GET, https, /, and localhost, in the words of HPACK.
    let fields = [&[0x82, 0x87, 0x84, 0x41, 9], &b"localhost"[..]].concat();
    let mut sent = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(settings, 0, 0, &[])].concat();
    for stream in (1..400).step_by(2) {
        sent.extend(frame(headers, ends, stream, &fields));
        sent.extend(frame(reset, 0, stream, &8_u32.to_be_bytes()));
    }
    let site = Site::new().await;
    let mut connection = site.connect().await;
    connection.write_all(&sent).await.expect("room");
    let mut came = Vec::new();
    // It may end with a reset, behind what it says.
    let _ = connection.read_to_end(&mut came).await;
    let mut rest = &*came;
    let mut reason = None;
    while let [a, b, c, kind, _, _, _, _, _, payload @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (payload, behind) = payload.split_at(length.min(payload.len()));
        if *kind == go_away {
            reason = payload.get(4..8).map(<[u8]>::to_vec);
        }
        rest = behind;
    }
    let enhance_your_calm = 11_u32.to_be_bytes().to_vec();
    assert_eq!(reason, Some(enhance_your_calm));
    assert_eq!(site.fetched().await, BYTES, "an honest one is served");
}

#[tokio::test]
async fn requests_that_are_taken_back_at_once_cost_little() {
    let site = Site::new().await;
    let (send, connection) = site.client(1 << 20).await;
    let mut taken_back = 0;
    let mut next = send.ready().await.ok();
    while let Some(mut send) = next.filter(|_| taken_back < 20_000) {
        let Ok((_, mut stream)) = send.send_request(request(), true) else { break };
        // The request leaves, and after it that nobody wants it any more.
        tokio::task::yield_now().await;
        stream.send_reset(Reason::CANCEL);
        taken_back += 1;
        next = send.ready().await.ok();
    }
    assert_eq!(site.fetched().await, BYTES, "an honest one is served");
    // Told to go, or gone by itself.
    let _ = connection.await.expect("no panic");
    for _ in 0..500 {
        if site.files.held_bytes() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} bytes are held for nobody", site.files.held_bytes());
}
