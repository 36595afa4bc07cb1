use alloc::boxed::Box;

use polypath_units::Instant;

use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// Growth for each acknowledged segment is one segment in so many: the paper's `a` is 0.01. Linux counts 50 acknowledgments,
/// each of which stands for two segments.
const A_PACKETS: f64 = 100.0;
/// What congestion takes of the window: the paper's `b`.
const B: f64 = 0.125;

/// Scalable TCP (Kelly: Scalable TCP: Improving Performance in Highspeed Wide Area Networks, ACM CCR 33(2), 2003, section
/// 2): a hundredth of a segment for each that is acknowledged, so that a window of any size comes back in as many round
/// trips after a loss, which takes an eighth of it.
///
/// Below a hundred segments that would be less than Reno's growth, which then holds. The paper also halves small windows;
/// here, as in Linux, all lose an eighth.
#[derive(Clone, Debug)]
pub struct Scalable {
    window: Window,
}

impl Scalable {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false) }
    }

    fn reduced_bytes(&self, in_flight_bytes: u64) -> f64 {
        (1.0 - B) * self.window.pipe_bytes(in_flight_bytes) as f64
    }
}

/// Growth in a round trip, in segments: `a` for each of the window, and no less than Reno's.
pub(crate) fn growth_packets(window_packets: f64) -> f64 {
    (window_packets / A_PACKETS).max(1.0)
}

impl Controller for Scalable {
    forward_to_window!("scalable");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        let acked_bytes = self.window.on_ack(ack);
        self.window.grow_a_round(acked_bytes, growth_packets(self.window.cwnd_packets()));
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window.on_congestion(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window.on_timeout(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }
}

#[cfg(test)]
mod tests;
