use polypath_units::Duration;

/// RFC 9406 §4.3: bounds of the rise in round-trip time that ends slow start, and their constants.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u64 = 8;
/// Samples a round needs before its least round-trip time counts.
const N_RTT_SAMPLE: u32 = 8;
/// Conservative slow start grows this many times slower than slow start.
pub(crate) const CSS_GROWTH_DIVISOR: f64 = 4.0;
/// Rounds of conservative slow start before congestion avoidance begins.
const CSS_ROUNDS: u32 = 5;

/// What HyStart++ wants the window to do with this acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Grow by all that was acknowledged.
    SlowStart,
    /// Grow by what was acknowledged over [`CSS_GROWTH_DIVISOR`].
    Conservative,
    /// Slow start is over: the threshold becomes the window.
    Over,
}

/// HyStart++ (RFC 9406): ends the initial slow start when the round-trip time rises, before the queue overflows.
///
/// The limit `L` of RFC 9406 is infinite, as that document has it for a paced sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HyStart {
    /// Least round-trip times of the last and of this round; [`Duration::MAX`] without a sample.
    last_round_min_rtt: Duration,
    current_round_min_rtt: Duration,
    samples: u32,
    /// In conservative slow start: the least round-trip time when it began. A lower one shows that the rise was jitter.
    css_baseline_min_rtt: Option<Duration>,
    css_rounds: u32,
}

impl HyStart {
    pub(crate) const fn new() -> Self {
        Self {
            last_round_min_rtt: Duration::MAX,
            current_round_min_rtt: Duration::MAX,
            samples: 0,
            css_baseline_min_rtt: None,
            css_rounds: 0,
        }
    }

    /// Takes an acknowledgment in slow start. One that ends a round is the first of the round that begins: it
    /// acknowledges a segment that was sent in it.
    pub(crate) fn on_ack(&mut self, rtt: Option<Duration>, round_ended: bool) -> Phase {
        if round_ended {
            self.last_round_min_rtt = self.current_round_min_rtt;
            self.current_round_min_rtt = Duration::MAX;
            self.samples = 0;
            if self.css_baseline_min_rtt.is_some() {
                // The partial round in which conservative slow start began counts.
                self.css_rounds += 1;
                if self.css_rounds >= CSS_ROUNDS {
                    return Phase::Over;
                }
            }
        }
        if let Some(rtt) = rtt {
            self.current_round_min_rtt = self.current_round_min_rtt.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= N_RTT_SAMPLE {
            self.judge();
        }
        if self.css_baseline_min_rtt.is_some() { Phase::Conservative } else { Phase::SlowStart }
    }

    /// Compares rounds, once this one has samples enough.
    fn judge(&mut self) {
        match self.css_baseline_min_rtt {
            None if self.last_round_min_rtt != Duration::MAX => {
                let eighth = self.last_round_min_rtt / MIN_RTT_DIVISOR;
                let threshold = eighth.clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if self.current_round_min_rtt >= self.last_round_min_rtt + threshold {
                    self.css_baseline_min_rtt = Some(self.current_round_min_rtt);
                    self.css_rounds = 0;
                }
            }
            Some(baseline) if self.current_round_min_rtt < baseline => self.css_baseline_min_rtt = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of `samples` acknowledgments with this round-trip time; the phase after each.
    fn round(hystart: &mut HyStart, samples: u32, rtt_ms: u64) -> Phase {
        let mut phase = Phase::SlowStart;
        for i in 0..samples {
            phase = hystart.on_ack(Some(Duration::from_millis(rtt_ms)), i == 0);
        }
        phase
    }

    #[test]
    fn a_steady_round_trip_time_never_ends_slow_start() {
        let mut hystart = HyStart::new();
        for _ in 0..20 {
            assert_eq!(round(&mut hystart, 20, 40), Phase::SlowStart);
        }
    }

    #[test]
    fn a_rise_by_an_eighth_slows_growth_and_after_five_rounds_ends_it() {
        let mut hystart = HyStart::new();
        assert_eq!(round(&mut hystart, 10, 40), Phase::SlowStart);
        assert_eq!(round(&mut hystart, 7, 45), Phase::SlowStart, "seven samples are too few");
        assert_eq!(
            hystart.on_ack(Some(Duration::from_millis(45)), false),
            Phase::Conservative,
            "the eighth sample decides: 45 >= 40 + 40/8"
        );
        for _ in 0..4 {
            assert_eq!(round(&mut hystart, 10, 46), Phase::Conservative);
        }
        assert_eq!(hystart.on_ack(Some(Duration::from_millis(46)), true), Phase::Over);
    }

    #[test]
    fn the_threshold_lies_between_4_and_16_ms() {
        let exits = |before_ms, after_ms| {
            let mut hystart = HyStart::new();
            round(&mut hystart, 8, before_ms);
            round(&mut hystart, 8, after_ms) == Phase::Conservative
        };
        assert!(!exits(1, 4));
        assert!(exits(1, 5));
        assert!(!exits(80, 89));
        assert!(exits(80, 90));
        assert!(!exits(1000, 1015));
        assert!(exits(1000, 1016));
    }

    #[test]
    fn a_lower_round_trip_time_resumes_slow_start() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 8, 40);
        assert_eq!(round(&mut hystart, 8, 60), Phase::Conservative);
        assert_eq!(round(&mut hystart, 8, 41), Phase::SlowStart);
        assert_eq!(round(&mut hystart, 8, 60), Phase::Conservative, "and the next rise counts from there");
    }

    #[test]
    fn acknowledgments_without_a_sample_decide_nothing() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 8, 40);
        for i in 0..100 {
            assert_eq!(hystart.on_ack(None, i % 10 == 0), Phase::SlowStart);
        }
    }
}
