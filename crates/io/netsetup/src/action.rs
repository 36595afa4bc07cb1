//! What set-up does to the system, step by step: each step can be shown as the command that a person would type, done,
//! and undone.

use std::net::IpAddr;
use std::{fmt, io};

use polypath_system::sysctl::{FORWARD_V4, FORWARD_V6, forwarding_link, is_accept_ra};
use polypath_system::{MAIN_TABLE, Netlink, Rule, Selector};
use serde::{Deserialize, Serialize};

use super::places;

/// A step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// Sets a variable under `/proc/sys`.
    SetVariable {
        /// Its name below `/proc/sys`.
        name: String,
        /// The value it gets.
        value: String,
        /// The value that it has, and gets back.
        before: String,
    },
    /// Gives an interface an address.
    AddAddress {
        /// The interface.
        link: String,
        /// The address.
        addr: IpAddr,
    },
    /// Adds a route.
    AddRoute {
        /// The interface.
        link: String,
        /// Where to, and the length of the prefix.
        destination: (IpAddr, u8),
        /// The next hop.
        gateway: Option<IpAddr>,
        /// The table; the main table if there is none.
        table: Option<u32>,
    },
    /// Has packets of a family that go by a table stay here, whatever their destination.
    AddLocalRoute {
        /// The packets' family.
        is_v4: bool,
        /// The table.
        table: u32,
    },
    /// Sends packets of a source by a table.
    AddRule {
        /// The source.
        source: IpAddr,
        /// The table.
        table: u32,
        /// The rule's priority.
        priority: u32,
    },
    /// Sends packets to a destination by the main table, whoever sends them.
    AddDestinationRule {
        /// The destination.
        destination: IpAddr,
        /// The rule's priority.
        priority: u32,
    },
    /// Sends packets with a mark by a table.
    AddMarkRule {
        /// The mark.
        mark: u32,
        /// The packets' family.
        is_v4: bool,
        /// The table.
        table: u32,
        /// The rule's priority.
        priority: u32,
    },
}

impl Action {
    /// Whether it is one that set-up may take: what is on file is not believed beyond that.
    pub(super) fn is_of_setup(&self) -> bool {
        match self {
            Self::SetVariable { name, value, before } => {
                let is_short_number = |text: &str| text.len() <= 2 && text.parse::<i8>().is_ok();
                is_variable(name) && is_short_number(value) && is_short_number(before)
            }
            Self::AddAddress { link, addr } => {
                link.starts_with("polypath") && places::is_stack_address(*addr)
            }
            Self::AddRoute { link, destination, table, .. } => match table {
                Some(table) => places::is_table(*table),
                None => link.starts_with("polypath") && places::is_stack_address(destination.0),
            },
            Self::AddLocalRoute { table, .. } => places::is_table(*table),
            Self::AddRule { source, table, priority } => {
                places::is_stack_address(*source)
                    && places::is_table(*table)
                    && places::is_priority(*priority)
            }
            Self::AddDestinationRule { destination, priority } => {
                places::is_stack_address(*destination) && places::is_priority(*priority)
            }
            Self::AddMarkRule { mark, table, priority, .. } => {
                places::is_mark(*mark) && places::is_table(*table) && places::is_priority(*priority)
            }
        }
    }

    /// Lets the kernel translate connections that it has lost sight of; none if it does so, or knows no connections.
    ///
    /// While a gateway begins anew, packets pass that nobody follows. What comes behind them would be neither taken for a part of its
    /// connection nor translated, and the connection would stand still for ever.
    pub(super) fn follow_leniently() -> Option<Self> {
        let before = std::fs::read_to_string(format!("/proc/sys/{LIBERAL}")).ok()?.trim().to_owned();
        let value = "1".to_owned();
        (before != value).then(|| Self::SetVariable { name: LIBERAL.to_owned(), value, before })
    }

    /// Whether it leads packets for an address of the stack to it.
    pub(super) fn leads_to(&self, addr: IpAddr) -> bool {
        match self {
            Self::AddRoute { destination, table: None, .. } => destination.0 == addr,
            Self::AddDestinationRule { destination, .. } => *destination == addr,
            _ => false,
        }
    }

    /// The variable that it sets, if it sets one.
    pub(super) fn variable(&self) -> Option<&str> {
        match self {
            Self::SetVariable { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Does it, in the calling thread's network namespace.
    pub(crate) fn apply(&self, netlink: &Netlink) -> io::Result<()> {
        match self {
            Self::SetVariable { name, value, .. } => set_variable(name, value),
            Self::AddAddress { link, addr } => netlink.add_address(link, *addr, host_prefix(*addr)),
            Self::AddRoute { link, destination, gateway, table } => {
                netlink.add_route(link, *destination, *gateway, *table)
            }
            Self::AddLocalRoute { is_v4, table } => netlink.add_local_route(*is_v4, *table),
            Self::AddRule { .. } | Self::AddDestinationRule { .. } | Self::AddMarkRule { .. } => {
                self.rule().map_or(Ok(()), |rule| netlink.add_rule(&rule))
            }
        }
    }

    /// The rule that it adds, if it adds one.
    fn rule(&self) -> Option<Rule> {
        Some(match *self {
            Self::AddRule { source, table, priority } => {
                Rule { selector: Selector::From((source, host_prefix(source))), table, priority }
            }
            Self::AddDestinationRule { destination, priority } => {
                let selector = Selector::To((destination, host_prefix(destination)));
                Rule { selector, table: MAIN_TABLE, priority }
            }
            Self::AddMarkRule { mark, is_v4, table, priority } => {
                Rule { selector: Selector::Mark { mark, is_v4 }, table, priority }
            }
            Self::SetVariable { .. }
            | Self::AddAddress { .. }
            | Self::AddRoute { .. }
            | Self::AddLocalRoute { .. } => return None,
        })
    }

    /// Undoes it. What is gone already, with its interface for example, needs no undoing.
    pub(crate) fn undo(&self, netlink: &Netlink) -> io::Result<()> {
        let undone = match self {
            // Somebody has switched on everything since, and wants this too.
            Self::SetVariable { name, .. } if is_forwarding_wanted(name) => Ok(()),
            Self::SetVariable { name, before, .. } => set_variable(name, before),
            Self::AddAddress { link, addr } => netlink.remove_address(link, *addr),
            Self::AddRoute { link, destination, gateway, table } => {
                netlink.remove_route(link, *destination, *gateway, *table)
            }
            Self::AddLocalRoute { is_v4, table } => netlink.remove_local_route(*is_v4, *table),
            Self::AddRule { .. } | Self::AddDestinationRule { .. } | Self::AddMarkRule { .. } => {
                self.rule().map_or(Ok(()), |rule| netlink.remove_rule(&rule))
            }
        };
        match undone {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            undone => undone,
        }
    }
}

/// Whether connections are translated whose sequence numbers the kernel has not followed.
const LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

/// Whether set-up sets it.
fn is_variable(name: &str) -> bool {
    name == FORWARD_V4
        || name == FORWARD_V6
        || name == LIBERAL
        || is_accept_ra(name)
        || forwarding_link(name).is_some()
}

fn is_forwarding_wanted(name: &str) -> bool {
    forwarding_link(name).is_some_and(|(_, is_v4)| is_v4) && is_router(true)
}

/// Whether the system forwards what comes by any interface.
pub(super) fn is_router(is_v4: bool) -> bool {
    let name = if is_v4 { FORWARD_V4 } else { FORWARD_V6 };
    std::fs::read_to_string(format!("/proc/sys/{name}")).is_ok_and(|value| value.trim() != "0")
}

fn set_variable(name: &str, value: &str) -> io::Result<()> {
    set(&format!("/proc/sys/{name}"), value)
}

/// Where nothing can be written, as in containers, what is so already does no harm.
fn set(path: &str, value: &str) -> io::Result<()> {
    match std::fs::write(path, value) {
        Err(_) if std::fs::read_to_string(path).is_ok_and(|now| now.trim() == value) => Ok(()),
        written => written.map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}"))),
    }
}

fn host_prefix(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = |addr: &IpAddr| if addr.is_ipv4() { "ip" } else { "ip -6" };
        match self {
            Self::SetVariable { name, value, .. } => {
                write!(f, "sysctl -w {}={value}", name.replace('/', "."))
            }
            Self::AddAddress { link, addr } => {
                write!(f, "{} addr add {addr}/{} dev {link}", family(addr), host_prefix(*addr))
            }
            Self::AddRoute { link, destination: (addr, length), gateway, table } => {
                write!(f, "{} route add ", family(addr))?;
                match length {
                    0 => write!(f, "default")?,
                    length => write!(f, "{addr}/{length}")?,
                }
                if let Some(gateway) = gateway {
                    write!(f, " via {gateway}")?;
                }
                write!(f, " dev {link}")?;
                if let Some(table) = table {
                    let on_link = if gateway.is_some() { " onlink" } else { "" };
                    write!(f, "{on_link} table {table}")?;
                }
                Ok(())
            }
            Self::AddLocalRoute { is_v4, table } => {
                let family = if *is_v4 { "ip" } else { "ip -6" };
                write!(f, "{family} route add local default dev lo table {table}")
            }
            Self::AddRule { source, table, priority } => {
                write!(f, "{} rule add from {source} lookup {table} priority {priority}", family(source))
            }
            Self::AddDestinationRule { destination, priority } => {
                let family = family(destination);
                write!(f, "{family} rule add to {destination} lookup main priority {priority}")
            }
            Self::AddMarkRule { mark, is_v4, table, priority } => {
                let family = if *is_v4 { "ip" } else { "ip -6" };
                write!(f, "{family} rule add fwmark {mark:#x} lookup {table} priority {priority}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable that nobody may write, root included.
    #[test]
    fn a_variable_that_has_its_value_needs_no_writing() {
        let path = "/proc/sys/kernel/ostype";
        assert!(set(path, "Linux").is_ok());
        let error = set(path, "Unix").expect_err("it can't be written");
        assert!(error.to_string().starts_with("/proc/sys/kernel/ostype: "), "{error}");
    }
}
