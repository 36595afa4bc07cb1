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
#[cfg(test)]
mod ended_tests;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod interfaces;
#[cfg(test)]
mod interfaces_tests;
mod keys;
#[cfg(test)]
mod local_tests;
mod options;
mod own;
mod peers;
mod port;
mod refusals;
#[cfg(test)]
mod restart_tests;
mod route;
mod secrets;
#[cfg(test)]
mod tests;
mod uplinks;
mod waiting;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use address::{OwnPath, network_addr, stack_addr};
use driver::{DriverShared, UdpTransmit};
pub use error::UdpError;
use interfaces::Interfaces;
pub use options::{DEFAULT_PORT, UdpOptions, UdpPath};
use options::{MOST_PATHS, first_uplink};
pub use peers::PeerLimits;
use polypath_mptcp::HostConfig;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_system::{Namespace, Netlink, SystemState};
use polypath_wire::FourTuple;
use port::Port;
use uplinks::Uplinks;

use crate::stack::{Look, Stack, Underlay, current_runtime, lacks_family};

/// Longer than any path is silent.
const NEVER: Duration = Duration::from_secs(1 << 32);

/// So often within the silence after which keep-alives leave are paths looked after, ...
const ROUNDS: u32 = 10;

/// ... and so often, at least, are paths looked after.
const LONGEST_ROUND: Duration = Duration::from_secs(20);

impl Stack {
    /// A stack over UDP, with its sockets in `namespace`. Needs no privileges.
    ///
    /// An interface of a path may be missing, as long as there is another: its path is used once it comes. One that goes and comes
    /// again is used again.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// Errors: [`io::ErrorKind::NotFound`] if none of the named interfaces is there, [`io::ErrorKind::AddrInUse`] if another
    /// program has the UDP port, [`io::ErrorKind::InvalidInput`] for options that make no sense; they hold a [`UdpError`].
    pub fn udp(namespace: &Namespace, options: &UdpOptions) -> io::Result<Self> {
        let runtime = current_runtime()?;
        options.check()?;
        let mut endpoints = Vec::new();
        let (ports, names, named) = namespace.run(|| {
            let _entered = runtime.enter();
            let mut named = Interfaces::new(options.follows_uplinks)?;
            let ports = open_ports(options, &mut endpoints, &mut named)?;
            endpoints.extend(announced(options)?);
            Ok::<_, io::Error>((ports, interface_names(options), named))
        })??;
        let mut connection = options.connection.clone();
        Arc::make_mut(&mut connection.tcp).mtu_bytes = datagram::stack_mtu(options.mtu_bytes);
        let config = HostConfig { connection: Arc::new(connection), endpoints, ..HostConfig::default() };
        let shared = Arc::new(DriverShared::new(ports, names, options, &random()?));
        let stack =
            Self::start(config, UdpTransmit::new(shared.clone()), shared.receivers(options.most_held_bytes))?;
        shared.belongs_to(stack.downgrade());
        stack.set_underlay(Box::new(Encapsulation {
            shared: shared.clone(),
            is_reachable: options.is_reachable,
            port: options.port,
            namespace: namespace.clone(),
            uplinks: Uplinks::of(options),
        }));
        tokio::spawn(named.follow(namespace.clone(), Arc::downgrade(&shared)));
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

/// Uplinks that may come after the start and be used at the same time.
const SPARE_PATHS: usize = 4;

/// A socket per family for each path, and one per family to be reached at. A system may lack one of the families, and interfaces may
/// come later, but not all of them.
fn open_ports(
    options: &UdpOptions,
    endpoints: &mut Vec<LocalEndpoint>,
    named: &mut Interfaces,
) -> io::Result<Vec<Port>> {
    let mut ports = Vec::new();
    let mut missing = None;
    for (path, number) in options.paths.iter().zip(1..) {
        let own = OwnPath(number);
        let interface = path.interface.as_deref();
        let mut index = interface.and_then(|name| named.index(name));
        let endpoint = path.preference.apply(LocalEndpoint::subflow(own.addr(), number), number);
        let endpoint = if path.is_backup { endpoint.backup() } else { endpoint };
        match Port::open(true, 0, interface, Some(own)) {
            Ok(port) => {
                ports.push(port);
                ports.extend(Port::open(false, 0, interface, Some(own)));
                endpoints.push(endpoint);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                ports.extend([true, false].map(|is_v4| Port::without_socket(is_v4, interface, Some(own))));
                missing.get_or_insert(error);
                index = None;
            }
            Err(error) => return Err(error),
        }
        match interface {
            Some(interface) => named.add(own, interface, endpoint, index),
            None => named.add_routed(own),
        }
    }
    if let Some(error) = missing.filter(|_| endpoints.is_empty()) {
        return Err(error);
    }
    if options.follows_uplinks {
        let taken = options.paths.len();
        for number in (1..).skip(taken).take(MOST_PATHS.saturating_sub(taken).min(SPARE_PATHS)) {
            let own = OwnPath(number);
            ports.extend([true, false].map(|is_v4| Port::spare(is_v4, own)));
            named.add_spare(own, LocalEndpoint::subflow(own.addr(), number));
        }
    }
    if options.is_reachable {
        ports.push(Port::open(true, options.port, None, None)?);
        ports.extend(Port::open(false, options.port, None, None));
    }
    Ok(ports)
}

/// The interfaces of this end's paths. That of a path that follows the system's routes is the one of the default route now; it
/// only names the path, which goes on where the routes lead later.
fn interface_names(options: &UdpOptions) -> Vec<Option<String>> {
    let first = || first_uplink(&SystemState::read(&Netlink::new().ok()?).ok()?);
    options.paths.iter().map(|path| path.interface.clone().or_else(first)).collect()
}

/// Addresses of the network as the stack knows them.
#[derive(Debug)]
struct Encapsulation {
    shared: Arc<DriverShared>,
    is_reachable: bool,
    /// The UDP port of peers.
    port: u16,
    namespace: Namespace,
    uplinks: Uplinks,
}

impl Encapsulation {
    /// The address at which a peer reaches one of the stack's; the latest peer, if none is named.
    fn reached_at(&self, own: SocketAddr, peer: Option<IpAddr>) -> SocketAddr {
        // What the kernel says of a datagram that came there; before the first one, nobody knows which address it will be.
        let addr = match OwnPath::of(own.ip()) {
            Some(path) => self
                .shared
                .local_of(path, peer)
                .map_or_else(|| unspecified(peer), |local| network_addr(local.addr)),
            None => network_addr(own.ip()),
        };
        SocketAddr::new(addr, own.port())
    }
}

fn unspecified(peer: Option<IpAddr>) -> IpAddr {
    match peer {
        Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}

impl Underlay for Encapsulation {
    fn expected_of_peers(&self) -> Option<String> {
        Some(format!("a Polypath there with engine udp, at UDP port {} as here", self.port))
    }

    fn listens_at(&self, local: SocketAddr) -> SocketAddr {
        // All of the stack's addresses are of IPv6.
        let addr = if local.ip().is_unspecified() { [0; 16].into() } else { stack_addr(local.ip()) };
        SocketAddr::new(addr, local.port())
    }

    fn may_listen(&self, local: SocketAddr, _: bool) -> io::Result<()> {
        if !self.is_reachable {
            return Err(UdpError::OnlyConnects.into());
        }
        // Any UDP port will do to ask the system whether the address is its own.
        let at = SocketAddr::new(local.ip(), 0);
        self.namespace
            .run(|| std::net::UdpSocket::bind(at))?
            .map(drop)
            .map_err(|error| io::Error::new(error.kind(), format!("can't listen at {local}: {error}")))
    }

    fn connects_from(&self, local: SocketAddr) -> io::Result<SocketAddr> {
        if local.ip().is_unspecified() || OwnPath::of(local.ip()).is_some() {
            return Ok(local);
        }
        let state = self.namespace.run(|| SystemState::read(&Netlink::new()?))??;
        let link = state.links.iter().find(|link| link.addresses.contains(&local.ip()));
        let interfaces = self.shared.names();
        let position = link
            .and_then(|link| interfaces.iter().position(|name| name.as_deref() == Some(link.name.as_str())));
        let number = position.and_then(|position| u8::try_from(position + 1).ok()).ok_or_else(|| {
            let names: Vec<&str> = interfaces.iter().flatten().map(String::as_str).collect();
            let names = if names.is_empty() { "it has none".into() } else { names.join(", ") };
            let text = format!(
                "can't connect from {}: expected an address of a path's interface: {names}",
                local.ip()
            );
            io::Error::new(io::ErrorKind::AddrNotAvailable, text)
        })?;
        Ok(SocketAddr::new(OwnPath(number).addr(), local.port()))
    }

    fn dials(&self, remote: SocketAddr) -> SocketAddr {
        SocketAddr::new(stack_addr(remote.ip()), remote.port())
    }

    fn doubts(&self, dialled: SocketAddr) -> Option<Look> {
        let remote = SocketAddr::new(network_addr(dialled.ip()), dialled.port());
        if !self.shared.may_lack_family(remote.is_ipv4()) {
            return None;
        }
        let (namespace, uplinks) = (self.namespace.clone(), self.uplinks.clone());
        Some(Box::new(move || {
            let state = namespace.run(|| SystemState::read(&Netlink::new()?))??;
            if uplinks.lack_family(&state, remote.is_ipv4()) { Err(lacks_family(remote)) } else { Ok(()) }
        }))
    }

    fn peer_at(&self, peer: SocketAddr) -> SocketAddr {
        let addr = network_addr(self.shared.remote(peer.ip()).map_or(peer.ip(), |remote| remote.ip()));
        SocketAddr::new(addr, peer.port())
    }

    fn seen_at(&self, own: SocketAddr) -> SocketAddr {
        self.reached_at(own, None)
    }

    fn seen_subflow(&self, FourTuple { local, remote }: FourTuple) -> FourTuple {
        let local = self.reached_at(local.into(), Some(network_addr(remote.addr)));
        FourTuple { local: local.into(), remote: self.peer_at(remote.into()).into() }
    }

    fn outlives_interfaces(&self) -> bool {
        true
    }

    fn path_name(&self, own: IpAddr) -> Option<String> {
        let OwnPath(number) = OwnPath::of(own)?;
        self.shared.names().into_iter().nth(usize::from(number).checked_sub(1)?)?
    }

    fn subflow_path_name(&self, FourTuple { local, remote }: FourTuple) -> Option<String> {
        // Routes may lead to a peer by another interface than that of the default route, by which the path is called.
        let heard = self.shared.routed_interface(OwnPath::of(local.addr)?, network_addr(remote.addr));
        heard.or_else(|| self.path_name(local.addr))
    }

    fn expose(&self, _: u16, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.counters()
    }
}
