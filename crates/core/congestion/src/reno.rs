use alloc::boxed::Box;

use polypath_units::Instant;

use crate::window::{Window, forward_to_window};
use crate::{Ack, Config, Controller, Flows};

/// Reno (RFC 5681), the loss recovery of which is the owner's: slow start, one segment per round trip in congestion
/// avoidance, half on congestion. Growth counts acknowledged bytes (RFC 3465), not acknowledgments.
#[derive(Clone, Debug)]
pub struct Reno {
    window: Window,
}

impl Reno {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config, false) }
    }
}

impl Controller for Reno {
    forward_to_window!("reno");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        let acked_bytes = self.window.on_ack(ack);
        self.window.grow_a_round(acked_bytes, 1.0);
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
