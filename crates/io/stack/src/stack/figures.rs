//! What a stack has counted by path, for whoever keeps figures.

use std::net::IpAddr;

use polypath_mptcp::Carried;

use super::handle::Stack;
use crate::tally::Fallback;

/// Numbers that only grow.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By local address; the number of a path is its place here. At most seventeen: see [`polypath_mptcp::Host::carried`].
    pub paths: Vec<PathFigures>,
    /// Connections that fell back to TCP, by cause.
    pub fallbacks: Vec<(Fallback, u64)>,
}

/// What a local address has carried.
#[derive(Clone, Debug)]
pub struct PathFigures {
    /// The stack's own address.
    pub address: IpAddr,
    /// What people call it, or called it while it was there: its interface.
    pub name: Option<String>,
    /// What went over it since the start.
    pub carried: Carried,
}

impl Stack {
    /// What was counted since the start, over connections that are open and those that have ended.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let carried = self.shared.peek(|state| state.host.carried());
        // The underlay has a lock of its own.
        let named: Vec<_> =
            carried.into_iter().map(|(addr, carried)| (addr, self.path_name(addr), carried)).collect();
        self.shared.peek(|state| {
            let paths = named.into_iter().map(|(address, name, carried)| PathFigures {
                address,
                name: state.path_names.name(address, name),
                carried,
            });
            let paths = paths.collect();
            Figures { paths, fallbacks: state.tally.fallbacks.clone() }
        })
    }
}
