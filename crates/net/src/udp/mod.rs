//! Subflows in UDP datagrams, between two Polypath ends: no privileges, through every NAT, with all options.
//!
//! One socket per interface carries the subflows of that interface; the kernel cuts and gathers datagrams (GSO, GRO). An
//! end keeps its path identifier when its address changes or a NAT gives it another port, and the peer follows.

mod datagram;
mod driver;
mod peers;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};

use crate::setup::SystemState;
use crate::stack::{Stack, Surroundings, default_connection};
use crate::uplinks::UplinkPreference;
use crate::{Namespace, Netlink};
use datagram::{PathId, stack_addr};
use driver::{Port, Shared, Traffic, UdpReceive, UdpTransmit};

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
    /// Addresses at which this end is reached, which peers are told if it is; those of the interfaces that are named if
    /// there are none.
    pub announced: Vec<IpAddr>,
    /// Silence after which a keep-alive keeps the bindings of translators. Default 15 s, half of what is common.
    pub keep_alive: Option<Duration>,
    /// Largest packet on every path, in bytes. Default 1500.
    pub mtu_bytes: u16,
    /// What connections get unless they bring their own.
    pub connection: ConnectionConfig,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            paths: vec![UdpPath::default()],
            is_reachable: false,
            port: DEFAULT_PORT,
            announced: Vec::new(),
            keep_alive: Some(Duration::from_secs(15)),
            mtu_bytes: 1500,
            connection: default_connection(),
        }
    }
}

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
        let shared =
            Arc::new(Shared { ports, remote_port: options.port, traffic: Mutex::new(Traffic::default()) });
        let receive: Vec<UdpReceive> =
            (0..shared.ports.len()).map(|port| UdpReceive::new(shared.clone(), port)).collect();
        let transmit = UdpTransmit { shared: shared.clone(), train: Vec::new() };
        let stack = Self::start(config, transmit, receive)?;
        stack.surround(Box::new(Encapsulation));
        if let Some(silence) = options.keep_alive {
            let shared = Arc::downgrade(&shared);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(silence / 3).await;
                    let Some(shared) = shared.upgrade() else { return };
                    shared.keep_alive(silence);
                }
            });
        }
        Ok(stack)
    }
}

/// Where peers reach this end, as endpoints from which nothing is opened.
fn announced(options: &UdpOptions) -> io::Result<Vec<LocalEndpoint>> {
    let mut addresses = options.announced.clone();
    let mut named = options.paths.iter().filter_map(|path| path.interface.as_deref()).peekable();
    if !options.is_reachable {
        return Ok(Vec::new());
    }
    if addresses.is_empty() && named.peek().is_some() {
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
        let mut id = [0; 8];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
        let id = PathId(u64::from_be_bytes(id));
        let interface = path.interface.as_deref();
        ports.push(Port::open(true, 0, interface, Some(id))?);
        ports.extend(Port::open(false, 0, interface, Some(id)));
        let endpoint = path.preference.apply(LocalEndpoint::subflow(id.addr(), number), number);
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
struct Encapsulation;

impl Surroundings for Encapsulation {
    fn listens_at(&self, local: SocketAddr) -> SocketAddr {
        // All of the stack's addresses are of IPv6.
        let addr = if local.ip().is_unspecified() { [0; 16].into() } else { stack_addr(local.ip()) };
        SocketAddr::new(addr, local.port())
    }

    fn dials(&self, remote: SocketAddr) -> SocketAddr {
        SocketAddr::new(stack_addr(remote.ip()), remote.port())
    }

    fn expose(&self, _: u16, _: bool) -> io::Result<()> {
        Ok(())
    }
}
