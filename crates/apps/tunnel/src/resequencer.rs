//! Puts packets back in order, flow by flow. None waits longer than the missing one could still take.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use polypath_units::Instant;

use crate::frame::Sequence;

const FLOWS: usize = 256;
/// Further ahead than this a sequence number tells of another beginning.
pub(crate) const MOST_AHEAD: i32 = 1 << 17;
/// Most that is held, in bytes.
const MOST_HELD_BYTES: usize = 32 << 20;
/// Most packets that are held, of all flows, however small they are.
const MOST_HELD_PACKETS: usize = 1 << 16;
/// Copies of a packet are told apart as far back as this.
const REMEMBERED: u32 = 4_096;

#[derive(Debug)]
struct Held {
    packet: Box<[u8]>,
    deadline: Instant,
}

#[derive(Debug, Default)]
struct Flow {
    next: Sequence,
    /// How many numbers `next` has gone on, which does not begin again as those of packets do.
    passed: u64,
    /// What came behind `next`, by what `passed` will be there. What is missing between takes no room, and no time: a gap of any size is one step.
    held: BTreeMap<u64, Held>,
    /// When the oldest gap is given up.
    deadline: Option<Instant>,
    is_listed: bool,
    copies: Copies,
    left: Left,
}

/// Which of the numbers before the next one have left.
#[derive(Debug, Default)]
struct Left(Vec<u64>);

impl Flow {
    /// On to this number, which is the place of what comes next; none of those between left.
    fn skip_to(&mut self, place: u64) {
        let gap = place - self.passed;
        if gap >= u64::from(REMEMBERED) {
            self.left = Left::default();
        } else {
            (0..gap as u32).for_each(|skipped| self.left.set(self.next.plus(skipped), false));
        }
        self.next = self.next.plus(gap as u32);
        self.passed = place;
    }

    /// The next one left.
    fn pass(&mut self) {
        self.left.set(self.next, true);
        self.next = self.next.next();
        self.passed += 1;
    }

    fn first_held(&self) -> Option<(u64, Instant)> {
        self.held.first_key_value().map(|(place, held)| (*place, held.deadline))
    }
}

impl Left {
    fn set(&mut self, sequence: Sequence, has_left: bool) {
        if self.0.is_empty() {
            self.0.resize(REMEMBERED as usize / 64, 0);
        }
        let at = sequence.modulo(REMEMBERED);
        let bit = 1_u64 << (at % 64);
        let word = &mut self.0[at as usize / 64];
        if has_left { *word |= bit } else { *word &= !bit }
    }

    fn has(&self, sequence: Sequence) -> bool {
        let at = sequence.modulo(REMEMBERED);
        self.0.get(at as usize / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }
}

/// Which of the packets that come over several paths on purpose came already.
#[derive(Debug, Default)]
struct Copies {
    next: Sequence,
    came: Left,
}

impl Copies {
    fn is_first(&mut self, sequence: Sequence) -> bool {
        let ahead = sequence.ahead_of(self.next);
        if ahead >= REMEMBERED as i32 {
            self.came = Left::default();
        }
        for skipped in 0..ahead.clamp(0, REMEMBERED as i32) {
            self.came.set(self.next.plus(skipped as u32), false);
        }
        if ahead >= 0 {
            self.next = sequence.next();
        } else if ahead < -(REMEMBERED as i32) || self.came.has(sequence) {
            return false;
        }
        self.came.set(sequence, true);
        true
    }
}

/// What the resequencer did, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResequencerCounts {
    /// Held until those before them came.
    pub held: u64,
    /// Came after those behind them had been let go.
    pub late: u64,
    /// Given up: they had not come by their deadline.
    pub missing: u64,
    /// Copies of what had come.
    pub copies: u64,
}

/// Takes a packet that leaves: the flow's number, its own, and the packet.
pub(crate) trait Leave: FnMut(u8, Sequence, &[u8]) {}

impl<F: FnMut(u8, Sequence, &[u8])> Leave for F {}

/// The flows' order at the receiver.
#[derive(Debug)]
pub(crate) struct Resequencer {
    flows: Vec<Flow>,
    /// Flows with a gap.
    waiting: Vec<u8>,
    held_bytes: usize,
    held_packets: usize,
    counts: ResequencerCounts,
}

impl Resequencer {
    pub(crate) fn new() -> Self {
        let mut flows = Vec::new();
        flows.resize_with(FLOWS, Flow::default);
        Self {
            flows,
            waiting: Vec::new(),
            held_bytes: 0,
            held_packets: 0,
            counts: ResequencerCounts::default(),
        }
    }

    /// A packet came, and those before it can come until `deadline`. `leave` gets what may leave now.
    pub(crate) fn handle(
        &mut self,
        number: u8,
        sequence: Sequence,
        packet: &[u8],
        deadline: Instant,
        leave: &mut impl Leave,
    ) {
        let flow = &mut self.flows[usize::from(number)];
        let ahead = sequence.ahead_of(flow.next);
        if ahead < 0 && ahead > -MOST_AHEAD {
            if ahead >= -(REMEMBERED as i32) && flow.left.has(sequence) {
                self.counts.copies += 1;
                return;
            }
            if ahead >= -(REMEMBERED as i32) {
                flow.left.set(sequence, true);
            }
            self.counts.late += 1;
            leave(number, sequence, packet);
            return;
        }
        if ahead == 0 {
            leave(number, sequence, packet);
            flow.pass();
            if !flow.held.is_empty() {
                self.let_go(number, leave);
            }
            return;
        }
        let is_full =
            self.held_bytes + packet.len() > MOST_HELD_BYTES || self.held_packets >= MOST_HELD_PACKETS;
        if ahead.abs() >= MOST_AHEAD || is_full {
            self.flush(number, leave);
            let flow = &mut self.flows[usize::from(number)];
            (flow.next, flow.left) = (sequence, Left::default());
            flow.pass();
            leave(number, sequence, packet);
            return;
        }
        let place = flow.passed + u64::from(ahead.unsigned_abs());
        let Entry::Vacant(vacant) = flow.held.entry(place) else {
            self.counts.copies += 1;
            return;
        };
        vacant.insert(Held { packet: packet.into(), deadline });
        self.counts.held += 1;
        self.held_bytes += packet.len();
        self.held_packets += 1;
        flow.deadline = Some(flow.deadline.map_or(deadline, |before| before.min(deadline)));
        if !flow.is_listed {
            flow.is_listed = true;
            self.waiting.push(number);
        }
    }

    /// Whether a packet that comes in copies is the first of them.
    pub(crate) fn is_first_copy(&mut self, number: u8, sequence: Sequence) -> bool {
        let is_first = self.flows[usize::from(number)].copies.is_first(sequence);
        self.counts.copies += u64::from(!is_first);
        is_first
    }

    /// Lets go what is in order from `next` on.
    fn let_go(&mut self, number: u8, leave: &mut impl Leave) {
        let flow = &mut self.flows[usize::from(number)];
        while let Some(held) = flow.held.remove(&flow.passed) {
            self.held_bytes -= held.packet.len();
            self.held_packets -= 1;
            let sequence = flow.next;
            flow.pass();
            leave(number, sequence, &held.packet);
        }
        flow.deadline = flow.first_held().map(|(_, deadline)| deadline);
        if flow.deadline.is_none() && std::mem::take(&mut flow.is_listed) {
            self.waiting.retain(|&waiting| waiting != number);
        }
    }

    fn flush(&mut self, number: u8, leave: &mut impl Leave) {
        while !self.flows[usize::from(number)].held.is_empty() {
            self.skip_gap(number, leave);
        }
    }

    fn skip_gap(&mut self, number: u8, leave: &mut impl Leave) {
        let flow = &mut self.flows[usize::from(number)];
        if let Some((place, _)) = flow.first_held() {
            self.counts.missing += place - flow.passed;
            flow.skip_to(place);
        }
        self.let_go(number, leave);
    }

    /// When the next gap is given up.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|&number| self.flows[usize::from(number)].deadline).min()
    }

    /// Gives up gaps whose time is over.
    pub(crate) fn handle_timeout(&mut self, now: Instant, leave: &mut impl Leave) {
        let mut at = 0;
        while let Some(&number) = self.waiting.get(at) {
            while self.flows[usize::from(number)].deadline.is_some_and(|deadline| deadline <= now) {
                self.skip_gap(number, leave);
            }
            if self.waiting.get(at) == Some(&number) {
                at += 1;
            }
        }
    }

    /// The peer begins anew: what is held leaves.
    pub(crate) fn restart(&mut self, leave: &mut impl Leave) {
        for number in self.waiting.clone() {
            self.flush(number, leave);
        }
        self.flows.iter_mut().for_each(|flow| *flow = Flow::default());
    }

    pub(crate) fn counts(&self) -> ResequencerCounts {
        self.counts
    }

    /// The number behind the highest that came of a flow: of packets that are kept in order, and of those that come in copies.
    pub(crate) fn next_new(&self, number: u8) -> (Sequence, Sequence) {
        let flow = &self.flows[usize::from(number)];
        let behind = flow.held.last_key_value().map_or(0, |(place, _)| place - flow.passed + 1);
        (flow.next.plus(behind as u32), flow.copies.next)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEADLINE: Instant = Instant::from_millis(50);

    fn handle(resequencer: &mut Resequencer, sequence: u32, out: &mut Vec<u8>) {
        let packet = [sequence as u8];
        resequencer.handle(0, Sequence::new(sequence), &packet, DEADLINE, &mut |_, _, packet: &[u8]| {
            out.push(packet[0])
        });
    }

    fn run(sequences: &[u32]) -> (Resequencer, Vec<u8>) {
        let (mut resequencer, mut out) = (Resequencer::new(), Vec::new());
        sequences.iter().for_each(|&sequence| handle(&mut resequencer, sequence, &mut out));
        (resequencer, out)
    }

    #[test]
    fn packets_leave_in_order() {
        let (resequencer, out) = run(&[0, 2, 3, 1, 5, 4, 6]);
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(resequencer.next_deadline(), None);
        assert_eq!(resequencer.held_bytes(), 0);
        assert_eq!(resequencer.counts().held, 3);
    }

    #[test]
    fn gaps_are_given_up_when_their_time_is_over() {
        let (mut resequencer, mut out) = run(&[0, 2, 4]);
        assert_eq!(out, [0]);
        assert_eq!(resequencer.next_deadline(), Some(DEADLINE));
        resequencer.handle_timeout(DEADLINE, &mut |_, _, packet: &[u8]| out.push(packet[0]));
        assert_eq!(out, [0, 2, 4]);
        handle(&mut resequencer, 1, &mut out);
        handle(&mut resequencer, 5, &mut out);
        assert_eq!(out, [0, 2, 4, 1, 5]);
        let counts = resequencer.counts();
        assert_eq!((counts.missing, counts.late), (2, 1));
    }

    #[test]
    fn what_is_sent_again_leaves_once() {
        let (mut resequencer, mut out) = run(&[0, 1, 3, 1, 0, 3]);
        resequencer.handle_timeout(DEADLINE, &mut |_, _, packet: &[u8]| out.push(packet[0]));
        for sequence in [3, 2, 2, 4] {
            handle(&mut resequencer, sequence, &mut out);
        }
        assert_eq!(out, [0, 1, 3, 2, 4]);
        assert_eq!(resequencer.counts().copies, 5);
    }

    #[test]
    fn another_beginning_is_followed() {
        let (resequencer, out) = run(&[0, 2, 3_000_000, 3_000_001]);
        assert_eq!(out, [0, 2, 3_000_000_u32 as u8, 3_000_001_u32 as u8]);
        assert_eq!(resequencer.held_bytes(), 0);
    }

    #[test]
    fn late_packets_do_not_make_others_copies() {
        let (mut resequencer, mut out) = run(&[10_000]);
        resequencer.handle_timeout(DEADLINE, &mut |_, _, packet: &[u8]| out.push(packet[0]));
        // One that is remembered no more stands where another would: 5000 and 9096 are 4096 apart.
        for sequence in [5_000, 9_096, 9_096] {
            handle(&mut resequencer, sequence, &mut out);
        }
        assert_eq!(out, [10_000, 5_000, 9_096].map(|sequence: u32| sequence as u8));
        assert_eq!(resequencer.counts().copies, 1);
    }

    #[test]
    fn tiny_packets_are_held_up_to_a_number() {
        let mut resequencer = Resequencer::new();
        let mut left = 0;
        for sequence in 1..=(MOST_HELD_PACKETS as u32 + 10) {
            resequencer.handle(0, Sequence::new(sequence), &[1], DEADLINE, &mut |_, _, _: &[u8]| left += 1);
            assert!(resequencer.held_packets <= MOST_HELD_PACKETS);
        }
        assert_eq!(left, MOST_HELD_PACKETS + 10);
    }

    #[test]
    fn large_gaps_take_no_room() {
        let mut resequencer = Resequencer::new();
        for round in 0..4_u32 {
            for flow in 0..=255 {
                let sequence = Sequence::new(25_000 * (round + 1));
                resequencer.handle(flow, sequence, &[1], DEADLINE, &mut |_, _, _: &[u8]| {});
            }
        }
        assert_eq!(resequencer.held_packets, 4 * FLOWS);
        resequencer.handle_timeout(DEADLINE, &mut |_, _, _: &[u8]| {});
        assert_eq!((resequencer.held_packets, resequencer.held_bytes), (0, 0));
    }

    #[test]
    fn copies_are_told_apart() {
        let mut resequencer = Resequencer::new();
        let firsts: Vec<_> = [0, 1, 1, 3, 2, 3, 2, 5_000, 905, 904]
            .map(|number| resequencer.is_first_copy(9, Sequence::new(number)))
            .into();
        assert_eq!(firsts, [true, true, false, true, true, false, false, true, true, false]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_doubled(order in Just((0..60_u32).collect::<Vec<_>>()).prop_shuffle(), missing in 0..60_u32) {
            let (mut resequencer, mut out) = (Resequencer::new(), Vec::new());
            for &sequence in order.iter().filter(|&&sequence| sequence != missing) {
                handle(&mut resequencer, sequence, &mut out);
            }
            resequencer.handle_timeout(DEADLINE, &mut |_, _, packet: &[u8]| out.push(packet[0]));
            let expected: Vec<_> = (0..60).filter(|&sequence| sequence != missing as u8).collect();
            prop_assert_eq!(out, expected);
            prop_assert_eq!(resequencer.held_bytes(), 0);
            prop_assert_eq!(resequencer.held_packets, 0);
        }
    }
}
