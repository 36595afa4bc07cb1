//! The device's addresses, and what goes through it. All of it vanishes with the device.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use polypath_system::{Netlink, errno_of};
use polypath_tunnel::Network;
use rustix::io::Errno;

use super::file::{Address, PeerPlan, Plan};

/// The bits of half of all addresses.
const DEFAULT_BITS: u8 = 1;

/// Gives the device its addresses.
pub(super) fn set_up(netlink: &Netlink, plan: &Plan) -> io::Result<()> {
    let name = &plan.name;
    netlink.set_mtu(name, plan.mtu_bytes)?;
    for own in &plan.addresses {
        netlink.add_address(name, own.address, own.prefix_bits)?;
    }
    netlink.set_up(name)
}

/// What leads to these peers through a device with these addresses.
pub(super) fn wanted<'a>(
    own: &[Address],
    peers: impl IntoIterator<Item = &'a PeerPlan>,
) -> BTreeSet<Network> {
    let own: Vec<_> = own.iter().filter_map(|own| Network::new(own.address, own.prefix_bits)).collect();
    let networks = peers.into_iter().flat_map(|peer| &peer.allowed_ips);
    networks.filter(|network| !own.iter().any(|own| covers(own, network))).copied().flat_map(parts).collect()
}

/// Where routes are set.
pub(super) trait Table {
    fn add(&mut self, network: &Network) -> io::Result<()>;
    /// One that is not there is gone, too.
    fn remove(&mut self, network: &Network) -> io::Result<()>;
}

/// Routes through a device.
pub(super) struct Through<'a> {
    netlink: &'a Netlink,
    device: &'a str,
}

impl<'a> Through<'a> {
    pub(super) const fn new(netlink: &'a Netlink, device: &'a str) -> Self {
        Self { netlink, device }
    }
}

impl Table for Through<'_> {
    fn add(&mut self, network: &Network) -> io::Result<()> {
        let added =
            self.netlink.add_route(self.device, (network.address(), network.prefix_bits()), None, None);
        added.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let device = self.device;
                let said = format!("{network} can't go through {device}: another route to it is there");
                io::Error::new(io::ErrorKind::AlreadyExists, said)
            }
            _ => error,
        })
    }

    fn remove(&mut self, network: &Network) -> io::Result<()> {
        let place = (network.address(), network.prefix_bits());
        match self.netlink.remove_route(self.device, place, None, None) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if errno_of(&error) == Some(Errno::SRCH.raw_os_error()) => Ok(()),
            result => result,
        }
    }
}

/// What leads through the device. Later than the rest: names of endpoints are looked up without it.
#[derive(Debug, Default)]
pub(super) struct Led {
    set: BTreeSet<Network>,
    /// What could not be done at the last try, as it was told.
    failed: BTreeSet<String>,
}

impl Led {
    /// Whether all that is new of this can be set; nothing stays of the try. A default route is left out: for a moment it would lead
    /// everything astray.
    pub(super) fn check(&self, table: &mut impl Table, wanted: &BTreeSet<Network>) -> io::Result<()> {
        let new = wanted.difference(&self.set).filter(|network| network.prefix_bits() > DEFAULT_BITS);
        for network in new {
            table.add(network).and_then(|()| table.remove(network))?;
        }
        Ok(())
    }

    /// There is something to do, or to be tried again.
    pub(super) fn differs(&self, wanted: &BTreeSet<Network>) -> bool {
        self.set != *wanted || !self.failed.is_empty()
    }

    /// Makes it what is wanted, as far as that can be. Returns what is to be told: each mistake once, as long as it stays.
    pub(super) fn lead(&mut self, table: &mut impl Table, wanted: &BTreeSet<Network>) -> Vec<String> {
        let mut failed = Vec::new();
        for gone in self.set.difference(wanted).copied().collect::<Vec<_>>() {
            match table.remove(&gone) {
                Ok(()) => drop(self.set.remove(&gone)),
                Err(error) => failed.push(error.to_string()),
            }
        }
        for new in wanted.difference(&self.set).copied().collect::<Vec<_>>() {
            match table.add(&new) {
                Ok(()) => drop(self.set.insert(new)),
                Err(error) => failed.push(error.to_string()),
            }
        }
        self.fail(failed)
    }

    /// This is what could not be done now.
    pub(super) fn fail(&mut self, failed: Vec<String>) -> Vec<String> {
        let new = failed.iter().filter(|line| !self.failed.contains(*line)).cloned().collect();
        self.failed = failed.into_iter().collect();
        new
    }

    /// Something could not be done at the last try.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }
}

fn covers(own: &Network, other: &Network) -> bool {
    own.prefix_bits() <= other.prefix_bits() && own.contains(other.address())
}

/// A default route is two halves, so that the one that is there stays as it is.
fn parts(network: Network) -> Vec<Network> {
    if network.prefix_bits() > 0 {
        return vec![network];
    }
    let halves: [IpAddr; 2] = match network.address() {
        IpAddr::V4(_) => [[0, 0, 0, 0].into(), [128, 0, 0, 0].into()],
        IpAddr::V6(_) => [[0_u16; 8].into(), [0x8000, 0, 0, 0, 0, 0, 0, 0].into()],
    };
    halves.into_iter().filter_map(|half| Network::new(half, 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table in which others have routes, too.
    #[derive(Default)]
    struct Shared {
        others: BTreeSet<Network>,
        ours: BTreeSet<Network>,
    }

    impl Table for Shared {
        fn add(&mut self, network: &Network) -> io::Result<()> {
            let is_free = !self.others.contains(network) && self.ours.insert(*network);
            if is_free { Ok(()) } else { Err(io::Error::other(format!("{network} is taken"))) }
        }

        fn remove(&mut self, network: &Network) -> io::Result<()> {
            self.ours.remove(network);
            Ok(())
        }
    }

    fn networks(texts: &[&str]) -> BTreeSet<Network> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_can_be_set_is_kept_and_the_rest_tried_again() {
        let mut table = Shared { others: networks(&["10.1.0.0/16"]), ours: BTreeSet::new() };
        let (mut led, wanted) = (Led::default(), networks(&["10.0.0.0/16", "10.1.0.0/16", "10.2.0.0/16"]));
        assert_eq!(led.lead(&mut table, &wanted), ["10.1.0.0/16 is taken"]);
        assert_eq!(table.ours, networks(&["10.0.0.0/16", "10.2.0.0/16"]));
        assert!(led.differs(&wanted));
        assert!(led.lead(&mut table, &wanted).is_empty(), "it was told");
        assert!(led.has_failed());
        table.others.clear();
        assert!(led.lead(&mut table, &wanted).is_empty());
        assert!(table.ours == wanted && !led.differs(&wanted));
        // What is taken once more is told once more.
        table.others = networks(&["10.3.0.0/16"]);
        let wanted = networks(&["10.2.0.0/16", "10.3.0.0/16"]);
        assert_eq!(led.lead(&mut table, &wanted), ["10.3.0.0/16 is taken"]);
        assert_eq!(table.ours, networks(&["10.2.0.0/16"]));
    }

    #[test]
    fn a_try_leaves_nothing() {
        let mut table = Shared { others: networks(&["10.1.0.0/16"]), ours: BTreeSet::new() };
        let mut led = Led::default();
        assert!(led.check(&mut table, &networks(&["10.0.0.0/16", "10.2.0.0/16", "0.0.0.0/1"])).is_ok());
        let error = led.check(&mut table, &networks(&["10.0.0.0/16", "10.1.0.0/16"])).unwrap_err();
        assert_eq!(error.to_string(), "10.1.0.0/16 is taken");
        assert!(table.ours.is_empty());
        led.lead(&mut table, &networks(&["10.0.0.0/16"]));
        assert!(led.check(&mut table, &networks(&["10.0.0.0/16"])).is_ok(), "it is there already");
        assert_eq!(table.ours, networks(&["10.0.0.0/16"]));
    }

    #[test]
    fn a_default_route_is_two_halves() {
        let parts =
            |text: &str| parts(text.parse().unwrap()).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(parts("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(parts("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(parts("10.0.0.0/8"), ["10.0.0.0/8"]);
    }
}
