use alloc::boxed::Box;

use polypath_units::Instant;

use crate::window::{Window, forward_sizes_to_window};
use crate::{Ack, Config, Controller, Flows};

/// Growth in a round trip at most (the paper's `Smax`).
const MAX_INCREMENT_PACKETS: f64 = 16.0;
/// Up to this window growth and decrease are Reno's (the paper's `low_window`).
const LOW_WINDOW_PACKETS: f64 = 14.0;
/// What congestion leaves of the window (one less the paper's `β`).
const BETA: f64 = 819.0 / 1024.0;
/// The search goes a quarter of the way to the middle of the unknown at a time; the paper goes half of it.
const SEARCH_PART: f64 = 4.0;
/// Next to the maximum, growth takes so many round trips for each of the four parts.
const SMOOTH_PART: f64 = 20.0;
/// While no maximum is known, the window grows by a part of itself in a round trip, if that is more.
const UNKNOWN_PART: f64 = 20.0;

/// BIC (Xu, Harfoush, Rhee: Binary Increase Congestion Control (BIC) for Fast Long-Distance Networks, INFOCOM 2004, section
/// III): the window at which loss came is searched for. Far below it growth is additive, near it ever less; beyond it, the search for a new one
/// begins slowly (max probing).
///
/// Fast convergence is on. The constants are those of Linux 2.6.32, with its slow steps around the maximum, which the paper lacks.
#[derive(Clone, Debug)]
pub struct Bic {
    window: Window,
    /// The window at which loss came, lowered by fast convergence; zero while none is known.
    last_max_bytes: f64,
    /// The same before the last congestion event or timeout.
    last_max_before_bytes: f64,
}

impl Bic {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false), last_max_bytes: 0.0, last_max_before_bytes: 0.0 }
    }

    fn reduced_bytes(&self, in_flight_bytes: u64) -> f64 {
        let share = if self.window.cwnd_packets() <= LOW_WINDOW_PACKETS { 0.5 } else { BETA };
        share * self.window.pipe_bytes(in_flight_bytes) as f64
    }
}

/// Growth in a round trip, in segments.
fn growth_packets(window: f64, last_max: f64) -> f64 {
    if window <= LOW_WINDOW_PACKETS {
        return 1.0;
    }
    let slow = SEARCH_PART / SMOOTH_PART;
    let growth = if window < last_max {
        let step = (last_max - window) / SEARCH_PART;
        // Linux counts whole segments: to it, less than two is one, and the maximum is near.
        if step < 2.0 { slow } else { step }
    } else {
        let beyond = window - last_max;
        if beyond < SEARCH_PART { slow } else { beyond / (SEARCH_PART - 1.0) }
    };
    let least = if last_max == 0.0 { window / UNKNOWN_PART } else { 0.0 };
    growth.min(MAX_INCREMENT_PACKETS).max(least)
}

impl Controller for Bic {
    forward_sizes_to_window!("bic");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        let acked_bytes = self.window.on_ack(ack);
        let last_max_packets = self.last_max_bytes / self.window.mss_bytes();
        let growth_packets = growth_packets(self.window.cwnd_packets(), last_max_packets);
        self.window.grow_a_round(acked_bytes, growth_packets);
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.last_max_before_bytes = self.last_max_bytes;
        let cwnd_bytes = self.window.cwnd_exact_bytes();
        // Fast convergence: a maximum below the last one shows that others need room.
        let shrinking = cwnd_bytes < self.last_max_bytes;
        self.last_max_bytes = if shrinking { cwnd_bytes * (1.0 + BETA) / 2.0 } else { cwnd_bytes };
        self.window.on_congestion(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        if self.window.on_timeout(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets()) {
            self.last_max_before_bytes = self.last_max_bytes;
        }
        self.last_max_bytes = 0.0;
    }

    fn on_spurious(&mut self, _now: Instant) {
        if self.window.on_spurious() {
            self.last_max_bytes = self.last_max_before_bytes;
        }
    }

    fn on_idle_restart(&mut self, _now: Instant) {
        self.window.on_idle_restart();
    }
}

#[cfg(test)]
mod tests;
