//! What a path delivers, over spans that are longer than the bursts that it lets pass.
//!
//! A token bucket lets a burst pass at once, and round trips may be a tenth of a millisecond: what is delivered in one of them says
//! nothing of the path's rate.

use std::collections::VecDeque;

use polypath_units::{BitRate, Duration, Instant};

/// A rate is of so long at least.
const LEAST_SPAN: Duration = Duration::from_millis(20);
/// What refutes a controller's belief is of so long.
const REFUTING_SPAN: Duration = Duration::from_millis(100);
/// How often a mark is set.
const SPACING: Duration = Duration::from_millis(4);
/// A belief is refuted if it is so much above what was delivered while a queue showed.
const REFUTED: f64 = 1.3;
/// A path whose rate was believed too high is given so much of what it delivers, so that a share of a line can grow.
const ROOM: f64 = 1.25;
/// Without a queue for so long, nothing is bound any more.
const FORGIVEN: Duration = Duration::from_secs(1);
/// Deliveries that come so near to the bound have reached it.
const REACHED: f64 = 1.1;

/// How far things were at a moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    /// When the newest packet had left that was acknowledged.
    sent_at: Instant,
    delivered: u64,
}

/// A rate, and what had been delivered when its span began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) rate: BitRate,
    pub(super) since_delivered: u64,
}

/// The path's deliveries of late.
#[derive(Debug, Default)]
pub(super) struct RateMeter {
    /// From the oldest on.
    marks: VecDeque<Mark>,
}

impl RateMeter {
    /// A packet leaves while nothing is under way: after a while without any, the past says nothing.
    pub(super) fn handle_start(&mut self, now: Instant, delivered: u64) {
        if self.marks.back().is_none_or(|mark| now.since(mark.at) >= LEAST_SPAN) {
            self.marks.clear();
            self.marks.push_back(Mark { at: now, sent_at: now, delivered });
        }
    }

    /// So much is delivered now; the newest packet of it left at `sent_at`.
    pub(super) fn handle_delivered(&mut self, now: Instant, sent_at: Instant, delivered: u64) {
        if self.marks.back().is_some_and(|mark| now.since(mark.at) < SPACING) {
            return;
        }
        self.marks.push_back(Mark { at: now, sent_at, delivered });
        while self.marks.get(1).is_some_and(|mark| now.since(mark.at) >= REFUTING_SPAN) {
            self.marks.pop_front();
        }
    }

    /// What was delivered in the last so long, as a rate. Before there was so long a time, it is spread over it all the same.
    fn over(&self, span: Duration, now: Instant, sent_at: Instant, delivered: u64) -> Option<Delivery> {
        let old_enough = self.marks.iter().rev().find(|mark| now.since(mark.at) >= span);
        let mark = old_enough.or(self.marks.front())?;
        let took = now.since(mark.at).max(sent_at.since(mark.sent_at)).max(span);
        let rate = BitRate::from_bytes_over(delivered - mark.delivered, took);
        Some(Delivery { rate, since_delivered: mark.delivered })
    }

    /// What a controller may take for the path's rate.
    pub(super) fn sample(&self, now: Instant, sent_at: Instant, delivered: u64) -> Option<Delivery> {
        self.over(LEAST_SPAN, now, sent_at, delivered)
    }

    /// What the path carried over a long time, if it carries something for so long.
    fn long_sample(&self, now: Instant, sent_at: Instant, delivered: u64) -> Option<Delivery> {
        let is_long = self.marks.front().is_some_and(|mark| now.since(mark.at) >= REFUTING_SPAN);
        is_long.then(|| self.over(REFUTING_SPAN, now, sent_at, delivered)).flatten()
    }
}

/// A bound to the rate, from what the path delivers while a queue stands in it: a controller forgets what it believed in seconds only.
#[derive(Debug, Default)]
pub(super) struct Ceiling {
    rate: Option<BitRate>,
    lifted_at: Instant,
    refuted_at: Instant,
}

impl Ceiling {
    /// A path with a queue delivered so much, where the controller believes in `believed`.
    fn note_queue(&mut self, now: Instant, believed: BitRate, delivered: BitRate) {
        self.refuted_at = now;
        let is_refuted = believed.as_bps() as f64 > delivered.as_bps() as f64 * REFUTED;
        self.rate = is_refuted.then(|| times(delivered, ROOM));
    }

    /// A path without a queue may be faster than it was, if it delivers as much as it is given.
    fn lift(&mut self, now: Instant, believed: BitRate, delivered: Option<Delivery>) {
        let Some(rate) = self.rate else { return };
        if now.since(self.refuted_at) >= FORGIVEN {
            self.rate = None;
            return;
        }
        if now.since(self.lifted_at) >= LEAST_SPAN
            && delivered.is_some_and(|delivered| times(delivered.rate, REACHED) >= rate)
        {
            self.lifted_at = now;
            self.rate = Some(times(rate, ROOM)).filter(|rate| *rate < believed);
        }
    }

    /// What was acknowledged says whether a queue shows, and of what rate.
    pub(super) fn update(
        &mut self,
        now: Instant,
        queue_shows: bool,
        believed: BitRate,
        (meter, sent_at, delivered, limited_until): (&RateMeter, Instant, u64, u64),
    ) {
        if !queue_shows {
            self.lift(now, believed, meter.sample(now, sent_at, delivered));
        } else if let Some(long) = meter.long_sample(now, sent_at, delivered)
            && long.since_delivered >= limited_until
        {
            self.note_queue(now, believed, long.rate);
        }
    }

    pub(super) fn rate(&self) -> Option<BitRate> {
        self.rate
    }
}

fn times(rate: BitRate, factor: f64) -> BitRate {
    BitRate::from_bps((rate.as_bps() as f64 * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbps(rate: BitRate) -> f64 {
        (rate.as_mbps_f64() * 10.0).round() / 10.0
    }

    #[test]
    fn a_burst_is_spread_over_the_least_span() {
        let mut meter = RateMeter::default();
        let start = Instant::from_secs(1);
        meter.handle_start(start, 7);
        let soon = start + Duration::from_micros(100);
        let sample = meter.sample(soon, start, 25_007).unwrap();
        assert_eq!((mbps(sample.rate), sample.since_delivered), (10.0, 7));
    }

    #[test]
    fn a_rate_is_of_the_last_span_whatever_was_before() {
        let mut meter = RateMeter::default();
        let start = Instant::from_secs(1);
        meter.handle_start(start, 0);
        // 100 KB at once, then 1250 bytes each millisecond.
        let delivered = |millis: u64| 100_000 + 1_250 * millis;
        for millis in 0..120 {
            let now = start + Duration::from_millis(millis);
            meter.handle_delivered(now, now, delivered(millis));
            assert_eq!(meter.long_sample(now, now, delivered(millis)).is_some(), millis >= 100);
        }
        let now = start + Duration::from_millis(120);
        let (short, long) =
            (meter.sample(now, now, delivered(120)), meter.long_sample(now, now, delivered(120)));
        assert_eq!([short, long].map(|sample| mbps(sample.unwrap().rate)), [10.0, 10.0]);
        assert!(meter.marks.len() <= 28, "{}", meter.marks.len());
        // After a rest the past is forgotten.
        let later = now + Duration::from_secs(1);
        meter.handle_start(later, delivered(120));
        assert_eq!(meter.marks.len(), 1);
    }

    #[test]
    fn what_was_refuted_is_bound_until_the_path_shows_more() {
        let (ten, hundred) = (BitRate::from_mbps(10), BitRate::from_mbps(100));
        let mut ceiling = Ceiling::default();
        ceiling.note_queue(Instant::from_secs(1), BitRate::from_mbps(12), ten);
        assert_eq!(ceiling.rate(), None);
        ceiling.note_queue(Instant::from_secs(1), hundred, ten);
        assert_eq!(ceiling.rate(), Some(BitRate::from_kbps(12_500)));
        let delivers = |mbps| Some(Delivery { rate: BitRate::from_mbps(mbps), since_delivered: 0 });
        ceiling.lift(Instant::from_secs(1), hundred, delivers(10));
        assert_eq!(ceiling.rate(), Some(BitRate::from_kbps(12_500)));
        for step in 0..12 {
            ceiling.lift(Instant::from_millis(1_040 + 20 * step), hundred, delivers(100));
        }
        assert_eq!(ceiling.rate(), None);
    }

    #[test]
    fn a_bound_ends_with_the_queue() {
        let (ten, hundred) = (BitRate::from_mbps(10), BitRate::from_mbps(100));
        let mut ceiling = Ceiling::default();
        ceiling.note_queue(Instant::from_secs(1), hundred, ten);
        ceiling.lift(Instant::from_millis(1_900), hundred, None);
        assert!(ceiling.rate().is_some());
        ceiling.lift(Instant::from_millis(2_000), hundred, None);
        assert_eq!(ceiling.rate(), None);
    }
}
