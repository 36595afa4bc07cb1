use alloc::boxed::Box;

use polypath_units::{BitRate, Instant};

use crate::window::MAX_WINDOW_BYTES;
use crate::{Ack, Controller, Flows};

mod cycle;
mod flow;
mod model;
mod phases;
mod sample;

use cycle::State;
pub use flow::Bbr;

impl Controller for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    /// `UpdateOnACK`.
    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        self.untouched = false;
        let Some(rate) = &ack.rate else { return };
        let sample = self.sample(ack, rate);
        self.model.delivered_bytes = sample.delivered_bytes;
        self.model.total_lost_bytes = self.model.total_lost_bytes.max(rate.total_lost_bytes);
        if sample.newly_lost_bytes > 0 {
            self.note_loss(&sample);
        }
        self.update_model_and_state(&sample);
        self.update_control_parameters(&sample, ack.srtt);
    }

    fn on_congestion(&mut self, _now: Instant, _in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.untouched = false;
        self.save_state_upon_loss();
        self.in_recovery = true;
    }

    fn on_timeout(&mut self, _now: Instant, _in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.untouched = false;
        self.save_state_upon_loss();
        self.in_recovery = true;
        self.cwnd_bytes = self.mss_bytes;
    }

    /// `HandleSpuriousLossDetection`.
    fn on_spurious(&mut self, _now: Instant) {
        if self.in_recovery {
            self.restore_window();
            self.in_recovery = false;
        }
        self.model.restore_bounds();
        self.return_to_probing();
    }

    fn on_recovery_end(&mut self, _now: Instant) {
        if self.in_recovery {
            self.in_recovery = false;
            self.restore_window();
            self.bound_window_for_model();
        }
    }

    fn steers_recovery(&self) -> bool {
        true
    }

    fn needs_rate_samples(&self) -> bool {
        true
    }

    /// `HandleRestartFromIdle`: the model still holds, and so does the window, which pacing spreads over the round trip.
    fn on_idle_restart(&mut self, now: Instant) {
        self.cycle.idle_restart = true;
        self.model.restart_aggregation(now);
        if self.cycle.state.is_probe_bandwidth() {
            self.set_pacing_rate_with_gain(1.0);
        } else if self.cycle.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }

    fn on_mss(&mut self, mss_bytes: u32) {
        self.mss_bytes = u64::from(mss_bytes.max(1));
        if self.untouched {
            self.cwnd_bytes = self.initial_bytes();
        }
        self.cwnd_bytes = self.cwnd_bytes.max(self.mss_bytes);
    }

    /// The window grows back by what is acknowledged. There is no threshold to set.
    fn set_window(&mut self, window_bytes: u64, _ssthresh_bytes: Option<u64>) {
        self.untouched = false;
        self.cwnd_bytes = window_bytes.clamp(self.mss_bytes, MAX_WINDOW_BYTES.max(self.mss_bytes));
    }

    fn window_bytes(&self) -> u64 {
        self.cwnd_bytes
    }

    /// BBR has none. What it shows instead says whether it is in Startup.
    fn ssthresh_bytes(&self) -> u64 {
        if self.cycle.state == State::Startup { u64::MAX } else { self.cwnd_bytes }
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        (self.pacing_rate > 0.0).then(|| BitRate::from_bps(((self.pacing_rate * 8.0) as u64).max(1)))
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
