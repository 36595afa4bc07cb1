//! The receive window that a connection promises to its peer, and the memory behind the promises of a host.
//!
//! The document's autotuning (Paasch 4.2.2) doubles what arrived in order in the longest round-trip time. A subflow with a
//! short round trip doubles its window many times within that, so the promise comes late and slows 94 % of the document's
//! high-BDP runs. Here the promise leads what has *arrived*, in order or not, and follows each subflow at its own pace: the
//! right edge is ahead of the highest byte received by [`LEAD`] times what the subflows brought in their own last round
//! trips. A sender at most doubles in a round trip, so it finds the edge further than it can send, whatever the mix of
//! round-trip times, until a cap ends it. And it is ahead by what all of them bring in two of the longest round trips (RFC 6182
//! §5.3 asks for that), lest a sender leaves a slow path alone because the window would not hold both.

use alloc::boxed::Box;
use alloc::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use crate::identifiers::SubflowId;

/// Window of a connection that has received little: more than initial windows on several subflows, and their doubles.
pub(crate) const INITIAL_BYTES: u64 = 256 << 10;
/// In slow start the next round brings twice as much as the last, and while its first acknowledgments are on their way the
/// one after that is sent: 2 + 2 · 2, less what has arrived of them.
const LEAD: u64 = 4;
/// 100 Gbit/s are so many bytes in two nanoseconds.
const FASTEST_BYTES_PER_2_NS: u64 = 25;
/// Enough where a path has next to no delay.
const LOCAL_BYTES: u64 = 4 << 20;
/// A round is not shorter: machines take turns in slices of milliseconds, and what arrives in one batch says nothing of a rate.
const LEAST_ROUND: Duration = Duration::from_millis(4);

/// What may be under way at the most: more than the fastest path could hold would only stand in queues, fall out of the
/// processor's caches, and, out of order, fill the peer's buffer with what it can't deliver.
pub(crate) fn most_under_way_bytes(longest_min_rtt: Duration) -> u64 {
    (longest_min_rtt.as_nanos() / 2).saturating_mul(FASTEST_BYTES_PER_2_NS).max(LOCAL_BYTES)
}

/// Memory that a host has promised to its peers beyond what every connection has.
///
/// While there is plenty, a connection gets what it needs. Once three quarters are promised, none that has more than its
/// equal share gets more: what it has promised shrinks as data arrives, down to the share, and others grow up to theirs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveMemory {
    limit_bytes: u64,
    promised_bytes: u64,
    /// Connections that need more than [`INITIAL_BYTES`].
    large: u64,
}

impl ReceiveMemory {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, promised_bytes: 0, large: 0 }
    }

    /// Promised beyond what every connection has.
    pub(crate) fn promised_bytes(&self) -> u64 {
        self.promised_bytes
    }

    fn is_short(&self) -> bool {
        self.promised_bytes >= self.limit_bytes / 4 * 3
    }

    /// Most that a connection may promise now that has promised `own_bytes`.
    fn most_bytes(&self, own_bytes: u64) -> u64 {
        let possible = own_bytes + self.limit_bytes.saturating_sub(self.promised_bytes);
        if self.is_short() { possible.min(self.limit_bytes / self.large.max(1)) } else { possible }
    }
}

/// What a connection has promised.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWindow {
    /// Kept by connections that receive more than a little.
    tuning: Option<Box<Tuning>>,
    /// Until then.
    received_bytes: u32,
}

#[derive(Debug)]
struct Tuning {
    rounds: Vec<Round>,
    /// What all of them brought last, as a rate.
    bytes_per_s: f64,
    longest_rtt: Duration,
    /// What they bring in two of the longest round trips.
    by_longest_bytes: u64,
    /// After the highest byte received.
    highest: DataSeq,
    edge: DataSeq,
    /// Beyond [`INITIAL_BYTES`], noted in [`ReceiveMemory`].
    promised_bytes: u64,
    /// Most that may be promised, as memory allowed last.
    most_bytes: u64,
}

/// What a subflow brings in a round trip.
#[derive(Clone, Copy, Debug)]
struct Round {
    subflow: SubflowId,
    since: Instant,
    bytes: u64,
    last_bytes: u64,
    /// How long the last one took.
    last: Duration,
}

impl Round {
    fn bytes_per_s(&self) -> f64 {
        if self.last.is_zero() { 0.0 } else { self.last_bytes as f64 / self.last.as_secs_f64() }
    }
}

/// Data that arrived, and the state of the buffer with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataArrival {
    pub(crate) now: Instant,
    pub(crate) subflow: SubflowId,
    pub(crate) rtt: Duration,
    /// The longest of all subflows.
    pub(crate) longest_rtt: Duration,
    /// The longest round trip without queues.
    pub(crate) longest_min_rtt: Duration,
    pub(crate) len_bytes: u64,
    /// After its last byte.
    pub(crate) end: DataSeq,
}

/// What the buffer holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveBuffer {
    /// The next byte expected.
    pub(crate) next: DataSeq,
    /// In order, and not read.
    pub(crate) unread_bytes: u64,
    /// Most that it may hold.
    pub(crate) cap_bytes: u64,
}

impl ReceiveWindow {
    /// Right edge of the window. It never moves back.
    pub(crate) fn edge(&self, buffer: ReceiveBuffer) -> DataSeq {
        match &self.tuning {
            Some(tuning) => tuning.edge,
            None => buffer.next.add(INITIAL_BYTES.min(buffer.cap_bytes).saturating_sub(buffer.unread_bytes)),
        }
    }

    /// Data arrived.
    pub(crate) fn on_arrival(
        &mut self,
        arrival: DataArrival,
        buffer: ReceiveBuffer,
        memory: &mut ReceiveMemory,
    ) {
        let edge = self.edge(buffer);
        self.received_bytes =
            self.received_bytes.saturating_add(u32::try_from(arrival.len_bytes).unwrap_or(u32::MAX));
        let tuning = match &mut self.tuning {
            Some(tuning) => tuning,
            // The window of the beginning holds twice what the next round brings.
            None if u64::from(self.received_bytes) < INITIAL_BYTES / 4 => return,
            None => {
                memory.large += 1;
                self.tuning.insert(Box::new(Tuning {
                    rounds: Vec::new(),
                    bytes_per_s: 0.0,
                    longest_rtt: arrival.longest_rtt,
                    by_longest_bytes: 0,
                    highest: arrival.end,
                    edge,
                    promised_bytes: 0,
                    most_bytes: 0,
                }))
            }
        };
        tuning.highest = tuning.highest.max(arrival.end);
        tuning.note(&arrival);
        let by_memory = INITIAL_BYTES + memory.most_bytes(tuning.promised_bytes);
        tuning.most_bytes = by_memory.min(most_under_way_bytes(arrival.longest_min_rtt));
        tuning.advance(buffer);
        let promised_bytes = tuning.promised(buffer);
        memory.promised_bytes = memory.promised_bytes + promised_bytes - tuning.promised_bytes;
        tuning.promised_bytes = promised_bytes;
    }

    /// The application read.
    pub(crate) fn on_read(&mut self, buffer: ReceiveBuffer) {
        if let Some(tuning) = &mut self.tuning {
            tuning.advance(buffer);
        }
    }

    /// The connection ends: gives back what it had promised.
    pub(crate) fn release(&mut self, memory: &mut ReceiveMemory) {
        if let Some(tuning) = self.tuning.take() {
            memory.large -= 1;
            memory.promised_bytes -= tuning.promised_bytes;
        }
    }
}

impl Tuning {
    fn note(&mut self, arrival: &DataArrival) {
        let longest_rtt = arrival.longest_rtt.max(arrival.rtt);
        if core::mem::replace(&mut self.longest_rtt, longest_rtt) != longest_rtt {
            self.update_by_longest();
        }
        let Some(round) = self.rounds.iter_mut().find(|round| round.subflow == arrival.subflow) else {
            let DataArrival { now, subflow, len_bytes, .. } = *arrival;
            self.rounds.push(Round {
                subflow,
                since: now,
                bytes: len_bytes,
                last_bytes: 0,
                last: Duration::ZERO,
            });
            return;
        };
        let so_far = arrival.now.since(round.since);
        if so_far < arrival.rtt.max(LEAST_ROUND) {
            round.bytes += arrival.len_bytes;
            return;
        }
        round.last = so_far;
        round.last_bytes = core::mem::replace(&mut round.bytes, arrival.len_bytes);
        round.since = arrival.now;
        self.bytes_per_s = self.rounds.iter().map(Round::bytes_per_s).sum();
        self.update_by_longest();
    }

    fn update_by_longest(&mut self) {
        self.by_longest_bytes = (2.0 * self.bytes_per_s * self.longest_rtt.as_secs_f64()) as u64;
    }

    /// Moves the edge ahead of what has arrived, as far as the caps allow.
    fn advance(&mut self, buffer: ReceiveBuffer) {
        let rounds = self.rounds.iter().map(|round| round.last_bytes.max(round.bytes));
        let lead_bytes = (LEAD * rounds.sum::<u64>()).max(self.by_longest_bytes).max(INITIAL_BYTES);
        // What the application leaves unread, it does not need to come faster.
        let wanted = self.highest.add(lead_bytes.saturating_sub(buffer.unread_bytes));
        let most_bytes = buffer.cap_bytes.min(self.most_bytes).saturating_sub(buffer.unread_bytes);
        let capped = buffer.next.add(most_bytes);
        let wanted = if wanted.after(capped) { capped } else { wanted };
        self.edge = self.edge.max(wanted);
    }

    fn promised(&self, buffer: ReceiveBuffer) -> u64 {
        let window_bytes = self.edge.diff(buffer.next).max(0) as u64;
        (window_bytes + buffer.unread_bytes).saturating_sub(INITIAL_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// A receiver whose application reads at once, and what the sender may still send.
    struct Receiver {
        window: ReceiveWindow,
        memory: ReceiveMemory,
        next: DataSeq,
        cap_bytes: u64,
    }

    impl Receiver {
        fn new(cap_bytes: u64) -> Self {
            Self {
                window: ReceiveWindow::default(),
                memory: ReceiveMemory::new(1 << 30),
                next: DataSeq(0),
                cap_bytes,
            }
        }

        fn buffer(&self) -> ReceiveBuffer {
            ReceiveBuffer { next: self.next, unread_bytes: 0, cap_bytes: self.cap_bytes }
        }

        fn arrive(&mut self, now: Instant, subflow: u8, rtt_ms: u64, from: u64, len_bytes: u64) {
            let rtt = Duration::from_millis(rtt_ms);
            let end = DataSeq(from + len_bytes);
            if from == self.next.0 {
                self.next = end;
            }
            let arrival = DataArrival {
                now,
                subflow: SubflowId(subflow),
                rtt,
                longest_rtt: rtt,
                longest_min_rtt: rtt,
                len_bytes,
                end,
            };
            self.window.on_arrival(arrival, self.buffer(), &mut self.memory);
        }

        fn edge(&self) -> u64 {
            self.window.edge(self.buffer()).0
        }
    }

    #[test]
    fn slow_start_never_meets_the_edge_whatever_a_slow_subflow_holds_back() {
        for slow_holds_first_byte in [false, true] {
            let mut receiver = Receiver::new(1 << 40);
            // Byte 0 may be on a subflow with a round trip of 400 ms: nothing is in order until then.
            let mut sent = u64::from(slow_holds_first_byte);
            let mut flight = 14_600;
            for round in 0..12u64 {
                let start = sent;
                for part in 0..10 {
                    let now = Instant::from_millis(20 * round + 2 * part);
                    assert!(receiver.edge() >= start + flight, "round {round} is held back");
                    receiver.arrive(now, 1, 20, start + flight / 10 * part, flight / 10);
                    // Each acknowledgment lets twice as much leave.
                    let released = start + flight + 2 * flight / 10 * (part + 1);
                    assert!(receiver.edge() >= released, "round {round}, part {part}");
                }
                sent = start + flight;
                flight *= 2;
            }
            assert!(receiver.edge() > 1 << 26);
        }
    }

    #[test]
    fn the_cap_holds_and_the_edge_never_moves_back() {
        let mut receiver = Receiver::new(MB);
        let mut last = receiver.edge();
        for round in 0..50u64 {
            receiver.arrive(Instant::from_millis(10 * round), 1, 10, 100_000 * round, 100_000);
            assert!(receiver.edge() >= last && receiver.edge() - receiver.next.0 <= MB);
            last = receiver.edge();
        }
        assert_eq!(last - receiver.next.0, 4 * 100_000);
    }

    #[test]
    fn an_application_that_does_not_read_gets_no_more() {
        let mut window = ReceiveWindow::default();
        let mut memory = ReceiveMemory::new(1 << 30);
        let mut received = 0;
        for round in 0..100 {
            let buffer =
                ReceiveBuffer { next: DataSeq(received), unread_bytes: received, cap_bytes: 64 * MB };
            let len_bytes = (window.edge(buffer).0 - received).min(100_000);
            received += len_bytes;
            let buffer = ReceiveBuffer { next: DataSeq(received), unread_bytes: received, ..buffer };
            let (now, rtt) = (Instant::from_millis(10 * round), Duration::from_millis(10));
            let end = DataSeq(received);
            let arrival = DataArrival {
                now,
                subflow: SubflowId(0),
                rtt,
                longest_rtt: rtt,
                longest_min_rtt: rtt,
                len_bytes,
                end,
            };
            window.on_arrival(arrival, buffer, &mut memory);
        }
        assert!(received <= 2 * MB, "{received}");
    }

    #[test]
    fn small_connections_keep_no_state() {
        let mut receiver = Receiver::new(64 * MB);
        receiver.arrive(Instant::ZERO, 0, 10, 0, 65_535);
        assert!(receiver.window.tuning.is_none());
        receiver.arrive(Instant::ZERO, 0, 10, 65_535, 1);
        assert!(receiver.window.tuning.is_some());
        receiver.window.release(&mut receiver.memory);
        assert_eq!((receiver.memory.promised_bytes(), receiver.memory.large), (0, 0));
    }

    #[test]
    fn memory_goes_in_equal_shares_when_it_is_short_and_never_beyond_the_limit() {
        let mut memory = ReceiveMemory::new(8 * MB);
        let mut windows: Vec<(ReceiveWindow, u64)> = (0..8).map(|_| (ReceiveWindow::default(), 0)).collect();
        let mut peaks = Vec::new();
        // The first alone for ten rounds, then all eight, each with 2 MB in a round trip.
        for round in 0..60u64 {
            for (number, (window, next)) in windows.iter_mut().enumerate() {
                if number > 0 && round < 10 {
                    continue;
                }
                let buffer =
                    |next| ReceiveBuffer { next: DataSeq(next), unread_bytes: 0, cap_bytes: 64 * MB };
                let len_bytes = (window.edge(buffer(*next)).0 - *next).min(2 * MB);
                *next += len_bytes;
                let (now, rtt) = (Instant::from_millis(10 * round), Duration::from_millis(10));
                let end = DataSeq(*next);
                let arrival = DataArrival {
                    now,
                    subflow: SubflowId(0),
                    rtt,
                    longest_rtt: rtt,
                    longest_min_rtt: rtt,
                    len_bytes,
                    end,
                };
                window.on_arrival(arrival, buffer(*next), &mut memory);
                assert!(memory.promised_bytes() <= 8 * MB, "{}", memory.promised_bytes());
            }
            peaks.push(windows[0].0.tuning.as_ref().map_or(0, |tuning| tuning.promised_bytes));
        }
        assert!(peaks[9] > 5 * MB, "alone it gets what it needs: {}", peaks[9]);
        let shares: Vec<u64> =
            windows.iter().map(|(window, _)| window.tuning.as_ref().unwrap().promised_bytes).collect();
        assert!(shares.iter().all(|share| (MB / 2..=MB + MB / 2).contains(share)), "{shares:?}");
    }
}
