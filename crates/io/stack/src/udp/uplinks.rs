//! Which families of addresses the interfaces of a stack's paths have.

use polypath_system::{Link, SystemState};

use super::options::UdpOptions;

/// The interfaces that a stack may use.
#[derive(Clone, Debug)]
pub(super) struct Uplinks {
    /// Those that were named.
    named: Vec<String>,
    /// All others, too: a path follows the system's routes.
    with_others: bool,
    /// More may come.
    may_grow: bool,
}

impl Uplinks {
    pub(super) fn of(options: &UdpOptions) -> Self {
        Self {
            named: options.paths.iter().filter_map(|path| path.interface.clone()).collect(),
            with_others: options.paths.iter().any(|path| path.interface.is_none()),
            may_grow: options.follows_uplinks,
        }
    }

    /// None of them has an address of a family, though there is one of the other, and no interface is awaited. Without any address,
    /// all uplinks are down for a moment.
    pub(super) fn lack_family(&self, state: &SystemState, is_v4: bool) -> bool {
        let is_awaited = self.may_grow || self.named.iter().any(|name| state.link(name).is_none());
        !is_awaited && !self.have_address(state, is_v4) && self.have_address(state, !is_v4)
    }

    fn have_address(&self, state: &SystemState, is_v4: bool) -> bool {
        let is_used = |link: &&Link| self.named.contains(&link.name) || self.with_others && !link.is_loopback;
        let mut addresses = state.links.iter().filter(is_used).flat_map(|link| &link.addresses);
        addresses.any(|addr| match addr {
            std::net::IpAddr::V4(_) => is_v4,
            std::net::IpAddr::V6(addr) => !is_v4 && !addr.is_unicast_link_local(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::options::UdpPath;
    use super::*;

    fn link(name: &str, addresses: &[&str]) -> Link {
        Link {
            index: 2,
            name: name.into(),
            is_up: true,
            is_running: true,
            is_loopback: name == "lo",
            kind: None,
            mtu_bytes: 1500,
            addresses: addresses.iter().map(|addr| addr.parse::<IpAddr>().expect("an address")).collect(),
        }
    }

    #[test]
    fn a_family_is_lacking_where_the_other_is_there_and_nothing_is_awaited() {
        let lo = || link("lo", &["127.0.0.1", "::1"]);
        let state = |links: Vec<Link>| SystemState { links, ..SystemState::default() };
        let (v4, both) = (link("v4", &["192.0.2.1", "fe80::1"]), link("both", &["192.0.2.1", "2001:db8::1"]));
        let named = |names: &[&str]| UdpOptions {
            paths: names
                .iter()
                .map(|name| UdpPath { interface: Some((*name).into()), ..UdpPath::default() })
                .collect(),
            ..UdpOptions::default()
        };
        let everywhere = UdpOptions::default();
        let follower = UdpOptions { follows_uplinks: true, ..UdpOptions::default() };
        let only_v4 = state(vec![lo(), v4.clone()]);
        let with_both = state(vec![lo(), v4, both]);
        let lacks =
            |options: &UdpOptions, state: &SystemState| Uplinks::of(options).lack_family(state, false);
        assert!(lacks(&everywhere, &only_v4) && lacks(&named(&["v4"]), &with_both));
        assert!(!lacks(&everywhere, &with_both) && !lacks(&named(&["both"]), &with_both));
        assert!(!lacks(&named(&["v4", "usb0"]), &with_both), "usb0 is awaited");
        assert!(!lacks(&follower, &only_v4), "others may come");
        assert!(!lacks(&everywhere, &state(vec![lo()])), "all is down");
        assert!(!Uplinks::of(&everywhere).lack_family(&only_v4, true));
    }
}
