use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::window::Window;
use crate::{Ack, Config, Controller, Flows};

/// RFC 9438 §4.1: aggressiveness in segments per second cubed, and the factor of multiplicative decrease.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// RFC 9438 §4.3: additive increase at which the Reno-friendly window has Reno's average rate, `3(1-β)/(1+β)`.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC (RFC 9438) with fast convergence; HyStart++ (RFC 9406) ends the initial slow start unless the configuration
/// says no. The equations are in segments; here windows are in bytes, and `C` and `α` are multiplied by the segment size.
#[derive(Clone, Debug)]
pub struct Cubic {
    window: Window,
    curve: Curve,
    /// The curve before the last congestion event or timeout (RFC 9438 §4.9); none before the first.
    undo: Option<Box<Curve>>,
    /// The last acknowledgment in congestion avoidance.
    last_ack: Instant,
}

/// What the cubic function is made of.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// The window before the last reduction, lowered by fast convergence; zero when it must come from the window at the
    /// start of the next epoch.
    w_max_bytes: f64,
    /// The window before the last reduction; zero before the first.
    cwnd_prior_bytes: f64,
    /// This stage of congestion avoidance; none in slow start and in recovery.
    epoch: Option<Epoch>,
}

/// A stage of congestion avoidance (RFC 9438 §4.2).
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// Seconds from the start until the curve is at `w_max`.
    k_secs: f64,
    /// The Reno-friendly window.
    w_est_bytes: f64,
}

impl Cubic {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let curve = Curve { w_max_bytes: 0.0, cwnd_prior_bytes: 0.0, epoch: None };
        Self { window: Window::new(config, true), curve, undo: None, last_ack: Instant::ZERO }
    }

    /// Congestion avoidance (RFC 9438 §4.2 to §4.5).
    fn avoid_congestion(&mut self, ack: &Ack, acked_bytes: u64) {
        let cwnd_bytes = self.window.cwnd_exact_bytes();
        let mss_bytes = self.window.mss_bytes();
        let mut epoch = match self.curve.epoch {
            Some(epoch) => epoch,
            None => self.curve.begin_epoch(ack.now, cwnd_bytes, mss_bytes),
        };
        let windows_acked = acked_bytes as f64 / cwnd_bytes;
        let alpha = if epoch.w_est_bytes < self.curve.cwnd_prior_bytes { ALPHA } else { 1.0 };
        epoch.w_est_bytes += alpha * mss_bytes * windows_acked;
        self.curve.epoch = Some(epoch);

        let since_start = ack.now.since(epoch.start);
        let w_cubic_bytes = |after| {
            let from_k_secs = seconds(after) - epoch.k_secs;
            C * mss_bytes * from_k_secs * from_k_secs * from_k_secs + self.curve.w_max_bytes
        };
        if w_cubic_bytes(since_start) < epoch.w_est_bytes {
            // The Reno-friendly region. The estimate may lie below a window that followed the curve one round trip
            // ahead; nothing was lost, so the window is not lowered.
            self.window.set_exact_bytes(epoch.w_est_bytes.max(cwnd_bytes));
        } else {
            let target_bytes = w_cubic_bytes(since_start + ack.srtt).max(cwnd_bytes).min(1.5 * cwnd_bytes);
            self.window.grow((target_bytes - cwnd_bytes) * windows_acked);
        }
    }

    /// What a spurious event goes back to.
    fn remember(&mut self, curve: Curve) {
        match &mut self.undo {
            Some(undo) => **undo = curve,
            none => *none = Some(Box::new(curve)),
        }
    }

    fn reduced_bytes(&self, in_flight_bytes: u64) -> f64 {
        BETA * self.window.pipe_bytes(in_flight_bytes) as f64
    }
}

impl Curve {
    /// Begins a stage of congestion avoidance with the window as it is.
    fn begin_epoch(&mut self, now: Instant, cwnd_bytes: f64, mss_bytes: f64) -> Epoch {
        // After a timeout, and after a slow start that ended without loss, the curve starts at its turning point
        // (§4.8, §4.10); likewise when the window already is above the old maximum.
        self.w_max_bytes = self.w_max_bytes.max(cwnd_bytes);
        if self.cwnd_prior_bytes == 0.0 {
            self.cwnd_prior_bytes = cwnd_bytes;
        }
        let k_secs = libm::cbrt((self.w_max_bytes - cwnd_bytes) / (C * mss_bytes));
        Epoch { start: now, k_secs, w_est_bytes: cwnd_bytes }
    }
}

/// Seconds, by a multiplication.
fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 * 1e-9
}

impl Controller for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        let acked_bytes = self.window.on_ack(ack);
        if acked_bytes > 0 {
            self.avoid_congestion(ack, acked_bytes);
        } else if let Some(epoch) = &mut self.curve.epoch {
            // Time in which the application limited the sender does not count (§5.8).
            epoch.start += ack.now.since(self.last_ack);
        }
        self.last_ack = ack.now;
    }

    fn on_congestion(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.remember(self.curve);
        let cwnd_bytes = self.window.cwnd_exact_bytes();
        // Fast convergence (§4.7): a maximum below the last one shows that others need room.
        let shrinking = cwnd_bytes < self.curve.w_max_bytes;
        self.curve = Curve {
            w_max_bytes: if shrinking { cwnd_bytes * (1.0 + BETA) / 2.0 } else { cwnd_bytes },
            cwnd_prior_bytes: cwnd_bytes,
            epoch: None,
        };
        self.window.on_congestion(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, _now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        let before = self.curve;
        if self.window.timeout_reduces() {
            self.curve.cwnd_prior_bytes = self.window.cwnd_exact_bytes();
        }
        self.curve.w_max_bytes = 0.0;
        self.curve.epoch = None;
        if self.window.on_timeout(self.reduced_bytes(in_flight_bytes), self.window.min_ssthresh_packets()) {
            self.remember(before);
        }
    }

    fn on_spurious(&mut self, _now: Instant) {
        if self.window.on_spurious()
            && let Some(undo) = &self.undo
        {
            self.curve = **undo;
        }
    }

    fn on_idle_restart(&mut self, _now: Instant) {
        self.window.on_idle_restart();
        self.curve.epoch = None;
    }

    fn on_mss(&mut self, mss_bytes: u32) {
        self.window.on_mss(mss_bytes);
        // K depends on the segment size: the curve goes on from here.
        self.curve.epoch = None;
    }

    fn set_window(&mut self, window_bytes: u64, ssthresh_bytes: Option<u64>) {
        self.window.set_window(window_bytes, ssthresh_bytes);
        self.curve.epoch = None;
    }

    fn window_bytes(&self) -> u64 {
        self.window.cwnd_bytes()
    }

    fn ssthresh_bytes(&self) -> u64 {
        self.window.ssthresh_bytes()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
