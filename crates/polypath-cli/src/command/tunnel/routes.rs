//! The device's addresses, and what goes through it. All of it vanishes with the device.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use polypath_system::Netlink;
use polypath_tunnel::Network;

use super::file::Plan;

/// Gives the device its addresses.
pub(super) fn set_up(netlink: &Netlink, plan: &Plan) -> io::Result<()> {
    let name = &plan.name;
    netlink.set_mtu(name, plan.mtu_bytes)?;
    for own in &plan.addresses {
        netlink.add_address(name, own.address, own.prefix_bits)?;
    }
    netlink.set_up(name)
}

/// What leads through the device, whose addresses it has.
pub(super) fn wanted(plan: &Plan) -> BTreeSet<Network> {
    let own: Vec<_> =
        plan.addresses.iter().filter_map(|own| Network::new(own.address, own.prefix_bits)).collect();
    let networks = plan.networks().into_iter();
    networks.filter(|network| !own.iter().any(|own| covers(own, network))).flat_map(parts).collect()
}

/// What leads through the device. Later than the rest: names of endpoints are looked up without it.
#[derive(Debug, Default)]
pub(super) struct Led(BTreeSet<Network>);

impl Led {
    /// Makes it what is wanted.
    pub(super) fn lead(
        &mut self,
        netlink: &Netlink,
        name: &str,
        wanted: BTreeSet<Network>,
    ) -> io::Result<()> {
        for gone in self.0.difference(&wanted) {
            match netlink.remove_route(name, (gone.address(), gone.prefix_bits()), None, None) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        for new in wanted.difference(&self.0) {
            netlink.add_route(name, (new.address(), new.prefix_bits()), None, None)?;
        }
        self.0 = wanted;
        Ok(())
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

    #[test]
    fn a_default_route_is_two_halves() {
        let parts =
            |text: &str| parts(text.parse().unwrap()).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(parts("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(parts("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(parts("10.0.0.0/8"), ["10.0.0.0/8"]);
    }
}
