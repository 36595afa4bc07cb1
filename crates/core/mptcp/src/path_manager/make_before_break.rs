use alloc::vec::Vec;

use super::handover::rank;
use super::pairs::{self, Pair};
use super::upkeep::Upkeep;
use super::{LocalEndpoint, PathAction, PathEvent, PathManager, PathView, SubflowSummary};
use crate::identifiers::SubflowId;

/// One subflow carries the data, the one from the endpoint with the best priority; the others are open as backups (RFC 8684
/// §3.3.8). When it closes or becomes stale, or its address goes, the next takes over, and where a better one comes back, that.
/// A new role is told to the peer with MP_PRIO, to the one that takes over first.
#[derive(Debug, Default)]
pub(super) struct MakeBeforeBreak {
    upkeep: Upkeep,
    /// Who carries the data.
    active: Option<SubflowId>,
}

impl PathManager for MakeBeforeBreak {
    fn name(&self) -> &'static str {
        "make-before-break"
    }

    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        // What an endpoint has become counts in the choice, and nowhere else.
        let is_choice = view.is_client && matches!(event, PathEvent::LocalChanged(_));
        if !is_choice && self.upkeep.follow(event, view, actions) {
            let standby = |pair: Pair| Pair { local: LocalEndpoint { backup: true, ..pair.local }, ..pair };
            let wanted: Vec<Pair> = pairs::by_flags(view).into_iter().map(standby).collect();
            self.upkeep.open_missing(view, &wanted, 1, actions);
        }
        if view.is_client {
            self.assign_roles(event, view, actions);
        }
    }
}

impl MakeBeforeBreak {
    fn assign_roles(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        let is_up = |subflow: &&SubflowSummary| subflow.established && !self.upkeep.is_gone(subflow.local);
        let key = |subflow: &&SubflowSummary| (rank(view, subflow.local), self.active != Some(subflow.id));
        let works = |subflow: &&SubflowSummary| is_up(subflow) && !subflow.stale;
        let Some(best) = view.subflows.iter().filter(works).min_by_key(key) else { return };
        // A word on a path that was dead may have been lost; and one that is dead hears nothing.
        let returns =
            |subflow: &SubflowSummary| *event == PathEvent::SubflowRecovered { subflow: subflow.id };
        let mut set = |subflow: &SubflowSummary, backup: bool| {
            if subflow.backup_local != backup || returns(subflow) {
                actions.push(PathAction::SetBackup { subflow: subflow.id, backup });
            }
        };
        set(best, false);
        for subflow in view.subflows.iter().filter(works).filter(|subflow| subflow.id != best.id) {
            set(subflow, true);
        }
        self.active = Some(best.id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{addr, after, initial_subflow, joined, opened, remote, view};
    use super::*;
    use crate::identifiers::AddressId;

    fn endpoints() -> [LocalEndpoint; 3] {
        let endpoint = |last| LocalEndpoint::subflow(addr(last), last);
        [endpoint(1).priority(1), endpoint(2).priority(2), endpoint(3).priority(3)]
    }

    fn standby(id: u8, last: u8) -> SubflowSummary {
        SubflowSummary { backup: true, backup_local: true, ..joined(id, last) }
    }

    const fn set(subflow: SubflowId, backup: bool) -> PathAction {
        PathAction::SetBackup { subflow, backup }
    }

    #[test]
    fn the_others_are_opened_as_backups() {
        let (endpoints, subflows) = (endpoints(), [initial_subflow()]);
        let actions =
            after(&mut MakeBeforeBreak::default(), PathEvent::Established, &view(&endpoints, &subflows));
        assert_eq!(opened(&actions), [(addr(2), remote(100, 80)), (addr(3), remote(100, 80))]);
        assert_eq!(actions.len(), 2);
        assert!(actions.iter().all(|action| matches!(action, PathAction::Open { backup: true, .. })));
    }

    #[test]
    fn the_next_takes_over_from_a_stale_one_which_takes_over_again() {
        let endpoints = endpoints();
        let mut subflows = [initial_subflow(), standby(1, 2), standby(2, 3)];
        let mut manager = MakeBeforeBreak::default();
        subflows[0].stale = true;
        let stale = after(
            &mut manager,
            PathEvent::SubflowStale { subflow: SubflowId(0) },
            &view(&endpoints, &subflows),
        );
        let look_again = PathAction::WakeAt(polypath_units::Instant::from_secs(10));
        assert_eq!(stale, [look_again, set(SubflowId(1), false)]);
        subflows[1].backup_local = false;
        subflows[0].stale = false;
        let back = PathEvent::SubflowRecovered { subflow: SubflowId(0) };
        assert_eq!(
            after(&mut manager, back, &view(&endpoints, &subflows)),
            [set(SubflowId(0), false), set(SubflowId(1), true)]
        );
    }

    #[test]
    fn a_better_one_takes_over_and_an_equal_one_does_not() {
        let mut endpoints = endpoints();
        let subflows = [standby(1, 1), joined(4, 2)];
        let established = PathEvent::SubflowEstablished { subflow: SubflowId(1) };
        let mut manager = MakeBeforeBreak { active: Some(SubflowId(4)), ..MakeBeforeBreak::default() };
        let actions = after(&mut manager, established, &view(&endpoints, &subflows));
        assert_eq!(
            actions,
            [set(SubflowId(1), false), set(SubflowId(4), true)],
            "made before the other is broken"
        );
        endpoints[0].priority = endpoints[1].priority;
        let mut manager = MakeBeforeBreak { active: Some(SubflowId(4)), ..MakeBeforeBreak::default() };
        assert_eq!(after(&mut manager, established, &view(&endpoints, &subflows)), []);
    }

    #[test]
    fn an_address_that_goes_hands_over_at_once() {
        let (endpoints, subflows) = (endpoints(), [initial_subflow(), standby(1, 2), standby(2, 3)]);
        let actions = after(
            &mut MakeBeforeBreak::default(),
            PathEvent::LocalRemoved(addr(1)),
            &view(&endpoints, &subflows),
        );
        assert_eq!(actions, [PathAction::Withdraw { id: AddressId(0) }, set(SubflowId(1), false)]);
    }

    #[test]
    fn an_endpoint_that_becomes_a_backup_hands_over() {
        let (mut endpoints, subflows) = (endpoints(), [initial_subflow(), standby(1, 2)]);
        endpoints[0].backup = true;
        let changed = PathEvent::LocalChanged(addr(1));
        let mut manager = MakeBeforeBreak::default();
        let actions = after(&mut manager, changed, &view(&endpoints, &subflows));
        assert_eq!(actions, [set(SubflowId(1), false), set(SubflowId(0), true)]);
    }
}
