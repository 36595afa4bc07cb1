//! Path managers: which subflows to open and which addresses to announce, in the words of `ip mptcp`. One policy a file.
//!
//! A path manager sees address and subflow events and returns actions; it never touches packets. `docs/path-managers.md`
//! shows how to write one.

mod break_before_make;
mod builder;
mod endpoints;
mod fullmesh;
mod handover;
mod make_before_break;
mod ndiffports;
mod none;
mod pairs;
mod policy;
#[cfg(test)]
mod tests;
mod upkeep;

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use polypath_units::Instant;
use polypath_wire::Endpoint;

use crate::identifiers::{AddressId, SubflowId};

pub use builder::PathViewBuilder;
pub use policy::{PathManagers, Policy, UnknownPolicy};

/// A path-management policy, one instance a connection.
pub trait PathManager: fmt::Debug + Send {
    /// The name by which users choose it.
    fn name(&self) -> &'static str;

    /// Something happened; appends what is to be done to `actions`.
    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>);

    /// A subflow that is to be replaced is closed before another is asked for: what the new one finds cannot be weighed against it.
    fn breaks_first(&self) -> bool {
        false
    }
}

/// What happens to a connection's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The connection may have more subflows from now on.
    Established,
    /// The peer announced an address (ADD_ADDR).
    Announced(RemoteAddress),
    /// The peer withdrew an address (REMOVE_ADDR). Subflows to it are probed, and closed by the connection if nothing answers
    /// (RFC 8684 §3.4.2).
    Withdrawn {
        /// Its identifier.
        id: AddressId,
    },
    /// A subflow is ready for data.
    SubflowEstablished {
        /// The subflow.
        subflow: SubflowId,
    },
    /// A subflow ended, or never came up.
    SubflowClosed {
        /// Local address.
        local: IpAddr,
        /// Remote end.
        remote: Endpoint,
        /// It had been established.
        was_established: bool,
        /// False where the peer reset it for a cause that will not pass (RFC 8684 §3.6).
        may_return: bool,
    },
    /// A subflow has data outstanding, and nothing was acknowledged over
    /// [`stale_loss_count`](crate::ConnectionConfig::stale_loss_count) retransmission timeouts; or the peer's data stopped coming on
    /// it, and nothing answered several probes. Its path may be dead.
    SubflowStale {
        /// The subflow.
        subflow: SubflowId,
    },
    /// Something was acknowledged, or came, on a stale subflow.
    SubflowRecovered {
        /// The subflow.
        subflow: SubflowId,
    },
    /// A local address became usable.
    LocalAdded(IpAddr),
    /// The endpoint of a local address is another than before: a backup now, or a regular one.
    LocalChanged(IpAddr),
    /// A local address is gone. It is told again where a last subflow from it had to stay, once another is established.
    LocalRemoved(IpAddr),
    /// The instant of a [`PathAction::WakeAt`] came.
    Wake,
}

/// What a path manager wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathAction {
    /// Open a subflow. Several over one pair of addresses differ in their local port.
    Open {
        /// Local address.
        local: IpAddr,
        /// Identifier of the local address.
        local_id: AddressId,
        /// Remote end.
        remote: Endpoint,
        /// As a backup.
        backup: bool,
    },
    /// Announce a local address (ADD_ADDR).
    Announce {
        /// Identifier.
        id: AddressId,
        /// Address.
        addr: IpAddr,
        /// Port, if not that of the connection.
        port: Option<u16>,
    },
    /// Withdraw a local address (REMOVE_ADDR) and close its subflows.
    Withdraw {
        /// Identifier.
        id: AddressId,
    },
    /// Close a subflow.
    Close {
        /// The subflow.
        subflow: SubflowId,
    },
    /// Change a subflow's priority (MP_PRIO).
    SetBackup {
        /// The subflow.
        subflow: SubflowId,
        /// Backup or regular.
        backup: bool,
    },
    /// Send [`PathEvent::Wake`] at this instant.
    WakeAt(Instant),
}

/// A local endpoint, as `ip mptcp endpoint add ADDR [port N] [signal|subflow|backup|fullmesh] [id N]` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalEndpoint {
    /// Address.
    pub addr: IpAddr,
    /// Identifier, 1–255.
    pub id: AddressId,
    /// Port to announce with `signal`.
    pub port: Option<u16>,
    /// Announce the address to the peer.
    pub signal: bool,
    /// Open a subflow from the address.
    pub subflow: bool,
    /// Subflows of the address are backups.
    pub backup: bool,
    /// Open a subflow from the address to every known address of the peer.
    pub fullmesh: bool,
    /// Which endpoint is preferred by handovers, and joined first: the smaller, the better. Default 0.
    pub priority: u8,
    /// How much may go over the address before it becomes a backup, or is used no more. Default: any amount.
    pub budget: Option<Budget>,
    /// The address by which peers reach this one, if something translates between the two. It is announced by the side
    /// that was connected to only: what translates lets connections to the ports of listeners through.
    pub announced_as: Option<IpAddr>,
}

/// How much data a local address may carry, in all connections of a host together and in both directions: whole packets count,
/// with their headers, as networks do it.
///
/// Once it is spent, the endpoint becomes a backup, and so do its subflows (MP_PRIO, RFC 8684 §3.3.8); if it is hard, the
/// endpoint is removed and its subflows are closed, the last one of a connection too. To raise it, add the endpoint again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes.
    pub bytes: u64,
    /// Nothing more goes over the address once it is spent.
    pub is_hard: bool,
    /// Endpoints whose budgets name the same pool, other than 0, count together: the addresses of one interface.
    pub pool: u8,
}

impl LocalEndpoint {
    /// An endpoint with the `subflow` and `fullmesh` flags: what a client wants for each uplink.
    #[must_use]
    pub fn subflow(addr: IpAddr, id: impl Into<AddressId>) -> Self {
        Self { subflow: true, fullmesh: true, ..Self::new(addr, id) }
    }

    /// An endpoint with the `signal` flag: what a server wants for each address.
    #[must_use]
    pub fn signal(addr: IpAddr, id: impl Into<AddressId>) -> Self {
        Self { signal: true, ..Self::new(addr, id) }
    }

    /// An endpoint without any flag.
    #[must_use]
    pub fn new(addr: IpAddr, id: impl Into<AddressId>) -> Self {
        let (signal, subflow, backup, fullmesh) = (false, false, false, false);
        let id = id.into();
        let (port, priority, budget, announced_as) = (None, 0, None, None);
        Self { addr, id, port, signal, subflow, backup, fullmesh, priority, budget, announced_as }
    }

    /// The same as a backup.
    #[must_use]
    pub const fn backup(mut self) -> Self {
        self.backup = true;
        self
    }

    /// The same with a budget.
    #[must_use]
    pub const fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The same with another priority.
    #[must_use]
    pub const fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// The same with the `signal` flag, reached by peers at another address.
    #[must_use]
    pub const fn announced_as(mut self, addr: IpAddr) -> Self {
        self.signal = true;
        self.announced_as = Some(addr);
        self
    }
}

/// `ip mptcp limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most additional subflows of a connection, in either direction. Default 8.
    pub subflows: u8,
    /// Most announced addresses of the peer that are taken up. Default 8.
    pub add_addr_accepted: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self { subflows: 8, add_addr_accepted: 8 }
    }
}

/// An address that the peer announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Identifier.
    pub id: AddressId,
    /// Address.
    pub addr: IpAddr,
    /// Port; that of the connection if absent.
    pub port: Option<u16>,
}

/// The connection as a path manager sees it.
#[derive(Clone, Copy, Debug)]
pub struct PathView<'a> {
    /// The current time.
    pub now: Instant,
    /// This host opened the connection.
    pub is_client: bool,
    /// More subflows may be opened: the handshake is complete and there was no fallback.
    pub may_join: bool,
    /// Both ends of the initial subflow.
    pub initial_local: IpAddr,
    /// Remote end of the initial subflow.
    pub initial_remote: Endpoint,
    /// The peer does not accept subflows to the initial address (C flag).
    pub no_join_initial: bool,
    /// The host's endpoints.
    pub endpoints: &'a [LocalEndpoint],
    /// The host's limits.
    pub limits: Limits,
    /// Live subflows, half-open ones included.
    pub subflows: &'a [SubflowSummary],
    /// Addresses that the peer announced.
    pub announced: &'a [RemoteAddress],
}

/// A subflow as a path manager sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowSummary {
    /// Stable identifier within the connection.
    pub id: SubflowId,
    /// Local address.
    pub local: IpAddr,
    /// Identifier of the local address.
    pub local_id: AddressId,
    /// Remote end.
    pub remote: Endpoint,
    /// Identifier of the remote address.
    pub remote_id: AddressId,
    /// Ready for data, and not closing.
    pub established: bool,
    /// On its way out: reset, or finishing.
    pub closing: bool,
    /// A backup, by the word of either end.
    pub backup: bool,
    /// A backup by the word of this end.
    pub backup_local: bool,
    /// See [`PathEvent::SubflowStale`].
    pub stale: bool,
}

impl SubflowSummary {
    /// An established one.
    #[must_use]
    pub fn new(
        id: impl Into<SubflowId>,
        local: IpAddr,
        local_id: impl Into<AddressId>,
        remote: Endpoint,
    ) -> Self {
        Self {
            id: id.into(),
            local,
            local_id: local_id.into(),
            remote,
            remote_id: AddressId::INITIAL,
            established: true,
            closing: false,
            backup: false,
            backup_local: false,
            stale: false,
        }
    }
}

impl PathView<'_> {
    /// A client's connection made up for a test: its initial subflow is established, from `local` to `remote`.
    #[must_use]
    pub fn builder(local: IpAddr, remote: Endpoint) -> PathViewBuilder {
        PathViewBuilder::new(local, remote)
    }

    /// The subflow with this id.
    #[must_use]
    pub fn subflow(&self, id: SubflowId) -> Option<&SubflowSummary> {
        self.subflows.iter().find(|subflow| subflow.id == id)
    }

    /// The endpoint of a local address.
    #[must_use]
    pub fn endpoint(&self, addr: IpAddr) -> Option<&LocalEndpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.addr == addr)
    }
}
