//! Data that leaves: the scheduler's loop (RFC 8684 §3.3.1, §3.3.6).

use alloc::vec::Vec;

use polypath_units::{Duration, Instant};

use super::lifecycle::Mode;
use super::mapping_out::{ahead_bytes, gathered_bytes};
use super::{Connection, Context};
use crate::identifiers::SubflowId;
use crate::mapping::Repetition;
use crate::scheduler::{Data, Decision, Penalty, SubflowView, View};
use crate::subflow::{Stage, Subflow};

/// The jitter of a busy machine.
const SILENCE_SLACK: Duration = Duration::from_millis(10);
const WORST_DELAYED_ACK: Duration = Duration::from_millis(200);

impl Connection {
    /// Hands data to subflows while the scheduler finds some that can take it.
    pub(super) fn schedule(&mut self, cx: &mut Context<'_>) {
        self.stream.send.choose_numbers(cx.now);
        let sliver_at = self.scheduling.take_sliver();
        match self.stream.lifecycle.mode() {
            Mode::Plain | Mode::Negotiating => self.schedule_plain(),
            Mode::Mptcp => {
                self.notice_silence(cx);
                while self.may_schedule() && self.schedule_one(cx) {}
                self.probe_when_stalled(cx, sliver_at);
            }
        }
        self.notify_writable();
        self.schedule_fin(cx);
        self.watch_progress(cx.now);
    }

    /// What a subflow holds goes elsewhere as soon as its peer has been silent for two round trips while another subflow is
    /// not: the probe and the timeout of its own (RFC 8985 §7, RFC 6298) may be far, above all during a recovery.
    fn notice_silence(&mut self, cx: &Context<'_>) {
        if self.subflows.len() < 2 {
            return;
        }
        let mut suspect = None;
        for subflow in self.subflows.iter_mut() {
            let (srtt, variance) = (subflow.tcp.srtt(), subflow.tcp.rtt_variance());
            // A single segment may wait for a delayed acknowledgment.
            let is_alone = subflow.tcp.in_flight_bytes() <= u64::from(subflow.tcp.mss_bytes());
            let slack = if is_alone { WORST_DELAYED_ACK } else { SILENCE_SLACK };
            let patience = srtt + srtt.max(variance * 4) + slack;
            let is_silent = !srtt.is_zero() && subflow.tcp.silent_for(cx.now) > patience;
            if subflow.state.path.handle_silence(is_silent) {
                suspect = Some(subflow.state.id);
            }
        }
        let is_alive = |subflow: &Subflow| {
            subflow.state.stage() == Stage::Established && !subflow.state.path.is_silent()
        };
        if let Some(id) = suspect
            && self.subflows.any(is_alive)
        {
            self.reinject_from(id);
        }
    }

    fn may_schedule(&self) -> bool {
        self.stream.send.reinjection_bytes() > 0
            || self.stream.send.unsent_bytes() > 0
            || self.subflows.len() > 1 && self.scheduling.copies() && !self.stream.send.sent().is_empty()
    }

    fn schedule_one(&mut self, cx: &mut Context<'_>) -> bool {
        let mut candidates = self.scheduling.take_candidates();
        let regular = self.collect_candidates(cx.now, &mut candidates);
        self.stream.send.drop_stale_reinjections();
        let send = &self.stream.send;
        let unsent_bytes = send.unsent_bytes();
        let window = send.window_room_bytes();
        // What is left of a window that holds no whole segment is closed, too: no new data will leave before a timer says so
        // (RFC 9293 §3.8.6.2.1), and what blocks the window may go out again instead.
        let subflows = candidates.get(..regular).unwrap_or_default();
        let least_segment = subflows.iter().map(|subflow| subflow.segment_bytes).min().map_or(0, u64::from);
        let is_sliver = window < least_segment && window < unsent_bytes;
        let window = if is_sliver { 0 } else { window };
        let view = View {
            now: cx.now,
            subflows,
            standby: candidates.get(regular..).unwrap_or_default(),
            new_bytes: unsent_bytes.min(window),
            unsent_bytes,
            window_left_bytes: window,
            more_to_come: send.wants_writable(),
            reinjection_bytes: send.reinjection_bytes(),
            data_una: send.una(),
            data_next: send.next(),
            window_limited: unsent_bytes > 0 && window == 0,
            send_buffer_full: unsent_bytes == 0
                && send.under_way_bytes() + least_segment > self.stream.config.tcp.send_buffer_bytes,
            holder_of_una: send.sent().front().map(|chunk| chunk.subflow),
            reinjection_from: send.reinjection().and_then(|front| front.from),
            sent: send.sent(),
        };
        let decision = if regular == 0 { None } else { self.scheduling.select(&view) };
        let done = decision.is_some_and(|decision| self.apply(cx, &candidates, decision));
        self.scheduling.give_back(candidates);
        done
    }

    /// Subflows that may carry data, and behind them the backups that wait while a regular one works (RFC 8684 §3.3.8);
    /// returns how many may.
    fn collect_candidates(&self, now: Instant, out: &mut Vec<SubflowView>) -> usize {
        out.clear();
        let mut regular_works = false;
        let is_alone = self.subflows.len() == 1;
        for subflow in self.subflows.iter() {
            if !subflow.is_usable() {
                continue;
            }
            let tcp = &subflow.tcp;
            let timeouts = tcp.consecutive_timeouts();
            let falls_to = tcp.bottleneck_falls_to(now);
            regular_works |= !subflow.state.role.is_backup() && timeouts == 0;
            out.push(SubflowView {
                id: subflow.state.id,
                srtt: tcp.srtt(),
                min_rtt: tcp.min_rtt(),
                rtt_variance: tcp.rtt_variance(),
                window_bytes: tcp.window_bytes(),
                ssthresh_bytes: tcp.ssthresh_bytes(),
                in_flight_bytes: tcp.in_flight_bytes(),
                unsent_bytes: tcp.unsent_bytes(),
                room_bytes: if is_alone { tcp.window_or_probe_room_bytes() } else { tcp.window_room_bytes() },
                segment_bytes: self.full_segment_bytes(subflow) as u32,
                backup: subflow.state.role.is_backup(),
                timeouts,
                is_probing: tcp.is_probing() || subflow.state.path.is_silent(),
                in_recovery: tcp.in_recovery(),
                acked_offset: tcp.acked_offset(),
                bottleneck_bytes_per_s: falls_to.or_else(|| subflow.bottleneck_bytes_per_s()),
                bottleneck_has_fallen: falls_to.is_some() || tcp.bottleneck_has_fallen(),
                bottleneck_busy: subflow.state.path.busy_until().since(now),
            });
        }
        if !regular_works || out.iter().all(|subflow| !subflow.backup) {
            return out.len();
        }
        out.sort_by_key(|subflow| subflow.backup);
        out.iter().filter(|subflow| !subflow.backup).count()
    }

    /// Carries out a decision; false if nothing came of it.
    fn apply(&mut self, cx: &mut Context<'_>, candidates: &[SubflowView], decision: Decision) -> bool {
        if let Some(Penalty { subflow, ssthresh }) = decision.penalize {
            self.penalize(subflow, ssthresh);
        }
        let target = candidates.iter().find(|candidate| candidate.id == decision.subflow);
        let Some(target) = target else { return false };
        let Some(position) = self.subflows.position(target.id) else { return false };
        let segment = u64::from(target.segment_bytes.max(1));
        let mut room = target.room_bytes.min(decision.limit_bytes).max(self.least_mapping_bytes(segment));
        let most = self.most_mapped_bytes();
        let repetition = self.repetition(position, segment);
        let further = self.further_segment_bytes(position, repetition);
        // A mapping is whole segments, unless the data ends before.
        let whole = |room: u64, available: u64| {
            let count = room.min(available).min(most);
            if count < available && count > segment { count - (count - segment) % further } else { count }
        };
        match decision.data {
            Data::New => {
                let window = self.stream.send.window_room_bytes();
                let unsent = self.stream.send.unsent_bytes();
                if repetition != Repetition::InEach {
                    room = room.max(ahead_bytes(target, unsent).min(decision.limit_bytes));
                }
                if repetition != Repetition::InEach && window < unsent.min(gathered_bytes(target)) {
                    return false;
                }
                let mut count = whole(room.min(window), unsent);
                if count == unsent
                    && count > segment
                    && self.is_held_back((count - segment) % further, segment)
                {
                    count -= (count - segment) % further;
                }
                let in_flight = self.stream.send.under_way_bytes() > 0;
                // Neither a sliver of window (RFC 9293 §3.8.6.2.1) nor, with Nagle's algorithm, of data.
                let sliver = count < segment.min(most) && in_flight;
                if count == 0
                    || self.is_held_back(unsent, segment)
                    || window < segment.min(unsent)
                    || sliver
                        && (count < unsent
                            || !self.stream.config.tcp.no_delay && !self.stream.lifecycle.is_shut_down())
                {
                    return false;
                }
                if count == unsent
                    && count < most
                    && self.tail_waits(target.in_flight_bytes + target.unsent_bytes)
                {
                    return false;
                }
                let seq = self.stream.send.next();
                self.send_new(cx.now, position, count, repetition);
                self.scheduling.handle_sent(target.id, seq, count);
                true
            }
            Data::Reinjection => {
                let Some(front) = self.stream.send.reinjection() else { return false };
                let count = whole(room, u64::from(front.len));
                self.stream.send.take_reinjection(count);
                self.resend(cx, position, front.seq, count, repetition);
                count > 0
            }
            Data::Copy(seq) => {
                let available = self.stream.send.next().diff(seq).max(0) as u64;
                // A limit that ends a piece is kept to the byte: what were left would hold up as much as the whole.
                let count = whole(room, available.min(decision.limit_bytes));
                if count == 0 || seq.before(self.stream.send.una()) {
                    return false;
                }
                self.resend(cx, position, seq, count, repetition);
                true
            }
        }
    }

    /// See [`Scheduling::tail_waits`](super::scheduling::Scheduling::tail_waits).
    pub(super) fn tail_waits(&self, held_bytes: u64) -> bool {
        !self.stream.lifecycle.is_shut_down() && self.scheduling.tail_waits(held_bytes)
    }

    fn penalize(&mut self, id: SubflowId, ssthresh: bool) {
        if let Some(subflow) = self.subflows.find_mut(id) {
            subflow.tcp.halve_window(ssthresh);
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
        let Some(position) = self.stalled_subflow() else { return };
        let Some(subflow) = self.subflows.get(position) else { return };
        let segment = self.full_segment_bytes(subflow);
        let rto = subflow.tcp.rto();
        self.stream.send.drop_stale_reinjections();
        if let Some(front) = self.stream.send.reinjection() {
            let count = segment.min(front.len.into());
            self.stream.send.take_reinjection(count);
            return self.resend(cx, position, front.seq, count, Repetition::InEach);
        }
        let window = self.stream.send.window_room_bytes();
        let unsent = self.stream.send.unsent_bytes();
        let (wanted, is_held_back) = (segment.min(unsent), self.is_held_back(unsent, segment));
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

    /// Where something is to leave although nothing may: `None` while a subflow that works has something in flight.
    fn stalled_subflow(&self) -> Option<usize> {
        let candidates = self.subflows.iter().enumerate().filter(|(_, subflow)| subflow.is_usable());
        // Its timers run while it holds data. Those of a subflow that has timed out may be far.
        let (position, best) = candidates.min_by_key(|(at, subflow)| {
            let timeouts = subflow.tcp.consecutive_timeouts();
            (timeouts, !subflow.holds_data(), subflow.state.role.is_backup(), *at)
        })?;
        (!best.holds_data()).then_some(position)
    }

    /// Gives `count` new bytes to the subflow at `position`.
    fn send_new(&mut self, now: Instant, position: usize, count: u64, repetition: Repetition) {
        let Some(id) = self.subflows.get(position).map(|subflow| subflow.state.id) else { return };
        let seq = self.stream.send.next();
        let data = self.stream.send.take_new(count);
        let len = data.len() as u32;
        if len == 0 {
            return;
        }
        let end_offset = self.push(now, position, seq, data, repetition);
        self.stream.send.handle_sent(seq, len, id, end_offset);
    }
}
