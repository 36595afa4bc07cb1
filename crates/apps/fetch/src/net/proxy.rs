use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_socks::tcp::Socks5Stream;
use url::Url;

use super::endpoint::Endpoint;
use super::{Failure, error};
use crate::http1::{MAX_HEAD_BYTES, end_of_head, parse_head};

/// Port of SOCKS (RFC 1928).
const SOCKS_PORT: u16 = 1080;

/// A proxy, through which connections go: `http://[USER:PASSWORD@]HOST:PORT`, or `socks5h://` likewise. It resolves the names of hosts.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    kind: Kind,
    endpoint: Endpoint,
    user: Option<User>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Socks5,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct User {
    name: String,
    password: String,
}

/// A text that names no proxy. The text isn't shown: it may have a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no proxy: {why}; expected http://[USER:PASSWORD@]HOST:PORT, or socks5h://")]
pub struct InvalidProxy {
    why: &'static str,
}

impl FromStr for Proxy {
    type Err = InvalidProxy;

    fn from_str(text: &str) -> Result<Self, InvalidProxy> {
        let wrong = |why| InvalidProxy { why };
        let url = Url::parse(text).map_err(|_| wrong("it is no URL"))?;
        let kind = match url.scheme() {
            "http" => Kind::Http,
            "socks5h" => Kind::Socks5,
            _ => return Err(wrong("of this kind there is none here")),
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("something follows the port"));
        }
        // Schemes that the library doesn't know have hosts as they were written.
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(wrong("it has no host"))?;
        let host = url::Host::parse(host).map_err(|_| wrong("its host is no name"))?;
        let port = url.port_or_known_default().unwrap_or(SOCKS_PORT);
        let user = User::of(&url);
        let is_long = |user: &User| user.name.len() > 255 || user.password.len() > 255;
        if kind == Kind::Socks5 && user.as_ref().is_some_and(|user| is_long(user) || user.name.is_empty()) {
            return Err(wrong("SOCKS has users and passwords of 1 to 255 bytes"));
        }
        Ok(Self { kind, endpoint: Endpoint::new(host, port), user })
    }
}

impl User {
    /// Whom a URL names.
    pub(super) fn of(url: &Url) -> Option<Self> {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let is_named = !url.username().is_empty() || url.password().is_some();
        is_named
            .then(|| Self { name: decoded(url.username()), password: decoded(url.password().unwrap_or("")) })
    }

    /// As a value of `Authorization` or `Proxy-Authorization` (RFC 7617).
    pub(super) fn to_field(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", self.name, self.password)))
    }
}

impl Proxy {
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether requests go to it as they are, rather than through it.
    pub(super) fn takes_requests(&self, is_tls: bool) -> bool {
        self.kind == Kind::Http && !is_tls
    }

    /// The value of `Proxy-Authorization`.
    pub(super) fn authorization(&self) -> Option<String> {
        self.user.as_ref().map(User::to_field)
    }

    /// Has the proxy connect to a host.
    pub(super) async fn tunnel(&self, to: &Endpoint, stream: TcpStream) -> Result<TcpStream, Failure> {
        match self.kind {
            Kind::Http => self.tunnel_by_http(to, stream).await,
            Kind::Socks5 => self.tunnel_by_socks(to, stream).await,
        }
    }

    /// By CONNECT (RFC 9110 §9.3.6).
    async fn tunnel_by_http(&self, to: &Endpoint, mut stream: TcpStream) -> Result<TcpStream, Failure> {
        let authorization =
            self.authorization().map_or(String::new(), |value| format!("Proxy-Authorization: {value}\r\n"));
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{authorization}\r\n");
        let broken = |failure: std::io::Error| Failure::Proxy(error::words(&failure));
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        let mut answer = Vec::new();
        let end = loop {
            let looked_at = answer.len();
            if stream.read_buf(&mut answer).await.map_err(broken)? == 0 {
                return Err(Failure::Proxy("it ends the connection without an answer".to_owned()));
            }
            if let Some(end) = end_of_head(&answer, looked_at) {
                break end;
            }
            if answer.len() > MAX_HEAD_BYTES {
                return Err(Failure::Proxy("the head of its answer is too long".to_owned()));
            }
        };
        let head =
            parse_head(&answer[..end]).map_err(|_| Failure::Proxy("it doesn't speak HTTP/1.1".to_owned()))?;
        match head.status {
            // In TLS the client speaks first: what came already is not of the server.
            200..300 if answer.len() == end => Ok(stream),
            200..300 => Err(Failure::Proxy("it sends more than an answer".to_owned())),
            407 => Err(Failure::ProxyPassword { were_sent: self.user.is_some() }),
            status => Err(Failure::ProxyStatus(status)),
        }
    }

    async fn tunnel_by_socks(&self, to: &Endpoint, stream: TcpStream) -> Result<TcpStream, Failure> {
        let name = to.name();
        let target = (name.as_str(), to.port());
        let connected = match &self.user {
            Some(User { name, password }) => {
                Socks5Stream::connect_with_password_and_socket(stream, target, name, password).await
            }
            None => Socks5Stream::connect_with_socket(stream, target).await,
        };
        connected.map(Socks5Stream::into_inner).map_err(|error| match error {
            tokio_socks::Error::PasswordAuthFailure(_) | tokio_socks::Error::NoAcceptableAuthMethods => {
                Failure::ProxyPassword { were_sent: self.user.is_some() }
            }
            other => Failure::Proxy(other.to_string()),
        })
    }
}

impl fmt::Display for Proxy {
    /// Without the user and the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::Http => "http",
            Kind::Socks5 => "socks5h",
        };
        write!(f, "{scheme}://{}", self.endpoint)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_from_a_url() {
        let proxy: Proxy = "http://me:p%40ss@proxy.example:3128".parse().unwrap();
        assert_eq!(proxy.to_string(), "http://proxy.example:3128");
        assert_eq!(format!("{proxy:?}"), "Proxy(http://proxy.example:3128)");
        assert_eq!(proxy.authorization(), Some(format!("Basic {}", BASE64_STANDARD.encode("me:p@ss"))));
        assert!(proxy.takes_requests(false) && !proxy.takes_requests(true));
        let socks: Proxy = "socks5h://[::1]".parse().unwrap();
        assert_eq!(socks.to_string(), "socks5h://[::1]:1080");
        assert!(!socks.takes_requests(false) && socks.authorization().is_none());
        assert_eq!("socks5h://192.0.2.1:9050/".parse::<Proxy>().unwrap().endpoint.name(), "192.0.2.1");
    }

    #[test]
    fn what_is_no_proxy_is_said_without_its_password() {
        let error = |text: &str| text.parse::<Proxy>().unwrap_err().to_string();
        let expected = "expected http://[USER:PASSWORD@]HOST:PORT, or socks5h://";
        assert_eq!(error("proxy:3128"), format!("no proxy: of this kind there is none here; {expected}"));
        assert_eq!(error("proxy"), format!("no proxy: it is no URL; {expected}"));
        assert_eq!(
            error("https://me:secret@proxy"),
            format!("no proxy: of this kind there is none here; {expected}")
        );
        assert_eq!(error("http://proxy/path"), format!("no proxy: something follows the port; {expected}"));
        assert_eq!(error("socks5h://"), format!("no proxy: it has no host; {expected}"));
        let long = format!("socks5h://me:{}@proxy", "a".repeat(256));
        assert!(error(&long).starts_with("no proxy: SOCKS has users and passwords of 1 to 255 bytes"));
    }
}
