use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::round_trips::RoundTrips;
use crate::window::{Window, forward_sizes_to_window};
use crate::{Ack, Config, Controller, Flows};

/// Segments that the flow wants to have in the queue of its path: at least and at most.
const ALPHA_PACKETS: f64 = 2.0;
const BETA_PACKETS: f64 = 4.0;
/// Backlog at which slow start ends.
const GAMMA_PACKETS: f64 = 1.0;
/// The window does not shrink below this for a backlog.
const LEAST_PACKETS: f64 = 2.0;

/// Vegas (Brakmo, Peterson: TCP Vegas: End to End Congestion Avoidance on a Global Internet, IEEE JSAC 13(8), 1995, section
/// IV): the window keeps two to four segments in the queue of the path. It changes once a round, by one segment, by the
/// least round-trip time of that round.
///
/// Loss halves the window. As in Linux, slow start doubles each round (the paper has every other one), and Reno grows it while a loss
/// is repaired and in a round of too few samples. The paper's earlier retransmissions are the owner's.
#[derive(Clone, Debug)]
pub struct Vegas {
    window: Window,
    round_trips: RoundTrips,
    /// Loss is being repaired.
    recovers: bool,
}

impl Vegas {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false), round_trips: RoundTrips::new(), recovers: false }
    }

    /// Once a round: compares the backlog with its bounds. `grows` says whether the window limited the sender.
    fn adjust(&mut self, rtt: Duration, grows: bool) {
        let mss_bytes = self.window.mss_bytes();
        let window_packets = self.window.cwnd_packets();
        let backlog_packets = self.round_trips.backlog_packets(window_packets, rtt);
        if self.window.in_slow_start() {
            if backlog_packets > GAMMA_PACKETS {
                // What the path holds without a queue, and one more.
                self.shrink_to(window_packets.min(window_packets - backlog_packets + 1.0));
            }
        } else if backlog_packets > BETA_PACKETS {
            self.shrink_to(window_packets - 1.0);
        } else if backlog_packets < ALPHA_PACKETS && grows {
            self.window.grow(mss_bytes);
        }
    }

    fn shrink_to(&mut self, packets: f64) {
        self.window.set_exact_bytes(packets.max(LEAST_PACKETS) * self.window.mss_bytes());
        self.window.avoid_congestion();
    }

    fn end_recovery(&mut self) {
        self.recovers = false;
        self.round_trips.begin_round();
    }
}

impl Controller for Vegas {
    forward_sizes_to_window!("vegas");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        let was_slow_start = self.window.in_slow_start();
        let acked_bytes = self.window.on_ack(ack);
        if self.recovers {
            self.window.grow_a_round(acked_bytes, 1.0);
        } else if ack.round_ended {
            match self.round_trips.end_round() {
                Some(round) => self.adjust(round.least, ack.window_limited),
                None if acked_bytes > 0 && !was_slow_start => self.window.grow(self.window.mss_bytes()),
                None => {}
            }
        }
        if let Some(rtt) = ack.rtt {
            self.round_trips.sample(rtt);
        }
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.recovers = true;
        self.window
            .on_congestion(self.window.half_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.recovers = true;
        self.window.on_timeout(self.window.half_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.window.on_spurious();
        self.end_recovery();
    }

    fn on_recovery_end(&mut self, _now: Instant) {
        self.end_recovery();
    }

    fn on_idle_restart(&mut self, _now: Instant) {
        self.window.on_idle_restart();
        // After a silence the path may be another.
        self.round_trips = RoundTrips::new();
    }
}

#[cfg(test)]
mod tests;
