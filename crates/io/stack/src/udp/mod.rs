//! Subflows in UDP datagrams, between two Polypath ends: no privileges, through every NAT, with all options.
//!
//! One socket per interface carries the subflows of that interface; the kernel cuts and gathers datagrams (GSO, GRO). A path
//! keeps its identifier when its address changes or a NAT gives it another port, and the peer follows once the owner has
//! proven to be there.
//!
//! | who | can | cannot |
//! |---|---|---|
//! | knows an identifier, and sends from anywhere | cause one challenge for each datagram, never longer than that | take a path over, see any of its datagrams, have the stack see one of its own |
//! | is dialled by the same host as others | know the key of its own path | link that to paths of others, or speak for them |
//! | makes up addresses | take places in a table of fixed size, its network's share of it; have so many segments a second reach the stack | push a known path out, get more than one byte for one, cost newcomers more than a round trip |
//! | opens many paths from real addresses | have as many as its network's share | push out a path that a flow uses, count as more than one source to what is above |
//! | sees all datagrams, the introduction too | all that it could with TCP | |

mod address;
mod allowance;
#[doc(hidden)]
pub mod attacks;
mod datagram;
mod driver;
#[doc(hidden)]
pub mod fuzzing;
mod keys;
#[cfg(test)]
mod local_tests;
mod own;
mod peers;
mod refusals;
#[cfg(test)]
mod restart_tests;
mod secrets;
#[cfg(test)]
mod tests;
mod waiting;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use address::{OwnPath, stack_addr};
use driver::{Port, Shared, UdpTransmit};
pub use peers::PeerLimits;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_system::{Link, Namespace, Netlink, SystemState};

use crate::UplinkPreference;
use crate::stack::{Stack, Surroundings, default_connection};

/// The UDP port at which an end is reached unless another is chosen, after RFC 6824.
pub const DEFAULT_PORT: u16 = 6824;

/// A path: an interface and what it is for.
#[derive(Clone, Debug, Default)]
pub struct UdpPath {
    /// The interface; wherever the system's routes lead, if none is named.
    pub interface: Option<String>,
    /// Use it only when no other works.
    pub is_backup: bool,
    /// What else is wanted of it.
    pub preference: UplinkPreference,
}

/// Choices for a stack over UDP.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// The paths from which connections are opened.
    pub paths: Vec<UdpPath>,
    /// Be reached by others, at `port`.
    pub is_reachable: bool,
    /// The UDP port of this end, if it is reachable, and of peers.
    pub port: u16,
    /// Addresses at which this end is reached, which peers are told if it is.
    pub announced: Vec<IpAddr>,
    /// If there are none, those of the interfaces of the paths.
    pub announces_interfaces: bool,
    /// Silence after which a keep-alive keeps the bindings of translators. Default 15 s, half of what is common. A peer that was
    /// not heard to answer since the last segment is asked after a fifth of it.
    pub keep_alive: Option<Duration>,
    /// Largest packet on every path, in bytes. Default 1500.
    pub mtu_bytes: u16,
    /// What connections get unless they bring their own.
    pub connection: ConnectionConfig,
    /// What the paths of peers may take.
    pub peers: PeerLimits,
    /// Memory that received data may keep from the receive buffers, in bytes. Beyond it, every payload is copied, so that what
    /// is held is what the windows of connections count. Default 64 MiB.
    pub most_held_bytes: usize,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            paths: vec![UdpPath::default()],
            is_reachable: false,
            port: DEFAULT_PORT,
            announced: Vec::new(),
            announces_interfaces: true,
            keep_alive: Some(Duration::from_secs(15)),
            mtu_bytes: 1500,
            connection: default_connection(),
            peers: PeerLimits::default(),
            most_held_bytes: 64 << 20,
        }
    }
}

impl UdpOptions {
    /// An end that others reach and that opens no connections.
    #[must_use]
    pub fn server() -> Self {
        Self { paths: Vec::new(), is_reachable: true, ..Self::default() }
    }

    /// Chooses paths where nobody named interfaces: first wherever the system's routes lead, then each further interface
    /// that has an address and a default route. Their addresses are not announced.
    pub fn use_uplinks(&mut self, namespace: &Namespace) -> io::Result<()> {
        let further = namespace.run(|| {
            let state = SystemState::read(&Netlink::new()?)?;
            let mut further = further_uplinks(&state);
            further.retain(|name| may_bind(name));
            Ok::<_, io::Error>(further)
        })??;
        let further = further.into_iter().map(|name| UdpPath { interface: Some(name), ..UdpPath::default() });
        self.paths = std::iter::once(UdpPath::default()).chain(further).take(MOST_PATHS).collect();
        self.announces_interfaces = false;
        Ok(())
    }
}

/// Paths are numbered from 1 on, and announced addresses from [`FIRST_ANNOUNCED`] on.
const MOST_PATHS: usize = 15;

/// The interfaces with a default route but the one whose route is taken first, that one's successor first.
fn further_uplinks(state: &SystemState) -> Vec<String> {
    let metric = |link: &Link| {
        let routes = [true, false].into_iter().filter_map(|is_v4| state.default_route(link.index, is_v4));
        routes.map(|route| route.metric).min()
    };
    let is_uplink =
        |link: &&Link| !link.is_loopback && !link.name.starts_with("polypath") && state.is_usable(link);
    let mut uplinks: Vec<&Link> = state.links.iter().filter(is_uplink).collect();
    uplinks.sort_by_key(|link| metric(link));
    uplinks.into_iter().skip(1).map(|link| link.name.clone()).collect()
}

/// Kernels before 5.7 let only root choose the interface of a socket.
fn may_bind(interface: &str) -> bool {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None);
    socket.is_ok_and(|socket| socket.bind_device(Some(interface.as_bytes())).is_ok())
}

/// Longer than any path is silent.
const NEVER: Duration = Duration::from_secs(1 << 32);

/// So often within the silence after which keep-alives leave are paths looked after, ...
const ROUNDS: u32 = 10;

/// ... and so often, at least, are paths looked after.
const LONGEST_ROUND: Duration = Duration::from_secs(20);

impl Stack {
    /// A stack over UDP, with its sockets in `namespace`. Needs no privileges.
    ///
    /// Must be called within a tokio runtime.
    pub fn udp(namespace: &Namespace, options: &UdpOptions) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let mut endpoints = Vec::new();
        let ports = namespace.run(|| {
            let _entered = runtime.enter();
            let ports = open_ports(options, &mut endpoints)?;
            endpoints.extend(announced(options)?);
            Ok::<_, io::Error>(ports)
        })??;
        let mut connection = options.connection.clone();
        Arc::make_mut(&mut connection.tcp).mtu_bytes = datagram::stack_mtu(options.mtu_bytes.max(1280));
        let config = HostConfig { connection: Arc::new(connection), endpoints, ..HostConfig::default() };
        let shared = Arc::new(Shared::new(ports, options, &random()?));
        let stack =
            Self::start(config, UdpTransmit::new(shared.clone()), shared.receivers(options.most_held_bytes))?;
        shared.belongs_to(stack.downgrade());
        stack.surround(Box::new(Encapsulation { shared: shared.clone() }));
        // Without keep-alives, paths that nothing uses are forgotten all the same.
        let silence = options.keep_alive.unwrap_or(NEVER);
        let shared = Arc::downgrade(&shared);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep((silence / ROUNDS).min(LONGEST_ROUND)).await;
                let Some(shared) = shared.upgrade() else { return };
                shared.keep_alive(silence.into());
            }
        });
        Ok(stack)
    }
}

/// Bytes that nobody can guess.
fn random() -> io::Result<[u8; 64]> {
    let mut bytes = [0; 64];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// Where peers reach this end, as endpoints from which nothing is opened.
fn announced(options: &UdpOptions) -> io::Result<Vec<LocalEndpoint>> {
    let mut addresses = options.announced.clone();
    let mut named = options.paths.iter().filter_map(|path| path.interface.as_deref()).peekable();
    if !options.is_reachable {
        return Ok(Vec::new());
    }
    if options.announces_interfaces && addresses.is_empty() && named.peek().is_some() {
        let state = SystemState::read(&Netlink::new()?)?;
        addresses.extend(
            named.filter_map(|name| state.link(name)).flat_map(|link| link.addresses.iter().copied()),
        );
    }
    let endpoint = |(addr, id)| LocalEndpoint::signal(stack_addr(addr), id).announced_as(stack_addr(addr));
    Ok(addresses.into_iter().zip(FIRST_ANNOUNCED..u8::MAX).map(endpoint).collect())
}

/// The first identifier of an announced address, past those of all paths.
const FIRST_ANNOUNCED: u8 = 200;

/// A socket per family for each path, and one per family to be reached at. A system may lack one of the families.
fn open_ports(options: &UdpOptions, endpoints: &mut Vec<LocalEndpoint>) -> io::Result<Vec<Port>> {
    let mut ports = Vec::new();
    for (path, number) in options.paths.iter().zip(1..) {
        let own = OwnPath(number);
        let interface = path.interface.as_deref();
        ports.push(Port::open(true, 0, interface, Some(own))?);
        ports.extend(Port::open(false, 0, interface, Some(own)));
        let endpoint = path.preference.apply(LocalEndpoint::subflow(own.addr(), number), number);
        endpoints.push(if path.is_backup { endpoint.backup() } else { endpoint });
    }
    if options.is_reachable {
        ports.push(Port::open(true, options.port, None, None)?);
        ports.extend(Port::open(false, options.port, None, None));
    }
    Ok(ports)
}

/// Addresses of the network as the stack knows them.
#[derive(Debug)]
struct Encapsulation {
    shared: Arc<Shared>,
}

impl Surroundings for Encapsulation {
    fn expected_of_peers(&self) -> Option<&'static str> {
        Some("a Polypath with --engine udp there, and the same --udp-port")
    }

    fn listens_at(&self, local: SocketAddr) -> SocketAddr {
        // All of the stack's addresses are of IPv6.
        let addr = if local.ip().is_unspecified() { [0; 16].into() } else { stack_addr(local.ip()) };
        SocketAddr::new(addr, local.port())
    }

    fn dials(&self, remote: SocketAddr) -> SocketAddr {
        SocketAddr::new(stack_addr(remote.ip()), remote.port())
    }

    fn peer_at(&self, peer: SocketAddr) -> SocketAddr {
        let addr = self.shared.remote(peer.ip()).map_or(peer.ip(), |remote| remote.ip().to_canonical());
        SocketAddr::new(addr, peer.port())
    }

    fn expose(&self, _: u16, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.counters()
    }
}
