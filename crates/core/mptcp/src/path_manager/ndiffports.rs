use alloc::vec::Vec;

use super::upkeep::Upkeep;
use super::{PathAction, PathEvent, PathManager, PathView, pairs};

/// Several subflows over each pair of addresses that [`endpoints`](super::endpoints) would use, which differ in their local
/// port: where a network spreads flows over equal paths by a hash of their ports (ECMP), each may take another (Raiciu et al.,
/// "Improving datacenter performance and robustness with multipath TCP", 2011).
#[derive(Debug)]
pub(super) struct Ndiffports {
    count: usize,
    upkeep: Upkeep,
}

impl Ndiffports {
    pub(super) fn new(count: u8) -> Self {
        Self { count: usize::from(count), upkeep: Upkeep::default() }
    }
}

impl PathManager for Ndiffports {
    fn name(&self) -> &'static str {
        "ndiffports"
    }

    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        if self.upkeep.follow(event, view, actions) {
            self.upkeep.open_missing(view, &pairs::by_flags(view), self.count, actions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LocalEndpoint;
    use super::super::tests::{addr, after, initial_subflow, opened, remote, view};
    use super::*;

    #[test]
    fn each_pair_gets_its_number_of_subflows_one_after_the_other() {
        let endpoints = [LocalEndpoint::subflow(addr(1), 1), LocalEndpoint::subflow(addr(2), 2)];
        let subflows = [initial_subflow()];
        let mut view = view(&endpoints, &subflows);
        let open = |count, view: &PathView<'_>| {
            let actions = after(&mut Ndiffports::new(count), PathEvent::Established, view);
            opened(&actions)
        };
        let (first, second) = ((addr(1), remote(100, 80)), (addr(2), remote(100, 80)));
        assert_eq!(open(1, &view), [second]);
        assert_eq!(open(2, &view), [second, first, second]);
        assert_eq!(open(3, &view), [second, first, second, first, second]);
        view.limits.subflows = 2;
        assert_eq!(open(2, &view), [second, first]);
    }
}
