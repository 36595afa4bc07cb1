use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use polypath_system::{Link, Netlink, SystemState};

use super::Failure;

/// An interface as it is now, over which connections go.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    name: String,
    /// None where the kernel takes one itself: those of the loopback interface have no global scope.
    addresses: Option<Vec<IpAddr>>,
}

impl Interface {
    /// Looks for an interface in the namespace of this process. Addresses come and go, so this is asked for each connection.
    pub(super) async fn find(name: &str) -> Result<Self, Failure> {
        let read = || SystemState::read(&Netlink::new()?);
        // It waits for answers, which a task must not.
        let state = tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other);
        Self::among(&state.flatten().map_err(Failure::Interfaces)?.links, name)
    }

    fn among(links: &[Link], name: &str) -> Result<Self, Failure> {
        let Some(link) = links.iter().find(|link| link.name == name) else {
            return Err(Failure::UnknownInterface {
                known: links.iter().map(|link| link.name.clone()).collect(),
            });
        };
        if !link.is_running {
            return Err(Failure::InterfaceDown);
        }
        if !link.is_loopback && link.addresses.is_empty() {
            return Err(Failure::NoAddress);
        }
        let addresses = (!link.is_loopback).then(|| link.addresses.clone());
        Ok(Self { name: link.name.clone(), addresses })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Those of a host's addresses that the interface has a family for.
    pub(super) fn reachable(&self, remotes: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Failure> {
        let wants_v6 = remotes.first().is_some_and(SocketAddr::is_ipv6);
        let is_reachable =
            |remote: &SocketAddr| self.addresses.is_none() || self.local_for(remote.ip()).is_some();
        let reachable: Vec<_> = remotes.into_iter().filter(is_reachable).collect();
        if reachable.is_empty() { Err(Failure::NoLocalAddress { wants_v6 }) } else { Ok(reachable) }
    }

    /// The address from which to reach another; none to let the kernel choose. With it, rules that send packets by their source
    /// lead to the interface's own routes.
    pub(super) fn local_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let of_family = || {
            self.addresses.iter().flatten().copied().filter(move |local| local.is_ipv4() == remote.is_ipv4())
        };
        // As RFC 6724 has it: unique local addresses are not for the world.
        of_family()
            .find(|local| is_unique_local(*local) == is_unique_local(remote))
            .or_else(|| of_family().next())
    }
}

fn is_unique_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if Ipv6Addr::is_unique_local(&addr))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, addresses: &[&str]) -> Link {
        Link {
            index: 1,
            name: name.to_owned(),
            is_up: true,
            is_running: true,
            is_loopback: name == "lo",
            kind: None,
            mtu_bytes: 1500,
            addresses: addresses.iter().map(|addr| addr.parse().unwrap()).collect(),
        }
    }

    fn remotes(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|addr| SocketAddr::new(addr.parse().unwrap(), 80)).collect()
    }

    #[test]
    fn local_addresses_are_of_the_family_and_the_scope_of_the_remote_one() {
        let links = [link("lo", &[]), link("eth0", &["192.0.2.9", "fd00::9", "2001:db8::9"])];
        let interface = Interface::among(&links, "eth0").unwrap();
        assert_eq!(interface.name(), "eth0");
        let local = |remote: &str| interface.local_for(remote.parse().unwrap()).unwrap().to_string();
        assert_eq!(local("198.51.100.1"), "192.0.2.9");
        assert_eq!(local("2001:db8:1::1"), "2001:db8::9");
        assert_eq!(local("fd01::1"), "fd00::9");
        assert_eq!(Interface::among(&links, "lo").unwrap().local_for("127.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn a_host_is_reached_by_the_families_of_the_interface() {
        let interface = Interface::among(&[link("eth0", &["192.0.2.9"])], "eth0").unwrap();
        let reachable = interface.reachable(remotes(&["2001:db8::1", "192.0.2.1"]));
        assert_eq!(reachable.unwrap(), remotes(&["192.0.2.1"]));
        let error = interface.reachable(remotes(&["2001:db8::1"])).unwrap_err();
        assert!(matches!(error, Failure::NoLocalAddress { wants_v6: true }));
    }

    #[test]
    fn an_interface_that_is_of_no_use_is_refused() {
        let down = Link { is_running: false, ..link("eth1", &["192.0.2.9"]) };
        let links = [link("lo", &[]), link("eth0", &[]), down];
        let error = |name| Interface::among(&links, name).unwrap_err().to_string();
        assert_eq!(error("eth7"), "there is no such interface; there are lo, eth0, eth1");
        assert_eq!(error("eth0"), "the interface has no address");
        assert_eq!(error("eth1"), "the interface is down");
    }
}
