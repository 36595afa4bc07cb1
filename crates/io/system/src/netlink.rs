//! The few words of rtnetlink that set-up code says, one at a time and in the calling thread's namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, io};

use futures_util::TryStreamExt;
use netlink_packet_route::route::{RouteFlags, RouteMessage, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleMessage};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tokio::runtime::Runtime;

use crate::scarce::build_runtime;

/// A route netlink socket that waits for each answer: not for threads that run a tokio runtime, which must not block.
#[derive(Debug)]
pub struct Netlink {
    runtime: Runtime,
    handle: Handle,
}

impl Netlink {
    /// A socket in the network namespace of the calling thread.
    pub fn new() -> io::Result<Self> {
        let runtime = build_runtime(tokio::runtime::Builder::new_current_thread().enable_io())?;
        let (connection, handle, _) = {
            let _guard = runtime.enter();
            rtnetlink::new_connection()?
        };
        runtime.spawn(connection);
        Ok(Self { runtime, handle })
    }

    fn wait<T>(
        &self,
        what: &str,
        answer: impl Future<Output = Result<T, rtnetlink::Error>>,
    ) -> io::Result<T> {
        self.runtime.block_on(answer).map_err(|error| into_io(what, &error))
    }

    /// Index of an interface.
    pub fn link_index(&self, name: &str) -> io::Result<u32> {
        let mut links = self.handle.link().get().match_name(name).execute();
        let link = self.wait(name, async move { links.try_next().await })?;
        link.map(|link| link.header.index)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name}: no such interface")))
    }

    /// Makes a pair of connected interfaces; the second may go to another namespace.
    pub fn add_veth(&self, name: &str, peer: &str, peer_namespace: Option<&impl AsFd>) -> io::Result<()> {
        let link = LinkVeth::new(name, peer).build();
        self.wait(name, self.handle.link().add(link).execute())?;
        let Some(namespace) = peer_namespace else { return Ok(()) };
        let index = self.link_index(peer)?;
        let moved = LinkUnspec::new_with_index(index).setns_by_fd(namespace.as_fd().as_raw_fd()).build();
        self.wait(peer, self.handle.link().set(moved).execute())
    }

    /// Brings an interface up.
    pub fn set_up(&self, name: &str) -> io::Result<()> {
        let link = LinkUnspec::new_with_index(self.link_index(name)?).up().build();
        self.wait(name, self.handle.link().set(link).execute())
    }

    /// Gives an interface another name.
    pub fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        let link = LinkUnspec::new_with_index(self.link_index(name)?).name(new_name.to_string()).build();
        self.wait(name, self.handle.link().set(link).execute())
    }

    /// Brings an interface down.
    pub fn set_down(&self, name: &str) -> io::Result<()> {
        let link = LinkUnspec::new_with_index(self.link_index(name)?).down().build();
        self.wait(name, self.handle.link().set(link).execute())
    }

    /// Sets the largest packet of an interface, in bytes.
    pub fn set_mtu(&self, name: &str, mtu_bytes: u32) -> io::Result<()> {
        let link = LinkUnspec::new_with_index(self.link_index(name)?).mtu(mtu_bytes).build();
        self.wait(name, self.handle.link().set(link).execute())
    }

    /// Removes an interface.
    pub fn remove_link(&self, name: &str) -> io::Result<()> {
        let index = self.link_index(name)?;
        self.wait(name, self.handle.link().del(index).execute())
    }

    /// Gives an interface an address.
    pub fn add_address(&self, name: &str, addr: IpAddr, prefix_length: u8) -> io::Result<()> {
        let index = self.link_index(name)?;
        let what = format!("{addr}/{prefix_length} on {name}");
        self.wait(&what, self.handle.address().add(index, addr, prefix_length).execute())
    }

    /// Takes an address from an interface.
    pub fn remove_address(&self, name: &str, addr: IpAddr) -> io::Result<()> {
        let index = self.link_index(name)?;
        let mut found =
            self.handle.address().get().set_link_index_filter(index).set_address_filter(addr).execute();
        let message = self.wait(name, async move { found.try_next().await })?;
        let message = message.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{name} has no address {addr}"))
        })?;
        self.wait(name, self.handle.address().del(message).execute())
    }

    /// Adds a route to `destination` (the default route if its prefix length is 0) through an interface, by `gateway` if
    /// there is one, in `table` or else the main table. In a table of its own the gateway needs no other route: the main
    /// table has it where the interface is.
    pub fn add_route(
        &self,
        name: &str,
        destination: (IpAddr, u8),
        gateway: Option<IpAddr>,
        table: Option<u32>,
    ) -> io::Result<()> {
        let (what, route) = self.route(name, destination, gateway, table)?;
        self.wait(&what, self.handle.route().add(route).execute())
    }

    fn route(
        &self,
        name: &str,
        destination: (IpAddr, u8),
        gateway: Option<IpAddr>,
        table: Option<u32>,
    ) -> io::Result<(String, RouteMessage)> {
        let index = self.link_index(name)?;
        let what = format!("route to {}/{} through {name}", destination.0, destination.1);
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(destination.0, destination.1)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: {error}")))?
            .output_interface(index);
        let route = match gateway {
            Some(gateway) => route
                .gateway(gateway)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: {error}")))?,
            None => route,
        };
        let route = match table {
            Some(table) => route.table_id(table),
            None => route,
        };
        let mut message = route.build();
        if table.is_some() && gateway.is_some() {
            message.header.flags.insert(RouteFlags::Onlink);
        }
        Ok((what, message))
    }

    /// Removes a route that [`Netlink::add_route`] added with the same arguments.
    pub fn remove_route(
        &self,
        name: &str,
        destination: (IpAddr, u8),
        gateway: Option<IpAddr>,
        table: Option<u32>,
    ) -> io::Result<()> {
        let (what, route) = self.route(name, destination, gateway, table)?;
        self.wait(&what, self.handle.route().del(route).execute())
    }

    /// Has packets of a family that go by `table` stay here, whatever their destination.
    pub fn add_local_route(&self, is_v4: bool, table: u32) -> io::Result<()> {
        let (what, route) = self.local_route(is_v4, table)?;
        self.wait(&what, self.handle.route().add(route).execute())
    }

    /// Removes a route that [`Netlink::add_local_route`] added with the same arguments.
    pub fn remove_local_route(&self, is_v4: bool, table: u32) -> io::Result<()> {
        let (what, route) = self.local_route(is_v4, table)?;
        self.wait(&what, self.handle.route().del(route).execute())
    }

    fn local_route(&self, is_v4: bool, table: u32) -> io::Result<(String, RouteMessage)> {
        let everywhere: IpAddr =
            if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let (what, mut message) = self.route("lo", (everywhere, 0), None, Some(table))?;
        message.header.kind = RouteType::Local;
        message.header.scope = RouteScope::Host;
        Ok((what, message))
    }

    /// Whether the system has a route to `addr` through an interface, in whatever table its rules choose. That the kernel looks
    /// for an address without a route right behind the interface is none.
    pub fn leads_to(&self, link: u32, addr: IpAddr) -> io::Result<bool> {
        let what = format!("the route to {addr}");
        let length = if addr.is_ipv4() { 32 } else { 128 };
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(addr, length)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: {error}")))?;
        let mut message = route.output_interface(link).build();
        message.header.flags |= RouteFlags::FibMatch;
        let mut found = self.handle.route().get(message).execute();
        match self.wait(&what, async move { found.try_next().await }) {
            Ok(route) => Ok(route.is_some()),
            Err(error) => match error.kind() {
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Asks what else rtnetlink offers.
    pub fn ask<T, F: Future<Output = Result<T, rtnetlink::Error>>>(
        &self,
        what: &str,
        question: impl FnOnce(Handle) -> F,
    ) -> io::Result<T> {
        self.wait(what, question(self.handle.clone()))
    }

    /// Sends packets from `source` by routing table `table`.
    pub fn add_source_rule(&self, source: (IpAddr, u8), table: u32, priority: u32) -> io::Result<()> {
        self.add_rule(&Rule { selector: Selector::From(source), table, priority })
    }

    /// Adds a rule.
    pub fn add_rule(&self, rule: &Rule) -> io::Result<()> {
        let mut add = self.handle.rule().add();
        *add.message_mut() = self.rule_message(rule);
        self.wait(&rule.to_string(), add.execute())
    }

    /// Removes a rule that [`Netlink::add_rule`] added.
    pub fn remove_rule(&self, rule: &Rule) -> io::Result<()> {
        self.wait(&rule.to_string(), self.handle.rule().del(self.rule_message(rule)).execute())
    }

    fn rule_message(&self, rule: &Rule) -> RuleMessage {
        let add = self.handle.rule().add();
        let add = add.table_id(rule.table).priority(rule.priority).action(RuleAction::ToTable);
        match rule.selector {
            Selector::From((IpAddr::V4(addr), length)) => {
                add.v4().source_prefix(addr, length).message_mut().clone()
            }
            Selector::From((IpAddr::V6(addr), length)) => {
                add.v6().source_prefix(addr, length).message_mut().clone()
            }
            Selector::To((IpAddr::V4(addr), length)) => {
                add.v4().destination_prefix(addr, length).message_mut().clone()
            }
            Selector::To((IpAddr::V6(addr), length)) => {
                add.v6().destination_prefix(addr, length).message_mut().clone()
            }
            Selector::Mark { mark, is_v4: true } => add.fw_mark(mark).v4().message_mut().clone(),
            Selector::Mark { mark, is_v4: false } => add.fw_mark(mark).v6().message_mut().clone(),
        }
    }
}

/// A rule that sends packets by a routing table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Whose packets.
    pub selector: Selector,
    /// The table that says where they go.
    pub table: u32,
    /// The lower, the sooner it is looked at.
    pub priority: u32,
}

/// Which packets a rule is for.
#[derive(Clone, Copy, Debug)]
pub enum Selector {
    /// Those from a network.
    From((IpAddr, u8)),
    /// Those to a network.
    To((IpAddr, u8)),
    /// Those of a family with a mark.
    Mark {
        /// The mark.
        mark: u32,
        /// IPv4, or IPv6.
        is_v4: bool,
    },
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.selector {
            Selector::From((addr, length)) => write!(f, "rule from {addr}/{length}")?,
            Selector::To((addr, length)) => write!(f, "rule to {addr}/{length}")?,
            Selector::Mark { mark, .. } => write!(f, "rule for mark {mark:#x}")?,
        }
        write!(f, " lookup {}", self.table)
    }
}

fn into_io(what: &str, error: &rtnetlink::Error) -> io::Error {
    if let rtnetlink::Error::NetlinkError(message) = error {
        let error = message.to_io();
        // "No such process" is what the kernel says of a route that isn't there.
        let kind = match error.raw_os_error() {
            Some(libc::ESRCH | libc::ENODEV) => io::ErrorKind::NotFound,
            _ => error.kind(),
        };
        return io::Error::new(kind, format!("{what}: {error}"));
    }
    io::Error::other(format!("{what}: {error}"))
}
