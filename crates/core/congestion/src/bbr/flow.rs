//! The state of a flow, and its control parameters: what window and pacing rate follow from the model.

use polypath_units::Duration;

use super::cycle::{Cycle, PROBE_RTT_WINDOW_GAIN, STARTUP_PACING_GAIN, State};
use super::model::{HEADROOM, Model, seconds};
use super::sample::{Sample, to_bytes};
use crate::window::MAX_WINDOW_BYTES;
use crate::{Ack, Config, RateSample};

/// Pacing stays so much below the estimated bandwidth, that queues drain.
const PACING_MARGIN: f64 = 0.01;
/// A segment takes no longer: where little was sent, a rate may have been measured over a timeout or an idle time, and pacing by it
/// brings no better one for minutes.
const SLOWEST_SEGMENT_S: f64 = 1.0;
/// Segments that keep the pipe going while acknowledgments are delayed.
const MIN_PIPE_PACKETS: u64 = 4;
/// Most that leaves at once.
const MAX_QUANTUM_BYTES: f64 = 65_536.0;
/// Offload keeps so many bursts on their way at the least: one being sent, one under way, one being acknowledged.
const BURSTS_IN_FLIGHT: f64 = 3.0;

/// BBR, version 3 (draft-ietf-ccwg-bbr): sends at the bandwidth that it measures, with in flight what bandwidth and least
/// round-trip time say, and takes loss for a bound only where more than 2 % of a flight is lost. Uncoupled.
///
/// Functions and states have the draft's names. Two things differ, as the owner tells of losses with acknowledgments and
/// not packet by packet: the loss rate is judged when an acknowledgment arrives, over what was sent since the
/// acknowledged segment left; and loss events of a round are counted as acknowledgments that revealed some. Where the draft
/// draws at random, a hash of the own state decides, so that equal runs stay equal.
///
/// It needs [`Ack::rate`]: see [`Controller::needs_rate_samples`](crate::Controller::needs_rate_samples).
#[derive(Clone, Debug)]
pub struct Bbr {
    pub(super) mss_bytes: u64,
    pub(super) initial_packets: u64,
    pub(super) cwnd_bytes: u64,
    /// The window before a recovery or ProbeRTT.
    pub(super) prior_cwnd_bytes: u64,
    pub(super) in_recovery: bool,
    /// Neither data nor loss was seen yet: the window is the initial one.
    pub(super) untouched: bool,
    /// Bytes per second; zero before the first round trip.
    pub(super) pacing_rate: f64,
    pub(super) model: Model,
    pub(super) cycle: Cycle,
}

impl Bbr {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut bbr = Self {
            mss_bytes: u64::from(config.mss_bytes.max(1)),
            initial_packets: u64::from(config.initial_window_packets.max(1)),
            cwnd_bytes: 0,
            prior_cwnd_bytes: 0,
            in_recovery: false,
            untouched: true,
            pacing_rate: 0.0,
            model: Model::new(),
            cycle: Cycle::new(),
        };
        bbr.cwnd_bytes = bbr.initial_bytes();
        bbr
    }

    pub(super) fn initial_bytes(&self) -> u64 {
        self.initial_packets.saturating_mul(self.mss_bytes).clamp(self.mss_bytes, MAX_WINDOW_BYTES)
    }

    pub(super) fn min_pipe_bytes(&self) -> u64 {
        (MIN_PIPE_PACKETS * self.mss_bytes).min(MAX_WINDOW_BYTES)
    }

    pub(super) fn sample(&self, ack: &Ack, rate: &RateSample) -> Sample {
        let prior_delivered_bytes = rate.prior_delivered_bytes.min(rate.delivered_bytes);
        Sample {
            now: ack.now,
            acked_bytes: ack.acked_bytes,
            rate: rate.delivery_rate.as_bps() as f64 / 8.0,
            rtt: ack.rtt,
            interval_bytes: rate.delivered_bytes - prior_delivered_bytes,
            prior_delivered_bytes,
            delivered_bytes: rate.delivered_bytes,
            lost_bytes: rate.lost_bytes,
            newly_lost_bytes: rate.total_lost_bytes.saturating_sub(self.model.total_lost_bytes),
            tx_in_flight_bytes: rate.tx_in_flight_bytes,
            in_flight_bytes: rate.in_flight_bytes,
            app_limited: rate.app_limited || prior_delivered_bytes < self.model.app_limited_until_bytes,
            window_limited: ack.window_limited,
        }
    }

    // ---- control parameters

    /// `UpdateControlParameters`.
    pub(super) fn update_control_parameters(&mut self, sample: &Sample, srtt: Duration) {
        if self.pacing_rate == 0.0 && !srtt.is_zero() {
            // The initial window over the first round-trip time.
            self.pacing_rate = STARTUP_PACING_GAIN * self.initial_bytes() as f64 / seconds(srtt);
        }
        self.set_pacing_rate_with_gain(self.cycle.state.pacing_gain());
        self.set_window_for(sample);
    }

    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: f64) {
        if self.pacing_rate == 0.0 {
            // What was sent again measures no round trip, but a rate: a byte in a timeout, if there was no more. Pacing begins with
            // the first round trip, and Startup goes no lower.
            return;
        }
        let rate = gain * self.model.bandwidth * (1.0 - PACING_MARGIN);
        if self.cycle.full_bandwidth_reached && rate > 0.0 || rate > self.pacing_rate {
            self.pacing_rate = rate.max(self.mss_bytes as f64 / SLOWEST_SEGMENT_S);
        }
    }

    /// `BDPMultiple`.
    pub(super) fn bdp_multiple(&self, bandwidth: f64, gain: f64) -> f64 {
        match self.model.min_rtt {
            Duration::MAX => self.initial_bytes() as f64,
            min_rtt => gain * bandwidth * seconds(min_rtt),
        }
    }

    /// `QuantizationBudget`.
    pub(super) fn quantization_budget(&self, cap_bytes: f64) -> u64 {
        let least_quantum = 2.0 * self.mss_bytes as f64;
        let quantum = (self.pacing_rate * 1e-3).min(MAX_QUANTUM_BYTES).max(least_quantum);
        let mut bytes = to_bytes(cap_bytes.max(BURSTS_IN_FLIGHT * quantum)).max(self.min_pipe_bytes());
        if self.cycle.state == State::ProbeUp {
            bytes += 2 * self.mss_bytes;
        }
        bytes.min(MAX_WINDOW_BYTES)
    }

    /// `Inflight`: the volume that fills the pipe `gain` times at this bandwidth.
    pub(super) fn volume_bytes(&self, bandwidth: f64, gain: f64) -> u64 {
        self.quantization_budget(self.bdp_multiple(bandwidth, gain))
    }

    /// `TargetInflight`.
    pub(super) fn target_bytes(&self) -> u64 {
        to_bytes(self.bdp_multiple(self.model.bandwidth, 1.0)).min(self.cwnd_bytes)
    }

    /// `ProbeRTTCwnd`.
    pub(super) fn probe_rtt_window_bytes(&self) -> u64 {
        let bytes = self.bdp_multiple(self.model.bandwidth, PROBE_RTT_WINDOW_GAIN);
        to_bytes(bytes).max(self.min_pipe_bytes())
    }

    /// `InflightWithHeadroom`: leaves room for others in the queue or on the line.
    pub(super) fn with_headroom_bytes(&self) -> u64 {
        match self.model.long_term_bytes {
            u64::MAX => u64::MAX,
            cap_bytes => {
                let headroom_bytes = to_bytes(HEADROOM * cap_bytes as f64).max(self.mss_bytes);
                cap_bytes.saturating_sub(headroom_bytes).max(self.min_pipe_bytes())
            }
        }
    }

    /// `SetCwnd`.
    pub(super) fn set_window_for(&mut self, sample: &Sample) {
        let gain = self.cycle.state.window_gain();
        let aggregated = self.model.extra_acked.most();
        let most_bytes =
            self.quantization_budget(self.bdp_multiple(self.model.bandwidth, gain) + aggregated as f64);
        let grown_bytes = self.cwnd_bytes.saturating_add(sample.acked_bytes);
        if self.cycle.full_bandwidth_reached {
            self.cwnd_bytes = grown_bytes.min(most_bytes);
        } else if self.cwnd_bytes < most_bytes || sample.delivered_bytes < self.initial_bytes() {
            self.cwnd_bytes = grown_bytes;
        }
        self.cwnd_bytes = self.cwnd_bytes.max(self.min_pipe_bytes());
        if self.cycle.state == State::ProbeRtt {
            self.cwnd_bytes = self.cwnd_bytes.min(self.probe_rtt_window_bytes());
        }
        self.bound_window_for_model();
    }

    /// `BoundCwndForModel`.
    pub(super) fn bound_window_for_model(&mut self) {
        let cap_bytes = match self.cycle.state {
            State::ProbeDown | State::ProbeRefill | State::ProbeUp => self.model.long_term_bytes,
            State::ProbeRtt | State::ProbeCruise => self.with_headroom_bytes(),
            State::Startup | State::Drain => u64::MAX,
        };
        let cap_bytes = cap_bytes.min(self.model.short_term_bytes).max(self.min_pipe_bytes());
        self.cwnd_bytes = self.cwnd_bytes.min(cap_bytes).min(MAX_WINDOW_BYTES).max(self.mss_bytes);
    }

    // ---- loss recovery

    pub(super) fn save_window(&mut self) {
        self.prior_cwnd_bytes = if self.in_recovery || self.cycle.state == State::ProbeRtt {
            self.prior_cwnd_bytes.max(self.cwnd_bytes)
        } else {
            self.cwnd_bytes
        };
    }

    pub(super) fn restore_window(&mut self) {
        self.cwnd_bytes = self.cwnd_bytes.max(self.prior_cwnd_bytes);
    }

    /// `SaveStateUponLoss`.
    pub(super) fn save_state_upon_loss(&mut self) {
        self.save_window();
        self.cycle.undo_state = None;
        self.model.save_bounds();
    }

    // ---- congestion signals

    /// `UpdateCongestionSignals`.
    pub(super) fn update_congestion_signals(&mut self, sample: &Sample) {
        if self.model.update_max_bandwidth(sample) {
            self.cycle.rounds_since_probe_up = self.cycle.rounds_since_probe_up.saturating_add(1);
        }
        if !self.model.loss_round_start {
            return;
        }
        // AdaptLowerBoundsFromCongestion
        if self.model.loss_in_round && !self.cycle.state.is_probing() {
            self.model.lower_bounds(self.cwnd_bytes);
        }
        self.model.loss_in_round = false;
    }

    /// `NoteLoss`.
    pub(super) fn note_loss(&mut self, sample: &Sample) {
        if !self.model.loss_in_round {
            self.model.loss_round_delivered_bytes = sample.delivered_bytes;
            self.save_state_upon_loss();
        }
        self.model.loss_in_round = true;
        self.model.loss_events_in_round = self.model.loss_events_in_round.saturating_add(1);
    }
}
