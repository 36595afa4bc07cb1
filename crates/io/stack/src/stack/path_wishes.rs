//! What people have asked of paths, while those come and go.

use std::collections::HashMap;
use std::net::IpAddr;

use polypath_mptcp::path_manager::LocalEndpoint;

/// What was asked of paths, by the stack's own address.
#[derive(Debug, Default)]
pub(super) struct PathWishes {
    /// How endpoints are to be instead of how they came.
    pub(super) changed: HashMap<IpAddr, LocalEndpoint>,
    /// Endpoints that are not to be used.
    pub(super) withheld: Vec<LocalEndpoint>,
}

impl PathWishes {
    /// A path came: how it is to be, if it is to be used.
    pub(super) fn handle_added(&mut self, came: LocalEndpoint) -> Option<LocalEndpoint> {
        let endpoint = match self.changed.get(&came.addr) {
            // Where it is reached, and what may go over it, is the network's business.
            Some(wished) => LocalEndpoint {
                signal: wished.signal || came.signal,
                announced_as: came.announced_as,
                budget: came.budget,
                ..*wished
            },
            None => came,
        };
        match self.withheld.iter_mut().find(|withheld| withheld.addr == came.addr) {
            Some(withheld) => {
                *withheld = endpoint;
                None
            }
            None => Some(endpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_outlast_a_path_that_goes_and_comes_back() {
        let came = LocalEndpoint::subflow([10, 0, 0, 1].into(), 1);
        let moved = came.announced_as([192, 0, 2, 1].into());
        let mut wishes = PathWishes::default();
        assert_eq!(wishes.handle_added(came), Some(came));
        wishes.changed.insert(came.addr, came.backup().priority(3));
        assert_eq!(wishes.handle_added(moved), Some(moved.backup().priority(3)));
        wishes.withheld.push(came);
        assert_eq!(wishes.handle_added(moved), None);
        assert_eq!(wishes.withheld, [moved.backup().priority(3)]);
    }
}
