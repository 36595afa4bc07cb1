use alloc::boxed::Box;

use polypath_units::Instant;

use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, FlowView, Flows};

/// OLIA, the opportunistic linked increases algorithm (draft-khalili-mptcp-congestion-control-05): LIA's place in
/// between coupled and uncoupled is given up for Kelly and Voice's coupled increase, which is Pareto-optimal, and a second
/// term moves window from the largest subflows to the best ones, which makes it responsive.
///
/// Slow start and the halving on congestion are each subflow's own, as in [`Reno`](crate::Reno); the slow-start threshold
/// may go down to one segment while the connection has several subflows.
#[derive(Clone, Debug)]
pub struct Olia {
    window: Window,
}

impl Olia {
    /// A subflow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false) }
    }

    /// Growth per byte acknowledged, in segments per byte; `None` if nothing is known of the subflows.
    fn growth_per_byte(&self, flows: &Flows<'_>) -> Option<f64> {
        let own = flows.all.get(flows.own).filter(|own| is_measured(own))?;
        let inverse_rtt = 1.0 / own.srtt.as_nanos() as f64;
        let total_rate: f64 =
            measured(flows).map(|flow| flow.window_bytes as f64 / flow.srtt.as_nanos() as f64).sum();
        let coupled = own.window_bytes as f64 * inverse_rtt * inverse_rtt / (total_rate * total_rate);
        let growth = coupled + alpha(own, flows) / self.window.cwnd_exact_bytes();
        growth.is_finite().then_some(growth)
    }
}

/// A subflow without a round-trip time carries no data yet, and counts in none of the sets.
fn is_measured(flow: &FlowView) -> bool {
    !flow.srtt.is_zero() && flow.window_bytes > 0
}

fn measured<'a>(flows: &Flows<'a>) -> impl Iterator<Item = &'a FlowView> + Clone + use<'a> {
    flows.all.iter().filter(|flow| is_measured(flow))
}

/// `ℓ/rtt²`, by which paths are compared: ℓ estimates the bytes between two losses, so that its root is the throughput that
/// one TCP would have there (Khalili et al., "MPTCP is not Pareto-optimal", CoNEXT 2012; so does the authors' kernel code).
/// The draft has `ℓ²/rtt`. By that, a path with rare losses and a long round trip would be preferred to one on which a TCP is
/// faster; see `docs/congestion.md`.
fn quality(flow: &FlowView) -> f64 {
    let between_losses_bytes = flow.acked_since_loss_bytes.max(flow.acked_between_losses_bytes) as f64;
    let rtt_nanos = flow.srtt.as_nanos() as f64;
    between_losses_bytes / (rtt_nanos * rtt_nanos)
}

/// `α` of the own subflow: positive if it is one of the best but not one of those with the largest window, negative the
/// other way round while there is such a path, else zero. Over all subflows it sums up to zero.
fn alpha(own: &FlowView, flows: &Flows<'_>) -> f64 {
    let largest_bytes = measured(flows).map(|flow| flow.window_bytes).max().unwrap_or(0);
    let best_quality = measured(flows).map(quality).fold(0.0, f64::max);
    let is_largest = |flow: &FlowView| flow.window_bytes == largest_bytes;
    let is_collected = |flow: &FlowView| !is_largest(flow) && quality(flow) >= best_quality;
    let (mut count, mut largest, mut collected) = (0_u32, 0_u32, 0_u32);
    for flow in measured(flows) {
        count += 1;
        largest += u32::from(is_largest(flow));
        collected += u32::from(is_collected(flow));
    }
    if collected == 0 {
        0.0
    } else if is_collected(own) {
        1.0 / (f64::from(count) * f64::from(collected))
    } else if is_largest(own) {
        -1.0 / (f64::from(count) * f64::from(largest))
    } else {
        0.0
    }
}

impl Controller for Olia {
    forward_to_window!("olia");

    fn is_coupled(&self) -> bool {
        true
    }

    fn on_ack(&mut self, ack: &Ack, flows: &Flows<'_>) {
        let acked_bytes = self.window.on_ack(ack);
        if acked_bytes == 0 {
            return;
        }
        // Alone it is Reno.
        let coupled = if flows.all.len() > 1 { self.growth_per_byte(flows) } else { None };
        let growth_per_byte = coupled.unwrap_or_else(|| 1.0 / self.window.cwnd_exact_bytes());
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
