//! Paths that may be dead: subflows with data outstanding on which nothing is acknowledged any more.
//!
//! The scheduler sees timeouts itself, and leaves a subflow alone from the first on; what it holds went elsewhere with that
//! timeout. Here the path manager is told after several, and the path is probed until it is back.

use polypath_units::{Duration, Instant};
use polypath_wire::FourTuple;

use super::{Connection, Context};
use crate::event::Event;
use crate::identifiers::SubflowId;
use crate::path_manager::PathEvent;
use crate::subflow::{Stage, Subflow};

/// While another subflow works, a stale one asks so often whether its path is back: with one segment.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

fn works(subflow: &Subflow) -> bool {
    subflow.state.stage() == Stage::Established
        && !subflow.state.ending.is_ending()
        && subflow.tcp.consecutive_timeouts() == 0
}

impl Connection {
    /// The timer of the subflow at `position` fired.
    pub(super) fn watch_path(&mut self, cx: &mut Context<'_>, position: usize) {
        let limit = self.stream.config.stale_loss_count;
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let is_in_use = subflow.is_in_use();
        if limit == 0 || !is_in_use || subflow.tcp.consecutive_timeouts() < limit {
            return;
        }
        if subflow.state.path.become_stale() {
            let (subflow, tuple) = (subflow.state.id, subflow.tcp.tuple());
            self.tell_stale(cx, subflow, tuple);
        }
        self.set_probes(cx.now);
    }

    /// A subflow has become stale.
    pub(super) fn tell_stale(&mut self, cx: &mut Context<'_>, subflow: SubflowId, tuple: FourTuple) {
        cx.counters.subflow_stale += 1;
        if !self.stream.lifecycle.is_plain() {
            self.outbox.emit(Event::SubflowStale { subflow, tuple });
        }
        self.notify_path_manager(cx, PathEvent::SubflowStale { subflow });
    }

    /// Something was acknowledged on the subflow `id`, which had timed out.
    pub(super) fn path_works_again(&mut self, cx: &mut Context<'_>, id: SubflowId) {
        // Others that are stale may be probed from now on.
        self.set_probes(cx.now);
        self.recover_path(cx, id);
    }

    /// The path of the subflow `id`, if it was stale, answers.
    pub(super) fn recover_path(&mut self, cx: &mut Context<'_>, id: SubflowId) {
        let Some(subflow) = self.subflows.find_mut(id) else { return };
        if subflow.state.path.recover() {
            cx.counters.subflow_recover += 1;
            let tuple = subflow.tcp.tuple();
            if !self.stream.lifecycle.is_plain() {
                self.outbox.emit(Event::SubflowRecovered { subflow: id, tuple });
            }
            self.notify_path_manager(cx, PathEvent::SubflowRecovered { subflow: id });
        }
    }

    fn set_probes(&mut self, now: Instant) {
        let interval = self.subflows.any(works).then_some(PROBE_INTERVAL);
        for subflow in self.subflows.iter_mut().filter(|subflow| subflow.state.path.is_stale()) {
            subflow.tcp.probe_every(now, interval);
        }
    }

    /// A local address became usable: what waits for its path asks at once whether it is back.
    pub(super) fn probe_from(&mut self, now: Instant, addr: core::net::IpAddr) {
        let here = self.subflows.iter_mut().filter(|subflow| subflow.tcp.tuple().local.addr == addr);
        here.for_each(|subflow| subflow.tcp.probe_at_once(now));
    }
}
