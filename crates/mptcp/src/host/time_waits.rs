//! Subflows in TIME-WAIT, for which the host answers.

use alloc::boxed::Box;

use polypath_tcp::{Key, TimeWait, TimeWaitNumbers, TimeWaitReaction};
use polypath_units::Instant;
use polypath_wire::{FourTuple, Segment};

use super::{Flow, Host, TimerKey};

impl Host {
    pub(super) fn handle_in_time_wait(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        index: u32,
        segment: &Segment,
    ) {
        let wait = self.config.connection.tcp.time_wait;
        let Some((key, record)) = self.time_waits.at_mut(index) else { return };
        match record.handle_segment(now, segment, wait) {
            TimeWaitReaction::Drop => {}
            TimeWaitReaction::Acknowledge(reply) => {
                self.timers.schedule(&mut record.timer, TimerKey::TimeWait(index), record.ends_at);
                self.reply(tuple, reply);
            }
            TimeWaitReaction::Reopen(isn_after) => {
                self.remove_time_wait(key);
                self.handle_syn(now, tuple, segment, Some(isn_after));
            }
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
        if self.time_waits.len() >= self.config.max_time_wait {
            self.mib.time_wait_overflow += 1;
            return self.remove_flow(key, &tuple);
        }
        let ends_at = now + self.config.connection.tcp.time_wait;
        let waiting = self.time_waits.insert(Box::new(TimeWait::new(tuple, numbers, ends_at)));
        let index = waiting.index;
        if let Some(record) = self.time_waits.get_mut(waiting) {
            self.timers.schedule(&mut record.timer, TimerKey::TimeWait(index), ends_at);
        }
        self.flows.insert(tuple, Flow::TimeWait { index });
    }

    pub(super) fn handle_time_wait_timeout(&mut self, now: Instant, index: u32) {
        let Some((key, record)) = self.time_waits.at_mut(index) else { return };
        if record.ends_at <= now {
            self.remove_time_wait(key);
        } else {
            self.timers.schedule(&mut record.timer, TimerKey::TimeWait(index), record.ends_at);
        }
    }

    pub(super) fn remove_time_wait(&mut self, key: Key) {
        let Some(mut record) = self.time_waits.remove(key) else { return };
        self.timers.cancel(&mut record.timer);
        if matches!(self.flows.get(&record.tuple), Some(Flow::TimeWait { index }) if index == key.index) {
            self.flows.remove(&record.tuple);
        }
    }
}
