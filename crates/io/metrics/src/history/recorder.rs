use std::collections::BTreeMap;

use super::row::{RoundTrip, Row, Usage};
use crate::sample::Counted;
use crate::totals::Totals;

/// Makes rows of totals: what was added since it looked last.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    before: Option<BTreeMap<String, Counted>>,
    /// Round-trip times and subflows that were seen since rows were made.
    seen: BTreeMap<String, Usage>,
}

impl Recorder {
    /// Takes a look, as often as one likes, at what is not counted but measured.
    pub fn observe(&mut self, totals: &Totals) {
        for (interface, (_, now)) in totals.interfaces() {
            let measured = Usage {
                subflows: now.subflows,
                round_trip: now.round_trip_s.map(RoundTrip::once).unwrap_or_default(),
                ..Usage::default()
            };
            let seen = self.seen.entry(interface).or_default();
            *seen = seen.and(measured);
        }
    }

    /// What interfaces did since this was called last. The first call only looks: what was carried before is nobody's.
    pub fn rows(&mut self, now_s: u64, totals: &Totals) -> Vec<Row> {
        let seen = std::mem::take(&mut self.seen);
        let interfaces = totals.interfaces();
        let counted = interfaces.iter().map(|(name, (counted, _))| (name.clone(), *counted)).collect();
        let Some(before) = self.before.replace(counted) else { return Vec::new() };
        let rows = interfaces.into_iter().filter_map(|(interface, (counted, _))| {
            let added = counted.since(before.get(&interface).copied().unwrap_or_default());
            let usage = Usage {
                sent_bytes: added.sent_bytes,
                received_bytes: added.received_bytes,
                retransmitted_bytes: added.retransmitted_bytes,
                // One that came and went in between was there.
                subflows: added.subflows.min(1),
                ..Usage::default()
            };
            let usage = usage.and(seen.get(&interface).copied().unwrap_or_default());
            // An interface that nobody uses needs no row.
            (usage != Usage::default()).then_some(Row { at_s: now_s, interface, usage })
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{PathNow, PathSample, StackSample};

    #[test]
    fn rows_are_what_was_added_and_idle_interfaces_have_none() {
        let totals_of = |totals: &mut Totals, sent_bytes: Option<u64>| {
            let stack = sent_bytes.map(|sent_bytes| StackSample {
                source: "1".into(),
                program: "curl".into(),
                paths: vec![PathSample {
                    interface: Some("wifi".into()),
                    counted: Counted { sent_bytes, ..Counted::default() },
                    now: PathNow { subflows: 2, round_trip_s: Some(0.02), ..PathNow::default() },
                }],
                ..StackSample::default()
            });
            totals.update(stack.into_iter().collect(), &[]);
        };
        let (mut totals, mut recorder) = (Totals::default(), Recorder::default());
        totals_of(&mut totals, Some(1000));
        assert_eq!(recorder.rows(10, &totals), []);
        totals_of(&mut totals, Some(1200));
        recorder.observe(&totals);
        totals_of(&mut totals, Some(1500));
        recorder.observe(&totals);
        let usage = Usage {
            sent_bytes: 500,
            subflows: 2,
            round_trip: RoundTrip { count: 2, sum_us: 40_000, min_us: 20_000, max_us: 20_000 },
            ..Usage::default()
        };
        assert_eq!(recorder.rows(20, &totals), [Row { at_s: 20, interface: "wifi".into(), usage }]);
        totals_of(&mut totals, None);
        assert_eq!(recorder.rows(30, &totals), []);
    }
}
