//! What a proxy is told to do.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::entrance_tls::EntranceTls;
use super::upstream::Upstream;
use crate::access::{Allowance, ClientLimits, Network, Rules, Verdict};
use crate::convert::ServerConfig;
use crate::negotiation::Authority;
use crate::proxy_protocol::ProxyProtocolVersion;
use crate::target::Target;
use crate::throttle::MinuteOfDay;

/// How long each phase of a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the client has said what it wants, and between two requests of HTTP.
    pub asking: Duration,
    /// Until the server is reached.
    pub connecting: Duration,
    /// Until the server of an HTTP request begins with its answer.
    pub answering: Duration,
    /// Without a byte either way; none for ever.
    pub idle: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            asking: Duration::from_secs(20),
            connecting: Duration::from_secs(15),
            answering: Duration::from_secs(120),
            idle: Some(Duration::from_secs(3600)),
        }
    }
}

/// What limits ask of the system.
pub trait Surroundings: Send + Sync {
    /// Octets of memory that this process has, if that can be said. It is asked at most each 100 ms, and never where no limit is set.
    fn memory(&self) -> Option<u64> {
        None
    }

    /// Gives back to the system what this process has and does not use. It is asked at most each second, and only where there is too much.
    fn give_memory_back(&self) {}

    /// What the interface is called that has this address.
    fn interface_of(&self, local: IpAddr) -> Option<Box<str>>;

    /// The minute of the day, where the proxy is.
    fn minute(&self) -> MinuteOfDay;
}

/// Where nothing more is known: no names of interfaces, and the hours are UTC.
#[derive(Clone, Copy, Debug)]
struct Nowhere;

impl Surroundings for Nowhere {
    fn interface_of(&self, _: IpAddr) -> Option<Box<str>> {
        None
    }

    fn minute(&self) -> MinuteOfDay {
        let minutes = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60);
        let of_day = (minutes % (24 * 60)) as u16;
        MinuteOfDay::new(of_day / 60, of_day % 60).unwrap_or_default()
    }
}

/// What may change while connections live. Each takes what there is when it comes.
#[derive(Clone)]
pub struct Settings {
    /// How long each phase may take.
    pub timeouts: Timeouts,
    /// Who may go where. What is forwarded to one target asks no rule.
    pub rules: Rules,
    /// Who has to say who it is, if anybody has to: clients of SOCKS and HTTP.
    pub users: Option<Arc<dyn Authority>>,
    /// How much clients may have.
    pub limits: ClientLimits,
    /// The proxy through which servers are reached, if not directly.
    pub via: Option<Arc<Upstream>>,
    /// What limits of rates ask.
    pub surroundings: Arc<dyn Surroundings>,
}

impl Default for Settings {
    fn default() -> Self {
        let each = Allowance { connections: 16_384, new_per_second: u32::MAX, burst: u32::MAX };
        let all = Allowance { connections: 65_536, ..each };
        Self {
            timeouts: Timeouts::default(),
            rules: Rules::new(Vec::new(), Verdict::Allow),
            users: None,
            limits: ClientLimits { each, all, clients: 65_536, memory: None },
            via: None,
            surroundings: Arc::new(Nowhere),
        }
    }
}

/// Those that hold now. Copies are of the same.
#[derive(Clone, Debug)]
pub(super) struct CurrentSettings(Arc<RwLock<Arc<Settings>>>);

impl CurrentSettings {
    pub(super) fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }

    pub(super) fn get(&self) -> Arc<Settings> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Settings");
        shown.field("timeouts", &self.timeouts).field("rules", &self.rules).field("limits", &self.limits);
        shown.field("via", &self.via);
        shown.field("has_users", &self.users.is_some()).finish()
    }
}

/// What is spoken where clients enter.
#[derive(Clone, Debug)]
pub enum EntranceKind {
    /// Nothing: each connection goes to this target.
    Forward(Target),
    /// SOCKS version 5.
    Socks,
    /// HTTP: CONNECT, and requests with a whole URL.
    Http,
    /// 0-RTT TCP Convert (RFC 8803).
    Convert(Arc<ServerConfig>),
    /// Nothing, by clients that know of no proxy: each connection goes where its client wanted to go. The system's rules lead them here.
    Transparent(InterceptedBy),
}

/// How connections of clients that know of no proxy come to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterceptedBy {
    /// As they are (TPROXY): the client's destination is the accepted socket's address.
    Tproxy,
    /// Translated: the kernel knows the destination of before.
    Redirect,
}

/// Where clients enter.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// What is spoken there.
    pub kind: EntranceKind,
    /// Clients come by TLS.
    pub tls: Option<EntranceTls>,
    /// Connections from here begin with a header of the PROXY protocol, which says who the client is. From elsewhere, none is believed.
    pub proxy_protocol_from: Vec<Network>,
    /// Connections to servers begin with such a header.
    pub proxy_protocol_to_servers: Option<ProxyProtocolVersion>,
}

impl From<EntranceKind> for Entrance {
    fn from(kind: EntranceKind) -> Self {
        Self { kind, tls: None, proxy_protocol_from: Vec::new(), proxy_protocol_to_servers: None }
    }
}

impl Entrance {
    pub(super) fn protocol(&self) -> &'static str {
        match self.kind {
            EntranceKind::Forward(_) => "forward",
            EntranceKind::Socks => "socks",
            EntranceKind::Http => "http",
            EntranceKind::Convert(_) => "convert",
            EntranceKind::Transparent(_) => "transparent",
        }
    }
}
