//! Data that leaves: the scheduler's loop (RFC 8684 §3.3.1, §3.3.6).

use polypath_units::Instant;

use super::lifecycle::Mode;
use super::portion::{Portion, plain_bytes};
use super::{Connection, Context};
use crate::mapping::{Mapping, Repetition};
use crate::scheduler::{Data, Decision, Penalty, SubflowView};
use crate::subflow::{Stage, Subflow};

impl Connection {
    /// Hands data to subflows while the scheduler finds some that can take it.
    pub(super) fn schedule(&mut self, cx: &mut Context<'_>) {
        self.stream.send.choose_numbers(cx.now);
        let sliver_at = self.scheduling.take_sliver();
        match self.stream.lifecycle.mode() {
            Mode::Plain | Mode::Negotiating => self.schedule_plain(),
            Mode::Mptcp => {
                if let Some(silent) = self.subflows.notice_silence(cx.now) {
                    self.reinject_from(silent);
                }
                while self.may_schedule() && self.schedule_one(cx) {}
                self.probe_when_stalled(cx, sliver_at);
            }
        }
        self.notify_writable();
        self.schedule_fin(cx);
        self.watch_progress(cx.now);
    }

    fn may_schedule(&self) -> bool {
        self.stream.send.reinjection_bytes() > 0
            || self.stream.send.unsent_bytes() > 0
            || self.subflows.len() > 1 && self.scheduling.copies() && !self.stream.send.sent().is_empty()
    }

    fn schedule_one(&mut self, cx: &mut Context<'_>) -> bool {
        let mut candidates = self.scheduling.take_candidates();
        let stream = &self.stream;
        let segment_bytes = |subflow: &Subflow| stream.full_segment_bytes(subflow);
        let regular = self.subflows.view(cx.now, segment_bytes, &mut candidates);
        self.stream.send.drop_stale_reinjections();
        let decision = self.scheduling.select(cx.now, &self.stream, &candidates, regular);
        let done = decision.is_some_and(|decision| self.apply(cx, &candidates, decision));
        self.scheduling.give_back(candidates);
        done
    }

    /// Carries out a decision; false if nothing came of it.
    fn apply(&mut self, cx: &mut Context<'_>, candidates: &[SubflowView], decision: Decision) -> bool {
        if let Some(Penalty { subflow, ssthresh }) = decision.penalize
            && let Some(subflow) = self.subflows.find_mut(subflow)
        {
            subflow.tcp.halve_window(ssthresh);
        }
        let target = candidates.iter().find(|candidate| candidate.id == decision.subflow);
        let Some(target) = target else {
            debug_assert!(false, "a scheduler named {:?}, which is not in its view", decision.subflow);
            return false;
        };
        let Some(position) = self.subflows.position(target.id) else { return false };
        let Some(subflow) = self.subflows.get(position) else { return false };
        let portion = Portion::new((&self.stream, &self.scheduling), subflow, target, decision.limit_bytes);
        let repetition = portion.repetition();
        match decision.data {
            Data::New => {
                let count = portion.of_new();
                if count == 0 {
                    return false;
                }
                let seq = self.stream.send.next();
                self.send_new(cx.now, position, count, repetition);
                self.scheduling.handle_sent(target.id, seq, count);
                true
            }
            Data::Reinjection => {
                let Some(front) = self.stream.send.reinjection() else { return false };
                let count = portion.of_reinjection(front.len.into());
                self.stream.send.take_reinjection(count);
                self.resend(cx, position, front.seq, count, repetition);
                count > 0
            }
            Data::Copy(seq) => {
                let count = portion.of_copy(seq);
                if count == 0 {
                    return false;
                }
                self.resend(cx, position, seq, count, repetition);
                true
            }
        }
    }

    /// Data waits, nothing is in flight that would bring news, and nothing was allowed to leave: a subflow gets some of it, and
    /// its TCP goes on from there. It probes a closed window (RFC 9293 §3.8.6.1), or waits for a whole segment's worth of it, until
    /// `override_at` if it waits already.
    fn probe_when_stalled(&mut self, cx: &mut Context<'_>, override_at: Instant) {
        let is_idle = self.stream.send.under_way_bytes() == 0;
        let waits =
            self.stream.send.reinjection_bytes() > 0 || is_idle && self.stream.send.unsent_bytes() > 0;
        if !waits {
            return;
        }
        let Some(position) = self.subflows.stalled() else { return };
        let Some(subflow) = self.subflows.get(position) else { return };
        let segment = self.stream.full_segment_bytes(subflow);
        let rto = subflow.tcp.rto();
        self.stream.send.drop_stale_reinjections();
        if let Some(front) = self.stream.send.reinjection() {
            let count = segment.min(front.len.into());
            self.stream.send.take_reinjection(count);
            return self.resend(cx, position, front.seq, count, Repetition::InEach);
        }
        let window = self.stream.send.window_room_bytes();
        let unsent = self.stream.send.unsent_bytes();
        let wanted = segment.min(unsent);
        let is_held_back = self.scheduling.holds_back(&self.stream.lifecycle, unsent, segment);
        let count = match window {
            0 => wanted.min(1),
            sliver if sliver < wanted || is_held_back => {
                if override_at > cx.now {
                    self.scheduling.wait_for_sliver(override_at.min(cx.now + rto));
                    return;
                }
                sliver.min(wanted)
            }
            _ => wanted,
        };
        self.send_new(cx.now, position, count, Repetition::InEach);
    }

    /// Gives `count` new bytes to the subflow at `position`.
    fn send_new(&mut self, now: Instant, position: usize, count: u64, repetition: Repetition) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let (id, seq) = (subflow.state.id, self.stream.send.next());
        let data = self.stream.send.take_new(count);
        let len = data.len() as u32;
        if len == 0 {
            return;
        }
        let end_offset = self.stream.push(now, subflow, seq, data, repetition);
        self.stream.send.handle_sent(seq, len, id, end_offset);
    }

    /// After a fallback, everything goes to the one subflow, as TCP.
    fn schedule_plain(&mut self) {
        let is_plain = |subflow: &Subflow| subflow.state.stage() == Stage::Plain;
        let Some(position) = self.subflows.position_where(is_plain) else { return };
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.tcp.set_cork(self.scheduling.is_corked());
        while self.stream.send.unsent_bytes() > 0 {
            let count = plain_bytes(&self.stream, &self.scheduling, subflow);
            if count == 0 {
                return;
            }
            let seq = self.stream.send.next();
            let data = self.stream.send.take_new(count);
            let len = data.len() as u32;
            let subflow_offset = (subflow.tcp.enqueued_offset() as u32).wrapping_add(1);
            let own = Mapping { data_seq: seq, subflow_offset, len_bytes: len as u16, ..Mapping::default() };
            let is_announcing = self.stream.fallback.is_announcing();
            subflow.tcp.enqueue(data, if is_announcing { own } else { Mapping::default() });
            self.stream.send.handle_sent(seq, len, subflow.state.id, subflow.tcp.enqueued_offset());
        }
    }
}
