//! Which subflows the limits are of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polypath_units::{Duration, Instant};
use polypath_wire::FourTuple;

use super::limit::{LimitId, Way};

/// A subflow is looked at again after this time: paths may have another address or interface by then.
const LOOKED_AT_FOR: Duration = Duration::from_secs(1);
/// So many are not worth a look for those that are gone.
const LEAST: usize = 64;

/// The limits that are of one way of a subflow, in their order.
pub(super) type Hops = Option<Arc<[LimitId]>>;

#[derive(Debug)]
struct Member {
    hops: [Hops; 2],
    /// When it was last asked which limits are of it.
    asked_at: Instant,
}

/// Subflows that were looked at.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<FourTuple, Member>,
    /// Those that are to be looked at.
    unsorted: BTreeSet<FourTuple>,
    /// How many there were when those that were gone had been taken out.
    least: usize,
}

impl Members {
    /// The limits that a packet passes. One of a subflow that nobody has looked at passes none.
    pub(super) fn hops(&mut self, now: Instant, flow: FourTuple, way: Way) -> Hops {
        let Some(member) = self.known.get_mut(&flow) else {
            self.unsorted.insert(flow);
            return None;
        };
        if now.since(member.asked_at) >= LOOKED_AT_FOR {
            member.asked_at = now;
            self.unsorted.insert(flow);
        }
        member.hops[way as usize].clone()
    }

    /// All these are to be looked at.
    pub(super) fn look_again(&mut self, flows: impl Iterator<Item = FourTuple>) {
        self.unsorted.extend(flows);
    }

    /// Those that are to be looked at, once.
    pub(super) fn take_unsorted(&mut self) -> BTreeSet<FourTuple> {
        std::mem::take(&mut self.unsorted)
    }

    /// These limits are of a subflow.
    pub(super) fn sort(&mut self, now: Instant, flow: FourTuple, hops: [Hops; 2]) {
        self.known.insert(flow, Member { hops, asked_at: now });
    }

    /// How many a limit is of.
    pub(super) fn count(&self, id: LimitId) -> usize {
        let is_of = |member: &&Member| member.hops.iter().flatten().any(|hops| hops.contains(&id));
        self.known.values().filter(is_of).count()
    }

    /// Whether half of them may be gone.
    pub(super) fn is_overgrown(&self) -> bool {
        self.known.len() > 2 * self.least + LEAST
    }

    /// Forgets all but these.
    pub(super) fn retain(&mut self, open: &BTreeSet<FourTuple>) {
        self.known.retain(|flow, _| open.contains(flow));
        self.least = self.known.len();
    }
}

#[cfg(test)]
mod tests {
    use polypath_wire::Endpoint;

    use super::*;

    fn flow(port: u16) -> FourTuple {
        FourTuple {
            local: Endpoint::new([10, 0, 0, 1].into(), port),
            remote: Endpoint::new([10, 0, 0, 2].into(), 80),
        }
    }

    #[test]
    fn a_subflow_is_looked_at_when_it_comes_and_each_second() {
        let mut members = Members::default();
        let at = Instant::from_millis;
        for _ in 0..3 {
            assert_eq!(members.hops(at(0), flow(1), Way::Sent), None);
        }
        assert_eq!(members.take_unsorted().into_iter().collect::<Vec<_>>(), [flow(1)]);
        let hops: Hops = Some([LimitId(7)].into());
        members.sort(at(0), flow(1), [hops.clone(), None]);
        assert_eq!(members.hops(at(999), flow(1), Way::Sent), hops);
        assert_eq!(members.hops(at(999), flow(1), Way::Received), None);
        assert!(members.take_unsorted().is_empty());
        // What was known holds until more is.
        assert_eq!(members.hops(at(1000), flow(1), Way::Sent), hops);
        assert_eq!(members.hops(at(1001), flow(1), Way::Sent), hops);
        assert_eq!(members.take_unsorted().len(), 1);
        assert_eq!((members.count(LimitId(7)), members.count(LimitId(8))), (1, 0));
    }

    #[test]
    fn those_that_are_gone_are_forgotten_before_they_are_many() {
        let mut members = Members::default();
        for port in 0..1000 {
            if members.is_overgrown() {
                members.retain(&[flow(port - 1)].into());
            }
            members.sort(Instant::ZERO, flow(port), [None, None]);
            assert!(members.known.len() <= LEAST + 3);
        }
    }
}
