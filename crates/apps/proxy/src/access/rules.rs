//! Which client may go where.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::network::{Network, NetworkError};
use crate::failure::ConnectFailure;
use crate::target::{Host, Name, NameError, Target};

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It may be.
    Allow,
    /// It may not be.
    Deny,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// From where.
    pub address: IpAddr,
    /// Who it is, if it had to say so.
    pub user: Option<&'a str>,
    /// Whether its connection comes from this host, so that it can reach by itself what is within. What others say of where a client is counts for
    /// nothing here.
    pub is_on_this_host: bool,
}

/// Hosts, as a rule names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Those with an address of this network.
    Network(Network),
    /// The one with this name: `example.org`.
    Name(Name),
    /// Those whose names stand below this one, which itself is not meant: `.example.org` or `*.example.org`.
    Below(Name),
}

/// Why something names no hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    /// It has a slash, and is no network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// It is no name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl HostPattern {
    fn is_of_name(&self, name: &Name) -> bool {
        match self {
            Self::Network(_) => false,
            Self::Name(wanted) => name == wanted,
            Self::Below(domain) => name != domain && name.is_within(domain),
        }
    }

    /// Whether the host is meant, by its name or by the address that it has.
    pub(crate) fn fits(&self, host: &Host, address: IpAddr) -> bool {
        match (self, host) {
            (Self::Network(network), _) => is_of(network, address),
            (_, Host::Name(name)) => self.is_of_name(name),
            (_, Host::Address(_)) => false,
        }
    }

    fn network(&self) -> Option<&Network> {
        match self {
            Self::Network(network) => Some(network),
            Self::Name(_) | Self::Below(_) => None,
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        if text.contains(['/', ':']) || text.parse::<IpAddr>().is_ok() {
            return Ok(Self::Network(text.parse()?));
        }
        let below = text.strip_prefix("*.").or_else(|| text.strip_prefix('.'));
        Ok(match below {
            Some(domain) => Self::Below(Name::new(domain.as_bytes())?),
            None => Self::Name(Name::new(text.as_bytes())?),
        })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Name(name) => name.fmt(f),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// Ports from one to another, such as `8000-8080`, or one, such as `443`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortRange(RangeInclusive<u16>);

/// Why something is no range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no ports: expected a number from 1 to 65535, or two such as 8000-8080")]
pub struct PortRangeError;

impl PortRange {
    /// Whether the port is one of them.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> Self {
        Self(port..=port)
    }
}

impl From<PortRange> for RangeInclusive<u16> {
    fn from(PortRange(range): PortRange) -> Self {
        range
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let port = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|port: &u16| is_number && *port != 0).ok_or(PortRangeError)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(PortRangeError);
        }
        Ok(Self(first..=last))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        if first == last { first.fmt(f) } else { write!(f, "{first}-{last}") }
    }
}

/// What is allowed or denied. Each list that is empty says: whichever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it says of that which it fits.
    pub verdict: Verdict,
    /// Where the client is.
    pub clients: Vec<Network>,
    /// Who the client is.
    pub users: Vec<Box<str>>,
    /// Where it wants to go.
    pub hosts: Vec<HostPattern>,
    /// To which port there.
    pub ports: Vec<PortRange>,
}

impl Rule {
    /// That which fits everything.
    #[must_use]
    pub fn new(verdict: Verdict) -> Self {
        Self { verdict, clients: Vec::new(), users: Vec::new(), hosts: Vec::new(), ports: Vec::new() }
    }

    fn fits(&self, client: &Client<'_>, port: u16) -> bool {
        let is_any = |of: usize| of == 0;
        (is_any(self.clients.len()) || self.clients.iter().any(|network| network.contains(client.address)))
            && (is_any(self.users.len()) || self.users.iter().any(|user| client.user == Some(user)))
            && (is_any(self.ports.len()) || self.ports.iter().any(|ports| ports.contains(port)))
    }

    fn networks(&self) -> impl Iterator<Item = &Network> {
        self.hosts.iter().filter_map(HostPattern::network)
    }

    fn names_network_of(&self, address: IpAddr) -> bool {
        self.networks().any(|network| is_of(network, address))
    }

    fn fits_name(&self, name: &Name) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.is_of_name(name))
    }

    fn fits_host(&self, host: &Host, address: IpAddr) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.fits(host, address))
    }
}

/// Why something may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// A rule says so: the one with this index.
    #[error("rule {} denies it", .0 + 1)]
    Rule(usize),
    /// No rule fits, and what no rule fits is denied.
    #[error("no rule allows it")]
    Default,
    /// The address is one that leads into this host, or no further than its link, and no rule names it.
    #[error("{0}, which no rule names")]
    Special(&'static str),
}

impl From<Denied> for ConnectFailure {
    fn from(_: Denied) -> Self {
        Self::NotAllowed
    }
}

/// Rules in their order. The first that fits decides; what none fits is decided by a default.
///
/// They are asked twice: with what the client calls its target ([`Rules::check`]), and, if that is a name, again with each address that it leads to
/// ([`Rules::check_address`]), which is the answer that counts. A name is worth no more than its address: where a rule allows the name, a rule that
/// denies a network of the address still denies it, wherever it stands, unless one before it allows the address. Rules with names alone say
/// nothing of clients that go by the address: deny the rest, if names are to be the only way.
///
/// Whatever they say of everything, a client that is not on this host is not let into it: loopback and unspecified addresses are denied, as are those
/// of the link, of groups, and those where clouds tell their machines who they are. A rule that names such an address, or a network of nothing but
/// such addresses, decides of it as of any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    default: Verdict,
}

impl Rules {
    /// The rules, and what holds where none fits.
    #[must_use]
    pub fn new(rules: Vec<Rule>, default: Verdict) -> Self {
        Self { rules, default }
    }

    /// Whether the client may go to the target, as far as that is known. Of a name, only that it may not be can be known before it is looked up.
    pub fn check(&self, client: &Client<'_>, target: &Target) -> Result<(), Denied> {
        let name = match &target.host {
            Host::Address(address) => return self.check_address(client, target, *address),
            Host::Name(name) => name,
        };
        for (index, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.fits(client, target.port))
        {
            let may_fit = || rule.networks().next().is_some();
            match rule.verdict {
                Verdict::Allow if rule.fits_name(name) || may_fit() => return Ok(()),
                Verdict::Deny if rule.fits_name(name) => return Err(Denied::Rule(index)),
                Verdict::Allow | Verdict::Deny => {}
            }
        }
        self.by_default()
    }

    /// Whether the client may go to this address, which is that of the target.
    pub fn check_address(&self, client: &Client<'_>, target: &Target, address: IpAddr) -> Result<(), Denied> {
        let address = address.to_canonical();
        let fitting = || self.rules.iter().enumerate().filter(|(_, rule)| rule.fits(client, target.port));
        let meant = translated(address);
        if !client.is_on_this_host
            && let Some((network, what)) = special(meant)
        {
            let names = |rule: &Rule| {
                rule.networks().any(|named| named.contains(meant) && network.contains_network(named))
            };
            match fitting().find(|(_, rule)| names(rule)) {
                Some((_, rule)) if rule.verdict == Verdict::Allow => {}
                Some((index, _)) => return Err(Denied::Rule(index)),
                None => return Err(Denied::Special(what)),
            }
        }
        let verdict_of = |(index, rule): (usize, &Rule)| match rule.verdict {
            Verdict::Allow => Ok(()),
            Verdict::Deny => Err(Denied::Rule(index)),
        };
        let Some(first) = fitting().find(|(_, rule)| rule.fits_host(&target.host, address)) else {
            return self.by_default();
        };
        verdict_of(first)?;
        if first.1.hosts.is_empty() {
            return Ok(());
        }
        // It was allowed by its name: what is said of the address holds as well. Allowed by its network, it finds the same rule again.
        let is_of_address = |rule: &Rule| match rule.hosts[..] {
            [] => rule.verdict == Verdict::Allow,
            _ => rule.names_network_of(address),
        };
        fitting().find(|(_, rule)| is_of_address(rule)).map_or(Ok(()), verdict_of)
    }

    fn by_default(&self) -> Result<(), Denied> {
        match self.default {
            Verdict::Allow => Ok(()),
            Verdict::Deny => Err(Denied::Default),
        }
    }
}

/// The narrowest network of addresses to which no client is led unless a rule names it, and what they are.
fn special(address: IpAddr) -> Option<(Network, &'static str)> {
    const METADATA: &str = "the address where a cloud tells its machines who they are";
    const LOOPBACK: &str = "a loopback address";
    const UNSPECIFIED: &str = "an address of this host on no network";
    const LINK_LOCAL: &str = "a link-local address";
    const MULTICAST: &str = "a multicast address";
    const SPECIAL: [(Network, &str); 13] = [
        (Network::v4([100, 100, 100, 200], 32), METADATA),
        (Network::v4([169, 254, 169, 254], 32), METADATA),
        (Network::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), METADATA),
        (Network::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), METADATA),
        (Network::v4([127, 0, 0, 0], 8), LOOPBACK),
        (Network::v6([0, 0, 0, 0, 0, 0, 0, 1], 128), LOOPBACK),
        (Network::v4([0, 0, 0, 0], 8), UNSPECIFIED),
        (Network::v6([0; 8], 128), UNSPECIFIED),
        (Network::v4([169, 254, 0, 0], 16), LINK_LOCAL),
        (Network::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), LINK_LOCAL),
        (Network::v4([224, 0, 0, 0], 4), MULTICAST),
        (Network::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), MULTICAST),
        (Network::v4([255, 255, 255, 255], 32), "the broadcast address"),
    ];
    SPECIAL.into_iter().find(|(network, _)| network.contains(address))
}

/// Whether the address is one of the network, or leads to one.
fn is_of(network: &Network, address: IpAddr) -> bool {
    network.contains(address) || network.contains(translated(address))
}

/// The IPv4 address to which an address of the prefixes for that is translated on its way (RFC 6052, RFC 8215).
fn translated(address: IpAddr) -> IpAddr {
    const WELL_KNOWN: Network = Network::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
    // Longer prefixes of it are of the operator; nearly all have 96 bits.
    const LOCAL_USE: Network = Network::v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48);
    match address {
        IpAddr::V6(v6) if WELL_KNOWN.contains(address) || LOCAL_USE.contains(address) => {
            IpAddr::V4(Ipv4Addr::from(v6.to_bits() as u32))
        }
        _ => address,
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
