//! Whose turn it is, where flows share a rate: start-time fair queueing.
//!
//! Each octet that a flow gets moves its tag on. Of those that wait, the one is next whose tag would be the lowest with what it waits for: whoever had
//! less comes first, and whoever wants little does not wait behind those that want much. No flow has more than another by more than what is given
//! at once. A flow that comes after a while starts where the others are: it has nothing saved.

use std::collections::BTreeMap;

use polypath_units::{Duration, Instant};

/// How long a flow's turn is kept for it after the time at which it was to come. One that comes later stands behind those of its tag.
const GRACE: Duration = Duration::from_millis(20);

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowId(pub(super) u64);

/// A flow that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tag: u64,
    octets: u64,
    until: Instant,
}

impl Waiting {
    fn is_late(&self, now: Instant) -> bool {
        self.until + GRACE < now
    }
}

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The tag that all have reached.
    reached: u64,
    /// The tag of each flow that had a turn.
    tags: BTreeMap<FlowId, u64>,
    /// Those that wait, in order, by what their tags would be with what they wait for.
    order: BTreeMap<(u64, FlowId), Waiting>,
    /// Where each of them stands.
    places: BTreeMap<FlowId, u64>,
}

impl Turns {
    /// How many octets go to others before so many go to this flow. Counted no further than to `enough`.
    pub(super) fn octets_before(&mut self, now: Instant, flow: FlowId, octets: u64, enough: u64) -> u64 {
        // Those who are first and did not come are taken out. Their tags stay as they are.
        while let Some((&(_, first), waiting)) = self.order.first_key_value()
            && first != flow
            && waiting.is_late(now)
        {
            self.leave_queue(first);
        }
        let place = (self.tag(flow).saturating_add(octets), flow);
        let mut before = 0u64;
        for (_, waiting) in self.order.range(..place).filter(|((_, other), _)| *other != flow) {
            if !waiting.is_late(now) {
                before = before.saturating_add(waiting.octets);
            }
            if before >= enough {
                break;
            }
        }
        before
    }

    /// The flow waits for this many octets, and asks again at this time.
    pub(super) fn wait(&mut self, flow: FlowId, octets: u64, until: Instant) {
        let tag = self.tag(flow);
        self.leave_queue(flow);
        let place = tag.saturating_add(octets);
        self.places.insert(flow, place);
        self.order.insert((place, flow), Waiting { tag, octets, until });
    }

    /// The flow waits for nothing here.
    pub(super) fn leave_queue(&mut self, flow: FlowId) {
        if let Some(place) = self.places.remove(&flow) {
            self.order.remove(&(place, flow));
        }
    }

    /// The flow gets this many octets.
    pub(super) fn take(&mut self, flow: FlowId, octets: u64) {
        let tag = self.tag(flow);
        self.leave_queue(flow);
        // Not past one that is still expected: what others get meanwhile, out of turn, it is to have after them.
        let expected = self.order.first_key_value().map_or(tag, |(_, first)| first.tag);
        self.reached = self.reached.max(expected.min(tag));
        self.tags.insert(flow, tag.saturating_add(octets));
    }

    /// It got this many too many.
    pub(super) fn give_back(&mut self, flow: FlowId, octets: u64) {
        if let Some(tag) = self.tags.get_mut(&flow) {
            *tag = tag.saturating_sub(octets);
        }
    }

    /// The flow is no more.
    pub(super) fn remove(&mut self, flow: FlowId) {
        self.leave_queue(flow);
        self.tags.remove(&flow);
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.order.len()
    }

    fn tag(&self, flow: FlowId) -> u64 {
        let waiting = self.places.get(&flow).and_then(|place| self.order.get(&(*place, flow)));
        match waiting {
            Some(waiting) => waiting.tag,
            None => self.tags.get(&flow).copied().unwrap_or_default().max(self.reached),
        }
    }
}
