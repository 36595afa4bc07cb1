use std::net::{IpAddr, SocketAddr};
use std::{fmt, io};

use tokio::net::lookup_host;
use url::{Host, Url};

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    host: Host<String>,
    port: u16,
}

impl Endpoint {
    /// Where a URL leads to; none if it doesn't say.
    pub(super) fn of(url: &Url) -> Option<Self> {
        Some(Self { host: url.host()?.to_owned(), port: url.port_or_known_default()? })
    }

    pub(super) fn new(host: Host<String>, port: u16) -> Self {
        Self { host, port }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The address, if it is one and no name.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        match self.host {
            Host::Domain(_) => None,
            Host::Ipv4(addr) => Some(addr.into()),
            Host::Ipv6(addr) => Some(addr.into()),
        }
    }

    /// The name or the address, as certificates have it.
    pub(super) fn name(&self) -> String {
        match &self.host {
            Host::Domain(name) => name.strip_suffix('.').unwrap_or(name).to_owned(),
            Host::Ipv4(addr) => addr.to_string(),
            Host::Ipv6(addr) => addr.to_string(),
        }
    }

    /// All addresses, the best first, as the system's resolver has them.
    pub(super) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.host {
            Host::Domain(name) => Ok(lookup_host((name.as_str(), self.port)).await?.collect()),
            Host::Ipv4(addr) => Ok(vec![(*addr, self.port).into()]),
            Host::Ipv6(addr) => Ok(vec![(*addr, self.port).into()]),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
