//! What keeps our own stack from starting on this host, for all who choose an engine.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;

use polypath_netsetup::abilities::{Abilities, TunAccess};

/// Why a root that may not change the network can't start it.
const CONTAINER: &str =
    "this container may not change the network (start it with --cap-add=NET_ADMIN --device=/dev/net/tun)";

/// Something that our own stack needs and that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lack {
    /// No interface leads anywhere.
    Uplink,
    /// The program nft.
    Nft,
    /// The device node that TUN devices come from.
    Device,
    /// The right to set up networks.
    Capability,
    /// The right to open the device node, which has this mode, as far as that can be seen.
    DeviceAccess(Option<u32>),
}

impl Lack {
    /// All that is missing, in the order in which it is mended.
    #[must_use]
    pub fn all(abilities: &Abilities) -> Vec<Self> {
        if abilities.uplinks.is_empty() {
            return vec![Self::Uplink];
        }
        let device = match abilities.tun {
            TunAccess::Open => None,
            TunAccess::Missing => Some(Self::Device),
            TunAccess::Forbidden => Some(Self::DeviceAccess(mode())),
        };
        let nft = (!abilities.has_nft).then_some(Self::Nft);
        let capability = (!abilities.is_admin).then_some(Self::Capability);
        [nft, device, capability].into_iter().flatten().collect()
    }

    /// All that is missing, in words; none if our own stack can start.
    #[must_use]
    pub fn reason(abilities: &Abilities) -> Option<String> {
        let lacks = Self::all(abilities);
        if lacks.contains(&Self::Capability) && abilities.is_root {
            // What it may is decided where it is started.
            return Some(CONTAINER.into());
        }
        let reasons: Vec<String> = lacks.iter().map(Self::to_string).collect();
        (!reasons.is_empty()).then(|| reasons.join(" and "))
    }

    /// As an error of the system.
    #[must_use]
    pub fn kind(self) -> io::ErrorKind {
        match self {
            Self::Uplink => io::ErrorKind::NetworkUnreachable,
            Self::Nft | Self::Device => io::ErrorKind::Unsupported,
            Self::Capability | Self::DeviceAccess(_) => io::ErrorKind::PermissionDenied,
        }
    }
}

fn mode() -> Option<u32> {
    Some(std::fs::metadata("/dev/net/tun").ok()?.permissions().mode() & 0o7777)
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uplink => f.write_str("no interface is up with an address and a route"),
            Self::Nft => f.write_str("the program nft is missing"),
            Self::Device => f.write_str("/dev/net/tun is missing"),
            Self::Capability => f.write_str("this user may not change the network (CAP_NET_ADMIN)"),
            Self::DeviceAccess(Some(mode)) => {
                write!(f, "this user may not open /dev/net/tun (its mode is {mode:04o})")
            }
            Self::DeviceAccess(None) => f.write_str("this user may not open /dev/net/tun"),
        }
    }
}
