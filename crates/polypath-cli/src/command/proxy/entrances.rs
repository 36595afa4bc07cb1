//! Where clients enter, as options say it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;

use polypath_proxy::Target;
use polypath_proxy::access::Network;
use polypath_proxy::proxy_protocol::ProxyProtocolVersion;

use super::tls::TlsPlan;
use super::transparent::Transparent;

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listen(pub(super) SocketAddr);

impl Listen {
    /// Whether the two can't both be listened at. What is listened at everywhere is so at each address of the same kind.
    pub(super) fn meets(self, other: Self) -> bool {
        let (own, other) = (self.0, other.0);
        let is_everywhere = |at: SocketAddr| at.ip().is_unspecified() && at.port() != 0;
        own == other
            || own.port() == other.port()
                && own.is_ipv4() == other.is_ipv4()
                && (is_everywhere(own) || is_everywhere(other))
    }
}

/// Where to listen, and where that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Forward(pub(super) Listen, pub(super) Target);

/// What is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Socks,
    Http,
    Forward(Target),
    Convert,
    Transparent(Transparent),
}

impl Protocol {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Socks => "socks",
            Self::Http => "http",
            Self::Forward(_) => "forward",
            Self::Convert => "convert",
            Self::Transparent(_) => "transparent",
        }
    }

    /// Whether whoever reaches it can say where to go. What is intercepted went there anyway, and nobody else gets in.
    pub(super) fn leads_anywhere(&self) -> bool {
        !matches!(self, Self::Forward(_) | Self::Transparent(_))
    }

    /// Whether clients can come by TLS. Those of others know of no proxy, or have no TLS.
    pub(super) fn has_tls(&self) -> bool {
        matches!(self, Self::Socks | Self::Http | Self::Forward(_))
    }

    /// Whether clients can say who they are.
    pub(super) fn has_users(&self) -> bool {
        matches!(self, Self::Socks | Self::Http)
    }
}

/// Where clients enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntrancePlan {
    pub(super) listen: Listen,
    pub(super) protocol: Protocol,
    /// Clients come by TLS.
    pub(super) tls: Option<TlsPlan>,
    pub(super) proxy_protocol_from: Vec<Network>,
    pub(super) proxy_protocol_to_servers: Option<ProxyProtocolVersion>,
    /// Of a converter: whether each client has to show a cookie.
    pub(super) wants_cookies: bool,
}

impl EntrancePlan {
    pub(super) fn new(listen: Listen, protocol: Protocol) -> Self {
        Self {
            listen,
            protocol,
            tls: None,
            proxy_protocol_from: Vec::new(),
            proxy_protocol_to_servers: None,
            wants_cookies: false,
        }
    }

    /// Whether clients have to show certificates.
    pub(super) fn wants_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsPlan::wants_certificates)
    }

    /// Whether the same sockets serve both. What the system leads to them is another thing.
    pub(super) fn has_same_door(&self, other: &Self) -> bool {
        match (&self.protocol, &other.protocol) {
            (Protocol::Transparent(own), Protocol::Transparent(of_other)) => {
                self.listen == other.listen && own.by == of_other.by
            }
            _ => self == other,
        }
    }
}

/// `ADDRESS:PORT`, or a port of this host alone.
pub(super) fn parse_listen(text: &str) -> Result<Listen, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok();
    let here = port.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    here.or_else(|| text.parse().ok()).map(Listen).ok_or_else(|| {
        let expected =
            "expected a port, such as 1080, or an address and a port, such as 192.0.2.1:1080 or [::]:1080";
        beyond_ports(text).unwrap_or_else(|| expected.into())
    })
}

/// What is wrong where a number is too large for a port.
fn beyond_ports(text: &str) -> Option<String> {
    let port = text.rsplit(':').next()?;
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let is_beyond = is_number && port.trim_start_matches('0').len() >= 5 && port.parse::<u16>().is_err();
    is_beyond.then(|| "no port has this number: expected one up to 65535, such as 1080".into())
}

/// A port of this host alone.
pub(super) fn parse_port(text: &str) -> Result<Listen, String> {
    let port = text.parse::<NonZeroU16>();
    let port =
        port.map_err(|_| beyond_ports(text).unwrap_or_else(|| "expected a port, such as 8877".into()))?;
    Ok(Listen((Ipv4Addr::LOCALHOST, port.get()).into()))
}

pub(super) fn parse_forward(text: &str) -> Result<Forward, String> {
    let (listen, target) = text
        .split_once('=')
        .ok_or("expected where to listen and where to lead to, such as 8080=example.org:80")?;
    let target = target.parse().map_err(|error| format!("{target}: {error}"))?;
    let listen = parse_listen(listen).map_err(|error| format!("{listen}: {error}"))?;
    Ok(Forward(listen, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_host() {
        for text in ["1080", ":1080", "127.0.0.1:1080"] {
            assert_eq!(parse_listen(text), Ok(Listen(([127, 0, 0, 1], 1080).into())), "{text}");
        }
        for wrong in ["", "localhost:1080", "::", "70000"] {
            assert!(parse_listen(wrong).is_err_and(|error| error.contains("such as")), "{wrong}");
        }
    }

    #[test]
    fn a_number_that_no_port_has_is_told() {
        for wrong in ["80999", "192.0.2.1:80999", "[::]:65536", "99999999999999999999"] {
            for said in [parse_listen(wrong).expect_err(wrong), parse_port(wrong).expect_err(wrong)] {
                assert!(said.starts_with("no port has this number: expected one up to 65535"), "{said}");
            }
        }
        let said = parse_forward("80999=example.org:80").expect_err("no port");
        assert!(said.starts_with("80999: no port has this number"), "{said}");
    }

    #[test]
    fn places_meet_where_one_is_everywhere() {
        let at = |text: &str| parse_listen(text).expect(text);
        for (one, other, expected) in [
            ("1080", "127.0.0.1:1080", true),
            ("0.0.0.0:1080", "192.0.2.1:1080", true),
            ("0.0.0.0:1080", "192.0.2.1:1081", false),
            ("192.0.2.1:1080", "127.0.0.1:1080", false),
            ("[::]:1080", "127.0.0.1:1080", false),
            ("0.0.0.0:0", "127.0.0.1:0", false),
        ] {
            assert_eq!(at(one).meets(at(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn what_is_intercepted_has_a_port_alone() {
        assert_eq!(parse_port("8877"), Ok(Listen(([127, 0, 0, 1], 8877).into())));
        for wrong in ["", "0", "127.0.0.1:8877", "70000"] {
            assert!(parse_port(wrong).is_err_and(|error| error.contains("such as")), "{wrong}");
        }
    }

    #[test]
    fn a_way_has_two_ends() {
        let forward = parse_forward("8080=example.org:80").expect("a way");
        assert_eq!(forward.1.to_string(), "example.org:80");
        for wrong in ["8080", "8080=example.org", "x=example.org:80"] {
            assert!(parse_forward(wrong).is_err(), "{wrong}");
        }
    }
}
