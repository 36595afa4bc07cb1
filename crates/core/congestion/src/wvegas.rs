use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::round_trips::RoundTrips;
use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// Segments that a connection wants to have in the queues of all its paths together, and on one path at least.
const TOTAL_ALPHA_PACKETS: f64 = 10.0;
const MIN_ALPHA_PACKETS: f64 = 2.0;
/// Backlog at which slow start ends.
const GAMMA_PACKETS: f64 = 1.0;
/// A queueing delay so many times the least one tells of a queue that is not this connection's own.
const DRAIN_ABOVE: u64 = 2;

/// wVegas, weighted Vegas (Cao, Xu, Fu: Delay-based Congestion Control for Multipath TCP, ICNP 2012): each subflow keeps
/// a number of segments in the queue of its path, its share of ten for the connection by its share of the rate. A path on
/// which others queue as well gives less rate for the same backlog, so that its share falls.
///
/// The window changes once a round, by the mean round-trip time of that round. Loss halves it. As every delay-based
/// algorithm it gets little beside flows that fill queues. Where it differs from the authors' code is in `docs/congestion.md`.
#[derive(Clone, Debug)]
pub struct WVegas {
    window: Window,
    round_trips: RoundTrips,
    /// Segments that this subflow wants to have queued.
    alpha_packets: f64,
    /// Least mean queueing delay of a round, since the queue was last drained.
    least_queue_delay: Option<Duration>,
}

impl WVegas {
    /// A subflow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            window: Window::new(config, false),
            round_trips: RoundTrips::new(),
            alpha_packets: MIN_ALPHA_PACKETS,
            least_queue_delay: None,
        }
    }

    /// Once a round: compares backlog and target. `grows` says whether the window limited the sender.
    fn adjust(&mut self, rtt: Duration, grows: bool, flows: &Flows<'_>) {
        let mss_bytes = self.window.mss_bytes();
        let window_packets = self.window.cwnd_packets();
        let unqueued = self.round_trips.unqueued(rtt);
        let backlog_packets = self.round_trips.backlog_packets(window_packets, rtt);
        if self.window.in_slow_start() {
            if backlog_packets > GAMMA_PACKETS {
                let drained_packets = window_packets.min(window_packets * unqueued + 1.0);
                self.window.set_exact_bytes(drained_packets * mss_bytes);
                self.window.avoid_congestion();
            }
            return;
        }
        if backlog_packets >= self.alpha_packets {
            let share = rate_share(window_packets * mss_bytes, rtt, flows);
            self.alpha_packets = (share * TOTAL_ALPHA_PACKETS).max(MIN_ALPHA_PACKETS);
        }
        if backlog_packets > self.alpha_packets {
            self.window.grow(-mss_bytes);
            self.window.avoid_congestion();
        } else if backlog_packets < self.alpha_packets && grows {
            self.window.grow(mss_bytes);
        }
        if backlog_packets >= self.alpha_packets {
            self.drain(rtt, unqueued);
        }
    }

    /// Where queueing delay has grown far beyond the least that went with a full backlog, the queue is emptied for once, so
    /// that all who share it can measure the base round-trip time anew. While the backlog is below its target the queue is
    /// still being filled, and its delay says nothing.
    fn drain(&mut self, rtt: Duration, unqueued: f64) {
        let queue_delay = self.round_trips.queue_delay(rtt);
        let least = self.least_queue_delay.map_or(queue_delay, |least| least.min(queue_delay));
        self.least_queue_delay = Some(least);
        if queue_delay > least * DRAIN_ABOVE {
            self.window.set_exact_bytes(self.window.cwnd_exact_bytes() * unqueued / 2.0);
            self.window.avoid_congestion();
            self.least_queue_delay = None;
        }
    }
}

/// The own share of the connection's rate, from 0 to 1; the whole if it is not known.
fn rate_share(window_bytes: f64, rtt: Duration, flows: &Flows<'_>) -> f64 {
    let own_rate = window_bytes / rtt.as_nanos() as f64;
    let own = flows.all.get(flows.own);
    let others = flows.all.iter().filter(|flow| own.is_none_or(|own| !core::ptr::eq(own, *flow)));
    let other_rates: f64 = others
        .filter(|flow| !flow.srtt.is_zero())
        .map(|flow| flow.window_bytes as f64 / flow.srtt.as_nanos() as f64)
        .sum();
    let share = own_rate / (own_rate + other_rates);
    if share.is_finite() { share } else { 1.0 }
}

impl Controller for WVegas {
    forward_to_window!("wvegas");

    fn is_coupled(&self) -> bool {
        true
    }

    fn on_ack(&mut self, ack: &Ack, flows: &Flows<'_>) {
        let was_slow_start = self.window.in_slow_start();
        let acked_bytes = self.window.on_ack(ack);
        if ack.round_ended {
            match self.round_trips.end_round() {
                Some(round) => self.adjust(round.mean, ack.window_limited, flows),
                // Too few samples: growth is Reno's.
                None if acked_bytes > 0 && !was_slow_start => self.window.grow(self.window.mss_bytes()),
                None => {}
            }
        }
        if let Some(rtt) = ack.rtt {
            self.round_trips.sample(rtt);
        }
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
