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
    pub(crate) time_waits: u64,
    /// Those that a new connection of the same 4-tuple ended early.
    pub(crate) time_waits_reopened: u64,
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

    /// What a cookie for the SYN would be, if some were given out of late.
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

    /// The SYN whose cookie an acknowledgment brings back, and its secret. `clock` is what our timestamps show
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
    pub(crate) fn time_wait_count(&self) -> usize {
        self.time_waits.len()
    }

    /// Whether the record at `index` is of that flow.
    #[must_use]
    pub(crate) fn is_in_time_wait(&self, index: u32, flow: &FourTuple) -> bool {
        self.time_waits.flow(index).is_some_and(|waiting| waiting == flow)
    }

    /// Timers of those flows.
    #[must_use]
    pub(crate) fn timer_count(&self) -> usize {
        self.time_waits.timer_count()
    }

    /// A flow is in TIME-WAIT from now on; returns the index of its record, by which the flow finds it, or `None` if there are too
    /// many.
    pub(crate) fn keep_time_wait(
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
    pub(crate) fn handle_in_time_wait(
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

    /// When a connection in TIME-WAIT is over, or earlier.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.time_waits.poll_timeout()
    }

    /// The next flow whose TIME-WAIT is over, with the index that its record had.
    #[must_use]
    pub(crate) fn poll_ended(&mut self, now: Instant) -> Option<(u32, FourTuple)> {
        self.time_waits.poll_ended(now)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use polypath_wire::{Endpoint, TcpFlags, Transport};
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    use super::*;

    const NOW: Instant = Instant::from_secs(10);
    const WAIT: Duration = Duration::from_secs(60);

    fn strangers() -> Strangers {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let limits = StrangerLimits {
            max_time_wait: 2,
            time_wait: WAIT,
            max_replies: 3,
            resets_per_second: 100,
            challenge_acks_per_second: 100,
        };
        Strangers::new(SynCookies::new(&mut random), limits, &mut random)
    }

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 80),
            remote: Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), port),
        }
    }

    fn segment(seq: u32, ack: u32, flags: TcpFlags) -> Segment {
        Segment { seq: SeqNumber(seq), ack: SeqNumber(ack), flags, ..Segment::default() }
    }

    #[test]
    fn a_time_wait_ends_by_a_new_syn_or_when_its_time_is_over() {
        let mut strangers = strangers();
        let (snd_nxt, rcv_nxt) = (SeqNumber(1000), SeqNumber(2000));
        let numbers = TimeWaitNumbers { snd_nxt, rcv_nxt, window: 5, ts_recent: None, timestamp_offset: 0 };
        let kept = [1, 2, 3].map(|port| strangers.keep_time_wait(tuple(port), numbers, NOW + WAIT));
        let [Some(first), Some(second), None] = kept else { panic!("{kept:?}") };
        assert_eq!((strangers.time_wait_count(), strangers.poll_timeout()), (2, Some(NOW + WAIT)));

        let syn = segment(3000, 0, TcpFlags::SYN);
        assert_eq!(strangers.handle_in_time_wait(NOW, first, tuple(1), &syn), Some(snd_nxt));
        assert_eq!(strangers.handle_in_time_wait(NOW, first, tuple(1), &syn), None, "it is gone");
        let (fin, later) = (segment(1999, 1000, TcpFlags::FIN.with(TcpFlags::ACK)), NOW + WAIT);
        assert_eq!(strangers.handle_in_time_wait(later, second, tuple(2), &fin), None);
        assert!(strangers.poll_transmit().is_some() && strangers.poll_transmit().is_none());
        assert_eq!(strangers.poll_ended(later), None, "the FIN has prolonged it");
        assert_eq!(strangers.poll_ended(later + WAIT), Some((second, tuple(2))));
        assert_eq!((strangers.poll_ended(later + WAIT), strangers.poll_timeout()), (None, None));
        assert_eq!((strangers.time_wait_count(), strangers.timer_count()), (0, 0));
        let counts = StrangerCounts { time_waits: 2, time_waits_reopened: 1, ..StrangerCounts::default() };
        assert_eq!(strangers.counts(), StrangerCounts { time_wait_overflows: 1, ..counts });
    }

    #[test]
    fn what_brings_no_cookie_back_is_reset_and_few_answers_wait() {
        let mut strangers = strangers();
        let (syn, config) = (segment(7, 0, TcpFlags::SYN), Config::default());
        assert!(!strangers.are_cookies_in_use(NOW));
        let answer = strangers.syn_ack(NOW, &tuple(1), &syn, &config, 0, 65_535);
        assert!(strangers.are_cookies_in_use(NOW));
        let ack = segment(8, answer.seq.add(1).0, TcpFlags::ACK);
        assert!(
            strangers.check_cookie(NOW, tuple(1), &ack, 0).is_some_and(|(known, _)| known.seq == syn.seq)
        );
        assert!(strangers.check_cookie(NOW, tuple(2), &ack, 0).is_none(), "it is another's");
        let Some(Transport::Tcp(reset)) = strangers.poll_transmit().map(|packet| packet.transport) else {
            panic!("no reset")
        };
        assert_eq!((reset.flags, reset.seq), (TcpFlags::RST, ack.ack));
        (0..5).for_each(|_| strangers.answer_syn(tuple(1), answer.clone()));
        assert_eq!(core::iter::from_fn(|| strangers.poll_transmit()).count(), 3);
        let counts = StrangerCounts { cookies_sent: 5, cookies_failed: 1, ..StrangerCounts::default() };
        assert_eq!(strangers.counts(), StrangerCounts { replies_dropped: 2, ..counts });
    }
}
