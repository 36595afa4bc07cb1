//! A server of one file that does what it is told, good or bad.

mod http2;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use url::Url;

/// What a server is like.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    pub(super) has_ranges: bool,
    pub(super) is_chunked: bool,
    pub(super) etag: Option<String>,
    /// Of each connection.
    pub(super) bytes_per_second: Option<u64>,
    /// So many answers on a connection.
    pub(super) closes_after: Option<usize>,
    /// The first connections break after so many bytes of a body.
    pub(super) breaks_after: Vec<usize>,
    /// The file is another one after so many answers.
    pub(super) changes_after: Option<usize>,
    pub(super) shifts_ranges_by: usize,
    pub(super) sends_more_by: usize,
    /// Ranges end earlier: after so many bytes, or in their middle.
    pub(super) most_of_range: Option<usize>,
    pub(super) halves_ranges: bool,
    /// All connections break in the middle of their first answer.
    pub(super) is_cut_off: bool,
    pub(super) digest: Option<[u8; 32]>,
    pub(super) has_random_digests: bool,
    pub(super) status: Option<u16>,
    pub(super) location: Option<String>,
    pub(super) is_page: bool,
    /// All answers set it.
    pub(super) set_cookie: Option<&'static str>,
    /// It has TLS, and speaks these inside.
    pub(super) alpn: Option<&'static [&'static str]>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            has_ranges: true,
            is_chunked: false,
            etag: Some("\"one\"".into()),
            bytes_per_second: None,
            closes_after: None,
            breaks_after: Vec::new(),
            changes_after: None,
            shifts_ranges_by: 0,
            sends_more_by: 0,
            most_of_range: None,
            halves_ranges: false,
            is_cut_off: false,
            digest: None,
            has_random_digests: false,
            status: None,
            location: None,
            is_page: false,
            set_cookie: None,
            alpn: None,
        }
    }
}

struct Shared {
    file: Mutex<(Vec<u8>, Option<String>)>,
    behaviour: Behaviour,
    answers: AtomicUsize,
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
    serving: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) struct Server {
    at: SocketAddr,
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Server {
    pub(super) async fn start(file: Vec<u8>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a listener");
        let at = listener.local_addr().expect("an address");
        let etag = behaviour.etag.clone();
        let shared = Arc::new(Shared {
            file: Mutex::new((file, etag)),
            behaviour,
            answers: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            requests: Mutex::default(),
            serving: Mutex::default(),
        });
        let listening = Mutex::new(Some(tokio::spawn(listen(listener, shared.clone()))));
        Self { at, shared, listening }
    }

    pub(super) fn url(&self) -> Url {
        let scheme = if self.shared.behaviour.alpn.is_some() { "https" } else { "http" };
        Url::parse(&format!("{scheme}://{}/file.bin?x=1", self.at)).expect("a URL")
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().expect("a lock").clone()
    }

    /// How many there were.
    pub(super) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    pub(super) fn replace(&self, file: Vec<u8>, etag: &str) {
        *self.shared.file.lock().expect("a lock") = (file, Some(etag.into()));
    }

    /// Closes everything, and takes no connection.
    pub(super) async fn pause(&self) {
        self.stop();
        tokio::task::yield_now().await;
    }

    pub(super) async fn resume(&self) {
        let listener = loop {
            match TcpListener::bind(self.at).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let listening = tokio::spawn(listen(listener, self.shared.clone()));
        *self.listening.lock().expect("a lock") = Some(listening);
    }

    fn stop(&self) {
        if let Some(listening) = self.listening.lock().expect("a lock").take() {
            listening.abort();
        }
        self.shared.serving.lock().expect("a lock").drain(..).for_each(|serving| serving.abort());
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let acceptor = shared.behaviour.alpn.map(acceptor);
    while let Ok((stream, _)) = listener.accept().await {
        let serving = tokio::spawn(begin(stream, acceptor.clone(), shared.clone()));
        shared.serving.lock().expect("a lock").push(serving);
    }
}

/// With a certificate for nobody.
fn acceptor(alpn: &[&str]) -> TlsAcceptor {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::default().self_signed(&key).expect("a certificate");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = builder.with_single_cert(vec![certificate.der().clone()], key.into());
    let mut config = config.expect("a certificate");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn begin(stream: TcpStream, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let breaks_after = {
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        shared.behaviour.breaks_after.get(number).copied()
    };
    let Some(acceptor) = acceptor else { return serve(stream, shared, breaks_after).await };
    let Ok(stream) = acceptor.accept(stream).await else { return };
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => http2::serve(stream, shared, breaks_after).await,
        _ => serve(stream, shared, breaks_after).await,
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    shared: Arc<Shared>,
    breaks_after: Option<usize>,
) {
    let (mut input, mut answered) = (Vec::new(), 0);
    loop {
        while let Some(end) = input.windows(4).position(|part| part == b"\r\n\r\n") {
            let request = String::from_utf8(input.drain(..end + 4).collect()).expect("text");
            shared.requests.lock().expect("a lock").push(request.clone());
            let answer = answer(&request, &shared);
            let (mut head, mut body) = answer;
            if let (Some(cookie), Some(at)) = (shared.behaviour.set_cookie, head.find("\r\n")) {
                head.insert_str(at, &format!("\r\nSet-Cookie: {cookie}"));
            }
            if stream.write_all(head.as_bytes()).await.is_err() {
                return;
            }
            let breaks_after = if shared.behaviour.is_cut_off { Some(body.len() / 2) } else { breaks_after };
            let breaks = breaks_after.is_some_and(|most| body.len() > most);
            if breaks {
                body.truncate(breaks_after.unwrap_or(0));
            }
            for part in body.chunks(16 << 10) {
                if stream.write_all(part).await.is_err() {
                    return;
                }
                if let Some(rate) = shared.behaviour.bytes_per_second {
                    tokio::time::sleep(Duration::from_secs_f64(part.len() as f64 / rate as f64)).await;
                }
            }
            answered += 1;
            if breaks || shared.behaviour.closes_after.is_some_and(|most| answered >= most) {
                let _ = stream.shutdown().await;
                return;
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => input.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
}

fn answer(request: &str, shared: &Shared) -> (String, Vec<u8>) {
    let behaviour = &shared.behaviour;
    let number = shared.answers.fetch_add(1, Ordering::Relaxed);
    if let Some(location) = &behaviour.location {
        let text = "over there";
        return (
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: {}\r\n\r\n", text.len()),
            text.into(),
        );
    }
    if let Some(status) = behaviour.status {
        return (format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\n"), b"no".to_vec());
    }
    let (file, mut etag) = shared.file.lock().expect("a lock").clone();
    if behaviour.changes_after.is_some_and(|after| number >= after) {
        etag = Some("\"two\"".into());
    }
    let etag = etag.map_or(String::new(), |etag| format!("ETag: {etag}\r\n"));
    let kind = if behaviour.is_page { "text/html" } else { "application/octet-stream" };
    let kind = format!("Content-Type: {kind}\r\n");
    let digest = if behaviour.has_random_digests { Some([number as u8; 32]) } else { behaviour.digest };
    let digest = digest.map_or(String::new(), |digest| {
        format!("Repr-Digest: sha-256=:{}:\r\n", BASE64_STANDARD.encode(digest))
    });
    let range = request.lines().find_map(|line| line.strip_prefix("Range: bytes="));
    let Some((first, last)) = range.filter(|_| behaviour.has_ranges).and_then(|range| range.split_once('-'))
    else {
        if behaviour.is_chunked {
            let mut body = Vec::new();
            for part in file.chunks(10_000) {
                body.extend(
                    format!("{:x}\r\n", part.len()).bytes().chain(part.iter().copied()).chain(*b"\r\n"),
                );
            }
            body.extend(b"0\r\n\r\n");
            return (
                format!("HTTP/1.1 200 OK\r\n{etag}{digest}{kind}Transfer-Encoding: chunked\r\n\r\n"),
                body,
            );
        }
        let head = format!("HTTP/1.1 200 OK\r\n{etag}{digest}{kind}Content-Length: {}\r\n\r\n", file.len());
        return (head, file);
    };
    let first: usize = first.parse().expect("a number");
    if first >= file.len() {
        return (
            format!("HTTP/1.1 416 No\r\nContent-Range: bytes */{}\r\nContent-Length: 0\r\n\r\n", file.len()),
            Vec::new(),
        );
    }
    let last = last.parse().map_or(file.len() - 1, |last: usize| last.min(file.len() - 1));
    let last = behaviour.most_of_range.map_or(last, |most| last.min(first + most - 1));
    let last = if behaviour.halves_ranges { first + (last - first) / 2 } else { last };
    let mut body = file[first..=last].to_vec();
    body.extend(std::iter::repeat_n(0, behaviour.sends_more_by));
    let (said_first, said_last) = (first + behaviour.shifts_ranges_by, last + behaviour.shifts_ranges_by);
    let head = format!(
        "HTTP/1.1 206 Partial\r\n{etag}{digest}Content-Range: bytes {said_first}-{said_last}/{}\r\nContent-Length: {}\r\n\r\n",
        file.len(),
        body.len()
    );
    (head, body)
}
