//! What the system's network looks like: read at once, then only looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};

use futures_util::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteType};
use netlink_packet_route::rule::RuleAttribute;
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Netlink;
use crate::sysctl::{FORWARD_V4, FORWARD_V6, accept_ra, forwarding};

/// The table that `ip route` shows.
pub const MAIN_TABLE: u32 = 254;

/// Interfaces, addresses, routes and rules of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemState {
    /// Interfaces, in the order of their index.
    pub links: Vec<Link>,
    /// Routes of the main table.
    pub routes: Vec<Route>,
    /// Tables that rules or routes use.
    pub tables: BTreeSet<u32>,
    /// Priorities of rules.
    pub rule_priorities: BTreeSet<u32>,
    /// Addresses for whose packets there is a rule.
    pub rule_sources: BTreeSet<IpAddr>,
    /// Variables under `/proc/sys` that set-up may change.
    pub variables: BTreeMap<String, String>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// It is switched on.
    pub is_up: bool,
    /// It is up, and so is its carrier.
    pub is_running: bool,
    /// The loopback interface.
    pub is_loopback: bool,
    /// What kind of virtual interface it is, such as `bridge`; none for hardware.
    pub kind: Option<String>,
    /// Largest packet, in bytes.
    pub mtu_bytes: u32,
    /// Its addresses of global scope: of each family, the one first that packets to far away leave with.
    pub addresses: Vec<IpAddr>,
}

/// A unicast route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to; the default route has a prefix length of 0.
    pub destination: (IpAddr, u8),
    /// The next hop, if there is one.
    pub gateway: Option<IpAddr>,
    /// Index of the interface.
    pub link: u32,
    /// The lower, the sooner it is taken.
    pub metric: u32,
}

impl Route {
    /// True for the default route of its family.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.destination.1 == 0
    }
}

impl SystemState {
    /// Reads the state of the calling thread's network namespace.
    pub fn read(netlink: &Netlink) -> io::Result<Self> {
        let mut state = netlink
            .ask("the state of the network", |handle| async move { Self::read_with(&handle).await })?;
        state.read_variables();
        state.links.iter_mut().for_each(put_preferred_first);
        Ok(state)
    }

    async fn read_with(handle: &Handle) -> Result<Self, rtnetlink::Error> {
        let mut state = Self::default();
        let mut links = handle.link().get().execute();
        while let Some(message) = links.try_next().await? {
            let flags = message.header.flags;
            let mut link = Link {
                index: message.header.index,
                name: String::new(),
                is_up: flags.contains(LinkFlags::Up),
                is_running: flags.contains(LinkFlags::Up) && flags.contains(LinkFlags::LowerUp),
                is_loopback: flags.contains(LinkFlags::Loopback),
                kind: None,
                mtu_bytes: 0,
                addresses: Vec::new(),
            };
            for attribute in message.attributes {
                match attribute {
                    LinkAttribute::IfName(name) => link.name = name,
                    LinkAttribute::Mtu(mtu) => link.mtu_bytes = mtu,
                    LinkAttribute::LinkInfo(details) => {
                        link.kind = details.iter().find_map(|detail| match detail {
                            LinkInfo::Kind(kind) => Some(kind.to_string()),
                            _ => None,
                        });
                    }
                    _ => {}
                }
            }
            state.links.push(link);
        }
        state.read_addresses(handle).await?;
        state.read_routes(handle).await?;
        state.read_rules(handle).await?;
        Ok(state)
    }

    async fn read_addresses(&mut self, handle: &Handle) -> Result<(), rtnetlink::Error> {
        let mut addresses = handle.address().get().execute();
        while let Some(message) = addresses.try_next().await? {
            let unusable = AddressHeaderFlags::Tentative
                | AddressHeaderFlags::Deprecated
                | AddressHeaderFlags::Dadfailed;
            if message.header.scope != AddressScope::Universe || message.header.flags.intersects(unusable) {
                continue;
            }
            let own = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Local(addr) => Some(*addr),
                _ => None,
            };
            let any = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Address(addr) => Some(*addr),
                _ => None,
            };
            let attributes = &message.attributes;
            let addr = attributes.iter().find_map(own).or_else(|| attributes.iter().find_map(any));
            let link = self.links.iter_mut().find(|link| link.index == message.header.index);
            if let (Some(addr), Some(link)) = (addr, link) {
                link.addresses.push(addr);
            }
        }
        Ok(())
    }

    async fn read_routes(&mut self, handle: &Handle) -> Result<(), rtnetlink::Error> {
        let families = [
            RouteMessageBuilder::<std::net::Ipv4Addr>::new().build(),
            RouteMessageBuilder::<std::net::Ipv6Addr>::new().build(),
        ];
        for family in families {
            let mut routes = handle.route().get(family).execute();
            while let Some(message) = routes.try_next().await? {
                self.take_route(&message);
            }
        }
        Ok(())
    }

    fn take_route(&mut self, message: &RouteMessage) {
        let mut table = u32::from(message.header.table);
        let (mut destination, mut gateway, mut link, mut metric) = (None, None, None, 0);
        let mut several = Vec::new();
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Destination(addr) => destination = ip(addr),
                RouteAttribute::Gateway(addr) => gateway = ip(addr),
                RouteAttribute::Oif(index) => link = Some(*index),
                RouteAttribute::Priority(priority) => metric = *priority,
                RouteAttribute::MultiPath(hops) => several = hops.iter().map(next_hop).collect(),
                _ => {}
            }
        }
        self.tables.insert(table);
        let is_v4 = message.header.address_family == netlink_packet_route::AddressFamily::Inet;
        let anywhere: IpAddr = if is_v4 { [0; 4].into() } else { [0; 16].into() };
        if table != MAIN_TABLE || message.header.kind != RouteType::Unicast {
            return;
        }
        let destination = (destination.unwrap_or(anywhere), message.header.destination_prefix_length);
        several.extend(link.map(|link| (link, gateway)));
        self.routes.extend(several.into_iter().map(|(link, gateway)| Route {
            destination,
            gateway,
            link,
            metric,
        }));
    }

    async fn read_rules(&mut self, handle: &Handle) -> Result<(), rtnetlink::Error> {
        for version in [IpVersion::V4, IpVersion::V6] {
            let mut rules = handle.rule().get(version).execute();
            while let Some(message) = rules.try_next().await? {
                self.tables.insert(message.header.table.into());
                for attribute in &message.attributes {
                    match attribute {
                        RuleAttribute::Table(number) => {
                            self.tables.insert(*number);
                        }
                        RuleAttribute::Priority(priority) => {
                            self.rule_priorities.insert(*priority);
                        }
                        RuleAttribute::Source(addr) => {
                            self.rule_sources.insert(*addr);
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn read_variables(&mut self) {
        let mut names = vec![FORWARD_V4.to_string(), FORWARD_V6.to_string(), accept_ra("default")];
        names.extend(self.links.iter().map(|link| accept_ra(&link.name)));
        let per_link = |link: &Link| [true, false].map(|is_v4| forwarding(&link.name, is_v4));
        names.extend(self.links.iter().flat_map(per_link));
        for name in names {
            // A kernel without IPv6 has no such variables.
            if let Ok(value) = std::fs::read_to_string(format!("/proc/sys/{name}")) {
                self.variables.insert(name, value.trim().to_string());
            }
        }
    }

    /// The interface of this name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// True if an interface runs, and has an address and a default route of one family.
    #[must_use]
    pub fn is_usable(&self, link: &Link) -> bool {
        let has = |is_v4| has_address(link, is_v4) && self.default_route(link.index, is_v4).is_some();
        link.is_running && (has(true) || has(false))
    }

    /// True if an interface runs, and has an address and a route of one family.
    #[must_use]
    pub fn is_attached(&self, link: &Link) -> bool {
        link.is_running && (self.has_route(link, true) || self.has_route(link, false))
    }

    /// Whether an interface has an address and a route of a family, be it to its own network only.
    pub fn has_route(&self, link: &Link, is_v4: bool) -> bool {
        let is_through = |route: &Route| route.link == link.index && route.destination.0.is_ipv4() == is_v4;
        let leads_somewhere = |route: &Route| match route.destination.0 {
            _ if route.is_default() => true,
            IpAddr::V4(_) => true,
            IpAddr::V6(addr) => !addr.is_unicast_link_local() && !addr.is_multicast(),
        };
        has_address(link, is_v4)
            && self.routes.iter().any(|route| is_through(route) && leads_somewhere(route))
    }

    /// True if a route of the main table leads to an address through an interface.
    #[must_use]
    pub fn leads_to(&self, link: u32, addr: IpAddr) -> bool {
        self.routes.iter().any(|route| route.link == link && network_contains(route.destination, addr))
    }

    /// The default route of a family through an interface: the one that is taken first, if there are several.
    #[must_use]
    pub fn default_route(&self, link: u32, is_v4: bool) -> Option<&Route> {
        let through = self.routes.iter().filter(|route| route.link == link && route.is_default());
        through.filter(|route| route.destination.0.is_ipv4() == is_v4).min_by_key(|route| route.metric)
    }
}

/// Whether an address is in a network: an address of it, and the length of its prefix.
#[must_use]
pub fn network_contains((network, length): (IpAddr, u8), addr: IpAddr) -> bool {
    match (network, addr) {
        (IpAddr::V4(network), IpAddr::V4(addr)) => {
            let differing = network.to_bits() ^ addr.to_bits();
            differing.leading_zeros() >= length.into()
        }
        (IpAddr::V6(network), IpAddr::V6(addr)) => {
            let differing = network.to_bits() ^ addr.to_bits();
            differing.leading_zeros() >= length.into()
        }
        _ => false,
    }
}

/// The kernel says which of several addresses it would choose.
fn put_preferred_first(link: &mut Link) {
    for is_v4 in [true, false] {
        let several = link.addresses.iter().filter(|addr| addr.is_ipv4() == is_v4).count() > 1;
        let Some(preferred) = (several && link.is_running).then(|| source(&link.name, is_v4)).flatten()
        else {
            continue;
        };
        if let Some(at) = link.addresses.iter().position(|addr| *addr == preferred) {
            link.addresses[..=at].rotate_right(1);
        }
    }
}

/// The address with which a packet to nowhere near would leave an interface; nothing is sent.
fn source(link: &str, is_v4: bool) -> Option<IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849), which nobody has.
    let (domain, far): (_, IpAddr) = match is_v4 {
        true => (Domain::IPV4, [192, 0, 2, 1].into()),
        false => (Domain::IPV6, [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).ok()?;
    socket.bind_device(Some(link.as_bytes())).ok()?;
    socket.connect(&SocketAddr::new(far, 9).into()).ok()?;
    socket.local_addr().ok()?.as_socket().map(|local| local.ip())
}

fn has_address(link: &Link, is_v4: bool) -> bool {
    link.addresses.iter().any(|addr| addr.is_ipv4() == is_v4)
}

/// The interface and the gateway of one of a route's several ways.
fn next_hop(hop: &RouteNextHop) -> (u32, Option<IpAddr>) {
    let gateway = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::Gateway(addr) => ip(addr),
        _ => None,
    };
    (hop.interface_index, hop.attributes.iter().find_map(gateway))
}

fn ip(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(addr) => Some(IpAddr::V4(*addr)),
        RouteAddress::Inet6(addr) => Some(IpAddr::V6(*addr)),
        _ => None,
    }
}
