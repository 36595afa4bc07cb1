//! Clients, a proxy and servers: three namespaces in a row. Without a proxy, packets go through the namespace in the middle as through a router.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use polypath_system::{Namespace, Netlink};

use crate::bench::BenchError;

/// The proxy's, where clients reach it.
pub(super) const PROXY: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
/// The origin's.
pub(super) const ORIGIN: Ipv4Addr = Ipv4Addr::new(10, 88, 1, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
const PROXY_OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 88, 1, 1);
const PREFIX_LENGTH: u8 = 24;
/// The proxy's interface to servers.
pub(super) const OUTSIDE: &str = "outside";
const INSIDE: &str = "inside";
/// The only interface of client and server.
const INTERFACE: &str = "eth0";

/// What a measurement is made in. It vanishes with this.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) client: Namespace,
    pub(super) proxy: Namespace,
    pub(super) server: Namespace,
}

impl Scene {
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub(super) fn new() -> Result<Self, BenchError> {
        Self::build().map_err(BenchError::Namespaces)
    }

    fn build() -> io::Result<Self> {
        let scene =
            Self { client: Namespace::create()?, proxy: Namespace::create()?, server: Namespace::create()? };
        for namespace in [&scene.client, &scene.proxy, &scene.server] {
            // So that fresh connections in a row do not run out of ports.
            namespace.set_variable("net/ipv4/ip_local_port_range", "1024 65535")?;
        }
        scene.proxy.set_variable("net/ipv4/ip_forward", "1")?;
        scene.proxy.run(|| {
            let netlink = Netlink::new()?;
            for (own, addr, peer) in [(INSIDE, PROXY, &scene.client), (OUTSIDE, PROXY_OUTSIDE, &scene.server)]
            {
                netlink.add_veth(own, INTERFACE, Some(&peer.as_fd()))?;
                configure(&netlink, own, addr)?;
            }
            Ok::<_, io::Error>(())
        })??;
        for (namespace, addr, gateway) in
            [(&scene.client, CLIENT, PROXY), (&scene.server, ORIGIN, PROXY_OUTSIDE)]
        {
            namespace.run(|| {
                let netlink = Netlink::new()?;
                configure(&netlink, INTERFACE, addr)?;
                netlink.add_route(INTERFACE, everywhere(), Some(gateway.into()), None)
            })??;
        }
        // Our own engines take the interfaces that lead everywhere.
        scene.proxy.run(|| Netlink::new()?.add_route(OUTSIDE, everywhere(), Some(ORIGIN.into()), None))??;
        Ok(scene)
    }
}

fn everywhere() -> (IpAddr, u8) {
    (Ipv4Addr::UNSPECIFIED.into(), 0)
}

fn configure(netlink: &Netlink, name: &str, addr: Ipv4Addr) -> io::Result<()> {
    netlink.add_address(name, addr.into(), PREFIX_LENGTH)?;
    netlink.set_up(name)
}
