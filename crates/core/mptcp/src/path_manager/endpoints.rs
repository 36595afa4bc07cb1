use alloc::vec::Vec;

use super::upkeep::{Upkeep, mark_initial};
use super::{PathAction, PathEvent, PathManager, PathView, pairs};

/// What `ip mptcp endpoint` and `ip mptcp limits` say: announces `signal` endpoints, opens a subflow from each `subflow`
/// endpoint to the initial address and to each announced one (from all of its family with `fullmesh`, else from one),
/// and opens again, with backoff, what was lost.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    upkeep: Upkeep,
}

impl PathManager for Endpoints {
    fn name(&self) -> &'static str {
        "endpoints"
    }

    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        if self.upkeep.follow(event, view, actions) {
            self.upkeep.open_missing(view, &pairs::by_flags(view), 1, actions);
        }
        mark_initial(event, view, actions);
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use polypath_units::Instant;
    use polypath_wire::Endpoint;

    use super::super::tests::{addr, initial_subflow, joined, opened, remote, view};
    use super::super::{LocalEndpoint, RemoteAddress};
    use super::*;
    use crate::identifiers::{AddressId, SubflowId};

    fn after(event: PathEvent, view: &PathView<'_>) -> Vec<PathAction> {
        super::super::tests::after(&mut Endpoints::default(), event, view)
    }

    #[test]
    fn client_opens_one_subflow_from_each_other_address() {
        let endpoints = [LocalEndpoint::subflow(addr(1), 1), LocalEndpoint::subflow(addr(2), 2).backup()];
        let subflows = [initial_subflow()];
        let open = PathAction::Open {
            local: addr(2),
            local_id: AddressId(2),
            remote: Endpoint::new(addr(100), 80),
            backup: true,
        };
        assert_eq!(after(PathEvent::Established, &view(&endpoints, &subflows)), [open]);
        let mut no_more = view(&endpoints, &subflows);
        no_more.limits.subflows = 0;
        assert_eq!(after(PathEvent::Established, &no_more), []);
        let mut server = view(&endpoints, &subflows);
        server.is_client = false;
        assert_eq!(after(PathEvent::Established, &server), []);
    }

    #[test]
    fn server_announces_its_other_addresses_and_the_client_meshes() {
        let endpoints = [LocalEndpoint::signal(addr(1), 1), LocalEndpoint::signal(addr(2), 2)];
        let subflows = [initial_subflow()];
        let mut server = view(&endpoints, &subflows);
        server.is_client = false;
        let announce = PathAction::Announce { id: AddressId(2), addr: addr(2), port: None };
        assert_eq!(after(PathEvent::Established, &server), [announce]);

        let translated = [endpoints[0], LocalEndpoint::subflow(addr(2), 2).announced_as(addr(202))];
        server.endpoints = &translated;
        let announce = PathAction::Announce { id: AddressId(2), addr: addr(202), port: None };
        assert_eq!(after(PathEvent::Established, &server), [announce]);
        let is_announced = |action: &PathAction| matches!(action, PathAction::Announce { .. });
        let by_client = after(PathEvent::Established, &view(&translated, &subflows));
        assert!(!by_client.iter().any(is_announced), "nobody could connect to its port: {by_client:?}");

        let endpoints = [LocalEndpoint::subflow(addr(1), 1), LocalEndpoint::subflow(addr(2), 2)];
        let announced = [RemoteAddress { id: AddressId(9), addr: addr(101), port: Some(81) }];
        let mut client = view(&endpoints, &subflows);
        client.announced = &announced;
        client.no_join_initial = true;
        let remote = Endpoint::new(addr(101), 81);
        let open = |local, local_id| PathAction::Open { local, local_id, remote, backup: false };
        assert_eq!(
            after(PathEvent::Announced(announced[0]), &client),
            [open(addr(1), AddressId(1)), open(addr(2), AddressId(2))]
        );
    }

    #[test]
    fn an_address_of_the_other_family_is_joined_from_one_address() {
        let v6 = |last: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
        let plain = |addr, id| LocalEndpoint { fullmesh: false, ..LocalEndpoint::subflow(addr, id) };
        let announced = [RemoteAddress { id: AddressId(9), addr: v6(101), port: None }];
        let subflows = [initial_subflow()];
        let joins = |endpoints: &[LocalEndpoint]| {
            let view = PathView { announced: &announced, ..view(endpoints, &subflows) };
            let opened = opened(&after(PathEvent::Announced(announced[0]), &view));
            let to_announced = opened.into_iter().filter(|(_, remote)| remote.addr == v6(101));
            to_announced.map(|(local, _)| local).collect::<Vec<_>>()
        };
        let of_v4 = plain(addr(2), 2);
        assert!(joins(&[of_v4]).is_empty());
        assert_eq!(joins(&[of_v4, plain(v6(1), 3), plain(v6(2), 4)]), [v6(1)]);
        assert_eq!(joins(&[plain(v6(1), 3).backup(), plain(v6(2), 4)]), [v6(2)]);
        // A mesh of the first family is none of this one.
        let mesh = LocalEndpoint::subflow(addr(2), 2);
        assert_eq!(joins(&[mesh, plain(v6(1), 3), plain(v6(2), 4)]), [v6(1)]);
        assert_eq!(joins(&[mesh, LocalEndpoint::subflow(v6(1), 3), plain(v6(2), 4)]), [v6(1)]);
    }

    #[test]
    fn a_lost_path_is_tried_again_with_backoff() {
        let endpoints = [LocalEndpoint::subflow(addr(2), 2)];
        let subflows = [initial_subflow()];
        let mut manager = Endpoints::default();
        let mut view = view(&endpoints, &subflows);
        let lost = |was_established| PathEvent::SubflowClosed {
            local: addr(2),
            remote: Endpoint::new(addr(100), 80),
            was_established,
            may_return: true,
        };
        let mut actions = Vec::new();
        manager.handle_event(&lost(true), &view, &mut actions);
        assert_eq!(actions, [PathAction::WakeAt(Instant::from_secs(1))]);
        manager.handle_event(&PathEvent::Wake, &view, &mut actions);
        assert_eq!(actions.len(), 2, "too early to open: only the same wake-up again");
        view.now = Instant::from_secs(1);
        actions.clear();
        manager.handle_event(&PathEvent::Wake, &view, &mut actions);
        assert!(matches!(actions[..], [PathAction::Open { .. }]));
        actions.clear();
        manager.handle_event(&lost(false), &view, &mut actions);
        assert_eq!(actions, [PathAction::WakeAt(Instant::from_secs(3))]);
    }

    #[test]
    fn the_best_priority_is_opened_first() {
        let endpoints = [LocalEndpoint::subflow(addr(2), 2).priority(7), LocalEndpoint::subflow(addr(3), 3)];
        let subflows = [initial_subflow()];
        let mut view = view(&endpoints, &subflows);
        let (second, third) = ((addr(2), remote(100, 80)), (addr(3), remote(100, 80)));
        assert_eq!(opened(&after(PathEvent::Established, &view)), [third, second]);
        view.limits.subflows = 1;
        assert_eq!(opened(&after(PathEvent::Established, &view)), [third]);
    }

    #[test]
    fn addresses_that_go_take_their_subflows_along() {
        let endpoints = [LocalEndpoint::subflow(addr(1), 1), LocalEndpoint::subflow(addr(2), 2)];
        let initial = [initial_subflow()];
        let both = [initial_subflow(), joined(1, 2)];
        let gone = |addr, subflows| after(PathEvent::LocalRemoved(addr), &view(&endpoints, subflows));
        assert_eq!(gone(addr(2), &both), [PathAction::Withdraw { id: AddressId(2) }]);
        assert_eq!(
            gone(addr(1), &both),
            [PathAction::Withdraw { id: AddressId(0) }],
            "what the peer knows it by"
        );
        assert_eq!(gone(addr(1), &initial), [], "nothing is left to say it on");
        // An address that was announced, and that no subflow uses; and the initial one, once its subflow has ended.
        let without_initial = [joined(1, 2)];
        let signal = [LocalEndpoint::signal(addr(1), 1)];
        let actions = after(PathEvent::LocalRemoved(addr(1)), &view(&signal, &without_initial));
        assert_eq!(actions, [PathAction::Withdraw { id: AddressId(0) }]);
        let signal = [LocalEndpoint::signal(addr(2), 2)];
        let actions = after(PathEvent::LocalRemoved(addr(2)), &view(&signal, &initial));
        assert_eq!(actions, [PathAction::Withdraw { id: AddressId(2) }]);
    }

    #[test]
    fn nothing_is_opened_from_an_address_that_is_gone() {
        let endpoints = [LocalEndpoint::subflow(addr(2), 2)];
        let subflows = [joined(1, 2)];
        let mut manager = Endpoints::default();
        let mut view = view(&endpoints, &subflows);
        let mut run =
            |event, view: &PathView<'_>| opened(&super::super::tests::after(&mut manager, event, view));
        run(PathEvent::LocalRemoved(addr(1)), &view);
        view.now = Instant::from_secs(100);
        assert_eq!(run(PathEvent::Wake, &view), []);
        assert_eq!(run(PathEvent::LocalAdded(addr(1)), &view), [(addr(1), remote(100, 80))]);
    }

    #[test]
    fn the_initial_address_is_announced_once_it_is_back_under_the_identifier_it_has_always_had() {
        let endpoints = [LocalEndpoint::signal(addr(1), 1), LocalEndpoint::signal(addr(2), 2)];
        let subflows = [initial_subflow(), joined(1, 2)];
        let mut server = view(&endpoints, &subflows);
        server.is_client = false;
        let mut manager = Endpoints::default();
        let mut run = |event| super::super::tests::after(&mut manager, event, &server);
        assert_eq!(run(PathEvent::LocalAdded(addr(1))), [], "it never went");
        assert_eq!(run(PathEvent::LocalRemoved(addr(1))), [PathAction::Withdraw { id: AddressId(0) }]);
        let back = PathAction::Announce { id: AddressId(0), addr: addr(1), port: None };
        assert_eq!(run(PathEvent::LocalAdded(addr(1))), [back]);
    }

    #[test]
    fn subflows_follow_the_flags_of_their_endpoint() {
        let endpoints = [LocalEndpoint::subflow(addr(1), 1), LocalEndpoint::subflow(addr(2), 2).backup()];
        let subflows = [initial_subflow(), joined(1, 2)];
        let change = |addr| after(PathEvent::LocalChanged(addr), &view(&endpoints, &subflows));
        assert_eq!(change(addr(1)), []);
        assert_eq!(change(addr(2)), [PathAction::SetBackup { subflow: SubflowId(1), backup: true }]);
    }
}
