use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::round_trips::RoundTrips;
use crate::scalable;
use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// Backlog above which the flow is slow and takes its queue off (the paper's `Qmax`).
const ALPHA_PACKETS: f64 = 80.0;
/// Of that queue, one part in so many is taken off in a round trip: all.
const GAMMA: f64 = 1.0;
/// What a loss takes of the window at least (the paper's `δ`), and taking a queue off at most (its `ε`).
const DELTA: f64 = 1.0 / 8.0;
const EPSILON: f64 = 1.0 / 2.0;
/// A queueing delay above the least round-trip time over this is too much (the paper's `φ`).
const PHI: u64 = 8;
/// After so many slow rounds in a row, flows that fill queues are taken to be there (the paper's `ρ`).
const RHO_ROUNDS: u64 = 16;
/// After so many fast rounds they are taken to be gone.
const ZETA_ROUNDS: u64 = 50;
/// Reno's window, and any, at least.
const LEAST_PACKETS: f64 = 2.0;

/// YeAH (Baiocchi, Castellani, Vacirca: YeAH-TCP: Yet Another Highspeed TCP, PFLDnet 2007, section 2). While the path has little
/// queue, the window grows as that of [`Scalable`](crate::Scalable), the fast mode; else as Reno's, the slow mode.
/// In slow mode, what is queued is taken off the window, if it is more than 80 segments: but not below the window that a
/// Reno would have by now, which is counted along, so that greedy flows leave it its share. A loss takes what was queued, or an eighth if that is more.
///
/// The constants are those of Linux.
#[derive(Clone, Debug)]
pub struct Yeah {
    window: Window,
    round_trips: RoundTrips,
    /// Backlog of the last round.
    backlog_packets: f64,
    /// Slow rounds in a row; zero in fast mode.
    slow_rounds: u64,
    /// Fast rounds since the last loss, or since they were last enough.
    fast_rounds: u64,
    /// What a Reno would have for a window: it grows in slow rounds.
    reno_packets: f64,
}

impl Yeah {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            window: Window::new(config, false),
            round_trips: RoundTrips::new(),
            backlog_packets: 0.0,
            slow_rounds: 0,
            fast_rounds: 0,
            reno_packets: LEAST_PACKETS,
        }
    }

    /// Once a round: chooses the mode.
    fn judge(&mut self, rtt: Duration) {
        let window_packets = self.window.cwnd_packets();
        self.backlog_packets = self.round_trips.backlog_packets(window_packets, rtt);
        let is_long = self.round_trips.queue_delay(rtt) > self.round_trips.base() / PHI;
        if self.backlog_packets > ALPHA_PACKETS || is_long {
            if self.backlog_packets > ALPHA_PACKETS && window_packets > self.reno_packets {
                self.take_off_queue(window_packets);
            }
            self.reno_packets = if self.reno_packets <= LEAST_PACKETS {
                (self.window.cwnd_packets() / 2.0).max(LEAST_PACKETS)
            } else {
                self.reno_packets + 1.0
            };
            self.slow_rounds += 1;
        } else {
            self.fast_rounds += 1;
            if self.fast_rounds > ZETA_ROUNDS {
                self.reno_packets = LEAST_PACKETS;
                self.fast_rounds = 0;
            }
            self.slow_rounds = 0;
        }
    }

    /// Precautionary decongestion (section 2).
    fn take_off_queue(&mut self, window_packets: f64) {
        let queue_packets = (self.backlog_packets / GAMMA).min(window_packets * EPSILON);
        let left_packets = (window_packets - queue_packets).max(self.reno_packets);
        self.window.set_exact_bytes(left_packets * self.window.mss_bytes());
        self.window.avoid_congestion();
    }

    /// What congestion leaves. Among flows that fill queues it is Reno's half.
    fn reduced_bytes(&self, in_flight_bytes: u64) -> f64 {
        let pipe_bytes = self.window.pipe_bytes(in_flight_bytes) as f64;
        let half_bytes = self.window.half_bytes(in_flight_bytes);
        if self.slow_rounds >= RHO_ROUNDS {
            return half_bytes;
        }
        let queue_bytes = self.backlog_packets * self.window.mss_bytes();
        pipe_bytes - queue_bytes.min(half_bytes).max(pipe_bytes * DELTA)
    }

    fn halve_reno(&mut self) {
        self.fast_rounds = 0;
        self.reno_packets = (self.reno_packets / 2.0).max(LEAST_PACKETS);
    }
}

impl Controller for Yeah {
    forward_to_window!("yeah");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        let acked_bytes = self.window.on_ack(ack);
        let is_fast = self.slow_rounds == 0;
        let packets = if is_fast { scalable::growth_packets(self.window.cwnd_packets()) } else { 1.0 };
        self.window.grow_a_round(acked_bytes, packets);
        if ack.round_ended
            && let Some(round) = self.round_trips.end_round()
        {
            self.judge(round.least);
        }
        if let Some(rtt) = ack.rtt {
            self.round_trips.sample(rtt);
        }
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.window.on_congestion(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
        self.halve_reno();
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        let reduces = self.window.timeout_reduces();
        self.window.on_timeout(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
        if reduces {
            self.halve_reno();
        }
    }
}

#[cfg(test)]
mod tests;
