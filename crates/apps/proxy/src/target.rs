//! Where a client wants to go.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Octets of the longest name, as text without the final dot (RFC 1035 §2.3.4).
const LONGEST_NAME: usize = 253;
/// Octets of the longest label (RFC 1035 §2.3.4).
const LONGEST_LABEL: usize = 63;

/// A name of a host, in lower case and without the final dot. Labels are of letters, digits, hyphens and underscores.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<str>);

/// Why something is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is nothing, or nothing between two dots.
    #[error("a name without a label: expected one such as example.org")]
    Empty,
    /// It is longer than a name or a label may be.
    #[error("too long for a name: expected at most 253 characters, and 63 between two dots")]
    TooLong,
    /// It has a character that names do not have.
    #[error("a character that no name has: expected letters, digits, hyphens and dots")]
    Character,
}

impl Name {
    /// Takes what stands in a request.
    pub fn new(text: &[u8]) -> Result<Self, NameError> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        if text.len() > LONGEST_NAME {
            return Err(NameError::TooLong);
        }
        for label in text.split(|byte| *byte == b'.') {
            match label.len() {
                0 => return Err(NameError::Empty),
                1..=LONGEST_LABEL => {}
                _ => return Err(NameError::TooLong),
            }
        }
        let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let text = std::str::from_utf8(text).ok().filter(|text| text.as_bytes().iter().all(is_fine));
        text.map(|text| Self(text.to_ascii_lowercase().into())).ok_or(NameError::Character)
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is `domain` or stands below it.
    #[must_use]
    pub fn is_within(&self, domain: &Self) -> bool {
        self.0.strip_suffix(&*domain.0).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host, as a client calls it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// By its address. An IPv4 address within IPv6 is an IPv4 address here.
    Address(IpAddr),
    /// By its name, which is yet to be looked up.
    Name(Name),
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl FromStr for Host {
    type Err = NameError;

    /// An address, with or without brackets, or a name.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(inner) = inner {
            return inner
                .parse()
                .map(|v6: std::net::Ipv6Addr| IpAddr::V6(v6).into())
                .map_err(|_| NameError::Character);
        }
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(address.into()),
            Err(_) => Name::new(text.as_bytes()).map(Self::Name),
        }
    }
}

/// A host, and a port there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl Target {
    /// The address, if nothing has to be looked up.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Address(address) => Some(SocketAddr::new(address, self.port)),
            Host::Name(_) => None,
        }
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().into(), port: address.port() }
    }
}

/// Why something is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The host is none.
    #[error(transparent)]
    Host(#[from] NameError),
    /// There is no port, or it is none.
    #[error("no port from 1 to 65535: expected HOST:PORT, such as example.org:443 or [2001:db8::1]:443")]
    Port,
}

impl FromStr for Target {
    type Err = TargetError;

    /// `HOST:PORT`, with brackets around an IPv6 address.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (host, port) = text.rsplit_once(':').ok_or(TargetError::Port)?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port != 0).ok_or(TargetError::Port)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(TargetError::Port);
        }
        Ok(Self { host: host.parse()?, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reads_as_it_is_written() {
        for text in ["example.org:443", "192.0.2.1:80", "[2001:db8::1]:8080", "a_b.example:1"] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(text.into()));
        }
        assert_eq!("EXAMPLE.org.:443".parse::<Target>().unwrap().to_string(), "example.org:443");
        assert_eq!("[::ffff:192.0.2.1]:80".parse::<Target>().unwrap().to_string(), "192.0.2.1:80");
    }

    #[test]
    fn what_is_no_target_is_refused() {
        use TargetError::{Host, Port};
        for (text, why) in [
            ("example.org", Port),
            ("example.org:", Port),
            ("example.org:0", Port),
            ("example.org:+80", Port),
            ("example.org:65536", Port),
            ("2001:db8::1:80", Port),
            (":80", Host(NameError::Empty)),
            ("a..b:80", Host(NameError::Empty)),
            ("a b:80", Host(NameError::Character)),
            ("a\r\nb:80", Host(NameError::Character)),
            ("user@example.org:80", Host(NameError::Character)),
        ] {
            assert_eq!(text.parse::<Target>(), Err(why), "{text:?}");
        }
        assert_eq!(Name::new(&[b'a'; 64]), Err(NameError::TooLong));
        assert_eq!(Name::new(&b"a.".repeat(128)), Err(NameError::TooLong));
    }

    #[test]
    fn a_domain_has_what_stands_below_it() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        assert!(name("www.example.org").is_within(&name("example.org")));
        assert!(name("example.org").is_within(&name("example.org")));
        assert!(!name("badexample.org").is_within(&name("example.org")));
    }
}
