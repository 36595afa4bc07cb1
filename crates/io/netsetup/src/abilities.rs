//! What this host allows: the facts from which an engine is chosen.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use polypath_system::{Link, Namespace, Netlink, SystemState};
use rustix::thread::CapabilitySet;
use socket2::{Domain, Protocol, Socket, Type};

pub use crate::kernel_paths::KernelPaths;
use crate::kernel_paths::path_manager;
use crate::nft;

/// Where TUN devices come from.
const TUN_DEVICE: &str = "/dev/net/tun";

/// An interface that leads out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// Its name.
    pub name: String,
    /// Its addresses of global scope.
    pub addresses: Vec<IpAddr>,
}

/// What the kernel makes of a socket of Multipath TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMultipath {
    /// It opens.
    On,
    /// `net.mptcp.enabled` is 0.
    Off,
    /// This kernel has none.
    Missing,
}

/// Whether this process can have a TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunAccess {
    /// The device node opens.
    Open,
    /// It is there, and this user may not open it.
    Forbidden,
    /// It is not there.
    Missing,
}

/// What this host allows to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The process has CAP_NET_ADMIN.
    pub is_admin: bool,
    /// The process is of the user root.
    pub is_root: bool,
    /// TUN devices.
    pub tun: TunAccess,
    /// There is the program nft.
    pub has_nft: bool,
    /// The interfaces that lead out, or where none does, those with an address.
    pub uplinks: Vec<Uplink>,
    /// The kernel's Multipath TCP.
    pub kernel: KernelMultipath,
    /// Settings of the kernel's path manager; none if it does not tell.
    pub kernel_paths: Option<KernelPaths>,
}

impl Abilities {
    /// Looks at `namespace`. Changes nothing.
    pub fn look(namespace: &Namespace) -> io::Result<Self> {
        // On a thread that may block.
        namespace.run(|| {
            let state = SystemState::read(&Netlink::new()?)?;
            let sets = rustix::thread::capabilities(None);
            let is_admin = sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN));
            let kernel = kernel();
            Ok(Self {
                is_admin,
                is_root: rustix::process::geteuid().is_root(),
                tun: tun_access(TUN_DEVICE.as_ref()),
                // Without the capability it refuses everything, and is there all the same.
                has_nft: nft::probe().map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |()| true),
                uplinks: uplinks(&state),
                kernel,
                kernel_paths: (kernel == KernelMultipath::On).then(|| path_manager().ok()).flatten(),
            })
        })?
    }
}

/// The interfaces of a system, and which of them lead out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// All that have an address.
    pub all: Vec<Uplink>,
    /// Names of the uplinks.
    pub uplinks: Vec<String>,
}

impl Interfaces {
    /// Looks at `namespace`.
    pub fn look(namespace: &Namespace) -> io::Result<Self> {
        namespace.run(|| {
            let state = SystemState::read(&Netlink::new()?)?;
            let uplinks = uplinks(&state).into_iter().map(|uplink| uplink.name).collect();
            let links = state.links.into_iter().filter(|link| !link.addresses.is_empty());
            let all = links.map(|link| Uplink { name: link.name, addresses: link.addresses }).collect();
            Ok(Self { all, uplinks })
        })?
    }

    /// The interface that has an address.
    #[must_use]
    pub fn name_of(&self, addr: IpAddr) -> Option<&str> {
        let addr = addr.to_canonical();
        self.all.iter().find(|link| link.addresses.contains(&addr)).map(|link| link.name.as_str())
    }
}

/// The interfaces that a stack on all uplinks would use, without those that lead to their own networks only.
pub(crate) fn uplinks(state: &SystemState) -> Vec<Uplink> {
    let is_others = |link: &&Link| !link.is_loopback && !link.name.starts_with("polypath");
    let attached = || state.links.iter().filter(is_others).filter(|link| state.is_attached(link));
    let mut chosen: Vec<&Link> = attached().filter(|link| state.is_usable(link)).collect();
    if chosen.is_empty() {
        chosen = attached().collect();
    }
    // The one that the kernel would use comes first.
    let metric = |link: &&Link| {
        let routes = [true, false].iter().filter_map(|is_v4| state.default_route(link.index, *is_v4));
        routes.map(|route| route.metric).min()
    };
    chosen.sort_by_key(|link| metric(link).unwrap_or(u32::MAX));
    chosen
        .into_iter()
        .map(|link| Uplink { name: link.name.clone(), addresses: link.addresses.clone() })
        .collect()
}

fn kernel() -> KernelMultipath {
    match Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)) {
        Ok(_) => KernelMultipath::On,
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => KernelMultipath::Off,
        Err(_) => KernelMultipath::Missing,
    }
}

fn tun_access(device: &Path) -> TunAccess {
    match std::fs::OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => TunAccess::Open,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => TunAccess::Forbidden,
        Err(_) => TunAccess::Missing,
    }
}

#[cfg(test)]
mod tests {
    use polypath_system::Route;

    use super::*;

    #[test]
    fn uplinks_lead_out_and_the_kernel_s_own_choice_comes_first() {
        let link = |index, name: &str| Link {
            index,
            name: name.into(),
            is_up: true,
            is_running: true,
            is_loopback: false,
            kind: None,
            mtu_bytes: 1500,
            addresses: vec![IpAddr::from([10, 0, index as u8, 2])],
        };
        let route = |link, length, metric| Route {
            destination: ([10, 0, link as u8, 0].into(), length),
            gateway: None,
            link,
            metric,
        };
        let mut state = SystemState {
            links: vec![link(1, "lte"), link(2, "wifi"), link(3, "docker0"), link(4, "polypath0")],
            routes: (1..5).map(|index| route(index, 24, 0)).collect(),
            ..SystemState::default()
        };
        let names = |state: &SystemState| -> Vec<String> {
            uplinks(state).into_iter().map(|uplink| uplink.name).collect()
        };
        assert_eq!(names(&state), ["lte", "wifi", "docker0"], "none leads out");
        state.routes.extend([(1, 600), (2, 100)].map(|(link, metric)| route(link, 0, metric)));
        assert_eq!(names(&state), ["wifi", "lte"]);
        state.links[1].is_running = false;
        assert_eq!(names(&state), ["lte"]);
    }

    #[test]
    fn a_device_is_open_or_missing() {
        assert_eq!(tun_access("/dev/null".as_ref()), TunAccess::Open);
        assert_eq!(tun_access("/dev/no-such-device".as_ref()), TunAccess::Missing);
    }
}
