use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};

/// A connection that could not be opened: what failed, to where, over which interface. One line.
#[derive(Debug)]
pub struct DialError {
    place: String,
    interface: Option<String>,
    failure: Failure,
}

/// What failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// No URL of HTTP.
    #[error("expected a URL such as http://HOST/FILE or https://HOST/FILE")]
    Url,
    /// There is no such interface.
    #[error("there is no such interface; there are {}", known.join(", "))]
    UnknownInterface {
        /// Names of those that are there.
        known: Vec<String>,
    },
    /// The interface is switched off, or has no carrier.
    #[error("the interface is down")]
    InterfaceDown,
    /// The interface has no address of a family that the host has.
    #[error("the interface has no {} address, and the host no other", if *.wants_v6 { "IPv6" } else { "IPv4" })]
    NoLocalAddress {
        /// The host has IPv6 addresses only, or IPv4 addresses only.
        wants_v6: bool,
    },
    /// The interface has no address at all.
    #[error("the interface has no address")]
    NoAddress,
    /// The system's interfaces can't be asked for.
    #[error("the system doesn't tell its interfaces: {}", words(.0))]
    Interfaces(io::Error),
    /// The name of the host, or of the proxy.
    #[error("no address of {name} is found: {}", words(error))]
    Resolve {
        /// The name.
        name: String,
        /// What the resolver says.
        error: io::Error,
    },
    /// None of the addresses answers.
    #[error("{address}: {}{}", words(error), others(*.other_addresses))]
    Connect {
        /// The first that was tried.
        address: SocketAddr,
        /// What became of it.
        error: io::Error,
        /// Further addresses, which failed as well.
        other_addresses: usize,
    },
    /// It took too long.
    #[error("no connection within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The system has no certificates.
    #[error("TLS: the system has no certificates to verify the server's by; a file with some may be named")]
    NoRoots,
    /// TLS, such as a certificate of somebody else.
    #[error("TLS: {}", tls_words(.0))]
    Tls(io::Error),
    /// The server speaks another protocol inside TLS.
    #[error("TLS: the server wants another protocol than HTTP")]
    Protocol,
    /// The proxy wants to know who asks, or doesn't accept who does.
    #[error("the proxy wants a user and a password: {}", if *.were_sent { "those that were sent are wrong" } else { "none were given" })]
    ProxyPassword {
        /// Some were sent.
        were_sent: bool,
    },
    /// The proxy refuses.
    #[error("the proxy answers with status {0}")]
    ProxyStatus(u16),
    /// The proxy speaks no HTTP, or ends the connection.
    #[error("the proxy: {0}")]
    Proxy(String),
}

impl DialError {
    pub(super) fn new(place: String, interface: Option<&str>, failure: Failure) -> Self {
        Self { place, interface: interface.map(str::to_owned), failure }
    }

    /// What failed.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// The interface, if one was named.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)?;
        if let Some(interface) = &self.interface {
            write!(f, " over {interface}")?;
        }
        write!(f, ": {}", self.failure)
    }
}

impl std::error::Error for DialError {}

/// Without the number of the error, which says nothing to people.
pub(super) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error ").next().unwrap_or_default();
    words.lines().collect::<Vec<_>>().join(" ")
}

/// What people can do something about, in words.
fn tls_words(error: &io::Error) -> String {
    use rustls::CertificateError as Certificate;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(problem)) = inner else { return words(error) };
    let problem = match problem {
        Certificate::UnknownIssuer | Certificate::BadSignature => "is signed by nobody that this host trusts",
        Certificate::Expired | Certificate::ExpiredContext { .. } => "has expired",
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => "is not valid yet",
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => "is for another name",
        Certificate::Revoked => "is revoked",
        // What openssl makes by `req -x509`.
        Certificate::Other(_) => "is signed by itself, or malformed",
        _ => return words(error),
    };
    format!("the server's certificate {problem}")
}

fn others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " (and one other address)".to_owned(),
        count => format!(" (and {count} other addresses)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_place_and_interface() {
        let refused = || io::Error::from_raw_os_error(111);
        let address = "192.0.2.1:443".parse().unwrap();
        let failure = Failure::Connect { address, error: refused(), other_addresses: 2 };
        let error = DialError::new("example.org:443".to_owned(), Some("eth1"), failure);
        let expected = "example.org:443 over eth1: 192.0.2.1:443: Connection refused (and 2 other addresses)";
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.interface(), Some("eth1"));
        let failure = Failure::TimedOut(Duration::from_millis(1500));
        let error = DialError::new("h:80".to_owned(), None, failure);
        assert_eq!(error.to_string(), "h:80: no connection within 1.5 s");
        let failure = Failure::NoLocalAddress { wants_v6: true };
        assert_eq!(failure.to_string(), "the interface has no IPv6 address, and the host no other");
    }
}
