use alloc::collections::VecDeque;

use polypath_units::{Duration, Instant};
use polypath_wire::{FourTuple, Packet, Segment, SeqNumber, TcpOption};
use rand_core::Rng;

use super::reset::{ReplyLimit, reset_in_reply};
use super::syn_cookie::SynCookies;
use super::time_wait::{TimeWaitNumbers, TimeWaitReaction, TimeWaits};
use crate::{Config, stateless_syn_ack};

/// Bounds of [`Strangers`]. What each costs stands where a host is configured.
#[derive(Clone, Copy, Debug)]
pub struct StrangerLimits {
    /// Most TIME-WAIT records.
    pub max_time_wait: usize,
    /// How long such a record lasts after a FIN that came again.
    pub time_wait: Duration,
    /// Most answers that wait to be sent.
    pub max_replies: usize,
    /// About how many resets a second leave.
    pub resets_per_second: u32,
    /// About how many challenge ACKs a second leave.
    pub challenge_acks_per_second: u32,
}

/// What [`Strangers`] have counted since the start of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrangerCounts {
    /// SYNs answered without holding anything.
    pub cookies_sent: u64,
    /// Acknowledgments that brought no cookie while cookies were in use.
    pub cookies_failed: u64,
    /// TIME-WAIT records made.
    pub time_waits: u64,
    /// Those that a new connection of the same 4-tuple ended early.
    pub time_waits_reopened: u64,
    /// Connections without TIME-WAIT because there were too many records.
    pub time_wait_overflows: u64,
    /// Answers dropped because too many wait to be sent.
    pub replies_dropped: u64,
    /// Resets withheld because there were too many in the same second.
    pub resets_withheld: u64,
}

/// A host's dealings with those that it has no connection with, or none any more: SYNs that it has no room for get a cookie, flows in
/// TIME-WAIT an acknowledgment, everything else a reset, each within a bound.
///
/// The host finds out who is a stranger: it has the flows and the listeners. Answers come from [`Strangers::poll_transmit`].
#[derive(Debug)]
pub struct Strangers {
    cookies: SynCookies,
    resets: ReplyLimit,
    challenges: ReplyLimit,
    time_waits: TimeWaits,
    replies: VecDeque<Packet>,
    max_replies: usize,
    counts: StrangerCounts,
}

impl Strangers {
    /// Knows nobody yet. The secrets of its limits come from `random`.
    #[must_use]
    pub fn new(cookies: SynCookies, limits: StrangerLimits, random: &mut impl Rng) -> Self {
        Self {
            cookies,
            resets: ReplyLimit::new(limits.resets_per_second, random),
            challenges: ReplyLimit::new(limits.challenge_acks_per_second, random),
            time_waits: TimeWaits::new(limits.max_time_wait, limits.time_wait),
            replies: VecDeque::new(),
            max_replies: limits.max_replies,
            counts: StrangerCounts::default(),
        }
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> StrangerCounts {
        self.counts
    }

    /// The bound for challenge ACKs, to be lent to the connection that may owe one.
    pub fn challenges(&mut self) -> &mut ReplyLimit {
        &mut self.challenges
    }

    /// The next answer.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Packet> {
        self.replies.pop_front()
    }

    /// Queues an answer. A flood of them is cut off, not stored.
    fn reply(&mut self, tuple: FourTuple, segment: Segment) {
        if self.replies.len() < self.max_replies {
            self.replies.push_back(Packet::tcp(tuple, segment));
        } else {
            self.counts.replies_dropped += 1;
        }
    }

    /// Resets what belongs to nothing, as often as the bound allows; with `reason` among the reset's options.
    pub fn refuse(&mut self, now: Instant, tuple: FourTuple, segment: &Segment, reason: Option<TcpOption>) {
        let Some(mut reset) = reset_in_reply(segment) else { return };
        if !self.resets.allows(now, tuple.remote.addr) {
            self.counts.resets_withheld += 1;
            return;
        }
        reset.options.rest.extend(reason);
        self.reply(tuple, reset);
    }

    // ---- SYN cookies

    /// The answer with a cookie to a SYN that there is no room for, as [`stateless_syn_ack`] has it; [`Strangers::answer_syn`] sends
    /// it. `clock` is what our timestamps show now.
    #[must_use]
    pub fn syn_ack(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        syn: &Segment,
        config: &Config,
        clock: u32,
        window_bytes: u64,
    ) -> Segment {
        let isn = self.cookies.isn(now, tuple, syn);
        stateless_syn_ack(config, tuple, syn, isn, clock, window_bytes)
    }

    /// The secret that goes with a cookie ([`SynCookies::secret`]).
    #[must_use]
    pub fn secret(&self, now: Instant, tuple: &FourTuple, syn: &Segment) -> u64 {
        self.cookies.secret(now, tuple, syn)
    }

    /// What a cookie for the SYN would be, if some were given out of late ([`SynCookies::isn_in_use`]).
    #[must_use]
    pub fn cookie_in_use(&self, now: Instant, tuple: &FourTuple, syn: &Segment) -> Option<SeqNumber> {
        self.cookies.isn_in_use(now, tuple, syn)
    }

    /// Cookies were given out of late: an acknowledgment may bring one back.
    #[must_use]
    pub fn are_cookies_in_use(&self, now: Instant) -> bool {
        self.cookies.are_in_use(now)
    }

    /// Sends the SYN/ACK of a handshake of which nothing is held.
    pub fn answer_syn(&mut self, tuple: FourTuple, syn_ack: Segment) {
        self.counts.cookies_sent += 1;
        self.reply(tuple, syn_ack);
    }

    /// The SYN whose cookie an acknowledgment brings back, and its secret ([`SynCookies::check`]). `clock` is what our timestamps show
    /// now.
    ///
    /// What brings none but echoes a timestamp of late may be a later segment of a client whose third ACK was lost: a reset would end
    /// what its retransmission completes. The rest is of connections that are gone, and is reset as ever; so is, as in Linux, such a
    /// segment of a client without timestamps.
    #[must_use]
    pub fn check_cookie(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        ack: &Segment,
        clock: u32,
    ) -> Option<(Segment, u64)> {
        let known = self.cookies.check(now, &tuple, ack, clock);
        if known.is_none() {
            self.counts.cookies_failed += 1;
            if !self.cookies.is_echo_recent(ack, clock) {
                self.refuse(now, tuple, ack, None);
            }
        }
        known
    }

    #[cfg(test)]
    pub(super) fn reply_count(&self) -> usize {
        self.replies.len()
    }

    #[cfg(test)]
    pub(super) fn first_time_wait(&self) -> Option<TimeWaitNumbers> {
        self.time_waits.first()
    }

    // ---- TIME-WAIT

    /// Flows in TIME-WAIT.
    #[must_use]
    pub fn time_wait_count(&self) -> usize {
        self.time_waits.len()
    }

    /// Timers of those flows.
    #[must_use]
    pub fn timer_count(&self) -> usize {
        self.time_waits.timer_count()
    }

    /// A flow is in TIME-WAIT from now on; returns the index of its record, by which the flow finds it, or `None` if there are too
    /// many.
    pub fn keep_time_wait(
        &mut self,
        tuple: FourTuple,
        numbers: TimeWaitNumbers,
        ends_at: Instant,
    ) -> Option<u32> {
        let index = self.time_waits.insert(tuple, numbers, ends_at);
        match index {
            Some(_) => self.counts.time_waits += 1,
            None => self.counts.time_wait_overflows += 1,
        }
        index
    }

    /// Answers a segment of a flow in TIME-WAIT. If it is a SYN that begins a new connection, the record is gone, and the connection's
    /// initial sequence number should come after the one returned.
    #[must_use]
    pub fn handle_in_time_wait(
        &mut self,
        now: Instant,
        index: u32,
        tuple: FourTuple,
        segment: &Segment,
    ) -> Option<SeqNumber> {
        match self.time_waits.handle_segment(now, index, segment) {
            TimeWaitReaction::Drop => None,
            TimeWaitReaction::Acknowledge(ack) => {
                self.reply(tuple, ack);
                None
            }
            TimeWaitReaction::Reopen(isn_after) => {
                self.counts.time_waits_reopened += 1;
                Some(isn_after)
            }
        }
    }

    /// When [`Strangers::poll_ended`] has something to give, or earlier.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.time_waits.poll_timeout()
    }

    /// The next flow whose TIME-WAIT is over.
    #[must_use]
    pub fn poll_ended(&mut self, now: Instant) -> Option<FourTuple> {
        self.time_waits.poll_ended(now)
    }
}
