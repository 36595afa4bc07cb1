use alloc::boxed::Box;

use polypath_units::{Duration, Instant};
use polypath_wire::{FourTuple, Segment, SeqNumber, TcpFlags, Timestamps};

use crate::slab::{Key, Slab};
use crate::timer_wheel::TimerWheel;

/// Least time between two acknowledgments for segments that occupy no sequence space: so two ends that
/// disagree don't answer each other without end (as Linux's `tcp_invalid_ratelimit`).
const EMPTY_ACK_INTERVAL: Duration = Duration::from_millis(500);

/// All that is kept of a connection in TIME-WAIT: enough to acknowledge what still comes, and to know a new
/// SYN from an old one. About a hundred bytes instead of a whole connection.
#[derive(Debug)]
struct TimeWait {
    tuple: FourTuple,
    /// When the wait ends; a repeated FIN moves it.
    ends_at: Instant,
    numbers: TimeWaitNumbers,
    next_empty_ack_at: Instant,
}

/// What TIME-WAIT needs to know of the connection that it follows.
#[derive(Clone, Copy, Debug)]
pub struct TimeWaitNumbers {
    /// Next sequence number to send: after our FIN.
    pub(crate) snd_nxt: SeqNumber,
    /// Next sequence number expected: after the peer's FIN.
    pub(crate) rcv_nxt: SeqNumber,
    /// Window to advertise, as on the wire.
    pub(crate) window: u16,
    /// The peer's last timestamp value, if timestamps are in use.
    pub(crate) ts_recent: Option<u32>,
    /// Added to the clock in milliseconds to make our timestamp value.
    pub timestamp_offset: u32,
}

/// What to do about a segment in TIME-WAIT.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is matched at once and never stored")]
pub(super) enum TimeWaitReaction {
    /// Nothing.
    Drop,
    /// Send this acknowledgment.
    Acknowledge(Segment),
    /// The SYN begins a new connection, whose initial sequence number should be after this one.
    Reopen(SeqNumber),
}

/// The flows of a host that are in TIME-WAIT, and their timers.
#[derive(Debug)]
pub(super) struct TimeWaits {
    records: Slab<Box<TimeWait>>,
    /// Of the records, by their index.
    timers: TimerWheel,
    most: usize,
    /// How long a wait lasts after a FIN that came again.
    length: Duration,
}

impl TimeWaits {
    pub(super) fn new(most: usize, length: Duration) -> Self {
        Self { records: Slab::new(), timers: TimerWheel::new(), most, length }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn timer_count(&self) -> usize {
        self.timers.len()
    }

    /// The flow of a record.
    pub(super) fn flow(&self, index: u32) -> Option<&FourTuple> {
        Some(&self.records.at(index)?.tuple)
    }

    #[cfg(test)]
    pub(super) fn first(&self) -> Option<TimeWaitNumbers> {
        Some(self.records.iter().next()?.1.numbers)
    }

    /// Keeps a record until `ends_at`; returns its index, or `None` if there are too many.
    pub(super) fn insert(
        &mut self,
        tuple: FourTuple,
        numbers: TimeWaitNumbers,
        ends_at: Instant,
    ) -> Option<u32> {
        if self.records.len() >= self.most {
            return None;
        }
        let key = self.records.insert(Box::new(TimeWait::new(tuple, numbers, ends_at)));
        self.timers.schedule(key.index, ends_at);
        Some(key.index)
    }

    /// What to do about a segment of the flow of that record, which is gone if it is to be opened again.
    pub(super) fn handle_segment(&mut self, now: Instant, index: u32, segment: &Segment) -> TimeWaitReaction {
        let Some((key, record)) = self.records.at_mut(index) else { return TimeWaitReaction::Drop };
        let reaction = record.handle_segment(now, segment, self.length);
        match reaction {
            TimeWaitReaction::Drop => {}
            TimeWaitReaction::Acknowledge(_) => {
                self.timers.schedule(index, record.ends_at);
            }
            TimeWaitReaction::Reopen(_) => _ = self.remove(key),
        }
        reaction
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next_deadline()
    }

    /// The next flow whose wait is over, and the index of its record.
    pub(super) fn poll_ended(&mut self, now: Instant) -> Option<(u32, FourTuple)> {
        while let Some(index) = self.timers.poll_expired(now) {
            let Some((key, record)) = self.records.at_mut(index) else { continue };
            if record.ends_at <= now {
                return self.remove(key).map(|flow| (index, flow));
            }
            self.timers.schedule(index, record.ends_at);
        }
        None
    }

    fn remove(&mut self, key: Key) -> Option<FourTuple> {
        let record = self.records.remove(key)?;
        self.timers.cancel(key.index);
        Some(record.tuple)
    }
}

impl TimeWait {
    /// A wait that ends at `ends_at`.
    fn new(tuple: FourTuple, numbers: TimeWaitNumbers, ends_at: Instant) -> Self {
        Self { tuple, ends_at, numbers, next_empty_ack_at: Instant::ZERO }
    }

    /// RFC 9293 §3.10.7.4 for TIME-WAIT, with RFC 6191 (a new SYN) and RFC 1337 (resets are ignored, lest an
    /// old duplicate ends the wait). `time_wait` is the length of the wait, which a retransmitted FIN starts
    /// again.
    fn handle_segment(&mut self, now: Instant, segment: &Segment, time_wait: Duration) -> TimeWaitReaction {
        if segment.flags.rst() {
            return TimeWaitReaction::Drop;
        }
        let newer = match (self.numbers.ts_recent, segment.options.timestamps) {
            (Some(recent), Some(theirs)) => Some(theirs.value.wrapping_sub(recent) as i32),
            _ => None,
        };
        if segment.flags.syn() && !segment.flags.ack() {
            // RFC 6191 §2: a larger timestamp, or failing that a larger sequence number, tells a new
            // connection.
            let is_new = match newer {
                Some(difference) if difference != 0 => difference > 0,
                _ => segment.seq.after(self.numbers.rcv_nxt),
            };
            if is_new {
                return TimeWaitReaction::Reopen(self.numbers.snd_nxt);
            }
        } else if !segment.flags.ack() {
            return TimeWaitReaction::Drop;
        }
        if segment.sequence_len() == 0 {
            let expected = segment.seq == self.numbers.rcv_nxt;
            if expected || now < self.next_empty_ack_at {
                return TimeWaitReaction::Drop;
            }
            self.next_empty_ack_at = now + EMPTY_ACK_INTERVAL;
        }
        if segment.flags.fin() && segment.seq_end() == self.numbers.rcv_nxt {
            self.ends_at = now + time_wait;
        }
        TimeWaitReaction::Acknowledge(self.acknowledgment(now))
    }

    fn acknowledgment(&self, now: Instant) -> Segment {
        let numbers = &self.numbers;
        let mut segment = Segment {
            seq: numbers.snd_nxt,
            ack: numbers.rcv_nxt,
            flags: TcpFlags::ACK,
            window: numbers.window,
            ..Segment::default()
        };
        segment.options.timestamps = numbers.ts_recent.map(|echo| Timestamps {
            value: (now.as_millis() as u32).wrapping_add(numbers.timestamp_offset),
            echo,
        });
        segment
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use polypath_wire::Endpoint;

    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    fn waiting(ts_recent: Option<u32>) -> TimeWait {
        let tuple = FourTuple {
            local: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 1),
            remote: Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 2),
        };
        let numbers = TimeWaitNumbers {
            snd_nxt: SeqNumber(1000),
            rcv_nxt: SeqNumber(2000),
            window: 5,
            ts_recent,
            timestamp_offset: 7,
        };
        TimeWait::new(tuple, numbers, Instant::from_secs(60))
    }

    fn segment(flags: TcpFlags, seq: u32, timestamp: Option<u32>) -> Segment {
        let mut segment = Segment { seq: SeqNumber(seq), ack: SeqNumber(1000), flags, ..Segment::default() };
        segment.options.timestamps = timestamp.map(|value| Timestamps { value, echo: 0 });
        segment
    }

    #[test]
    fn a_repeated_fin_is_acknowledged_and_prolongs_the_wait() {
        let mut record = waiting(Some(50));
        let now = Instant::from_secs(10);
        let fin = segment(TcpFlags::FIN.with(TcpFlags::ACK), 1999, Some(50));
        let TimeWaitReaction::Acknowledge(ack) = record.handle_segment(now, &fin, WAIT) else { panic!() };
        assert_eq!((ack.seq, ack.ack, ack.window), (SeqNumber(1000), SeqNumber(2000), 5));
        assert_eq!(ack.options.timestamps, Some(Timestamps { value: 10_007, echo: 50 }));
        assert_eq!(record.ends_at, Instant::from_secs(70));
    }

    #[test]
    fn only_a_newer_syn_opens_again() {
        let reaction = |ts_recent, seq, timestamp| {
            waiting(ts_recent).handle_segment(Instant::ZERO, &segment(TcpFlags::SYN, seq, timestamp), WAIT)
        };
        assert!(matches!(reaction(None, 2001, None), TimeWaitReaction::Reopen(SeqNumber(1000))));
        assert!(matches!(reaction(None, 1999, None), TimeWaitReaction::Acknowledge(_)));
        // The timestamp decides even against the sequence number.
        assert!(matches!(reaction(Some(50), 1, Some(51)), TimeWaitReaction::Reopen(_)));
        assert!(matches!(reaction(Some(50), 3000, Some(49)), TimeWaitReaction::Acknowledge(_)));
        assert!(matches!(reaction(Some(50), 3000, Some(50)), TimeWaitReaction::Reopen(_)));
    }

    #[test]
    fn resets_and_plain_acknowledgments_change_nothing_and_wrong_ones_are_answered_seldom() {
        let mut record = waiting(None);
        let now = Instant::from_secs(1);
        let mut react = |now, flags, seq| record.handle_segment(now, &segment(flags, seq, None), WAIT);
        assert!(matches!(react(now, TcpFlags::RST, 2000), TimeWaitReaction::Drop));
        assert!(matches!(react(now, TcpFlags::ACK, 2000), TimeWaitReaction::Drop));
        assert!(matches!(react(now, TcpFlags::ACK, 1999), TimeWaitReaction::Acknowledge(_)));
        assert!(matches!(react(now, TcpFlags::ACK, 1999), TimeWaitReaction::Drop));
        let later = now + EMPTY_ACK_INTERVAL;
        assert!(matches!(react(later, TcpFlags::ACK, 1999), TimeWaitReaction::Acknowledge(_)));
        assert_eq!(record.ends_at, Instant::from_secs(60));
        assert!(size_of::<TimeWait>() <= 96, "{}", size_of::<TimeWait>());
    }
}
