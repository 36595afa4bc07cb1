//! Local endpoints that come, go, and have spent their budgets.

use core::net::IpAddr;

use polypath_units::Instant;

use super::Host;
use crate::path_manager::{LocalEndpoint, PathEvent};

impl Host {
    /// Bytes that went over a local address, and over those that share its budget; `None` without a budget.
    #[must_use]
    pub fn budget_used_bytes(&self, addr: IpAddr) -> Option<u64> {
        self.resources.budgets.used_bytes(addr)
    }

    /// Adds a local endpoint for the path managers of all connections: an uplink came up. One with the same address is
    /// replaced.
    pub fn add_endpoint(&mut self, now: Instant, endpoint: LocalEndpoint) {
        self.resources.budgets.set(&endpoint);
        let known = self.resources.config.endpoints.iter().position(|known| known.addr == endpoint.addr);
        let before = known.map(|at| self.resources.config.endpoints.remove(at));
        let Some(endpoint) = self.resources.budgets.allowed(endpoint) else { return };
        self.resources.config.endpoints.push(endpoint);
        self.path_event(now, PathEvent::LocalAdded(endpoint.addr));
        if before
            .is_some_and(|before| (before.backup, before.priority) != (endpoint.backup, endpoint.priority))
        {
            self.path_event(now, PathEvent::LocalChanged(endpoint.addr));
        }
    }

    /// Removes the endpoint with this address: an uplink went down. Its subflows end, and their data goes elsewhere. Where nothing
    /// else is established, they stay and carry on until something is: a reset of the last would end the connection at the peer.
    pub fn remove_endpoint(&mut self, now: Instant, addr: IpAddr) {
        self.path_event(now, PathEvent::LocalRemoved(addr));
        self.resources.config.endpoints.retain(|known| known.addr != addr);
    }

    /// Does what budgets that have just been spent ask for.
    pub(super) fn enforce_budgets(&mut self, now: Instant) {
        if !self.resources.budgets.take_news() {
            return;
        }
        for endpoint in self.resources.config.endpoints.clone() {
            match self.resources.budgets.allowed(endpoint) {
                Some(allowed) if allowed == endpoint => {}
                Some(allowed) => {
                    let known = self
                        .resources
                        .config
                        .endpoints
                        .iter_mut()
                        .filter(|known| known.addr == endpoint.addr);
                    known.for_each(|known| *known = allowed);
                    self.path_event(now, PathEvent::LocalChanged(endpoint.addr));
                }
                None => {
                    self.remove_endpoint(now, endpoint.addr);
                    self.each_connection(now, |connection, _| connection.close_from(endpoint.addr));
                }
            }
        }
    }
}
