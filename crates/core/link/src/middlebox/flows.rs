use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_wire::{Endpoint, FourTuple, Packet, Segment, Transport};

use super::Direction;

/// Most flows that a box remembers; beyond, those that have been silent for longest are forgotten.
const MAX_FLOWS: usize = 65_536;

/// Which flows a box meddles with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Flows {
    /// All of them.
    #[default]
    All,
    /// The flow with this number, in the order in which the box first saw them, from 0.
    Nth(u64),
    /// Those whose client has this address.
    Client(IpAddr),
    /// Those whose server has this address.
    Server(IpAddr),
}

impl Flows {
    pub(super) fn contain(self, number: u64, flow: FourTuple) -> bool {
        match self {
            Self::All => true,
            Self::Nth(wanted) => wanted == number,
            Self::Client(addr) => addr == flow.local.addr,
            Self::Server(addr) => addr == flow.remote.addr,
        }
    }
}

/// The flow of a packet as its client sees it; `None` for what is not TCP.
pub(super) fn flow_of(direction: Direction, packet: &Packet) -> Option<FourTuple> {
    let at_receiver = packet.receiver_tuple()?;
    Some(match direction {
        Direction::Forward => at_receiver.reversed(),
        Direction::Backward => at_receiver,
    })
}

/// The segment of a TCP packet.
pub(super) fn segment_mut(packet: &mut Packet) -> Option<&mut Segment> {
    match &mut packet.transport {
        Transport::Tcp(segment) => Some(segment),
        _ => None,
    }
}

/// The segment of a TCP packet.
pub(super) fn segment(packet: &Packet) -> Option<&Segment> {
    match &packet.transport {
        Transport::Tcp(segment) => Some(segment),
        _ => None,
    }
}

/// The state that a box keeps for each flow, in bounded space.
#[derive(Debug)]
pub(super) struct FlowTable<T> {
    flows: BTreeMap<(Endpoint, Endpoint), Entry<T>>,
    /// Flows seen so far.
    count: u64,
    /// Packets seen so far: the clock by which silence is measured.
    clock: u64,
    max_flows: usize,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    last_seen: u64,
    state: T,
}

impl<T> FlowTable<T> {
    pub(super) fn new() -> Self {
        Self::with_limit(MAX_FLOWS)
    }

    pub(super) fn with_limit(max_flows: usize) -> Self {
        Self { flows: BTreeMap::new(), count: 0, clock: 0, max_flows: max_flows.max(2) }
    }

    /// The state of a flow that is known.
    pub(super) fn get(&mut self, flow: FourTuple) -> Option<&mut T> {
        self.clock += 1;
        let entry = self.flows.get_mut(&(flow.local, flow.remote))?;
        entry.last_seen = self.clock;
        Some(&mut entry.state)
    }

    /// The number and state of a flow; a new one gets its state from `make`.
    pub(super) fn get_or_insert(&mut self, flow: FourTuple, make: impl FnOnce() -> T) -> (u64, &mut T) {
        self.clock += 1;
        let key = (flow.local, flow.remote);
        if self.flows.len() >= self.max_flows && !self.flows.contains_key(&key) {
            self.forget_silent();
        }
        let (clock, count) = (self.clock, &mut self.count);
        let entry = self.flows.entry(key).or_insert_with(|| {
            *count += 1;
            Entry { number: *count - 1, last_seen: clock, state: make() }
        });
        entry.last_seen = clock;
        (entry.number, &mut entry.state)
    }

    pub(super) fn insert(&mut self, flow: FourTuple, state: T) {
        self.remove(flow);
        self.get_or_insert(flow, || state);
    }

    pub(super) fn remove(&mut self, flow: FourTuple) -> Option<T> {
        Some(self.flows.remove(&(flow.local, flow.remote))?.state)
    }

    /// Forgets the half that has been silent for longer; so one in many insertions pays for the walk.
    fn forget_silent(&mut self) {
        let mut seen: Vec<u64> = self.flows.values().map(|entry| entry.last_seen).collect();
        let middle = seen.len() / 2;
        let (_, median, _) = seen.select_nth_unstable(middle);
        let median = *median;
        self.flows.retain(|_, entry| entry.last_seen >= median);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FLOW;

    #[test]
    fn the_silent_are_forgotten_when_the_table_is_full() {
        let mut table = FlowTable::with_limit(10);
        let flow = |port| FourTuple { local: Endpoint::new(FLOW.local.addr, port), ..FLOW };
        for port in 0..100 {
            assert_eq!(table.get_or_insert(flow(port), || port).0, u64::from(port));
            assert_eq!(*table.get_or_insert(flow(0), || 999).1, 0, "a busy flow stays");
            assert!(table.len() <= 10);
        }
        assert!(table.get(flow(99)).is_some());
        assert!(table.get(flow(1)).is_none());
    }
}
