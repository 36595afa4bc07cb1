//! What a limit is, and of which flows.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use polypath_units::{BitRate, Duration, Instant};

use crate::access::{HostPattern, Network, NetworkError, PortRange};
use crate::target::Target;

/// A minute of the day, as clocks on the wall show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MinuteOfDay(u16);

impl MinuteOfDay {
    const IN_DAY: u16 = 24 * 60;

    /// From hour and minute, if the day has them.
    #[must_use]
    pub const fn new(hour: u16, minute: u16) -> Option<Self> {
        if hour < 24 && minute < 60 { Some(Self(hour * 60 + minute)) } else { None }
    }
}

/// Now, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// On the one that never goes back.
    pub now: Instant,
    /// On the wall.
    pub minute: MinuteOfDay,
}

/// Hours of each day, such as `22:00-06:00`. The last minute is no more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hours {
    from: u16,
    to: u16,
}

/// Why something is no hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no hours: expected HH:MM-HH:MM, such as 22:00-06:00")]
pub struct HoursError;

impl Hours {
    /// Whether the minute is one of them.
    #[must_use]
    pub fn contains(&self, MinuteOfDay(minute): MinuteOfDay) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            !(self.to..self.from).contains(&minute)
        }
    }
}

impl FromStr for Hours {
    type Err = HoursError;

    fn from_str(text: &str) -> Result<Self, HoursError> {
        let number = |text: &str| {
            let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|_| is_number)
        };
        let minute = |text: &str| {
            let (hour, minute) = text.split_once(':')?;
            let (hour, minute) = (number(hour)?, number(minute)?);
            let minutes = hour * 60 + minute;
            (minute < 60 && minutes <= MinuteOfDay::IN_DAY).then_some(minutes)
        };
        let (from, to) = text.split_once('-').ok_or(HoursError)?;
        let (from, to) = minute(from).zip(minute(to)).ok_or(HoursError)?;
        if from == to || from == MinuteOfDay::IN_DAY {
            return Err(HoursError);
        }
        Ok(Self { from, to })
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

/// Which way octets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// A flow: one direction of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// Where the client is.
    pub client: IpAddr,
    /// Who it is, if it had to say so.
    pub user: Option<Box<str>>,
    /// Where it goes, as the client calls it.
    pub target: Target,
    /// The address of that.
    pub address: IpAddr,
    /// The interface over which it goes there, if it is one.
    pub interface: Option<Box<str>>,
    /// The local address from which it goes there.
    pub local: Option<IpAddr>,
    /// Which way.
    pub direction: Direction,
}

/// A path that a limit may be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSeen<'a> {
    /// Its interface here.
    pub interface: Option<&'a str>,
    /// This end.
    pub local: IpAddr,
    /// The other end.
    pub remote: IpAddr,
}

/// Paths, as a limit names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// The one over this interface.
    Interface(Box<str>),
    /// Those from a local address of this network.
    Local(Network),
}

/// Why something names no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// It has a slash or a colon, and is no network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// No interface has such a name.
    #[error("no interface: expected a name of at most 15 characters without blanks, or a local address")]
    Interface,
}

impl PathPattern {
    fn fits(&self, interface: Option<&str>, local: Option<IpAddr>) -> bool {
        match self {
            Self::Interface(name) => interface == Some(&**name),
            Self::Local(network) => local.is_some_and(|local| network.contains(local)),
        }
    }
}

impl FromStr for PathPattern {
    type Err = PathPatternError;

    fn from_str(text: &str) -> Result<Self, PathPatternError> {
        if text.contains(['/', ':']) || text.parse::<IpAddr>().is_ok() {
            return Ok(Self::Local(text.parse()?));
        }
        let is_name = (1..16).contains(&text.len()) && !text.contains(|letter: char| letter.is_whitespace());
        is_name.then(|| Self::Interface(text.into())).ok_or(PathPatternError::Interface)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Local(network) => network.fmt(f),
        }
    }
}

/// Flows, as a limit names them. Each list that is empty says: whichever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Where the client is.
    pub clients: Vec<Network>,
    /// Who the client is.
    pub users: Vec<Box<str>>,
    /// Where it goes.
    pub hosts: Vec<HostPattern>,
    /// To which port there.
    pub ports: Vec<PortRange>,
    /// Over which path.
    pub paths: Vec<PathPattern>,
    /// Where the other end of that path is.
    pub peers: Vec<Network>,
    /// Which way; otherwise both together.
    pub direction: Option<Direction>,
}

impl Selector {
    /// Whether the flow is one of them.
    #[must_use]
    pub fn fits(&self, flow: &FlowKey) -> bool {
        self.fits_ends(flow)
            && is_any(&self.paths, |path| path.fits(flow.interface.as_deref(), flow.local))
            && is_any(&self.peers, |network| network.contains(flow.address))
            && self.direction.is_none_or(|direction| direction == flow.direction)
    }

    /// Whether its client and its server are of those that are named, over whatever path it goes, and whichever way.
    #[must_use]
    pub fn fits_ends(&self, flow: &FlowKey) -> bool {
        is_any(&self.clients, |network| network.contains(flow.client))
            && is_any(&self.users, |user| flow.user.as_ref() == Some(user))
            && is_any(&self.hosts, |host| host.fits(&flow.target.host, flow.address))
            && is_any(&self.ports, |ports| ports.contains(flow.target.port))
    }

    /// Whether it is of some clients or servers only.
    #[must_use]
    pub fn names_ends(&self) -> bool {
        let Self { clients, users, hosts, ports, .. } = self;
        !(clients.is_empty() && users.is_empty() && hosts.is_empty() && ports.is_empty())
    }

    /// Whether it is of some paths only.
    #[must_use]
    pub fn names_paths(&self) -> bool {
        !self.paths.is_empty() || !self.peers.is_empty()
    }

    /// Whether a path over this interface, between these addresses, is one of those that it names.
    #[must_use]
    pub fn fits_path(&self, interface: Option<&str>, local: IpAddr, remote: IpAddr) -> bool {
        is_any(&self.paths, |path| path.fits(interface, Some(local)))
            && is_any(&self.peers, |network| network.contains(remote))
    }
}

fn is_any<T>(list: &[T], fits: impl FnMut(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(fits)
}

/// How much may pass in a time, and how fast the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Octets.
    pub octets: u64,
    /// The time. It begins with the first octet, and the next one with the first octet after its end.
    pub period: Duration,
    /// The rate of what comes after that. At zero nothing does.
    pub then: BitRate,
}

/// A limit for all the flows together that it is of, or for all of each client, which share it fairly. Of several limits, a flow has the least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it is called. Another one of the same name takes its place.
    pub name: Box<str>,
    /// Of which flows it is.
    pub flows: Selector,
    /// Whether each client has as much for itself; else all share it. A client is an address, or a /56 network of IPv6.
    pub is_of_each_client: bool,
    /// When it holds, if not always.
    pub hours: Option<Hours>,
    /// How fast.
    pub rate: Option<BitRate>,
    /// Octets that may pass at once after a while of less; what comes in 50 ms, if nothing is said.
    pub burst: Option<u64>,
    /// How much.
    pub budget: Option<Budget>,
}

impl Limit {
    /// That which says nothing yet, of every flow.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let name = name.into();
        Self {
            name,
            flows: Selector::default(),
            is_of_each_client: false,
            hours: None,
            rate: None,
            burst: None,
            budget: None,
        }
    }

    /// Whether it holds at that minute for packets that go over this path, whichever way, of a connection of whom and where to `owner` says, if
    /// that is known.
    #[must_use]
    pub fn holds_for_path(&self, path: &PathSeen<'_>, owner: Option<&FlowKey>, minute: MinuteOfDay) -> bool {
        self.flows.fits_path(path.interface, path.local, path.remote)
            && self.hours.is_none_or(|hours| hours.contains(minute))
            && (!self.flows.names_ends() || owner.is_some_and(|owner| self.flows.fits_ends(owner)))
    }
}

#[cfg(test)]
#[path = "limit_tests.rs"]
mod tests;
