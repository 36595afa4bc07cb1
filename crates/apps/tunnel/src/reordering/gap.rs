use std::collections::BTreeMap;

use polypath_units::{Duration, Instant};

use crate::reordering::arrival_order::{Discontinuity, Evaluated, Order};
use crate::reordering::distribution::Distribution;

/// Among so many of the last reordering discontinuities the neighbours of a new one are looked for.
const MOST_DISCONTINUITIES: usize = 1024;

/// *Type-P-Packet-Reordering-Gap-Stream* and *-GapTime-Stream* (RFC 4737 §4.5): how far reordering discontinuities are from each other.
///
/// A discontinuity is known as such when the first packet comes that it overtook, and that may be after later ones are known. Then the gap in which it lies
/// becomes two, as if all had been looked at afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// By arrival position.
    known: BTreeMap<u64, Instant>,
    /// None of those that are forgotten is at this position or behind it.
    remembered_from: u64,
    packets: Distribution,
    nanos: Distribution,
}

impl Gaps {
    /// A packet arrived.
    pub fn handle_arrival(&mut self, evaluated: &Evaluated) {
        let Order::Reordered { discontinuity, .. } = evaluated.order else { return };
        let Discontinuity { position, at } = discontinuity;
        if position < self.remembered_from || self.known.contains_key(&position) {
            return;
        }
        let before = self.known.range(..position).next_back().map(|(position, at)| (*position, *at));
        let after = self.known.range(position..).next().map(|(position, at)| (*position, *at));
        if let (Some(before), Some(after)) = (before, after) {
            self.packets.forget(after.0 - before.0);
            self.nanos.forget(after.1.since(before.1).as_nanos());
        }
        let here = Some((position, at));
        for (from, to) in [(before, here), (here, after)] {
            if let (Some(from), Some(to)) = (from, to) {
                self.packets.note(to.0 - from.0);
                self.nanos.note(to.1.since(from.1).as_nanos());
            }
        }
        self.known.insert(position, at);
        if self.known.len() > MOST_DISCONTINUITIES
            && let Some((forgotten, _)) = self.known.pop_first()
        {
            self.remembered_from = forgotten + 1;
        }
    }

    /// How often which gap occurred, in packets (RFC 4737 §4.5.4). The first discontinuity has none.
    #[must_use]
    pub const fn distribution(&self) -> &Distribution {
        &self.packets
    }

    /// The gap in time that this share of the gaps does not exceed; none if there is no gap.
    #[must_use]
    pub fn percentile_of_times(&self, share: f64) -> Option<Duration> {
        self.nanos.percentile(share).map(Duration::from_nanos)
    }
}
