//! Flows take turns; a flow that has little to send goes first (RFC 8290).

use std::collections::VecDeque;

use polypath_units::Instant;

use super::codel::{Behind, Codel};

/// What a flow may send in its turn, in bytes.
const QUANTUM: i64 = 1_514;
/// Flows; the flow's number is a byte.
const FLOWS: usize = 256;
/// Most that waits, in bytes: half a second at 200 Mbit/s. The longest flow loses its oldest.
const MOST_BYTES: usize = 12 << 20;

/// A packet that waits.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) packet: Box<[u8]>,
    pub(crate) queued_at: Instant,
}

#[derive(Debug, Default)]
struct Flow {
    packets: VecDeque<Queued>,
    bytes: usize,
    deficit: i64,
    codel: Codel,
    is_listed: bool,
}

/// The flows' queues.
#[derive(Debug)]
pub(crate) struct FairQueue {
    flows: Vec<Flow>,
    new: VecDeque<u8>,
    old: VecDeque<u8>,
    bytes: usize,
    packets: usize,
    dropped: u64,
}

impl FairQueue {
    pub(crate) fn new() -> Self {
        Self {
            flows: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            bytes: 0,
            packets: 0,
            dropped: 0,
        }
    }

    pub(crate) fn push(&mut self, now: Instant, number: u8, packet: Box<[u8]>) {
        if self.flows.is_empty() {
            self.flows.resize_with(FLOWS, Flow::default);
        }
        let flow = &mut self.flows[usize::from(number)];
        flow.bytes += packet.len();
        self.bytes += packet.len();
        self.packets += 1;
        flow.packets.push_back(Queued { packet, queued_at: now });
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = QUANTUM;
            self.new.push_back(number);
        }
        if self.bytes > MOST_BYTES {
            self.drop_from_longest();
        }
    }

    fn drop_from_longest(&mut self) {
        let Some(longest) = self.flows.iter_mut().max_by_key(|flow| flow.bytes) else { return };
        // Half of it at once, so that the search is not done for each packet.
        let left = longest.bytes / 2;
        while longest.bytes > left {
            let Some(oldest) = longest.packets.pop_front() else { break };
            longest.bytes -= oldest.packet.len();
            self.bytes -= oldest.packet.len();
            self.packets -= 1;
            self.dropped += 1;
        }
    }

    /// The next packet, and its flow.
    pub(crate) fn pop(&mut self, now: Instant, behind: Behind) -> Option<(u8, Queued)> {
        loop {
            let is_new = !self.new.is_empty();
            let number = *self.new.front().or_else(|| self.old.front())?;
            let flow = &mut self.flows[usize::from(number)];
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM;
                self.turn(is_new, number, true);
                continue;
            }
            let Some(queued) = flow.packets.pop_front() else {
                // A new flow that is empty waits among the old ones once, so that it can't starve them.
                flow.is_listed = is_new && !self.old.is_empty();
                let stays = flow.is_listed;
                self.turn(is_new, number, stays);
                continue;
            };
            flow.bytes -= queued.packet.len();
            self.bytes -= queued.packet.len();
            self.packets -= 1;
            let sojourn = now.since(queued.queued_at);
            if flow.codel.drops(now, sojourn, flow.packets.is_empty(), behind) {
                self.dropped += 1;
                continue;
            }
            flow.deficit -= queued.packet.len() as i64;
            return Some((number, queued));
        }
    }

    fn turn(&mut self, is_new: bool, number: u8, stays: bool) {
        if is_new {
            self.new.pop_front();
        } else {
            self.old.pop_front();
        }
        if stays {
            self.old.push_back(number);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets dropped in all.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut FairQueue, flow: u8, count: usize) {
        for _ in 0..count {
            queue.push(Instant::ZERO, flow, vec![0; 1_400].into());
        }
    }

    fn order(queue: &mut FairQueue) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop(Instant::ZERO, Behind::default())).map(|(flow, _)| flow).collect()
    }

    #[test]
    fn a_flow_with_little_goes_first() {
        let mut queue = FairQueue::new();
        push(&mut queue, 1, 20);
        for _ in 0..5 {
            queue.pop(Instant::ZERO, Behind::default());
        }
        push(&mut queue, 2, 1);
        assert_eq!(queue.pop(Instant::ZERO, Behind::default()).unwrap().0, 2);
        assert_eq!(order(&mut queue), [1; 15]);
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    #[test]
    fn flows_take_turns() {
        let mut queue = FairQueue::new();
        push(&mut queue, 1, 30);
        push(&mut queue, 2, 30);
        let first: Vec<_> = order(&mut queue).into_iter().take(30).collect();
        let ones = first.iter().filter(|&&flow| flow == 1).count();
        assert!((14..=16).contains(&ones), "{ones}");
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut queue = FairQueue::new();
        push(&mut queue, 7, 1);
        push(&mut queue, 1, 20_000);
        assert!(queue.bytes() <= MOST_BYTES);
        assert!(queue.dropped() > 5_000);
        assert_eq!(order(&mut queue).into_iter().filter(|&flow| flow == 7).count(), 1);
    }
}
