use alloc::boxed::Box;

use polypath_units::Instant;

use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// No subflow gives up more than three quarters of its window at once: the `1.5` of the draft, halved.
const MAX_ALPHA_OF_DECREASE: f64 = 1.5;

/// BALIA, the balanced linked adaptation algorithm (draft-walid-mptcp-congestion-control-04): between LIA and OLIA,
/// friendly to other flows and yet quick to respond. Both the increase and the decrease depend on `α`, the rate of the
/// fastest subflow over the own one.
///
/// Slow start is each subflow's own, as in [`Reno`](crate::Reno); the slow-start threshold may go down to one segment
/// while the connection has several subflows.
#[derive(Clone, Debug)]
pub struct Balia {
    window: Window,
}

/// The rates `x = w/rtt` of a connection, in bytes per nanosecond.
struct Rates {
    own: f64,
    fastest: f64,
    total: f64,
    own_rtt_nanos: f64,
}

impl Rates {
    /// Of the subflows that have a round-trip time; `None` if the own one has none, or nothing to send with.
    fn of(flows: &Flows<'_>) -> Option<Self> {
        let own_flow = flows.all.get(flows.own)?;
        let (mut fastest, mut total) = (0.0_f64, 0.0);
        for flow in flows.all.iter().filter(|flow| !flow.srtt.is_zero()) {
            let rate = flow.window_bytes as f64 / flow.srtt.as_nanos() as f64;
            fastest = fastest.max(rate);
            total += rate;
        }
        let own_rtt_nanos = own_flow.srtt.as_nanos() as f64;
        let own = own_flow.window_bytes as f64 / own_rtt_nanos;
        (own > 0.0 && own.is_finite()).then_some(Self { own, fastest, total, own_rtt_nanos })
    }

    /// `α`, at least 1.
    fn alpha(&self) -> f64 {
        self.fastest / self.own
    }

    /// `x/(rtt·(Σx)²) · (1+α)/2 · (4+α)/5`: growth in segments per byte acknowledged.
    fn growth_per_byte(&self) -> f64 {
        let alpha = self.alpha();
        let coupled = self.own / (self.own_rtt_nanos * self.total * self.total);
        coupled * ((1.0 + alpha) / 2.0) * ((4.0 + alpha) / 5.0)
    }
}

impl Balia {
    /// A subflow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false) }
    }

    /// `w − w/2 · min(α, 1.5)`.
    fn reduced_bytes(&self, in_flight_bytes: u64, flows: &Flows<'_>) -> f64 {
        let alpha = Rates::of(flows).map_or(1.0, |rates| rates.alpha().min(MAX_ALPHA_OF_DECREASE));
        self.window.pipe_bytes(in_flight_bytes) as f64 * (1.0 - alpha / 2.0)
    }
}

impl Controller for Balia {
    forward_to_window!("balia");

    fn is_coupled(&self) -> bool {
        true
    }

    fn on_ack(&mut self, ack: &Ack, flows: &Flows<'_>) {
        let acked_bytes = self.window.on_ack(ack);
        if acked_bytes == 0 {
            return;
        }
        let alone = 1.0 / self.window.cwnd_exact_bytes();
        let rates = if flows.all.len() > 1 { Rates::of(flows) } else { None };
        let growth_per_byte =
            rates.map(|rates| rates.growth_per_byte()).filter(|growth| growth.is_finite()).unwrap_or(alone);
        self.window.grow(acked_bytes as f64 * self.window.mss_bytes() * growth_per_byte);
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, flows: &Flows<'_>) {
        let min_packets = self.window.coupled_min_ssthresh_packets(flows);
        self.window.on_congestion(self.reduced_bytes(in_flight_bytes, flows), min_packets);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, flows: &Flows<'_>) {
        let min_packets = self.window.coupled_min_ssthresh_packets(flows);
        self.window.on_timeout(self.reduced_bytes(in_flight_bytes, flows), min_packets);
    }
}

#[cfg(test)]
mod tests;
