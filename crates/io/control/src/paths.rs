//! The paths of a running stack, and how they are changed, in the words of `ip mptcp endpoint` and `ip mptcp limits`.

use std::net::IpAddr;

use polypath_mptcp::path_manager::{Limits, LocalEndpoint};
use polypath_mptcp::{AddressId, scheduler};
use polypath_stack::stack::{KnownPath, Stack};
use serde::{Deserialize, Serialize};

/// The first identifier that is given to an announced address: paths have smaller ones.
const FIRST_ANNOUNCED: u8 = 200;

/// What can be changed, and how it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathsReport {
    /// Paths and announced addresses.
    pub endpoints: Vec<EndpointReport>,
    /// Most further subflows of a connection.
    pub subflows: u8,
    /// Most announced addresses of a peer that are used.
    pub add_addr_accepted: u8,
    /// Name of the scheduler that new connections get.
    pub scheduler: String,
    /// All that can be chosen.
    pub schedulers: Vec<String>,
}

/// A path or an announced address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointReport {
    /// Identifier.
    pub id: u8,
    /// As the network knows it; none before that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port that is announced with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Name of the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// It is announced.
    pub signal: bool,
    /// Subflows are opened from it.
    pub subflow: bool,
    /// Those are used when no other works.
    pub backup: bool,
    /// To every address of the peer.
    pub fullmesh: bool,
    /// The smaller, the better.
    pub priority: u8,
    /// Somebody has asked that it be not used.
    #[serde(default)]
    pub deleted: bool,
}

/// Which endpoint is meant: all that is said has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Name of an interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// An address as the network knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// An identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u8>,
}

/// How an endpoint is to be; what is not said stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// To announce it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<bool>,
    /// To open subflows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subflow: Option<bool>,
    /// To use it when no other works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// To open subflows to every address of the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fullmesh: Option<bool>,
    /// The smaller, the better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The port that is announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A change of a running stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Uses a path again that was deleted, or announces an address.
    Add(Target, Flags),
    /// Uses endpoints no more.
    Delete(Target),
    /// Changes endpoints.
    Change(Target, Flags),
    /// Uses none of them.
    Flush,
    /// Changes the limits that are named.
    Limits {
        /// Most further subflows of a connection.
        subflows: Option<u8>,
        /// Most announced addresses of a peer that are used.
        add_addr_accepted: Option<u8>,
    },
    /// Changes the scheduler, by name.
    Scheduler(String),
}

/// Why a change was refused.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The stack has gone.
    #[error("the stack has ended")]
    Ended,
    /// Nothing fits what is meant.
    #[error(
        "{meant}: no path of this stack; it has {known}. A further interface is taken up when it is started with -I"
    )]
    NoSuchPath {
        /// What was said.
        meant: String,
        /// What there is.
        known: String,
    },
    /// It is used.
    #[error("{meant}: in use already; expected `change` to change it")]
    InUse {
        /// What was said.
        meant: String,
    },
    /// It is not used.
    #[error("{meant}: not in use; expected `add` before")]
    NotInUse {
        /// What was said.
        meant: String,
    },
    /// An address that is none of the stack's can only be announced.
    #[error(
        "{address}: no address of a path; expected `signal` with it, to announce where else this host is reached"
    )]
    Elsewhere {
        /// The address.
        address: IpAddr,
    },
    /// No host has it.
    #[error("{address}: no address of one host; expected a unicast address")]
    NotUnicast {
        /// The address.
        address: IpAddr,
    },
    /// Nobody listens there.
    #[error("port 0: no port; expected one of 1 to 65535")]
    NoPort,
    /// Another endpoint has the identifier, or all are taken.
    #[error("id {id}: another endpoint has it; expected one of 1 to 255 that is free")]
    IdInUse {
        /// The identifier.
        id: u8,
    },
    /// No scheduler that the stack knows.
    #[error(transparent)]
    Scheduler(#[from] scheduler::UnknownPolicy),
}

impl PathsReport {
    pub(super) fn of(stack: &Stack) -> Self {
        let limits = stack.limits();
        Self {
            endpoints: stack.known_paths().iter().map(|path| EndpointReport::of(stack, path)).collect(),
            subflows: limits.subflows,
            add_addr_accepted: limits.add_addr_accepted,
            scheduler: stack.connection_config().scheduler.to_string(),
            schedulers: stack.schedulers().iter().map(|policy| policy.name().into()).collect(),
        }
    }
}

impl EndpointReport {
    fn of(stack: &Stack, path: &KnownPath) -> Self {
        let endpoint = &path.endpoint;
        // An address elsewhere is no path.
        let dev = stack.path_name(endpoint.addr);
        let seen = stack.seen_at((endpoint.addr, 0).into()).ip().to_canonical();
        Self {
            id: endpoint.id.0,
            address: Some(seen).filter(|addr| !addr.is_unspecified()),
            port: endpoint.port,
            dev,
            signal: endpoint.signal,
            subflow: endpoint.subflow,
            backup: endpoint.backup,
            fullmesh: endpoint.fullmesh,
            priority: endpoint.priority,
            deleted: path.is_withheld,
        }
    }
}

impl Target {
    fn fits(&self, stack: &Stack, endpoint: &LocalEndpoint) -> bool {
        let is_at = |addr: IpAddr| {
            stack.seen_at((endpoint.addr, 0).into()).ip().to_canonical() == addr
                || stack.own_address(addr) == endpoint.addr
        };
        self.id.is_none_or(|id| endpoint.id.0 == id)
            && self.address.is_none_or(is_at)
            && self.dev.as_ref().is_none_or(|name| stack.path_name(endpoint.addr).as_ref() == Some(name))
    }

    /// As a person would say it.
    fn words(&self) -> String {
        let address = self.address.map(|address| address.to_string());
        let id = self.id.map(|id| format!("id {id}"));
        let words: Vec<String> = [self.dev.clone(), address, id].into_iter().flatten().collect();
        words.join(" ")
    }
}

impl Flags {
    fn apply(&self, endpoint: LocalEndpoint) -> LocalEndpoint {
        LocalEndpoint {
            signal: self.signal.unwrap_or(endpoint.signal),
            subflow: self.subflow.unwrap_or(endpoint.subflow),
            backup: self.backup.unwrap_or(endpoint.backup),
            fullmesh: self.fullmesh.unwrap_or(endpoint.fullmesh),
            priority: self.priority.unwrap_or(endpoint.priority),
            port: self.port.or(endpoint.port),
            ..endpoint
        }
    }
}

/// Changes a stack.
pub(super) fn change(stack: &Stack, change: &Change) -> Result<(), ChangeError> {
    match change {
        Change::Add(target, flags) => return add(stack, target, flags),
        Change::Delete(target) => {
            let paths = found(stack, target)?;
            delete(stack, paths.iter().filter(|path| !path.is_withheld), target)?;
        }
        Change::Change(target, flags) => {
            check(&Target::default(), flags)?;
            let paths = found(stack, target)?;
            if paths.iter().all(|path| path.is_withheld) {
                return Err(ChangeError::NotInUse { meant: target.words() });
            }
            let used = paths.iter().filter(|path| !path.is_withheld);
            used.for_each(|path| stack.change_path(flags.apply(path.endpoint)));
        }
        Change::Flush => {
            let paths = stack.known_paths();
            paths.iter().for_each(|path| take_away(stack, path));
        }
        Change::Limits { subflows, add_addr_accepted } => {
            let limits = stack.limits();
            stack.set_limits(Limits {
                subflows: subflows.unwrap_or(limits.subflows),
                add_addr_accepted: add_addr_accepted.unwrap_or(limits.add_addr_accepted),
            });
        }
        Change::Scheduler(name) => stack.set_scheduler(&stack.schedulers().find(name)?),
    }
    Ok(())
}

fn found(stack: &Stack, target: &Target) -> Result<Vec<KnownPath>, ChangeError> {
    let known = stack.known_paths();
    let found: Vec<KnownPath> =
        known.iter().filter(|path| target.fits(stack, &path.endpoint)).copied().collect();
    if found.is_empty() {
        let mut names: Vec<String> = known.iter().map(|path| name(stack, &path.endpoint)).collect();
        names.dedup();
        let known = if names.is_empty() { "none".into() } else { names.join(", ") };
        return Err(ChangeError::NoSuchPath { meant: target.words(), known });
    }
    Ok(found)
}

/// The interface of a path; an announced address as it is.
fn name(stack: &Stack, endpoint: &LocalEndpoint) -> String {
    let seen = || stack.seen_at((endpoint.addr, 0).into()).ip().to_canonical().to_string();
    stack.path_name(endpoint.addr).unwrap_or_else(seen)
}

fn delete<'a>(
    stack: &Stack,
    paths: impl Iterator<Item = &'a KnownPath>,
    target: &Target,
) -> Result<(), ChangeError> {
    let mut paths = paths.peekable();
    if paths.peek().is_none() {
        return Err(ChangeError::NotInUse { meant: target.words() });
    }
    paths.for_each(|path| take_away(stack, path));
    Ok(())
}

/// An address elsewhere is forgotten; a path can be added again.
fn take_away(stack: &Stack, path: &KnownPath) {
    let endpoint = &path.endpoint;
    if endpoint.subflow || stack.path_name(endpoint.addr).is_some() {
        stack.withhold_path(endpoint.addr);
    } else {
        stack.forget_path(endpoint.addr);
    }
}

/// Whether an address can be that of a host.
fn is_unicast(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_broadcast =
        matches!(address, IpAddr::V4(address) if address.is_broadcast() || address.octets()[0] == 0);
    !(is_broadcast || address.is_multicast() || address.is_unspecified())
}

/// Refuses what would be announced in vain.
fn check(target: &Target, flags: &Flags) -> Result<(), ChangeError> {
    if let Some(address) = target.address.filter(|address| !is_unicast(*address)) {
        return Err(ChangeError::NotUnicast { address });
    }
    if flags.port == Some(0) { Err(ChangeError::NoPort) } else { Ok(()) }
}

fn add(stack: &Stack, target: &Target, flags: &Flags) -> Result<(), ChangeError> {
    check(target, flags)?;
    let known = stack.known_paths();
    // Beside an address, the identifier is what a new endpoint is to have.
    let is_named = target.address.is_some() || target.dev.is_some();
    let meant = Target { id: target.id.filter(|_| !is_named), ..target.clone() };
    let mut fitting = known.iter().filter(|path| meant.fits(stack, &path.endpoint)).peekable();
    if fitting.peek().is_some() {
        let withheld: Vec<&KnownPath> = fitting.filter(|path| path.is_withheld).collect();
        if withheld.is_empty() {
            return Err(ChangeError::InUse { meant: meant.words() });
        }
        // As a new one begins: what it was before it was deleted counts no more.
        let new = |path: &KnownPath| LocalEndpoint { backup: false, priority: 0, ..path.endpoint };
        withheld.into_iter().for_each(|path| stack.change_path(flags.apply(new(path))));
        return Ok(());
    }
    let Some(address) = target.address.filter(|_| target.dev.is_none()) else {
        found(stack, &meant)?;
        return Ok(());
    };
    if flags.signal != Some(true) || flags.subflow == Some(true) {
        return Err(ChangeError::Elsewhere { address });
    }
    let is_taken = |id: u8| known.iter().any(|path| path.endpoint.id == AddressId(id));
    let id = match target.id {
        Some(id) => id,
        None => (FIRST_ANNOUNCED..=u8::MAX).find(|id| !is_taken(*id)).unwrap_or(u8::MAX),
    };
    if id == 0 || is_taken(id) {
        return Err(ChangeError::IdInUse { id });
    }
    let own = stack.own_address(address);
    stack.change_path(flags.apply(LocalEndpoint::signal(own, id).announced_as(own)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_host_can_have_is_announced() {
        let check = |address: &str, port| {
            let target = Target { address: address.parse().ok(), ..Target::default() };
            let checked = check(&target, &Flags { port, signal: Some(true), ..Flags::default() });
            checked.map_err(|error| error.to_string())
        };
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "255.255.255.255",
            "224.0.0.1",
            "239.255.255.250",
            "::",
            "ff02::1",
            "::ffff:224.0.0.1",
        ] {
            let wanted = Err(format!("{address}: no address of one host; expected a unicast address"));
            assert_eq!(check(address, None), wanted);
        }
        for address in ["192.0.2.9", "2001:db8::9", "fe80::1"] {
            assert_eq!(check(address, Some(1)), Ok(()), "{address}");
        }
        assert_eq!(check("192.0.2.9", Some(0)), Err("port 0: no port; expected one of 1 to 65535".into()));
    }
}
