use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::round_trips::{LEAST_SAMPLES, RoundTrips};
use crate::window::{Window, forward_sizes_to_window};
use crate::{Ack, Config, Controller, Flows};

/// With a backlog of fewer segments the path is not congested, and loss is random (the paper's `β`, which Linux keeps in halves of a
/// segment).
const BETA_PACKETS: f64 = 3.0;
/// What a random loss leaves of the window.
const RANDOM_LOSS: f64 = 0.8;

/// Veno (Fu, Liew: TCP Veno: TCP Enhancement for Transmission Over Wireless Access Networks, IEEE JSAC 21(2), 2003, section
/// III): Reno, with the backlog of Vegas to tell congestion from random loss. A loss at a backlog below three segments
/// takes a fifth of the window, not half; a timeout halves the threshold in any case. At a larger backlog the window
/// grows half as fast.
///
/// As in Linux, the backlog is that of the last round-trip sample, and the least round-trip time is that of all. The paper has
/// the smoothed one, and forgets the least with each loss.
#[derive(Clone, Debug)]
pub struct Veno {
    window: Window,
    round_trips: RoundTrips,
    /// The backlog at the last sample; none while too few samples came.
    backlog_packets: Option<f64>,
    samples: u64,
}

impl Veno {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            window: Window::new(config, false),
            round_trips: RoundTrips::new(),
            backlog_packets: None,
            samples: 0,
        }
    }

    fn sample(&mut self, rtt: Duration) {
        self.round_trips.sample(rtt);
        self.samples += 1;
        if self.samples >= LEAST_SAMPLES {
            self.backlog_packets = Some(self.round_trips.backlog_packets(self.window.cwnd_packets(), rtt));
        }
    }

    fn is_congested(&self) -> Option<bool> {
        self.backlog_packets.map(|packets| packets >= BETA_PACKETS)
    }
}

impl Controller for Veno {
    forward_sizes_to_window!("veno");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        if let Some(rtt) = ack.rtt {
            self.sample(rtt);
        }
        let acked_bytes = self.window.on_ack(ack);
        let packets = if self.is_congested() == Some(true) { 0.5 } else { 1.0 };
        self.window.grow_a_round(acked_bytes, packets);
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        let is_random = self.is_congested() == Some(false);
        let pipe_bytes = self.window.pipe_bytes(in_flight_bytes) as f64;
        let left = if is_random { RANDOM_LOSS } else { 0.5 };
        self.window.on_congestion(left * pipe_bytes, self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window.on_timeout(self.window.half_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.on_spurious();
    }

    fn on_idle_restart(&mut self, _now: Instant) {
        self.window.on_idle_restart();
        // After a silence the path may be another.
        self.round_trips = RoundTrips::new();
        self.backlog_packets = None;
        self.samples = 0;
    }
}

#[cfg(test)]
mod tests;
