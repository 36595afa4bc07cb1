//! Where the flow is in its cycle of speeding up, slowing down and cruising.

use polypath_units::{Duration, Instant};

/// 4·ln 2, rounded down: the least gain with which the rate can double every round.
pub(super) const STARTUP_PACING_GAIN: f64 = 2.77;
pub(super) const PROBE_RTT_WINDOW_GAIN: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Startup,
    Drain,
    ProbeDown,
    ProbeCruise,
    ProbeRefill,
    ProbeUp,
    ProbeRtt,
}

impl State {
    pub(super) const fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain => 0.5,
            Self::ProbeDown => 0.9,
            Self::ProbeCruise | Self::ProbeRefill | Self::ProbeRtt => 1.0,
            Self::ProbeUp => 1.25,
        }
    }

    pub(super) const fn window_gain(self) -> f64 {
        match self {
            Self::ProbeUp => 2.25,
            Self::ProbeRtt => PROBE_RTT_WINDOW_GAIN,
            _ => 2.0,
        }
    }

    /// `IsInAProbeBWState`.
    pub(super) const fn is_probe_bandwidth(self) -> bool {
        matches!(self, Self::ProbeDown | Self::ProbeCruise | Self::ProbeRefill | Self::ProbeUp)
    }

    /// `IsProbingBW`.
    pub(super) const fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::ProbeRefill | Self::ProbeUp)
    }
}

/// `BBR.ack_phase`: what the acknowledgments that arrive tell of a bandwidth probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

#[derive(Clone, Debug)]
pub(super) struct Cycle {
    pub(super) state: State,
    pub(super) ack_phase: AckPhase,
    pub(super) idle_restart: bool,
    pub(super) undo_state: Option<State>,

    pub(super) full_bandwidth: f64,
    pub(super) full_bandwidth_count: u32,
    pub(super) full_bandwidth_now: bool,
    pub(super) full_bandwidth_reached: bool,

    pub(super) drain_start_round: u64,
    /// Start of the phase, and the wait until the next probe.
    pub(super) started_at: Instant,
    pub(super) probe_wait: Duration,
    pub(super) rounds_since_probe_up: u64,
    pub(super) is_probe_sample: bool,
    pub(super) previous_probe_too_high: bool,
    pub(super) previous_probe_precautionary: bool,
    /// Slope with which the long-term bound rises: a segment for so many acknowledged bytes.
    pub(super) probe_up_bytes_per_step: u64,
    pub(super) probe_up_acked_bytes: u64,
    pub(super) probe_up_rounds: u32,

    pub(super) probe_rtt_done_at: Option<Instant>,
    pub(super) probe_rtt_round_done: bool,
}

impl Cycle {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Startup,
            ack_phase: AckPhase::Init,
            idle_restart: false,
            undo_state: None,
            full_bandwidth: 0.0,
            full_bandwidth_count: 0,
            full_bandwidth_now: false,
            full_bandwidth_reached: false,
            drain_start_round: 0,
            started_at: Instant::ZERO,
            probe_wait: Duration::ZERO,
            rounds_since_probe_up: 0,
            is_probe_sample: false,
            previous_probe_too_high: false,
            previous_probe_precautionary: false,
            probe_up_bytes_per_step: u64::MAX,
            probe_up_acked_bytes: 0,
            probe_up_rounds: 0,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
        }
    }

    /// `ResetFullBW`.
    pub(super) fn reset_full_bandwidth(&mut self) {
        self.full_bandwidth = 0.0;
        self.full_bandwidth_count = 0;
        self.full_bandwidth_now = false;
    }
}
