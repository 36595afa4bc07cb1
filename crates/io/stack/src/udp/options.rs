//! What a stack over UDP is to be.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use polypath_mptcp::ConnectionConfig;
use polypath_system::{Link, Namespace, Netlink, SystemState};

use super::error::{LEAST_MTU_BYTES, UdpError};
use super::peers::PeerLimits;
use crate::UplinkPreference;
use crate::stack::default_connection;

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
    /// The paths from which connections are opened. Default: one, wherever the system's routes lead; [`UdpOptions::use_uplinks`] has all.
    pub paths: Vec<UdpPath>,
    /// Be reached by others, at `port`.
    pub is_reachable: bool,
    /// The UDP port of this end, if it is reachable, and of peers.
    pub port: u16,
    /// Addresses at which this end is reached, which peers are told if it is.
    pub announced: Vec<IpAddr>,
    /// If there are none, those of the interfaces of the paths.
    pub announces_interfaces: bool,
    /// Interfaces that get an address and a default route later are used, too, beside those of `paths`. Default no.
    pub follows_uplinks: bool,
    /// Silence after which a keep-alive keeps the bindings of translators. Default 15 s, half of what is common. A peer that was
    /// not heard to answer since the last segment is asked after a fifth of it.
    pub keep_alive: Option<Duration>,
    /// Largest packet on every path, in bytes: 1280 or more. Default 1500.
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
            follows_uplinks: false,
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
    /// that has an address and a default route, also one that comes later. Their addresses are not announced.
    ///
    /// Backups that are chosen already stay. The system's routes may lead over one of them, so the others are those that are uplinks now, by
    /// their names.
    pub fn use_uplinks(&mut self, namespace: &Namespace) -> io::Result<()> {
        let (first, further) = namespace.run(usable_uplinks)??;
        let named = |name| UdpPath { interface: Some(name), ..UdpPath::default() };
        self.paths.retain(|path| path.is_backup && path.interface.is_some());
        self.announces_interfaces = false;
        self.follows_uplinks = self.paths.is_empty();
        let backups = std::mem::take(&mut self.paths);
        let is_backup = |name: &String| backups.iter().any(|path| path.interface.as_ref() == Some(name));
        let mut paths: Vec<UdpPath> = match self.follows_uplinks {
            true => std::iter::once(UdpPath::default()).chain(further.into_iter().map(named)).collect(),
            false => first.into_iter().chain(further).filter(|name| !is_backup(name)).map(named).collect(),
        };
        paths.extend(backups);
        paths.truncate(MOST_PATHS);
        self.paths = paths;
        Ok(())
    }

    /// Errors if some make no sense.
    pub(super) fn check(&self) -> Result<(), UdpError> {
        if self.mtu_bytes < LEAST_MTU_BYTES {
            return Err(UdpError::MtuTooSmall { mtu_bytes: self.mtu_bytes });
        }
        if self.port == 0 && !self.paths.is_empty() {
            return Err(UdpError::PortZero);
        }
        // Two paths may have the same interface: each has a socket of its own.
        let mut interfaces = self.paths.iter().filter_map(|path| path.interface.as_deref());
        if interfaces.any(str::is_empty) {
            return Err(UdpError::NamelessInterface);
        }
        Ok(())
    }
}

/// Paths are numbered from 1 on, and announced addresses from [`FIRST_ANNOUNCED`] on.
pub(super) const MOST_PATHS: usize = 15;

/// The interface whose default route is taken first, and those with one besides to which sockets may be bound. To be called where
/// the interfaces are.
pub(super) fn usable_uplinks() -> io::Result<(Option<String>, Vec<String>)> {
    let state = SystemState::read(&Netlink::new()?)?;
    let mut further = further_uplinks(&state);
    further.retain(|name| may_bind(name));
    Ok((first_uplink(&state), further))
}

/// The interfaces with a default route but the one whose route is taken first, that one's successor first.
pub(super) fn further_uplinks(state: &SystemState) -> Vec<String> {
    uplinks(state).into_iter().skip(1).map(|link| link.name.clone()).collect()
}

/// The interface whose default route is taken first.
pub(super) fn first_uplink(state: &SystemState) -> Option<String> {
    uplinks(state).first().map(|link| link.name.clone())
}

fn uplinks(state: &SystemState) -> Vec<&Link> {
    let metric = |link: &Link| {
        let routes = [true, false].into_iter().filter_map(|is_v4| state.default_route(link.index, is_v4));
        routes.map(|route| route.metric).min()
    };
    let is_uplink =
        |link: &&Link| !link.is_loopback && !link.name.starts_with("polypath") && state.is_usable(link);
    let mut uplinks: Vec<&Link> = state.links.iter().filter(is_uplink).collect();
    uplinks.sort_by_key(|link| metric(link));
    uplinks
}

/// Kernels before 5.7 let only root choose the interface of a socket.
fn may_bind(interface: &str) -> bool {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None);
    socket.is_ok_and(|socket| socket.bind_device(Some(interface.as_bytes())).is_ok())
}
