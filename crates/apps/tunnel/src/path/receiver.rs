//! What came over a path, and what to tell the sender of it.

use std::collections::VecDeque;

use polypath_units::{Duration, Instant};

use crate::frame::{AckFrame, MOST_RANGES, Range};

/// An acknowledgment waits for more packets for so long, and for so many.
pub(crate) const MOST_ACK_DELAY: Duration = Duration::from_millis(2);
const MOST_UNACKNOWLEDGED: u32 = 32;
/// A sender with a small window stops without acknowledgments: with few packets a round trip each second one is told of.
const FEW_UNACKNOWLEDGED: u32 = 2;

/// Numbers that came in a row, both ends included.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    last: u32,
}

/// One session's packets on one path.
#[derive(Debug, Default)]
pub(crate) struct PathReceiver {
    session: Option<[u8; 3]>,
    /// From the newest to the oldest.
    runs: VecDeque<Run>,
    largest_at: Instant,
    unacknowledged: u32,
    due_at: Option<Instant>,
    received_packets: u64,
    received_bytes: u64,
}

impl PathReceiver {
    /// An authentic packet with this number came in that session.
    pub(crate) fn handle(&mut self, now: Instant, session: [u8; 3], number: u32, bytes: usize, asks: bool) {
        self.received_packets += 1;
        self.received_bytes += bytes as u64;
        if self.session != Some(session) {
            // Numbers begin anew. What is still under way in the old session counts as lost.
            self.session = Some(session);
            self.runs.clear();
            self.unacknowledged = 0;
            self.due_at = None;
        }
        if self.runs.front().is_none_or(|run| number > run.last) {
            self.largest_at = now;
        }
        let out_of_order = self.insert(number);
        if asks {
            self.unacknowledged += 1;
            let delay = if out_of_order { Duration::ZERO } else { MOST_ACK_DELAY };
            let due = now + delay;
            self.due_at = Some(self.due_at.map_or(due, |at| at.min(due)));
        }
    }

    /// True if it does not continue the newest run.
    fn insert(&mut self, number: u32) -> bool {
        let mut at = 0;
        while let Some(run) = self.runs.get_mut(at) {
            if number > run.last {
                if number - run.last > 1 {
                    break;
                }
                run.last = number;
                if at > 0 && self.runs[at - 1].first == number + 1 {
                    self.runs[at - 1].first = self.runs[at].first;
                    self.runs.remove(at);
                }
                return at > 0;
            }
            if number >= run.first {
                return true;
            }
            if number + 1 == run.first {
                run.first = number;
                if self.runs.get(at + 1).is_some_and(|older| older.last + 1 == number) {
                    self.runs[at].first = self.runs[at + 1].first;
                    self.runs.remove(at + 1);
                }
                return true;
            }
            at += 1;
        }
        let is_first = self.runs.is_empty();
        self.runs.insert(at, Run { first: number, last: number });
        self.runs.truncate(MOST_RANGES);
        !is_first
    }

    /// When an acknowledgment is due.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let limit = if self.is_busy() { MOST_UNACKNOWLEDGED } else { FEW_UNACKNOWLEDGED };
        if self.unacknowledged >= limit { Some(Instant::ZERO) } else { self.due_at }
    }

    /// Whether many packets come within the time that an acknowledgment may wait.
    fn is_busy(&self) -> bool {
        self.due_at.is_some() && self.unacknowledged > 8
    }

    /// The acknowledgment; nothing is due afterwards.
    pub(crate) fn acknowledge(&mut self, now: Instant) -> Option<AckFrame> {
        let session = self.session?;
        let largest = self.runs.front()?.last;
        self.unacknowledged = 0;
        self.due_at = None;
        let mut ranges = Vec::with_capacity(self.runs.len());
        let mut runs = self.runs.iter().peekable();
        while let Some(run) = runs.next() {
            let len = run.last - run.first + 1;
            let gap = runs.peek().map_or(0, |older| run.first - older.last - 1);
            // Longer ones are cut: the sender knows of older numbers.
            let (Ok(gap), Ok(len)) = (u16::try_from(gap), u16::try_from(len)) else {
                let len = u16::try_from(len).unwrap_or(u16::MAX);
                ranges.push(Range { len, gap: 0 });
                break;
            };
            ranges.push(Range { len, gap });
        }
        if let Some(last) = ranges.last_mut() {
            last.gap = 0;
        }
        let delay_micros = u32::try_from(now.since(self.largest_at).as_micros()).unwrap_or(u32::MAX);
        Some(AckFrame { session, largest, delay_micros, ranges })
    }

    /// Packets and bytes that came, headers included.
    pub(crate) fn received(&self) -> (u64, u64) {
        (self.received_packets, self.received_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(numbers: &[u32]) -> (PathReceiver, AckFrame) {
        let mut receiver = PathReceiver::default();
        for &number in numbers {
            receiver.handle(Instant::from_millis(1), [1, 0, 0], number, 100, true);
        }
        let ack = receiver.acknowledge(Instant::from_millis(3)).unwrap();
        (receiver, ack)
    }

    #[test]
    fn runs_are_told_from_the_newest() {
        let (_, ack) = receive(&[0, 1, 2, 5, 6, 9]);
        assert_eq!((ack.largest, ack.delay_micros), (9, 2_000));
        let ranges: Vec<_> = ack.ranges.iter().map(|range| (range.len, range.gap)).collect();
        assert_eq!(ranges, [(1, 2), (2, 2), (3, 0)]);
    }

    #[test]
    fn what_comes_late_closes_the_gap() {
        let (_, ack) = receive(&[0, 3, 2, 1, 1, 5, 4]);
        assert_eq!(ack.ranges, [Range { len: 6, gap: 0 }]);
    }

    #[test]
    fn each_order_of_coming_says_the_same() {
        let mut numbers = [0_u32, 1, 2, 4, 5, 8];
        for step in 0..720 {
            // All orders, by Heap's way with a counter.
            let mut order = numbers;
            let mut code = step;
            for left in (1..order.len()).rev() {
                order.swap(left, code % (left + 1));
                code /= left + 1;
            }
            let (_, ack) = receive(&order);
            let ranges: Vec<_> = ack.ranges.iter().map(|range| (range.len, range.gap)).collect();
            assert_eq!(ranges, [(1, 2), (2, 1), (3, 0)], "{order:?}");
        }
        numbers.reverse();
    }

    #[test]
    fn another_session_begins_anew() {
        let (mut receiver, _) = receive(&[0, 1, 2]);
        receiver.handle(Instant::from_millis(5), [2, 0, 0], 0, 100, true);
        let ack = receiver.acknowledge(Instant::from_millis(5)).unwrap();
        assert_eq!((ack.session, ack.largest, ack.ranges.len()), ([2, 0, 0], 0, 1));
    }

    #[test]
    fn a_gap_is_told_at_once() {
        let mut receiver = PathReceiver::default();
        let now = Instant::from_millis(1);
        receiver.handle(now, [1, 0, 0], 0, 100, true);
        assert_eq!(receiver.due_at(), Some(now + MOST_ACK_DELAY));
        receiver.handle(now, [1, 0, 0], 3, 100, true);
        assert!(receiver.due_at().unwrap() <= now);
    }
}
