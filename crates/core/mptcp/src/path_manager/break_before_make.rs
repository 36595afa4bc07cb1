use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};

use super::handover::{Rank, rank};
use super::pairs::{self, Pair};
use super::upkeep::{Upkeep, open};
use super::{PathAction, PathEvent, PathManager, PathView, SubflowSummary};
use crate::identifiers::{AddressId, SubflowId};

/// One subflow at a time. When its address goes or it becomes stale, it is closed, and one over the next address is opened;
/// the connection lives through the time without any (RFC 8684 §3.3.3). The best priority goes first, and an address of a
/// better priority that comes is moved to.
#[derive(Debug)]
pub(super) struct BreakBeforeMake {
    upkeep: Upkeep,
    /// When a subflow that is being opened is given up for another.
    give_up_at: Instant,
    /// Addresses and identifiers of subflows that were closed over a dead path, where the peer cannot have heard of it.
    untold: Vec<(IpAddr, AddressId)>,
}

/// Addresses that the peer is to be told of.
const MAX_UNTOLD: usize = 16;

/// How long the handshake of a subflow may take while there is another address to try: a SYN and a retransmission of it.
const PATIENCE: Duration = Duration::from_secs(3);

impl Default for BreakBeforeMake {
    fn default() -> Self {
        Self { upkeep: Upkeep::default(), give_up_at: Instant::FAR_FUTURE, untold: Vec::new() }
    }
}

impl PathManager for BreakBeforeMake {
    fn name(&self) -> &'static str {
        "break-before-make"
    }

    fn breaks_first(&self) -> bool {
        true
    }

    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        // What an endpoint has become counts in the choice, and nowhere else.
        let is_choice = view.is_client && matches!(event, PathEvent::LocalChanged(_));
        if !is_choice {
            self.upkeep.follow(event, view, actions);
        }
        if !view.is_client || !view.may_join {
            return;
        }
        match *event {
            PathEvent::SubflowEstablished { subflow } => {
                self.give_up_at = Instant::FAR_FUTURE;
                self.tell(view, subflow, actions);
            }
            PathEvent::LocalAdded(addr) => self.untold.retain(|(known, _)| *known != addr),
            _ => {}
        }
        self.move_on(event, view, actions);
    }
}

impl BreakBeforeMake {
    fn move_on(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        let current = view.subflows.iter().find(|subflow| !subflow.closing);
        let next = self.next(view, current);
        match (current, next) {
            (Some(current), Some(next)) if self.must_leave(event, view, current, &next) => {
                actions.push(PathAction::Close { subflow: current.id });
                if self.untold.len() < MAX_UNTOLD {
                    self.untold.push((current.local, current.local_id));
                }
                self.open(view, &next, actions);
            }
            (None, Some(next)) => self.open(view, &next, actions),
            (None, None) => self.upkeep.wake(view, actions),
            (Some(_), _) => {}
        }
    }

    fn open(&mut self, view: &PathView<'_>, next: &Pair, actions: &mut Vec<PathAction>) {
        self.give_up_at = view.now + PATIENCE;
        actions.extend([open(next, false), PathAction::WakeAt(self.give_up_at)]);
    }

    /// The best pair of addresses other than the current one, from another address if there is one.
    fn next(&self, view: &PathView<'_>, current: Option<&SubflowSummary>) -> Option<Pair> {
        let is_other =
            |pair: &Pair| current.is_none_or(|current| (current.local, current.remote) != pair.addresses());
        let key = |pair: &Pair| -> (bool, Rank) {
            let is_same = current.is_some_and(|current| current.local == pair.local.addr);
            (is_same, rank(view, pair.local.addr))
        };
        let pairs = pairs::by_flags(view).into_iter();
        pairs.filter(|pair| is_other(pair) && self.upkeep.may_open(view, pair)).min_by_key(key)
    }

    fn must_leave(
        &self,
        event: &PathEvent,
        view: &PathView<'_>,
        current: &SubflowSummary,
        next: &Pair,
    ) -> bool {
        // What was there before and is not used has been tried, or will be when it is needed.
        let is_news = match *event {
            PathEvent::LocalAdded(addr) => addr == next.local.addr,
            PathEvent::LocalChanged(_) => true,
            _ => false,
        };
        let is_better = rank(view, next.local.addr) < rank(view, current.local);
        let is_late = !current.established && view.now >= self.give_up_at;
        current.stale || is_late || self.upkeep.is_gone(current.local) || is_news && is_better
    }

    /// Now there is a subflow to tell the peer on that the earlier ones are over.
    fn tell(&mut self, view: &PathView<'_>, subflow: SubflowId, actions: &mut Vec<PathAction>) {
        let used = view.subflow(subflow).map(|subflow| subflow.local_id);
        let ids = self.untold.drain(..).map(|(_, id)| id).filter(|id| Some(*id) != used);
        actions.extend(ids.map(|id| PathAction::Withdraw { id }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::LocalEndpoint;
    use super::super::tests::{addr, after, initial_subflow, joined, opened, remote, view};
    use super::*;

    fn endpoints() -> [LocalEndpoint; 3] {
        let endpoint = |last| LocalEndpoint::subflow(addr(last), last);
        [endpoint(1), endpoint(2).priority(2), endpoint(3).priority(1)]
    }

    const CLOSE: PathAction = PathAction::Close { subflow: SubflowId(0) };

    fn open_from(last: u8) -> PathAction {
        PathAction::Open {
            local: addr(last),
            local_id: AddressId(last),
            remote: remote(100, 80),
            backup: false,
        }
    }

    fn wake(seconds: u64) -> PathAction {
        PathAction::WakeAt(Instant::from_secs(seconds))
    }

    #[test]
    fn nothing_is_opened_while_the_first_works() {
        let (endpoints, subflows) = (endpoints(), [initial_subflow()]);
        let mut manager = BreakBeforeMake::default();
        assert_eq!(after(&mut manager, PathEvent::Established, &view(&endpoints, &subflows)), []);
    }

    #[test]
    fn a_stale_one_is_closed_and_the_next_opened_which_tells_the_peer() {
        let endpoints = endpoints();
        let stale = [SubflowSummary { stale: true, ..initial_subflow() }];
        let mut manager = BreakBeforeMake::default();
        let event = PathEvent::SubflowStale { subflow: SubflowId(0) };
        assert_eq!(after(&mut manager, event, &view(&endpoints, &stale)), [CLOSE, open_from(3), wake(3)]);
        let closing = SubflowSummary { established: false, closing: true, ..stale[0] };
        let opening = SubflowSummary { established: false, ..joined(1, 3) };
        let both = [closing, opening];
        assert_eq!(after(&mut manager, PathEvent::Wake, &view(&endpoints, &both)), []);
        let up = [joined(1, 3)];
        let event = PathEvent::SubflowEstablished { subflow: SubflowId(1) };
        assert_eq!(
            after(&mut manager, event, &view(&endpoints, &up)),
            [PathAction::Withdraw { id: AddressId(0) }]
        );
        // The first would be preferred; but what works is not broken for what did not.
        let later = PathView { now: Instant::from_secs(100), ..view(&endpoints, &up) };
        assert_eq!(after(&mut manager, PathEvent::Wake, &later), []);
    }

    #[test]
    fn an_address_that_goes_is_left_even_if_the_next_comes_later() {
        let subflows = [initial_subflow()];
        let mut manager = BreakBeforeMake::default();
        let none = view(&[], &subflows);
        assert_eq!(after(&mut manager, PathEvent::LocalRemoved(addr(1)), &none), []);
        let endpoints = [LocalEndpoint::subflow(addr(2), 2)];
        let actions = after(&mut manager, PathEvent::LocalAdded(addr(2)), &view(&endpoints, &subflows));
        assert_eq!(actions, [CLOSE, open_from(2), wake(3)]);
    }

    #[test]
    fn what_cannot_be_opened_is_followed_by_the_next() {
        let endpoints = endpoints();
        let mut manager = BreakBeforeMake::default();
        let lost = |last| PathEvent::SubflowClosed {
            local: addr(last),
            remote: remote(100, 80),
            was_established: false,
            may_return: true,
        };
        let mut view = view(&endpoints, &[]);
        assert_eq!(after(&mut manager, lost(1), &view), [wake(2), open_from(3), wake(3)]);
        assert_eq!(after(&mut manager, lost(3), &view), [wake(2), open_from(2), wake(3)]);
        assert_eq!(after(&mut manager, lost(2), &view), [wake(2), wake(2)]);
        view.now = Instant::from_secs(2);
        assert_eq!(opened(&after(&mut manager, PathEvent::Wake, &view)), [(addr(1), remote(100, 80))]);
    }

    #[test]
    fn a_handshake_without_answer_is_given_up_for_the_next() {
        let endpoints = endpoints();
        let mut manager = BreakBeforeMake::default();
        let mut view = view(&endpoints, &[]);
        assert_eq!(after(&mut manager, PathEvent::Wake, &view), [open_from(1), wake(3)]);
        let opening = [SubflowSummary { established: false, ..joined(1, 1) }];
        view.subflows = &opening;
        assert_eq!(after(&mut manager, PathEvent::Wake, &view), []);
        view.now = Instant::from_secs(3);
        let actions = after(&mut manager, PathEvent::Wake, &view);
        assert_eq!(actions, [PathAction::Close { subflow: SubflowId(1) }, open_from(3), wake(6)]);
    }

    #[test]
    fn a_better_address_that_comes_is_moved_to() {
        let (endpoints, subflows) = (endpoints(), [joined(0, 2)]);
        let mut manager = BreakBeforeMake::default();
        let added = PathEvent::LocalAdded(addr(1));
        assert_eq!(after(&mut manager, added, &view(&endpoints, &subflows)), [CLOSE, open_from(1), wake(3)]);
    }
}
