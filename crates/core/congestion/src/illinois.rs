use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::round_trips::RoundTrips;
use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// Growth in a round trip, in segments, at the longest and at no queueing delay.
const ALPHA_MIN: f64 = 0.3;
const ALPHA_MAX: f64 = 10.0;
/// What congestion takes of the window, at a short and at a long queueing delay.
const BETA_MIN: f64 = 0.125;
const BETA_MAX: f64 = 0.5;
/// Smaller windows are Reno's, in segments (the paper's `W_thresh`).
const WINDOW_THRESHOLD_PACKETS: f64 = 15.0;
/// Delays are short, growth being at its most, up to a hundredth of the longest.
const D1: f64 = 0.01;
/// Decrease is at its least up to a tenth of it, and at its most from eight tenths on.
const D2: f64 = 0.1;
const D3: f64 = 0.8;
/// Once the delay was longer, so many rounds of short delay bring the most growth back (the paper's `θ`).
const THETA_ROUNDS: u32 = 5;

/// TCP-Illinois (Liu, Başar, Srikant: TCP-Illinois: A Loss- and Delay-Based Congestion Control Algorithm for High-Speed Networks,
/// Performance Evaluation 65(6), 2008, section 2): loss says when the window falls, the mean queueing delay of a round says by how much, and how fast it grows
/// until then: `α` from 10 segments a round trip down to 0.3, `β` from an eighth up to a half.
///
/// A timeout halves, and makes both Reno's until the next round.
#[derive(Clone, Debug)]
pub struct Illinois {
    window: Window,
    round_trips: RoundTrips,
    /// Longest round-trip time.
    max_rtt: Duration,
    alpha: f64,
    beta: f64,
    /// The delay was longer than a short one since growth was last at its most; rounds of short delay since.
    was_long: bool,
    short_rounds: u32,
}

impl Illinois {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            window: Window::new(config, false),
            round_trips: RoundTrips::new(),
            max_rtt: Duration::ZERO,
            alpha: ALPHA_MAX,
            beta: BETA_MAX,
            was_long: false,
            short_rounds: 0,
        }
    }

    /// Once a round: `α` and `β` from its mean round-trip time.
    fn adjust(&mut self, rtt: Duration) {
        if self.window.cwnd_packets() < WINDOW_THRESHOLD_PACKETS {
            self.alpha = 1.0;
            self.beta = BETA_MAX;
            return;
        }
        let delay = self.round_trips.queue_delay(rtt).as_nanos() as f64;
        let longest = self.round_trips.queue_delay(self.max_rtt).as_nanos() as f64;
        self.alpha = self.alpha_at(delay, longest);
        self.beta = beta_at(delay, longest);
    }

    fn alpha_at(&mut self, delay: f64, longest: f64) -> f64 {
        if delay > D1 * longest {
            self.was_long = true;
            return curve(delay, longest);
        }
        if self.was_long {
            self.short_rounds += 1;
            if self.short_rounds < THETA_ROUNDS {
                return self.alpha;
            }
        }
        self.was_long = false;
        self.short_rounds = 0;
        ALPHA_MAX
    }

    fn forget_delays(&mut self) {
        self.alpha = 1.0;
        self.beta = BETA_MAX;
        self.was_long = false;
        self.short_rounds = 0;
        self.round_trips.begin_round();
    }
}

/// `κ₁ / (κ₂ + delay)`, with the `κ` at which it is `α_max` at `d₁` and `α_min` at the longest delay (equation 5).
fn curve(delay: f64, longest: f64) -> f64 {
    let d1 = D1 * longest;
    let (longest, delay) = (longest - d1, delay - d1);
    longest * ALPHA_MAX / (longest + delay * (ALPHA_MAX - ALPHA_MIN) / ALPHA_MIN)
}

/// `κ₃ + κ₄ · delay` between `d₂` and `d₃` (equation 6).
fn beta_at(delay: f64, longest: f64) -> f64 {
    let (d2, d3) = (D2 * longest, D3 * longest);
    if delay <= d2 {
        BETA_MIN
    } else if delay >= d3 {
        BETA_MAX
    } else {
        (BETA_MIN * d3 - BETA_MAX * d2 + (BETA_MAX - BETA_MIN) * delay) / (d3 - d2)
    }
}

impl Controller for Illinois {
    forward_to_window!("illinois");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        if ack.round_ended
            && let Some(round) = self.round_trips.end_round()
        {
            self.adjust(round.mean);
        }
        if let Some(rtt) = ack.rtt {
            self.round_trips.sample(rtt);
            self.max_rtt = self.max_rtt.max(rtt);
        }
        let acked_bytes = self.window.on_ack(ack);
        self.window.grow_a_round(acked_bytes, self.alpha);
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        let left_bytes = (1.0 - self.beta) * self.window.pipe_bytes(in_flight_bytes) as f64;
        self.window.on_congestion(left_bytes, self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window.on_timeout(self.window.half_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
        self.forget_delays();
    }
}

#[cfg(test)]
mod tests;
