use alloc::boxed::Box;

use polypath_units::Instant;

use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// LIA, the linked increases algorithm (RFC 6356): Reno on every subflow, but in congestion avoidance all subflows of a
/// connection together grow no faster than one TCP on the best of them would.
///
/// Slow start and the halving on congestion are each subflow's own, as in [`Reno`](crate::Reno); the slow-start threshold
/// may go down to one segment while the connection has several subflows.
#[derive(Clone, Debug)]
pub struct Lia {
    window: Window,
}

impl Lia {
    /// A subflow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false) }
    }
}

/// `alpha / cwnd_total` of RFC 6356 §3, per byte: `max(w/rtt²) / (Σ w/rtt)²` over the coupled subflows, in which the total
/// window has cancelled out. Computed with every acknowledgment: two divisions per subflow cost less than knowing
/// when an old value is stale. Subflows without a round-trip time are left out; not a number if none has one.
fn alpha_over_total(flows: &Flows<'_>) -> f64 {
    let mut best = 0.0_f64;
    let mut sum = 0.0;
    for flow in flows.all.iter().filter(|flow| !flow.srtt.is_zero()) {
        let inverse_rtt = 1.0 / flow.srtt.as_nanos() as f64;
        let rate = flow.window_bytes as f64 * inverse_rtt;
        best = best.max(rate * inverse_rtt);
        sum += rate;
    }
    best / (sum * sum)
}

impl Controller for Lia {
    forward_to_window!("lia");

    fn is_coupled(&self) -> bool {
        true
    }

    fn on_ack(&mut self, ack: &Ack, flows: &Flows<'_>) {
        let acked_bytes = self.window.on_ack(ack);
        if acked_bytes == 0 {
            return;
        }
        let mut growth_per_byte = 1.0 / self.window.cwnd_exact_bytes();
        if flows.all.len() > 1 {
            // `f64::min` leaves Reno's growth if the other side is not a number.
            growth_per_byte = growth_per_byte.min(alpha_over_total(flows));
        }
        self.window.grow(acked_bytes as f64 * self.window.mss_bytes() * growth_per_byte);
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, flows: &Flows<'_>) {
        let min_packets = self.window.coupled_min_ssthresh_packets(flows);
        self.window.on_congestion(self.window.half_bytes(in_flight_bytes), min_packets);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, flows: &Flows<'_>) {
        let min_packets = self.window.coupled_min_ssthresh_packets(flows);
        self.window.on_timeout(self.window.half_bytes(in_flight_bytes), min_packets);
    }
}

#[cfg(test)]
mod tests;
