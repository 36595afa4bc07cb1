use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::window::{Window, forward_sizes_to_window};
use crate::{Ack, Config, Controller, Flows};

/// The rate is measured over a round trip, and over no less than this.
const LEAST_INTERVAL: Duration = Duration::from_millis(50);
/// What each of the two filters keeps of what it had.
const KEPT: f64 = 7.0 / 8.0;

/// Westwood+ (Grieco, Mascolo: Performance Evaluation and Comparison of Westwood+, New Reno, and Vegas TCP Congestion Control,
/// ACM CCR 34(2), 2004, section 2): Reno, but after a loss the window is what the path holds: the rate at which data
/// arrives, times the least round-trip time. A loss that no queue goes with takes little.
///
/// The rate is sampled once a round trip and goes through two filters in a row, as in Linux; after a timeout the least round-trip time
/// is measured anew. What is delivered during recovery counts, so that a loss does not look like a slow path.
#[derive(Clone, Debug)]
pub struct Westwood {
    window: Window,
    /// Zero before the first sample.
    min_rtt: Duration,
    /// The next sample of the round-trip time is the least.
    forgets_min_rtt: bool,
    /// None before the first interval ended.
    rate: Option<Rate>,
    /// When the interval began that is being measured, and the bytes that were delivered by then.
    interval: Option<(Instant, u64)>,
}

/// The rate of delivery, in bytes per second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    once_filtered: f64,
    twice_filtered: f64,
}

impl Westwood {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            window: Window::new(config, false),
            min_rtt: Duration::ZERO,
            forgets_min_rtt: true,
            rate: None,
            interval: None,
        }
    }

    /// Measures the rate over an interval of at least a round trip.
    fn measure(&mut self, ack: &Ack, delivered_bytes: u64) {
        let Some((start, delivered_before_bytes)) = self.interval else {
            self.interval = Some((ack.now, delivered_bytes));
            return;
        };
        let elapsed = ack.now.since(start);
        if elapsed > ack.srtt.max(LEAST_INTERVAL) {
            let bytes = delivered_bytes.saturating_sub(delivered_before_bytes) as f64;
            let rate = Rate::filter(self.rate, bytes / elapsed.as_secs_f64());
            self.rate = Some(rate);
            self.interval = Some((ack.now, delivered_bytes));
        }
    }

    /// What the path holds, and no more than the window that there is; half of that while nothing is known.
    fn reduced_bytes(&self, in_flight_bytes: u64) -> f64 {
        match self.rate {
            Some(rate) if !self.min_rtt.is_zero() => {
                let path_bytes = rate.twice_filtered * self.min_rtt.as_secs_f64();
                path_bytes.min(self.window.pipe_bytes(in_flight_bytes) as f64)
            }
            _ => self.window.half_bytes(in_flight_bytes),
        }
    }
}

impl Rate {
    fn filter(before: Option<Self>, sample: f64) -> Self {
        let Some(before) = before else {
            return Self { once_filtered: sample, twice_filtered: sample };
        };
        let filtered = |kept: f64, new: f64| KEPT * kept + (1.0 - KEPT) * new;
        let once_filtered = filtered(before.once_filtered, sample);
        Self { once_filtered, twice_filtered: filtered(before.twice_filtered, once_filtered) }
    }
}

impl Controller for Westwood {
    forward_sizes_to_window!("westwood");

    fn needs_rate_samples(&self) -> bool {
        true
    }

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        if let Some(rtt) = ack.rtt {
            let is_least = self.forgets_min_rtt || rtt < self.min_rtt;
            self.min_rtt = if is_least { rtt } else { self.min_rtt };
            self.forgets_min_rtt = false;
        }
        if let Some(rate) = &ack.rate {
            self.measure(ack, rate.delivered_bytes);
        }
        let acked_bytes = self.window.on_ack(ack);
        self.window.grow_a_round(acked_bytes, 1.0);
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window.on_congestion(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window.on_timeout(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
        self.forgets_min_rtt = true;
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.on_spurious();
    }

    fn on_idle_restart(&mut self, _now: Instant) {
        self.window.on_idle_restart();
        // A silence says nothing of the rate.
        self.interval = None;
    }
}

#[cfg(test)]
mod tests;
