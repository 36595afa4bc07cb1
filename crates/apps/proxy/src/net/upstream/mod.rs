//! Proxies through which servers are reached.

mod convert;
mod dialer;
mod http;
mod socks;
mod tls;
mod user;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::convert::Converter;
use self::dialer::Dialer;
pub use self::tls::UpstreamTls;
use self::user::User;
use super::connect::{Connector, ServerSide};
use super::own_places::OwnPlaces;
use crate::failure::{ConnectFailure, Distrust, UpstreamFailure};
use crate::target::{Host, Target, TargetError};

/// A proxy through which servers are reached: `convert://HOST:PORT`, a Transport Converter (RFC 8803), or `socks5://`, `http://`, or by TLS
/// `socks5+tls://` or `https://`, with `[USER:PASSWORD@]HOST:PORT`. It gets addresses: names are looked up here, as where servers are reached directly.
///
/// It remembers what a converter gave and said, so it is made once for all connections.
#[derive(Debug)]
pub struct Upstream {
    at: Target,
    speaks: Protocol,
    by_tls: Option<Trusted>,
}

/// TLS, once it is said whom to trust.
#[derive(Debug, Default)]
struct Trusted(Option<UpstreamTls>);

#[derive(Debug)]
enum Protocol {
    Convert(Converter),
    Socks(Option<User>),
    Http(Option<User>),
}

/// Why a text names no proxy. It is not shown: it may have a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUpstream {
    /// There is none of this kind.
    #[error(
        "no proxy on the way: expected convert://HOST:PORT, or socks5, http, socks5+tls or https with ://[USER:PASSWORD@]HOST:PORT"
    )]
    Scheme,
    /// Where it is can't be.
    #[error("the place of the proxy on the way: {0}")]
    Target(#[from] TargetError),
    /// Users are of other protocols.
    #[error("Convert knows no users: expected convert://HOST:PORT")]
    User,
    /// SOCKS has no place for it.
    #[error("a user that SOCKS has no place for: expected a name and a password of 1 to 255 bytes each")]
    UserLength,
}

impl FromStr for Upstream {
    type Err = InvalidUpstream;

    fn from_str(text: &str) -> Result<Self, InvalidUpstream> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidUpstream::Scheme)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, at) = match rest.rsplit_once('@') {
            Some((user, at)) => (Some(User::parse(user)), at),
            None => (None, rest),
        };
        let by_tls = matches!(scheme, "socks5+tls" | "https").then(Trusted::default);
        let speaks = match scheme {
            "convert" if user.is_some() => return Err(InvalidUpstream::User),
            "convert" => Protocol::Convert(Converter::default()),
            "socks5" | "socks5+tls" if user.as_ref().is_some_and(|user| !user.fits_socks()) => {
                return Err(InvalidUpstream::UserLength);
            }
            "socks5" | "socks5+tls" => Protocol::Socks(user),
            "http" | "https" => Protocol::Http(user),
            _ => return Err(InvalidUpstream::Scheme),
        };
        Ok(Self { at: at.parse()?, speaks, by_tls })
    }
}

/// Without user and password.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.speaks {
            Protocol::Convert(_) => "convert",
            Protocol::Socks(_) if self.is_by_tls() => "socks5+tls",
            Protocol::Socks(_) => "socks5",
            Protocol::Http(_) if self.is_by_tls() => "https",
            Protocol::Http(_) => "http",
        };
        write!(f, "{scheme}://{}", self.at)
    }
}

impl Upstream {
    /// Whether it is reached by TLS, for which [`Upstream::with_tls`] has to say whom to trust.
    #[must_use]
    pub fn is_by_tls(&self) -> bool {
        self.by_tls.is_some()
    }

    /// The same, trusted so if it is reached by TLS. Without this nobody is.
    #[must_use]
    pub fn with_tls(mut self, tls: UpstreamTls) -> Self {
        self.by_tls = self.by_tls.map(|_| Trusted(Some(tls)));
        self
    }

    /// Whether it is the same proxy, asked by the same user, whatever each of the two remembers.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        let is_alike = match (&self.speaks, &other.speaks) {
            (Protocol::Convert(_), Protocol::Convert(_)) => true,
            (Protocol::Socks(user), Protocol::Socks(others))
            | (Protocol::Http(user), Protocol::Http(others)) => user == others,
            _ => false,
        };
        // Who is trusted may have changed.
        is_alike && self.at == other.at && !self.is_by_tls() && !other.is_by_tls()
    }

    /// Whether it is a Transport Converter (RFC 8803).
    #[must_use]
    pub fn is_converter(&self) -> bool {
        matches!(self.speaks, Protocol::Convert(_))
    }

    /// The name or address for which its certificate has to be.
    pub(super) fn called(&self) -> String {
        match &self.at.host {
            Host::Address(address) => address.to_string(),
            Host::Name(name) => name.to_string(),
        }
    }

    /// Whether what a client has said already can go with the request.
    pub(super) fn takes_first_bytes(&self) -> bool {
        self.is_converter()
    }

    /// Reaches a host as [`Connector::connect`] does, each attempt by way of this proxy, unless it is one of these places itself. What goes first has to be nothing unless it takes it, and
    /// unless there is one attempt.
    pub(super) async fn connect(
        self: &Arc<Self>,
        connector: &Connector,
        own: &OwnPlaces,
        target: &Target,
        limit: Duration,
        allows: impl Fn(IpAddr) -> bool,
        first: Bytes,
    ) -> Result<ServerSide, ConnectFailure> {
        let open = |address| {
            let (this, connector, own, first) = (self.clone(), connector.clone(), own.clone(), first.clone());
            async move { this.open(connector, own, limit, address, &first).await }
        };
        connector.connect_by(target, limit, allows, open).await
    }

    async fn open(
        &self,
        connector: Connector,
        own: OwnPlaces,
        limit: Duration,
        address: SocketAddr,
        first: &[u8],
    ) -> Result<ServerSide, ConnectFailure> {
        let tls = match &self.by_tls {
            Some(Trusted(None)) => {
                let distrusted = UpstreamFailure::Distrusted(Distrust::UnknownAuthority);
                return Err(ConnectFailure::Upstream(distrusted));
            }
            Some(Trusted(tls)) => tls.as_ref(),
            None => None,
        };
        let dialer = Dialer::new(connector, &self.at, tls, limit, own);
        match &self.speaks {
            Protocol::Convert(converter) => converter.connect(&dialer, address, first).await,
            Protocol::Socks(user) => socks::connect(&dialer, address, user.as_ref()).await,
            Protocol::Http(user) => http::connect(&dialer, address, user.as_ref()).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_and_its_password_is_not_shown() {
        for (text, expected) in [
            ("convert://192.0.2.1:5000", "convert://192.0.2.1:5000"),
            ("convert://converter.example:5000/", "convert://converter.example:5000"),
            ("socks5://ann:se%40cret@[2001:db8::1]:1080", "socks5://[2001:db8::1]:1080"),
            ("http://ann:a@b@proxy.example:8080", "http://proxy.example:8080"),
            ("https://ann:a@b@proxy.example:8443", "https://proxy.example:8443"),
            ("socks5+tls://proxy.example:1081", "socks5+tls://proxy.example:1081"),
        ] {
            let upstream: Upstream = text.parse().expect(text);
            assert_eq!(upstream.to_string(), expected);
            let shown = format!("{upstream:?}");
            assert!(!shown.contains("se@cret") && !shown.contains("a@b"), "{shown}");
        }
    }

    #[test]
    fn a_proxy_is_the_same_by_place_protocol_and_user() {
        let of = |text: &str| text.parse::<Upstream>().expect(text);
        for (one, other, expected) in [
            ("convert://a.example:5000", "convert://a.example:5000/", true),
            ("convert://a.example:5000", "convert://a.example:5001", false),
            ("socks5://ann:x@a.example:1", "socks5://ann:x@a.example:1", true),
            ("socks5://ann:x@a.example:1", "socks5://ann:y@a.example:1", false),
            ("socks5://a.example:1", "http://a.example:1", false),
            ("http://a.example:1", "https://a.example:1", false),
            ("http://a.example:1", "http://ann:x@a.example:1", false),
        ] {
            assert_eq!(of(one).is_as(&of(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_refused() {
        let long = format!("socks5://ann:{}@192.0.2.1:1080", "x".repeat(256));
        for (text, expected) in [
            ("192.0.2.1:5000", InvalidUpstream::Scheme),
            ("convert+tls://192.0.2.1:5000", InvalidUpstream::Scheme),
            ("convert://ann:secret@192.0.2.1:5000", InvalidUpstream::User),
            ("convert://192.0.2.1", InvalidUpstream::Target(TargetError::Port)),
            ("http://192.0.2.1:80/path", InvalidUpstream::Target(TargetError::Port)),
            ("socks5://:secret@192.0.2.1:1080", InvalidUpstream::UserLength),
            (&long, InvalidUpstream::UserLength),
        ] {
            assert_eq!(text.parse::<Upstream>().map(drop), Err(expected), "{text}");
        }
    }
}
