//! Sending: the scheduler's loop, reinjection, DATA_ACK's timer (RFC 8684 §3.3.1, §3.3.6).

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use super::mapping_out::{ahead_bytes, gathered_bytes};
use super::state::{MOST_DATA_OPTION_BYTES, Mode};
use super::{Connection, Context};
use crate::mapping::{Carried, Mapping};
use crate::scheduler::{Data, Decision, Penalty, SubflowView, View};
use crate::sent_chunk::SentChunk;
use crate::subflow::{Stage, Subflow};

/// Least wait for a DATA_ACK of data that a subflow delivered. A peer may acknowledge data later than segments.
const MIN_DATA_RETRANSMIT: Duration = Duration::from_millis(200);
const MAX_DATA_RETRANSMIT: Duration = Duration::from_secs(10);

/// The jitter of a busy machine.
const SILENCE_SLACK: Duration = Duration::from_millis(10);
const WORST_DELAYED_ACK: Duration = Duration::from_millis(200);

/// Two of the largest segments: with as much in flight, the peer acknowledges soon.
const TAIL_WAITS_BEHIND_BYTES: u64 = 2 * 65_535;

impl Connection {
    /// Hands data to subflows while the scheduler finds some that can take it.
    pub(super) fn schedule(&mut self, cx: &mut Context<'_>) {
        self.shared.choose_numbers(cx.now);
        let sliver_at = core::mem::replace(&mut self.timers.sliver, Instant::FAR_FUTURE);
        match self.shared.mode {
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
        for subflow in &mut self.subflows {
            let (srtt, variance) = (subflow.tcp.srtt(), subflow.tcp.rtt_variance());
            // A single segment may wait for a delayed acknowledgment.
            let is_alone = subflow.tcp.in_flight_bytes() <= u64::from(subflow.tcp.mss_bytes());
            let slack = if is_alone { WORST_DELAYED_ACK } else { SILENCE_SLACK };
            let patience = srtt + srtt.max(variance * 4) + slack;
            let is_silent = !srtt.is_zero() && subflow.tcp.silent_for(cx.now) > patience;
            let was_silent = core::mem::replace(&mut subflow.meta.is_silent, is_silent);
            if is_silent && !was_silent {
                suspect = Some(subflow.meta.id);
            }
        }
        let is_alive =
            |subflow: &Subflow| subflow.meta.stage == Stage::Established && !subflow.meta.is_silent;
        if let Some(id) = suspect
            && self.subflows.iter().any(|subflow| is_alive(subflow))
        {
            self.reinject_from(id);
        }
    }

    fn may_schedule(&self) -> bool {
        self.reinjections.bytes() > 0
            || self.shared.send.unsent_bytes() > 0
            || self.subflows.len() > 1 && self.scheduler.copies() && !self.shared.sent.is_empty()
    }

    fn schedule_one(&mut self, cx: &mut Context<'_>) -> bool {
        let mut candidates = core::mem::take(&mut self.candidates);
        let regular = self.collect_candidates(cx.now, &mut candidates);
        self.drop_stale_reinjections();
        let shared = &self.shared;
        let unsent_bytes = shared.send.unsent_bytes();
        let window = shared.window_end.diff(shared.send.next()).max(0) as u64;
        // What is left of a window that holds no whole segment is closed, too: no new data will leave before a timer says so
        // (RFC 9293 §3.8.6.2.1), and what blocks the window may go out again instead.
        let subflows = candidates.get(..regular).unwrap_or_default();
        let least_segment = subflows.iter().map(|subflow| subflow.segment_bytes).min().map_or(0, u64::from);
        let under_way = shared.send.next().diff(shared.send.start()).max(0) as u64;
        let is_sliver = window < least_segment && window < unsent_bytes;
        let window = if is_sliver { 0 } else { window };
        let view = View {
            now: cx.now,
            subflows,
            standby: candidates.get(regular..).unwrap_or_default(),
            new_bytes: unsent_bytes.min(window),
            unsent_bytes,
            window_left_bytes: window,
            more_to_come: self.writable_wanted,
            reinjection_bytes: self.reinjections.bytes(),
            data_una: shared.send.start(),
            data_next: shared.send.next(),
            window_limited: unsent_bytes > 0 && window == 0,
            send_buffer_full: unsent_bytes == 0
                && under_way + least_segment > shared.config.tcp.send_buffer_bytes,
            holder_of_una: shared.sent.front().map(|chunk| chunk.subflow),
            reinjection_from: self.reinjections.front().and_then(|front| front.from),
            sent: &shared.sent,
        };
        let decision = if regular == 0 { None } else { self.scheduler.select(&view) };
        let done = decision.is_some_and(|decision| self.apply(cx, &candidates, decision));
        self.candidates = candidates;
        done
    }

    /// Subflows that may carry data, and behind them the backups that wait while a regular one works (RFC 8684 §3.3.8);
    /// returns how many may.
    fn collect_candidates(&self, now: Instant, out: &mut alloc::vec::Vec<SubflowView>) -> usize {
        out.clear();
        let mut regular_works = false;
        let is_alone = self.subflows.len() == 1;
        for subflow in &self.subflows {
            if !subflow.meta.stage.carries_data() || subflow.meta.finishing {
                continue;
            }
            let tcp = &subflow.tcp;
            let timeouts = tcp.consecutive_timeouts();
            let falls_to = tcp.bottleneck_falls_to(now);
            regular_works |= !subflow.meta.backup() && timeouts == 0;
            out.push(SubflowView {
                id: subflow.meta.id,
                srtt: tcp.srtt(),
                min_rtt: tcp.min_rtt(),
                rtt_variance: tcp.rtt_variance(),
                window_bytes: tcp.window_bytes(),
                ssthresh_bytes: tcp.ssthresh_bytes(),
                in_flight_bytes: tcp.in_flight_bytes(),
                unsent_bytes: tcp.unsent_bytes(),
                room_bytes: if is_alone { tcp.window_or_probe_room_bytes() } else { tcp.window_room_bytes() },
                segment_bytes: self.full_segment_bytes(subflow) as u32,
                backup: subflow.meta.backup(),
                timeouts,
                is_probing: tcp.is_probing() || subflow.meta.is_silent,
                in_recovery: tcp.in_recovery(),
                acked_offset: tcp.acked_offset(),
                bottleneck_bytes_per_s: falls_to.or_else(|| subflow.bottleneck_bytes_per_s()),
                bottleneck_has_fallen: falls_to.is_some() || tcp.bottleneck_has_fallen(),
                bottleneck_busy: subflow.meta.busy_until.since(now),
            });
        }
        if !regular_works || out.iter().all(|subflow| !subflow.backup) {
            return out.len();
        }
        out.sort_by_key(|subflow| subflow.backup);
        out.iter().filter(|subflow| !subflow.backup).count()
    }

    /// Payload of the largest segment of a subflow that carries its mapping, and all of it.
    fn full_segment_bytes(&self, subflow: &Subflow) -> u64 {
        let mapping = self.shared.mapping(Carried::InEach);
        let option_bytes = self.shared.data_option_bytes(subflow.meta.stage, &mapping, true);
        (subflow.tcp.segment_payload_bytes_with(option_bytes) as u64).min(self.shared.most_mapped_bytes())
    }

    /// Carries out a decision; false if nothing came of it.
    fn apply(&mut self, cx: &mut Context<'_>, candidates: &[SubflowView], decision: Decision) -> bool {
        if let Some(Penalty { subflow, ssthresh }) = decision.penalize {
            self.penalize(candidates.get(subflow).map(|candidate| candidate.id), ssthresh);
        }
        let Some(target) = candidates.get(decision.subflow) else { return false };
        let Some(position) = self.position(target.id) else { return false };
        let segment = u64::from(target.segment_bytes.max(1));
        let mut room = target.room_bytes.min(decision.limit_bytes).max(self.least_mapping_bytes(segment));
        let most = self.shared.most_mapped_bytes();
        let carried = self.carried(position, segment);
        let further = self.further_segment_bytes(position, carried);
        // A mapping is whole segments, unless the data ends before.
        let whole = |room: u64, available: u64| {
            let count = room.min(available).min(most);
            if count < available && count > segment { count - (count - segment) % further } else { count }
        };
        match decision.data {
            Data::New => {
                let shared = &self.shared;
                let window = shared.window_end.diff(shared.send.next()).max(0) as u64;
                let unsent = shared.send.unsent_bytes();
                if carried != Carried::InEach {
                    room = room.max(ahead_bytes(target, unsent).min(decision.limit_bytes));
                }
                if carried != Carried::InEach && window < unsent.min(gathered_bytes(target)) {
                    return false;
                }
                let mut count = whole(room.min(window), unsent);
                if count == unsent
                    && count > segment
                    && self.is_held_back((count - segment) % further, segment)
                {
                    count -= (count - segment) % further;
                }
                let in_flight = shared.send.next() != shared.send.start();
                // Neither a sliver of window (RFC 9293 §3.8.6.2.1) nor, with Nagle's algorithm, of data.
                let sliver = count < segment.min(most) && in_flight;
                if count == 0
                    || self.is_held_back(unsent, segment)
                    || window < segment.min(unsent)
                    || sliver && (count < unsent || !shared.config.tcp.no_delay && !shared.write_closed)
                {
                    return false;
                }
                if count == unsent
                    && count < most
                    && self.tail_waits(target.in_flight_bytes + target.unsent_bytes)
                {
                    return false;
                }
                let seq = self.shared.send.next();
                self.send_new(cx.now, position, count, carried);
                self.scheduler.on_sent(target.id, seq, count);
                true
            }
            Data::Reinjection => {
                let Some(front) = self.reinjections.front().copied() else { return false };
                let count = whole(room, u64::from(front.len));
                self.reinjections.take_front(count as u32);
                cx.mib.mptcp_retrans += 1;
                self.resend(cx.now, position, front.seq, count, carried);
                count > 0
            }
            Data::Copy(seq) => {
                let available = self.shared.send.next().diff(seq).max(0) as u64;
                // A limit that ends a piece is kept to the byte: what were left would hold up as much as the whole.
                let count = whole(room, available.min(decision.limit_bytes));
                if count == 0 || seq.before(self.shared.send.start()) {
                    return false;
                }
                cx.mib.mptcp_retrans += 1;
                self.resend(cx.now, position, seq, count, carried);
                true
            }
        }
    }

    /// The end of what the application has written so far waits for more of it, or for the next acknowledgment, while the
    /// subflow holds so much that one must be on its way: what a program writes in one go leaves in few large segments.
    fn tail_waits(&self, held_bytes: u64) -> bool {
        self.only_written && !self.shared.write_closed && held_bytes >= TAIL_WAITS_BEHIND_BYTES
    }

    fn penalize(&mut self, id: Option<u8>, ssthresh: bool) {
        let Some(subflow) = id.and_then(|id| self.position(id)).and_then(|at| self.subflows.get_mut(at))
        else {
            return;
        };
        let half = subflow.tcp.window_bytes() / 2;
        subflow.tcp.controller_mut().set_window(half, ssthresh.then_some(half));
    }

    /// Plain TCP: everything goes to the one subflow.
    fn schedule_plain(&mut self) {
        let may = self.subflows.first().is_some_and(|subflow| subflow.meta.stage == Stage::Plain);
        if let Some(subflow) = self.subflows.first_mut().filter(|_| may) {
            subflow.tcp.set_cork(self.corked);
        }
        while may && self.shared.send.unsent_bytes() > 0 {
            let Some(subflow) = self.subflows.first_mut() else { return };
            // Small writes wait here, where they grow together, until TCP has room for them. With nothing under way TCP gets a
            // segment, to probe a closed window with, and to send when it opens.
            let segment = subflow.tcp.segment_payload_bytes_with(0) as u64;
            let id = subflow.meta.id;
            let idle = !subflow.holds_data() && subflow.tcp.state().is_synchronized();
            let room =
                subflow.tcp.window_or_probe_room_bytes().max(if idle { segment } else { 0 }).min(65_535);
            if room == 0 {
                return;
            }
            let seq = self.shared.send.next();
            // While an infinite mapping is on its way, each segment carries its own (see `InfiniteMapping::anew`).
            let announcing = self.shared.infinite_mapping.is_some_and(|infinite| infinite.anew);
            let most = if announcing {
                subflow.tcp.segment_payload_bytes_with(MOST_DATA_OPTION_BYTES) as u64
            } else {
                room
            };
            let held = subflow.tcp.in_flight_bytes() + subflow.tcp.unsent_bytes();
            if self.shared.send.unsent_bytes() < most.min(65_535) && self.tail_waits(held) {
                return;
            }
            let unsent = self.shared.send.unsent_bytes();
            let mut count = room.min(most).min(unsent);
            if count < unsent && !announcing {
                // The window grows by fractions of a segment; whole segments leave (RFC 9293 §3.8.6.2.1).
                if count < segment && !idle {
                    return;
                }
                count -= if count > segment { count % segment } else { 0 };
            }
            let data = self.shared.send.take_new(count as usize);
            let len = data.len() as u32;
            if let Some(subflow) = self.subflows.first_mut() {
                let subflow_offset = (subflow.tcp.enqueued_offset() as u32).wrapping_add(1);
                let own =
                    Mapping { data_seq: seq, subflow_offset, len_bytes: len as u16, ..Mapping::default() };
                subflow.tcp.enqueue(data, if announcing { own } else { Mapping::default() });
                let end_offset = subflow.tcp.enqueued_offset();
                self.shared.sent.push_back(SentChunk {
                    seq,
                    len,
                    subflow: id,
                    queued: false,
                    again: false,
                    end_offset,
                });
            }
        }
    }

    /// Data waits, nothing is in flight that would bring news, and nothing was allowed to leave: a subflow gets some of it, and
    /// its TCP goes on from there. It probes a closed window (RFC 9293 §3.8.6.1), or waits for a whole segment's worth of it, until
    /// `override_at` if it waits already.
    fn probe_when_stalled(&mut self, cx: &mut Context<'_>, override_at: Instant) {
        let is_idle = self.shared.send.next() == self.shared.send.start();
        let waits = self.reinjections.bytes() > 0 || is_idle && self.shared.send.unsent_bytes() > 0;
        if !waits {
            return;
        }
        let Some(position) = self.stalled_subflow() else { return };
        let Some(subflow) = self.subflows.get(position) else { return };
        let segment = self.full_segment_bytes(subflow);
        let rto = subflow.tcp.rto();
        self.drop_stale_reinjections();
        if let Some(front) = self.reinjections.front().copied() {
            let count = segment.min(front.len.into());
            self.reinjections.take_front(count as u32);
            cx.mib.mptcp_retrans += 1;
            return self.resend(cx.now, position, front.seq, count, Carried::InEach);
        }
        let window = self.shared.window_end.diff(self.shared.send.next()).max(0) as u64;
        let unsent = self.shared.send.unsent_bytes();
        let (wanted, is_held_back) = (segment.min(unsent), self.is_held_back(unsent, segment));
        let count = match window {
            0 => wanted.min(1),
            sliver if sliver < wanted || is_held_back => {
                if override_at > cx.now {
                    self.timers.sliver = override_at.min(cx.now + rto);
                    return;
                }
                sliver.min(wanted)
            }
            _ => wanted,
        };
        self.send_new(cx.now, position, count, Carried::InEach);
    }

    /// Where something is to leave although nothing may: `None` while a subflow that works has something in flight.
    fn stalled_subflow(&self) -> Option<usize> {
        let usable = |subflow: &Subflow| subflow.meta.stage.carries_data() && !subflow.meta.finishing;
        let candidates = self.subflows.iter().enumerate().filter(|(_, subflow)| usable(subflow));
        // Its timers run while it holds data. Those of a subflow that has timed out may be far.
        let (position, best) = candidates.min_by_key(|(at, subflow)| {
            let timeouts = subflow.tcp.consecutive_timeouts();
            (timeouts, !subflow.holds_data(), subflow.meta.backup(), *at)
        })?;
        (!best.holds_data()).then_some(position)
    }

    /// Gives `count` new bytes to the subflow at `position`.
    fn send_new(&mut self, now: Instant, position: usize, count: u64, carried: Carried) {
        let Some(id) = self.subflows.get(position).map(|subflow| subflow.meta.id) else { return };
        let seq = self.shared.send.next();
        let data = self.shared.send.take_new(count as usize);
        let len = data.len() as u32;
        if len == 0 {
            return;
        }
        let end_offset = self.push(now, position, seq, data, carried);
        let chunk = SentChunk { seq, len, subflow: id, queued: false, again: false, end_offset };
        self.shared.sent.push_back(chunk);
    }

    /// Forgets chunks that are data-acknowledged.
    pub(super) fn drop_acknowledged(&mut self, until: DataSeq) {
        let sent = &mut self.shared.sent;
        while let Some(front) = sent.front_mut() {
            if front.seq.before(until) && front.end().after(until) {
                let cut = until.diff(front.seq) as u32;
                front.seq = until;
                front.len -= cut;
            }
            if front.end().after(until) {
                break;
            }
            sent.pop_front();
        }
    }

    /// After each acknowledgment: fallback acknowledges data by subflow; Multipath TCP watches for data that a subflow
    /// delivered and nobody data-acknowledged.
    pub(super) fn after_acknowledgment(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get(position) else { return };
        if subflow.meta.stage == Stage::Plain {
            let acked = subflow.tcp.acked_offset();
            self.acknowledge_plain(acked);
            return;
        }
        let stuck = self.shared.sent.front().is_some_and(|front| self.delivered_by_subflow(front));
        if !stuck {
            self.timers.data_retransmit = Instant::FAR_FUTURE;
        } else if self.timers.data_retransmit == Instant::FAR_FUTURE {
            let wait = self.data_retransmit_wait();
            self.timers.data_retransmit = cx.now + wait;
        }
    }

    fn acknowledge_plain(&mut self, acked: u64) {
        let mut until = self.shared.send.start();
        while let Some(front) = self.shared.sent.front() {
            if front.end_offset > acked {
                let missing = front.end_offset - acked;
                if missing < u64::from(front.len) {
                    until = front.seq.add(u64::from(front.len) - missing);
                }
                break;
            }
            until = front.end();
            self.shared.sent.pop_front();
        }
        if self.shared.send.acknowledge(until) > 0 {
            self.drop_acknowledged(until);
            self.notify_writable();
        }
    }

    fn delivered_by_subflow(&self, chunk: &SentChunk) -> bool {
        !chunk.queued
            && match self.position(chunk.subflow).and_then(|at| self.subflows.get(at)) {
                Some(subflow) => subflow.tcp.acked_offset() >= chunk.end_offset,
                None => true,
            }
    }

    fn data_retransmit_wait(&mut self) -> Duration {
        let slowest = self.subflows.iter().map(|subflow| subflow.tcp.srtt()).max().unwrap_or_default();
        let least = (slowest * 2).max(MIN_DATA_RETRANSMIT);
        let wait = self.timers.data_retransmit_interval.max(least);
        self.timers.data_retransmit_interval = (wait * 2).min(MAX_DATA_RETRANSMIT);
        wait
    }

    /// The first data without DATA_ACK was delivered long ago, as far as its subflow knows: its mapping was lost, or the
    /// peer dropped it. It goes out again, on any subflow.
    pub(super) fn data_retransmit(&mut self, cx: &mut Context<'_>) {
        self.timers.data_retransmit = Instant::FAR_FUTURE;
        if self.shared.is_client && !self.shared.confirmed {
            let wait = self.data_retransmit_wait();
            self.ask_who_has_data(cx.now + wait);
            return;
        }
        let mut lost = 0;
        for at in 0..self.shared.sent.len() {
            let Some(chunk) = self.shared.sent.get(at).copied() else { break };
            if !self.delivered_by_subflow(&chunk) {
                break;
            }
            lost += 1;
            if let Some(chunk) = self.shared.sent.get_mut(at) {
                chunk.queued = true;
            }
            self.reinjections.push(chunk.seq, chunk.len, None);
        }
        if lost > 0 {
            // What went beyond the window only asked for it.
            let next = self.shared.send.next();
            self.data_level_losses += u32::from(!next.after(self.shared.window_end));
            self.needs_schedule = true;
            let wait = self.data_retransmit_wait();
            self.timers.data_retransmit = cx.now + wait;
        }
    }
}
