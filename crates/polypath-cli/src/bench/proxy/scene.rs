//! Clients, a proxy and servers: three namespaces in a row. Without a proxy, packets go through the namespace in the middle as through a router.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use polypath_system::{Namespace, Netlink};

use crate::bench::BenchError;
use crate::bench::host::run_ip;

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
/// Linux's default, whatever this machine has: with BBR the kernel's Multipath TCP stands still again and again, as seen in Linux 6.18.
const CONGESTION: &str = "cubic";

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
        let scene = Self::build().map_err(BenchError::Namespaces)?;
        scene.lead()?;
        Ok(scene)
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
        for (namespace, addr) in [(&scene.client, CLIENT), (&scene.server, ORIGIN)] {
            namespace.run(|| configure(&Netlink::new()?, INTERFACE, addr))??;
        }
        Ok(scene)
    }

    /// How packets leave. Our own engines take the interfaces that lead everywhere.
    fn lead(&self) -> Result<(), BenchError> {
        lead(&self.client, INTERFACE, CLIENT, Some(PROXY))?;
        lead(&self.proxy, INSIDE, PROXY, None)?;
        lead(&self.proxy, OUTSIDE, PROXY_OUTSIDE, Some(ORIGIN))?;
        lead(&self.server, INTERFACE, ORIGIN, Some(PROXY_OUTSIDE))
    }
}

/// By route: as a setting, a namespace may choose only from those that are for all users.
fn lead(
    namespace: &Namespace,
    device: &str,
    own: Ipv4Addr,
    gateway: Option<Ipv4Addr>,
) -> Result<(), BenchError> {
    let [a, b, c, _] = own.octets();
    let (network, own) = (format!("{a}.{b}.{c}.0/{PREFIX_LENGTH}"), own.to_string());
    let mut route = vec!["route", "change", &network, "dev", device, "proto", "kernel"];
    route.extend(["scope", "link", "src", &own, "congctl", CONGESTION]);
    run_ip(namespace, &route)?;
    let Some(gateway) = gateway.map(|gateway| gateway.to_string()) else { return Ok(()) };
    run_ip(namespace, &["route", "add", "default", "via", &gateway, "dev", device, "congctl", CONGESTION])
}

fn configure(netlink: &Netlink, name: &str, addr: Ipv4Addr) -> io::Result<()> {
    netlink.add_address(name, addr.into(), PREFIX_LENGTH)?;
    netlink.set_up(name)
}
