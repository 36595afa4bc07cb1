//! Subflows in TIME-WAIT, for which the host answers.

use polypath_tcp::{Key, TimeWaitNumbers};
use polypath_units::Instant;
use polypath_wire::{FourTuple, Segment};

use super::{Flow, Host};

impl Host {
    pub(super) fn handle_in_time_wait(
        &mut self,
        now: Instant,
        index: u32,
        tuple: FourTuple,
        segment: &Segment,
    ) {
        if let Some(isn_after) = self.strangers.handle_in_time_wait(now, index, tuple, segment) {
            self.flows.remove(&tuple);
            self.handle_syn(now, tuple, segment, Some(isn_after));
        }
    }

    /// A subflow of the connection is in TIME-WAIT from now on, unless too many are.
    pub(super) fn keep_time_wait(
        &mut self,
        now: Instant,
        key: Key,
        tuple: FourTuple,
        numbers: TimeWaitNumbers,
    ) {
        let ends_at = now + self.config.connection.tcp.time_wait;
        if let Some(index) = self.strangers.keep_time_wait(tuple, numbers, ends_at) {
            self.flows.insert(tuple, Flow::TimeWait { index });
        } else {
            self.remove_flow(key, &tuple);
        }
    }
}
