use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// The share of the range from the least to the longest delay above which others are taken to be there (the paper's `δ`).
const THRESHOLD: f64 = 0.15;
/// What the smoothed delay takes of a new sample (the paper's `γ`).
const SMOOTHING: f64 = 1.0 / 8.0;
/// After an indication the flow waits for so many round trips for the effect (the paper's inference phase).
const INFERENCE_ROUND_TRIPS: u64 = 3;

/// TCP-LP (Kuzmanovic, Knightly: TCP-LP: A Distributed Algorithm for Low Priority Data Transfer, INFOCOM 2003, section III): uses what others leave.
/// A delay above 15 % of its range tells early that others are there, and the window is halved. For three round trips it then
/// does not grow; if the delay is that long once more in this time, the window becomes one segment. Else it is Reno.
///
/// The delay is that of the round trip: a queue on the way back counts too. (The paper has one-way delay, from timestamps.)
/// As in Linux, an indication begins the range of delays anew, and a single longest delay is not believed until another comes.
/// Where Linux would take delayed acknowledgments for a queue, or a queue that is gone for one that is there, small windows would stay
/// small: the lesser of the last two samples counts, and tells of others only while it is long itself.
#[derive(Clone, Debug)]
pub struct Lp {
    window: Window,
    /// None before the first sample.
    delays: Option<Delays>,
    /// The last early indication, if its inference phase is not over.
    indicated: Option<Instant>,
}

/// The range of delays, and where in it the path is, in milliseconds. They count whole, as the ticks of timestamps do: less is no queue.
#[derive(Clone, Copy, Debug)]
struct Delays {
    least: f64,
    longest: f64,
    /// The longest of all; `longest` is the one that was so before it came.
    outlier: f64,
    smoothed: f64,
    /// As it was sampled last.
    last: f64,
}

impl Delays {
    fn new(delay: f64) -> Self {
        Self { least: delay, longest: delay, outlier: delay, smoothed: delay, last: delay }
    }

    /// Takes a sample. True if it tells of others; the range then begins anew.
    fn sample(&mut self, delay: f64) -> bool {
        // Of two acknowledgments in a row a receiver delays no more than one, while two segments are under way.
        let delay = core::mem::replace(&mut self.last, delay).min(delay);
        self.widen(delay);
        self.smoothed += SMOOTHING * (delay - self.smoothed);
        let threshold = libm::floor(self.least + THRESHOLD * (self.longest - self.least));
        // The smoothed delay is behind: where the queue is short again, it would tell of what was.
        let is_long = libm::floor(self.smoothed) > threshold && delay > threshold;
        if is_long {
            self.begin_anew();
        }
        is_long
    }

    fn widen(&mut self, delay: f64) {
        self.least = self.least.min(delay);
        if delay > self.outlier {
            self.longest = self.outlier;
            self.outlier = delay;
        } else {
            self.longest = self.longest.max(delay);
        }
    }

    /// The range that an indication leaves: from the delay that there is to twice that.
    fn begin_anew(&mut self) {
        *self = Self {
            longest: 2.0 * self.smoothed,
            outlier: 2.0 * self.smoothed,
            last: self.last,
            ..Self::new(self.smoothed)
        };
    }
}

impl Lp {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false), delays: None, indicated: None }
    }

    /// True if this sample tells of others.
    fn sample(&mut self, rtt: Duration) -> bool {
        let delay = rtt.as_millis() as f64;
        match &mut self.delays {
            Some(delays) => delays.sample(delay),
            none => {
                *none = Some(Delays::new(delay));
                false
            }
        }
    }

    /// Section III-C: half the window, or all of it but a segment if the last half did not help.
    fn yield_to_others(&mut self, now: Instant) {
        let mss_bytes = self.window.mss_bytes();
        if self.indicated.is_some() {
            self.window.set_exact_bytes(mss_bytes);
        } else {
            self.window.set_exact_bytes(self.window.cwnd_exact_bytes() / 2.0);
            self.window.avoid_congestion();
        }
        self.indicated = Some(now);
    }
}

impl Controller for Lp {
    forward_to_window!("lp");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        self.indicated = self.indicated.filter(|at| ack.now.since(*at) < ack.srtt * INFERENCE_ROUND_TRIPS);
        if let Some(rtt) = ack.rtt
            && self.sample(rtt)
        {
            self.yield_to_others(ack.now);
        }
        let waits = self.indicated.is_some();
        let growing_bytes = if waits { 0 } else { ack.acked_bytes };
        let acked_bytes = self.window.on_ack(&Ack { acked_bytes: growing_bytes, ..*ack });
        self.window.grow_a_round(acked_bytes, 1.0);
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window
            .on_congestion(self.window.half_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window.on_timeout(self.window.half_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }
}

#[cfg(test)]
mod tests;
