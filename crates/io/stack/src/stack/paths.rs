//! What people change of a stack's paths while it runs. It holds, too, when the path goes and comes back.

use std::net::IpAddr;

use polypath_mptcp::path_manager::{Limits, LocalEndpoint};
use polypath_mptcp::scheduler::{self, Schedulers};
use polypath_units::named::Registry;

use super::handle::Stack;

/// A path of a stack, or an address that it announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// What it is.
    pub endpoint: LocalEndpoint,
    /// It is there, and somebody has asked that it be not used.
    pub is_withheld: bool,
}

impl Stack {
    /// All paths and announced addresses, those too that are not used because somebody has asked for it; by identifier.
    #[must_use]
    pub fn known_paths(&self) -> Vec<KnownPath> {
        let mut paths = self.shared.peek(|state| {
            let used = state.host.config().endpoints.iter();
            let used = used.map(|endpoint| KnownPath { endpoint: *endpoint, is_withheld: false });
            let withheld = state.wishes.withheld.iter();
            let withheld = withheld.map(|endpoint| KnownPath { endpoint: *endpoint, is_withheld: true });
            used.chain(withheld).collect::<Vec<_>>()
        });
        paths.sort_by_key(|path| path.endpoint.id);
        paths
    }

    /// Bytes that went over an address, and over those that share its budget; none without a budget.
    #[must_use]
    pub fn budget_used_bytes(&self, addr: IpAddr) -> Option<u64> {
        self.shared.peek(|state| state.host.budget_used_bytes(addr))
    }

    /// Changes a path, or uses one again that was withheld. Live connections follow: its subflows become backups or regular
    /// ones, and what is missing is opened.
    pub fn change_path(&self, endpoint: LocalEndpoint) {
        self.shared.tell(|state, now| {
            state.wishes.withheld.retain(|withheld| withheld.addr != endpoint.addr);
            state.wishes.changed.insert(endpoint.addr, endpoint);
            state.host.add_endpoint(now, endpoint);
        });
    }

    /// Uses a path no more, until it is changed again: its subflows end, as of [`Stack::remove_path`].
    pub fn withhold_path(&self, addr: IpAddr) {
        self.shared.tell(|state, now| {
            let known = state.host.config().endpoints.iter().find(|endpoint| endpoint.addr == addr).copied();
            let Some(endpoint) = known else { return };
            state.wishes.withheld.push(endpoint);
            state.host.remove_endpoint(now, addr);
        });
    }

    /// An announced address is announced no more, and forgotten.
    pub fn forget_path(&self, addr: IpAddr) {
        self.shared.tell(|state, now| {
            state.wishes.changed.remove(&addr);
            state.wishes.withheld.retain(|withheld| withheld.addr != addr);
            state.host.remove_endpoint(now, addr);
        });
    }

    /// The limits of path managers.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.shared.peek(|state| state.host.config().limits)
    }

    /// Changes them, for all connections: what they allow now is opened, and what is there stays.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.tell(|state, now| state.host.set_limits(now, limits));
    }

    /// Changes the scheduler of all connections, and of those to come that bring no settings of their own.
    pub fn set_scheduler(&self, policy: &scheduler::Policy) {
        self.shared.tell(|state, now| state.host.set_scheduler(now, policy));
    }

    /// The schedulers that can be chosen by name while it runs: ours, unless it was told of more.
    #[must_use]
    pub fn schedulers(&self) -> Registry<Schedulers> {
        self.shared.peek(|state| state.schedulers.clone())
    }

    /// Tells it which schedulers can be chosen by name.
    pub fn set_schedulers(&self, schedulers: Registry<Schedulers>) {
        self.shared.tell(|state, _| state.schedulers = schedulers);
    }

    /// The address by which the stack knows one of this host's.
    #[must_use]
    pub fn own_address(&self, addr: IpAddr) -> IpAddr {
        self.shared.underlay(|underlay| underlay.listens_at((addr, 0).into()).ip()).unwrap_or(addr)
    }
}
