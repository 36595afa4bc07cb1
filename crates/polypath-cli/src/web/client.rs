//! Requests over an engine.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{TryFutureExt, TryStreamExt};
use http_body_util::{BodyExt, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::ext::on_informational;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, EXPECT, HOST, HeaderValue, LOCATION,
    TRANSFER_ENCODING, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use polypath_stack::Engine;
use polypath_stack::engine::{ConnectOptions, Stream};
use polypath_stack::stack::Unanswered;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use url::{Position, Url};

use super::credentials::Token;
use super::digest::{Digest, WANT_REPR_DIGEST};
use super::progress::ProgressLimit;
use super::range::content_range;
use super::url_text::without_user;
use super::{Body, DEFAULT_PORT, empty};

/// Redirections that are followed.
const MAX_REDIRECTIONS: usize = 10;
/// How long one address of several may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may stand still while it is waited for.
pub(crate) const DEFAULT_PROGRESS_LIMIT: Duration = Duration::from_secs(60);

/// How long a server may read a file for its digest before it answers that it goes on (RFC 7240 §4.3).
const DIGEST_WAIT: Duration = Duration::from_secs(10);
/// A server that is not ready is not asked more often.
const LEAST_BETWEEN_QUESTIONS: Duration = Duration::from_secs(1);
/// Slower than any server reads a file.
const LEAST_DIGEST_BYTES_PER_SECOND: u64 = 10_000_000;

/// Bodies that are shorter are sent at once: they fit into what a connection takes unread.
const LEAST_ASKED_FOR_BYTES: u64 = 64 << 10;
/// How long a server has to ask for a body (RFC 9110 §10.1.1); some never do.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);
/// How long reading a refusal may take.
const REFUSAL_WAIT: Duration = Duration::from_secs(30);

/// After so many parts of the time to connect, a client says that there is no answer yet.
const SILENCE_PARTS: u32 = 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// No URL of a kind that can be used.
    #[error("{url}: {problem}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The name has no address.
    #[error("can't find the host \"{host}\": {source}")]
    Name {
        /// Its name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Nobody answers there.
    #[error("can't connect to {host}: {source}")]
    Connect {
        /// Name and port.
        host: String,
        /// What the engine says of the last address.
        source: io::Error,
    },
    /// The connection broke off, or what came is not HTTP.
    #[error("{url}: the connection failed: {}", innermost(&**source))]
    Http {
        /// What was asked for.
        url: String,
        /// What is wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// More than anybody should have to hold.
    #[error("{url}: the answer is longer than {most_bytes} bytes")]
    TooLong {
        /// What was asked for.
        url: String,
        /// The bound.
        most_bytes: usize,
    },
    /// A digest that is none.
    #[error("{url}: the server's Repr-Digest makes no sense; expected sha-256=:BASE64:")]
    Digest {
        /// What was asked for.
        url: String,
    },
    /// A digest that does not come.
    #[error("{url}: the server has told no SHA-256 within {} seconds; expected --no-verify or a longer --stall-timeout", .waited.as_secs())]
    LateDigest {
        /// What was asked for.
        url: String,
        /// How long it was asked.
        waited: Duration,
    },
    /// It goes from one place to the next without end.
    #[error("{0}: more than {MAX_REDIRECTIONS} redirections")]
    Redirections(String),
}

impl Error {
    /// The connection died without an answer.
    fn is_unanswered(&self) -> bool {
        let Self::Http { source, .. } = self else { return false };
        let first: &(dyn std::error::Error + 'static) = &**source;
        std::iter::successors(Some(first), |error| error.source())
            .filter_map(|error| error.downcast_ref::<io::Error>()?.get_ref())
            .any(|inner| inner.is::<Unanswered>())
    }
}

/// What began it all: the layers above say less.
pub(super) fn innermost<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    error.source().map_or(error, innermost)
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// Where it came from, after redirections.
    pub url: Url,
    /// Status, fields and body.
    pub response: Response<Incoming>,
}

impl Fetched {
    /// The file's SHA-256 in `Repr-Digest` (RFC 9530 §3), if the server told one that makes sense.
    #[must_use]
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.told_digest().ok().flatten()
    }

    /// The same. Errors: a field that says SHA-256 and has none, since nothing would be compared with it, or two that
    /// differ.
    pub(super) fn told_digest(&self) -> Result<Option<Digest>, Error> {
        Digest::told_in(self.response.headers()).map_err(|_| Error::Digest { url: self.url.to_string() })
    }

    /// Length of the body, if it was told. Where the body comes in chunks, what else is said of its length counts for
    /// nothing (RFC 9112 §6.3).
    #[must_use]
    pub(crate) fn content_length(&self) -> Option<u64> {
        if self.response.headers().contains_key(TRANSFER_ENCODING) {
            return None;
        }
        self.response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// The body, if it has no more than so many bytes, whatever was told of its length. Errors: it has more, or it breaks off.
    pub(crate) async fn content(self, most_bytes: usize) -> Result<Bytes, Error> {
        let url = self.url.to_string();
        let body = Limited::new(self.response.into_body(), most_bytes);
        match body.collect().await {
            Ok(content) => Ok(content.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Error::TooLong { url, most_bytes }),
            Err(source) => Err(Error::Http { url, source }),
        }
    }

    /// First byte, last byte and length of the whole, of a part. Other answers have none, whatever their fields say
    /// (RFC 9110 §14.4).
    #[must_use]
    pub(crate) fn range(&self) -> Option<(u64, u64, u64)> {
        if self.response.status() != StatusCode::PARTIAL_CONTENT {
            return None;
        }
        content_range(self.response.headers().get(CONTENT_RANGE)?.to_str().ok()?)
    }
}

/// Makes requests.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    engine: Engine,
    options: ConnectOptions,
    progress_limit: Option<Duration>,
    token: Option<Token>,
    say: Option<fn(&str)>,
}

impl Client {
    /// What carries its connections.
    #[must_use]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A client on an engine.
    #[must_use]
    pub(crate) fn new(engine: Engine) -> Self {
        let options = ConnectOptions { timeout: Some(CONNECT_TIMEOUT), ..ConnectOptions::default() };
        Self { engine, options, progress_limit: Some(DEFAULT_PROGRESS_LIMIT), token: None, say: None }
    }

    /// The same with another limit to how long a connection may stand still while it is waited for; none waits for ever. The
    /// fields of an answer have to be all there within the same time after the request has arrived.
    /// Default [`DEFAULT_PROGRESS_LIMIT`]. A server that does not answer at all is waited for no longer than 30 s.
    #[must_use]
    pub(crate) fn with_progress_limit(mut self, limit: Option<Duration>) -> Self {
        self.progress_limit = limit;
        self.options.timeout = Some(limit.map_or(CONNECT_TIMEOUT, |limit| limit.min(CONNECT_TIMEOUT)));
        self
    }

    /// The same with somebody to tell, in one line, that a server has not answered yet: after 3 s, or a tenth of the time to
    /// connect.
    #[must_use]
    pub(crate) fn with_notices(mut self, say: Option<fn(&str)>) -> Self {
        self.say = say;
        self
    }

    /// The same with a token for servers that want one. It is shown to the server that a URL names, and to none that it
    /// redirects to.
    #[must_use]
    pub(crate) fn with_token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// Whether servers are shown a token.
    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Reads a URL. `polypath://HOST/…` is HTTP at the port of `polypath serve`.
    pub(crate) fn parse(text: &str) -> Result<Url, Error> {
        let wrong = |problem: String| Error::Url { url: without_user(text), problem };
        let usual = match text.strip_prefix("polypath://") {
            Some(rest) => format!("http://{rest}"),
            None if lacks_scheme(text) => format!("http://{text}"),
            None => text.to_string(),
        };
        let mut url = Url::parse(&usual)
            .map_err(|error| wrong(format!("{error}; expected http://HOST/… or polypath://HOST/…")))?;
        match url.scheme() {
            "http" => {}
            "https" => {
                return Err(wrong("https is not offered here; expected http:// or polypath://, or `polypath get` for a download".into()));
            }
            other => return Err(wrong(format!("{other} is not offered; expected http:// or polypath://"))),
        }
        if text.starts_with("polypath://") && url.port().is_none() && !names_port_80(text) {
            // The host is there, or it would be no URL.
            let _ = url.set_port(Some(DEFAULT_PORT));
        }
        Ok(url)
    }

    /// Gets something, or what is known of it, wherever redirections lead.
    pub(crate) async fn get(
        &self,
        method: Method,
        url: &Url,
        fields: &[(&'static str, String)],
    ) -> Result<Fetched, Error> {
        let origin = url.origin();
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTIONS {
            let request = || self.request(method.clone(), &url, fields, url.origin() == origin, empty());
            // The path that a connection began on may have died, and taken it along; the next begins on another. To ask again does
            // no harm (RFC 9110 §9.2.2).
            let response = match request().await {
                Err(error) if method.is_safe() && error.is_unanswered() => request().await?,
                answer => answer?,
            };
            let location = response.headers().get(LOCATION).and_then(|field| field.to_str().ok());
            match location.filter(|_| is_redirection(response.status())) {
                None => return Ok(Fetched { url, response }),
                Some(location) => {
                    let next = url.join(location).map_err(|error| Error::Url {
                        url: location.into(),
                        problem: format!("{error}; {url} redirects there"),
                    })?;
                    url = Self::parse(next.as_str())?;
                }
            }
        }
        Err(Error::Redirections(url.into()))
    }

    /// What is known of a file, and its digest. A server that is not ready with it is asked again, for as long as nothing may
    /// move and a second for every 10 MB of the file.
    pub(crate) async fn describe(&self, url: &Url) -> Result<Fetched, Error> {
        let wait = self.progress_limit.map_or(DIGEST_WAIT, |limit| DIGEST_WAIT.min(limit / 2));
        let prefer = format!("respond-async, wait={}", wait.as_secs());
        let fields = [(WANT_REPR_DIGEST, "sha-256=1".into()), ("prefer", prefer)];
        let began = Instant::now();
        let mut most = None;
        loop {
            let next = Instant::now() + LEAST_BETWEEN_QUESTIONS;
            let fetched = self.get(Method::HEAD, url, &fields).await?;
            let fields = fetched.response.headers();
            // It reads the file, and has not come to its end (RFC 7240 §4.1).
            if fetched.response.status() != StatusCode::ACCEPTED || !fields.contains_key("preference-applied")
            {
                return Ok(fetched);
            }
            if most.is_none() {
                let length = self.get(Method::HEAD, url, &[]).await?.content_length();
                most = self.progress_limit.map(|limit| {
                    let seconds = length.unwrap_or(0) / LEAST_DIGEST_BYTES_PER_SECOND;
                    limit.saturating_add(Duration::from_secs(seconds))
                });
            }
            if most.is_some_and(|most| began.elapsed() >= most) {
                return Err(Error::LateDigest { url: url.to_string(), waited: began.elapsed() });
            }
            sleep_until(next).await;
        }
    }

    /// Puts something. A server that refuses before it has read all is heard.
    pub(crate) async fn put(
        &self,
        url: &Url,
        fields: &[(&'static str, String)],
        body: Body,
    ) -> Result<Fetched, Error> {
        let response = self.request(Method::PUT, url, fields, true, body).await?;
        Ok(Fetched { url: url.clone(), response })
    }

    async fn request(
        &self,
        method: Method,
        url: &Url,
        fields: &[(&'static str, String)],
        shows_token: bool,
        body: Body,
    ) -> Result<Response<Incoming>, Error> {
        let failed = |source| Error::Http { url: url.to_string(), source };
        let stream = self.connect(url).await?;
        let stream = ProgressLimit::new(stream, self.progress_limit.unwrap_or(Duration::MAX));
        let answered = stream.answered();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.into()))?;
        // Ends with the answer's body; its failures are the body's.
        tokio::spawn(connection);
        let target = &url[Position::BeforePath..Position::AfterQuery];
        let host = &url[Position::BeforeHost..Position::AfterPort];
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, host)
            // What comes is what was asked for: nothing is decoded here.
            .header(ACCEPT_ENCODING, "identity")
            .header(USER_AGENT, HeaderValue::from_static(concat!("polypath/", env!("CARGO_PKG_VERSION"))));
        if let Some(token) = self.token.as_ref().filter(|_| shows_token) {
            request = request.header(AUTHORIZATION, token.to_field());
        }
        for (name, value) in fields {
            request = request.header(*name, value);
        }
        let waits = fields.iter().any(|(name, length)| {
            *name == CONTENT_LENGTH && length.parse().is_ok_and(|length: u64| length >= LEAST_ASKED_FOR_BYTES)
        });
        let request = if waits {
            let (ask, asked) = watch::channel(());
            let request = request.header(EXPECT, "100-continue").body(when_asked_for(body, asked));
            request.map(|mut request| {
                on_informational(&mut request, move |answer| {
                    if answer.status() == StatusCode::CONTINUE {
                        ask.send_replace(());
                    }
                });
                request
            })
        } else {
            request.body(body)
        };
        let request = request.map_err(|error| failed(error.into()))?;
        let response = sender.send_request(request).await.map_err(|error| failed(error.into()))?;
        answered.tell();
        Ok(response)
    }

    /// Says so if there is no answer for a while.
    async fn connect_to(&self, address: SocketAddr) -> io::Result<Stream> {
        let mut connecting = pin!(self.engine.connect(address, &self.options));
        let limit = self.options.timeout.unwrap_or(CONNECT_TIMEOUT);
        match tokio::time::timeout(limit / SILENCE_PARTS, &mut connecting).await {
            Ok(connected) => connected,
            Err(_) => {
                if let Some(say) = self.say {
                    let silence = self.engine.describe_silence(address);
                    say(&format!("{silence}; giving up after {limit:?}"));
                }
                connecting.await
            }
        }
    }

    /// To the first address that answers.
    async fn connect(&self, url: &Url) -> Result<Stream, Error> {
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = url.port_or_known_default().unwrap_or(80);
        let unknown = |source| Error::Name { host: host.into(), source };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        for address in tokio::net::lookup_host((host, port)).await.map_err(unknown)? {
            match self.connect_to(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(Error::Connect { host: format!("{host}:{port}"), source: explained(last) })
    }
}

/// What the system says of a missing route, with what tells more.
fn explained(error: io::Error) -> io::Error {
    let is_of_routes =
        matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable);
    if !is_of_routes || error.raw_os_error().is_none() {
        return error;
    }
    io::Error::new(error.kind(), "there is no route to it; `polypath doctor` tells of each interface")
}

/// A body that waits until the server asks for it, or until it is clear that it does not know how to. An answer in place
/// of that is a refusal: nothing is sent then.
fn when_asked_for(body: Body, mut asked: watch::Receiver<()>) -> Body {
    let asking = async move {
        match timeout(CONTINUE_WAIT, asked.changed()).await {
            // Who asks goes with the answer.
            Ok(Err(_)) => {
                sleep(REFUSAL_WAIT).await;
                Err(io::Error::other("the server refused it"))
            }
            Ok(Ok(())) | Err(_) => Ok(body.into_data_stream().map_ok(Frame::data)),
        }
    };
    BodyExt::boxed(StreamBody::new(asking.try_flatten_stream()))
}

/// It begins with a host, as curl takes it, too: `192.0.2.1:8077/file`. A word alone may be meant for something else.
fn lacks_scheme(text: &str) -> bool {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_place =
        host.contains('.') || host.starts_with('[') || port.is_some() || authority.len() < text.len();
    !host.is_empty() && is_place && port.is_none_or(is_port) && !text.contains("://")
}

/// A URL forgets a port that is HTTP's own; whoever wrote it meant it.
fn names_port_80(text: &str) -> bool {
    let authority = text.trim_start_matches("polypath://").split(['/', '?', '#']).next();
    authority.is_some_and(|authority| authority.ends_with(":80"))
}

fn is_redirection(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use polypath_stack::stack::Stack;
    use polypath_stack::udp::UdpOptions;
    use polypath_system::Namespace;

    use super::*;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_url_may_lack_its_scheme() {
        for text in [
            "192.0.2.1:8077/file",
            "example.org",
            "host/file",
            "host:80",
            "[2001:db8::1]:80/",
            "[2001:db8::1]/",
        ] {
            let url = Client::parse(text).expect("a URL");
            assert_eq!(url, Client::parse(&format!("http://{text}")).expect("a URL"));
        }
        for text in ["wwan0", "ftp://host/file", "mailto:me", "/file", ""] {
            assert!(Client::parse(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_silent_server_is_told_of_before_it_is_given_up() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = silent.local_addr().expect("an address").port();
        let options = UdpOptions { port, ..UdpOptions::default() };
        let stack = Stack::udp(&Namespace::current().expect("this one"), &options).expect("a stack");
        let client = Client::new(Engine::Stack(stack))
            .with_progress_limit(Some(Duration::from_millis(100)))
            .with_notices(Some(|text| SAID.lock().expect("nobody fails").push(text.into())));
        let url = Client::parse("http://127.0.0.1:8077/").expect("a URL");
        let error = client.get(Method::GET, &url, &[]).await.map(|_| ()).expect_err("nobody answers");
        let expected = format!("expected a Polypath there with engine udp, at UDP port {port} as here");
        assert_eq!(
            *SAID.lock().expect("nobody fails"),
            [format!("no answer from 127.0.0.1:8077 yet; {expected}; giving up after 100ms")]
        );
        let error = error.to_string();
        assert!(error.contains("did not answer within 100ms") && error.contains(&expected), "{error}");
    }
}

#[cfg(test)]
mod repeat_tests {
    use std::net::IpAddr;
    use std::task::{Context, Poll};

    use polypath_mptcp::HostConfig;
    use polypath_mptcp::path_manager::LocalEndpoint;
    use polypath_stack::Stack;
    use polypath_stack::stack::{Receive, Transmit};
    use polypath_wire::{Packet, Transport};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    /// Sends what passes.
    struct Near<F>(UnboundedSender<Packet>, F);

    struct Far(UnboundedReceiver<Packet>);

    impl<F: FnMut(&Packet) -> bool + Send> Transmit for Near<F> {
        fn transmit(&mut self, packet: Packet) -> io::Result<()> {
            if (self.1)(&packet) {
                self.0.send(packet).map_err(io::Error::other)?;
            }
            Ok(())
        }
    }

    impl Receive for Far {
        fn poll_receive(&mut self, cx: &mut Context<'_>, packets: &mut Vec<Packet>) -> Poll<io::Result<()>> {
            self.0.poll_recv(cx).map(|packet| {
                packets.extend(packet);
                Ok(())
            })
        }
    }

    #[tokio::test]
    async fn a_request_is_repeated_where_its_path_dies_in_the_handshake() {
        let dies = IpAddr::from([10, 0, 0, 1]);
        let works = IpAddr::from([10, 0, 1, 1]);
        let at = IpAddr::from([10, 0, 0, 2]);
        let (up, at_server) = unbounded_channel();
        let (down, at_client) = unbounded_channel();
        let mut from_dead = 0;
        let passes = move |packet: &Packet| {
            from_dead += usize::from(packet.ip.src == dies);
            packet.ip.src != dies
                || from_dead == 1
                    && matches!(&packet.transport, Transport::Tcp(segment) if segment.flags.syn())
        };
        let endpoints = vec![LocalEndpoint::subflow(dies, 1), LocalEndpoint::subflow(works, 2)];
        let config = HostConfig { endpoints, ..HostConfig::default() };
        let client = Stack::start(config, Near(up, passes), [Far(at_client)]).expect("a stack");
        let endpoints = vec![LocalEndpoint::new(at, 1)];
        let config = HostConfig { endpoints, ..HostConfig::default() };
        let server = Stack::start(config, Near(down, |_: &Packet| true), [Far(at_server)]).expect("a stack");
        let listener = server.listen((at, 80).into()).expect("a listener");
        let serving = tokio::spawn(async move {
            let (mut stream, peer) = listener.accept().await.expect("a connection");
            assert!(stream.read(&mut [0; 1024]).await.expect("a request") > 0);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("takes it");
            (stream, peer)
        });
        let url = Client::parse("http://10.0.0.2/file").expect("a URL");
        let fetched =
            Client::new(Engine::Stack(client)).get(Method::GET, &url, &[]).await.expect("an answer");
        assert_eq!(fetched.response.status(), StatusCode::NO_CONTENT);
        assert_eq!(serving.await.expect("a server").1.ip(), works);
    }
}
