//! The stack's addresses whose uplinks are gone for now. Peers go on sending to their connections: what comes as soon as an
//! uplink is back still reaches the stack, and what the stack sends until then leaves by no other uplink.

use std::net::IpAddr;

use super::action::Action;
use super::plan::PathPlan;

#[derive(Debug, Default)]
pub(super) struct Away {
    addresses: Vec<IpAddr>,
    /// What leads packets for them to the stack.
    actions: Vec<Action>,
}

impl Away {
    /// The uplink of an address of `path` is gone.
    pub(super) fn go(&mut self, path: &PathPlan, addr: IpAddr) {
        self.addresses.push(addr);
        self.actions.extend(path.actions.iter().filter(|action| action.leads_to(addr)).cloned());
    }

    /// Those of these paths are back.
    pub(super) fn come_back(&mut self, paths: &[PathPlan]) {
        let addresses = &mut self.addresses;
        addresses.retain(|addr| !paths.iter().any(|path| path.has(*addr)));
        self.actions.retain(|action| addresses.iter().any(|addr| action.leads_to(*addr)));
    }

    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        self.actions.clone()
    }
}
