//! Reaches servers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use polypath_stack::Engine;
use polypath_stack::engine::ConnectOptions;
use polypath_units::Instant;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::leg::Leg;
use crate::failure::ConnectFailure;
use crate::race::{Family, Race};
use crate::target::{Host, Name, Target};

/// Opens connections to servers, over an engine.
#[derive(Clone, Debug)]
pub struct Connector {
    engine: Engine,
    asks_fast: bool,
    resolvers: Arc<OnceCell<Resolvers>>,
}

/// One for each family, so that neither waits for the other.
#[derive(Debug)]
struct Resolvers {
    v4: TokioResolver,
    v6: TokioResolver,
}

/// A server that was reached.
#[derive(Debug)]
pub struct ServerSide {
    /// The connection. Who keeps it for long has to ask it for keep-alives.
    pub stream: Leg,
    /// Its address, of those that its name has.
    pub address: SocketAddr,
    /// What it has said already.
    pub early: Bytes,
}

impl Connector {
    /// Over this engine.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self { engine, asks_fast: false, resolvers: Arc::default() }
    }

    /// The same, where a converter on the way gets its request with the SYN, once it has given a cookie of TCP Fast Open (RFC 7413). Only connections
    /// of the kernel can.
    #[must_use]
    pub fn with_fast_open(mut self) -> Self {
        self.asks_fast = true;
        self
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Reaches a host that `allows` lets be reached at that address, by name with the attempts of RFC 8305.
    pub async fn connect(
        &self,
        target: &Target,
        limit: Duration,
        allows: impl Fn(IpAddr) -> bool,
    ) -> Result<ServerSide, ConnectFailure> {
        self.connect_by(target, limit, allows, |address| attempt(self.engine.clone(), address, false)).await
    }

    /// Whether who is at that target is asked with the SYN. Of several addresses, the first that answers is wanted.
    pub(super) fn asks_fast(&self, target: &Target) -> bool {
        self.asks_fast && target.address().is_some()
    }

    /// As [`Connector::connect`] to where all may be reached, but it may return before the connection is there: what is written first goes with the SYN.
    pub(super) async fn connect_fast(
        &self,
        target: &Target,
        limit: Duration,
    ) -> Result<ServerSide, ConnectFailure> {
        self.connect_by(target, limit, |_| true, |address| attempt(self.engine.clone(), address, true)).await
    }

    /// The same, where `open` makes an attempt at one address.
    pub(super) async fn connect_by<A>(
        &self,
        target: &Target,
        limit: Duration,
        allows: impl Fn(IpAddr) -> bool,
        open: impl Fn(SocketAddr) -> A,
    ) -> Result<ServerSide, ConnectFailure>
    where
        A: Future<Output = Result<ServerSide, ConnectFailure>> + Send + 'static,
    {
        let was_tried = AtomicBool::new(false);
        let open = |address| {
            was_tried.store(true, Ordering::Relaxed);
            open(address)
        };
        let reaching = async {
            match &target.host {
                Host::Address(address) if allows(*address) => {
                    open(SocketAddr::new(*address, target.port)).await
                }
                Host::Address(_) => Err(ConnectFailure::NotAllowed),
                Host::Name(name) => Box::pin(self.connect_by_name(name, target.port, allows, open)).await,
            }
        };
        match timeout(limit, reaching).await {
            Ok(reached) => reached,
            Err(_) if was_tried.load(Ordering::Relaxed) => Err(ConnectFailure::TimedOut),
            // Nobody said where it is.
            Err(_) => Err(ConnectFailure::NameLookupFailed),
        }
    }

    async fn connect_by_name<A>(
        &self,
        name: &Name,
        port: u16,
        allows: impl Fn(IpAddr) -> bool,
        open: impl Fn(SocketAddr) -> A,
    ) -> Result<ServerSide, ConnectFailure>
    where
        A: Future<Output = Result<ServerSide, ConnectFailure>> + Send + 'static,
    {
        let resolvers = self.resolvers.get_or_try_init(async || Resolvers::new()).await;
        let resolvers = resolvers.map_err(|_| ConnectFailure::NameLookupFailed)?;
        let begun = tokio::time::Instant::now();
        let since = |at: tokio::time::Instant| {
            Instant::from_nanos(u64::try_from((at - begun).as_nanos()).unwrap_or(u64::MAX))
        };
        let mut race = Race::new();
        let mut attempts = JoinSet::new();
        let (mut v4, mut v6) = (Box::pin(lookup(&resolvers.v4, name)), Box::pin(lookup(&resolvers.v6, name)));
        let (mut has_v4, mut has_v6) = (false, false);
        let mut failures = Failures::default();
        loop {
            let now = since(tokio::time::Instant::now());
            while let Some(address) = race.poll_attempt(now) {
                attempts.spawn(open(SocketAddr::new(address, port)));
            }
            if race.is_lost() {
                return Err(failures.sum());
            }
            let next = race.next_timeout();
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep_until(begun + Duration::from_nanos(at.as_nanos())).await,
                    None => std::future::pending().await,
                }
            };
            let (family, found) = tokio::select! {
                Some(ended) = attempts.join_next() => {
                    match ended.unwrap_or(Err(ConnectFailure::Local)) {
                        Ok(reached) => return Ok(reached),
                        Err(failure) => failures.connecting = Some(failure),
                    }
                    race.handle_failed();
                    continue;
                }
                found = &mut v4, if !has_v4 => { has_v4 = true; (Family::V4, found) }
                found = &mut v6, if !has_v6 => { has_v6 = true; (Family::V6, found) }
                () = wait => continue,
            };
            let now = since(tokio::time::Instant::now());
            let addresses = match found {
                Ok(addresses) => addresses,
                Err(failure) => {
                    failures.looking_up.push(failure);
                    Vec::new()
                }
            };
            let allowed: Vec<IpAddr> = addresses.iter().copied().filter(|address| allows(*address)).collect();
            failures.was_denied |= allowed.len() < addresses.len();
            race.handle_addresses(now, family, &allowed);
        }
    }
}

/// What went wrong with a name.
#[derive(Debug, Default)]
struct Failures {
    looking_up: Vec<ConnectFailure>,
    was_denied: bool,
    connecting: Option<ConnectFailure>,
}

impl Failures {
    /// The one that says most.
    fn sum(&self) -> ConnectFailure {
        let denied = self.was_denied.then_some(ConnectFailure::NotAllowed);
        let failed = self
            .looking_up
            .iter()
            .copied()
            .max_by_key(|failure| *failure == ConnectFailure::NameLookupFailed);
        self.connecting.or(denied).or(failed).unwrap_or(ConnectFailure::NameUnknown)
    }
}

async fn attempt(engine: Engine, address: SocketAddr, fast_open: bool) -> Result<ServerSide, ConnectFailure> {
    let options = ConnectOptions { defers_keepalive: true, fast_open, ..ConnectOptions::default() };
    let connected = engine.connect(address, &options).await;
    connected
        .map(|stream| ServerSide { stream: Leg::Plain(stream), address, early: Bytes::new() })
        .map_err(|error| failure_of(&error))
}

fn failure_of(error: &io::Error) -> ConnectFailure {
    match error.raw_os_error() {
        // Of these, the kernel makes other kinds.
        Some(code) if code == rustix::io::Errno::MFILE.raw_os_error() => ConnectFailure::Local,
        Some(code) if code == rustix::io::Errno::INVAL.raw_os_error() => ConnectFailure::HostUnreachable,
        _ => ConnectFailure::from(error),
    }
}

impl Resolvers {
    fn new() -> io::Result<Self> {
        let of = |strategy| {
            let mut builder = TokioResolver::builder_tokio().map_err(io::Error::other)?;
            builder.options_mut().ip_strategy = strategy;
            builder.build().map_err(io::Error::other)
        };
        Ok(Self { v4: of(LookupIpStrategy::Ipv4Only)?, v6: of(LookupIpStrategy::Ipv6Only)? })
    }
}

/// As the name is: rules know no other, and no search list of the system's is to add to it.
async fn lookup(resolver: &TokioResolver, name: &Name) -> Result<Vec<IpAddr>, ConnectFailure> {
    match resolver.lookup_ip(format!("{name}.")).await {
        Ok(found) => Ok(found.iter().map(|address| address.to_canonical()).collect()),
        Err(error) if error.is_nx_domain() || error.is_no_records_found() => Err(ConnectFailure::NameUnknown),
        Err(_) => Err(ConnectFailure::NameLookupFailed),
    }
}

impl Connector {
    /// The addresses that a name has: those of IPv4, or else those of IPv6.
    pub(super) async fn addresses_of(&self, name: &Name) -> Vec<IpAddr> {
        let Ok(resolvers) = self.resolvers.get_or_try_init(async || Resolvers::new()).await else {
            return Vec::new();
        };
        match lookup(&resolvers.v4, name).await {
            Ok(found) => found,
            Err(_) => lookup(&resolvers.v6, name).await.unwrap_or_default(),
        }
    }
}
