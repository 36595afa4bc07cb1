use alloc::vec::Vec;

use super::upkeep::{Upkeep, mark_initial};
use super::{PathAction, PathEvent, PathManager, PathView, pairs};

/// A subflow from every local address to every address of the peer of the same family: the initial one and those it announced
/// (RFC 8684 §3.4.1), whatever the flags of the endpoints say. What is lost is opened again, with backoff.
#[derive(Debug, Default)]
pub(super) struct Fullmesh {
    upkeep: Upkeep,
}

impl PathManager for Fullmesh {
    fn name(&self) -> &'static str {
        "fullmesh"
    }

    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        if self.upkeep.follow(event, view, actions) {
            self.upkeep.open_missing(view, &pairs::all(view), 1, actions);
        }
        mark_initial(event, view, actions);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{addr, after, initial_subflow, opened, remote, view};
    use super::super::{LocalEndpoint, RemoteAddress};
    use super::*;
    use crate::identifiers::AddressId;

    #[test]
    fn every_local_address_meets_every_remote_one_of_its_family() {
        let v6 = core::net::IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);
        let endpoints = [
            LocalEndpoint::new(addr(1), 1),
            LocalEndpoint::new(addr(2), 2),
            LocalEndpoint::new(v6, 3).priority(1),
        ];
        let subflows = [initial_subflow()];
        let announced = [
            RemoteAddress { id: AddressId(9), addr: addr(101), port: Some(81) },
            RemoteAddress { id: AddressId(10), addr: v6, port: None },
        ];
        let view = PathView { announced: &announced, ..view(&endpoints, &subflows) };
        let actions = after(&mut Fullmesh::default(), PathEvent::Established, &view);
        let wanted = [
            (addr(2), remote(100, 80)),
            (addr(1), remote(101, 81)),
            (addr(2), remote(101, 81)),
            (v6, polypath_wire::Endpoint::new(v6, 80)),
        ];
        assert_eq!(opened(&actions), wanted);
    }

    #[test]
    fn limits_hold() {
        let endpoints = [LocalEndpoint::new(addr(1), 1), LocalEndpoint::new(addr(2), 2)];
        let subflows = [initial_subflow()];
        let announced = [RemoteAddress { id: AddressId(9), addr: addr(101), port: None }];
        let mut view = PathView { announced: &announced, ..view(&endpoints, &subflows) };
        view.limits.add_addr_accepted = 0;
        assert_eq!(opened(&after(&mut Fullmesh::default(), PathEvent::Established, &view)).len(), 1);
        view.limits.add_addr_accepted = 8;
        view.limits.subflows = 2;
        assert_eq!(opened(&after(&mut Fullmesh::default(), PathEvent::Established, &view)).len(), 2);
    }
}
