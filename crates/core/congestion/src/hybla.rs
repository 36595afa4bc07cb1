use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// The round-trip time of the connection that all others are to be as fast as (the paper's `RTT0`).
const REFERENCE_RTT: Duration = Duration::from_millis(25);
/// Slow start doubles `ρ` times in a round trip, but no more than so often for each acknowledged segment.
const MOST_DOUBLINGS: f64 = 16.0;
/// The window does not grow beyond so many segments. Linux has the same limit for Hybla alone, whose steps are the largest.
const MOST_PACKETS: f64 = 65_535.0;

/// Hybla (Caini, Firrincieli: TCP Hybla: a TCP Enhancement for Heterogeneous Networks, International Journal of Satellite
/// Communications and Networking 22, 2004, section 3, equations 5 to 8): the rate grows in each second as that of Reno
/// with a round-trip time of 25 ms, however long the own one is. Congestion halves the window.
///
/// `ρ` is the least smoothed round-trip time over that of the reference, and never below one. Of the paper, these are the rules
/// of the window; SACK, timestamps and pacing are the owner's, and the first threshold is not estimated.
#[derive(Clone, Debug)]
pub struct Hybla {
    window: Window,
    /// Zero before the first sample.
    least_srtt: Duration,
}

impl Hybla {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false), least_srtt: Duration::ZERO }
    }

    fn rho(&self) -> f64 {
        (self.least_srtt.as_nanos() as f64 / REFERENCE_RTT.as_nanos() as f64).max(1.0)
    }
}

/// Growth of slow start for each acknowledged segment, in segments: `2^ρ - 1`.
fn slow_start_packets(rho: f64) -> f64 {
    libm::exp2(rho.min(MOST_DOUBLINGS)) - 1.0
}

impl Controller for Hybla {
    forward_to_window!("hybla");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        if self.least_srtt.is_zero() || (ack.srtt < self.least_srtt && !ack.srtt.is_zero()) {
            self.least_srtt = ack.srtt;
        }
        let rho = self.rho();
        let before_bytes = self.window.cwnd_exact_bytes();
        let acked_bytes = self.window.on_ack_times(ack, slow_start_packets(rho));
        // In congestion avoidance `ρ²/W` segments for each that is acknowledged.
        let mss_bytes = self.window.mss_bytes();
        self.window.grow(acked_bytes as f64 * rho * rho * mss_bytes / self.window.cwnd_exact_bytes());
        let most_bytes = before_bytes.max(MOST_PACKETS * mss_bytes);
        self.window.set_exact_bytes(self.window.cwnd_exact_bytes().min(most_bytes));
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
