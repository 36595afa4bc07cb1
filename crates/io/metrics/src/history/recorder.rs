use std::collections::BTreeMap;

use super::row::{RoundTrip, Row, Usage, of_proxy};
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
        for (proxy, now) in totals.proxies().now() {
            let subflows = now.sessions.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
            let within = Usage { subflows, ..Usage::default() };
            let seen = self.seen.entry(of_proxy(&proxy)).or_default();
            *seen = seen.and(within);
        }
    }

    /// What interfaces and proxies did since this was called last. The first call only looks: what was carried before is nobody's.
    pub fn rows(&mut self, now_s: u64, totals: &Totals) -> Vec<Row> {
        let seen = std::mem::take(&mut self.seen);
        let interfaces = totals.interfaces().into_iter().map(|(name, (counted, _))| (name, counted));
        let proxies = totals.proxies().counts().into_iter();
        let proxies = proxies.map(|(name, counts)| (of_proxy(&name), counts.counted()));
        let counted: BTreeMap<String, Counted> = interfaces.chain(proxies).collect();
        let Some(before) = self.before.replace(counted.clone()) else { return Vec::new() };
        let rows = counted.into_iter().filter_map(|(interface, counted)| {
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
            // What nobody uses needs no row.
            (usage != Usage::default()).then_some(Row { at_s: now_s, interface, usage })
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxies::ProxySample;
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

    #[test]
    fn proxies_have_rows_beside_interfaces() {
        let (mut totals, mut recorder) = (Totals::default(), Recorder::default());
        let mut told = |recorder: &mut Recorder, up_bytes: u64, sessions: u64, at_s| {
            let proxy = ProxySample {
                source: "proxy-a.sock".into(),
                name: "a".into(),
                sessions: [("socks".into(), sessions)].into(),
                ended: [(("socks".into(), "complete".into()), up_bytes / 100)].into(),
                up_bytes,
                down_bytes: 10 * up_bytes,
                ..ProxySample::default()
            };
            totals.update_proxies(vec![proxy], &[]);
            recorder.observe(&totals);
            recorder.rows(at_s, &totals)
        };
        assert_eq!(told(&mut recorder, 1000, 5, 10), []);
        let rows = told(&mut recorder, 1200, 0, 20);
        assert_eq!((rows.len(), rows[0].proxy()), (1, Some("a")));
        // Who came and left in between was there.
        let usage = Usage { sent_bytes: 200, received_bytes: 2000, subflows: 1, ..Usage::default() };
        assert_eq!(rows[0].usage, usage);
        assert_eq!(told(&mut recorder, 1200, 3, 30)[0].usage, Usage { subflows: 3, ..Usage::default() });
        assert_eq!(told(&mut recorder, 1200, 0, 40), []);
    }
}
