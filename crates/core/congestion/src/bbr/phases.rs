//! The state machine: when to speed up, to slow down and to cruise.

use polypath_units::{Duration, Instant};

use super::cycle::{AckPhase, State};
use super::flow::Bbr;
use super::model::{BETA, is_too_much_in_flight};
use super::sample::{Sample, to_bytes};

const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Rounds without a quarter more bandwidth after which the pipe is full.
const FULL_BANDWIDTH_ROUNDS: u32 = 3;
const FULL_BANDWIDTH_GROWTH: f64 = 1.25;
/// Losses of a round that end Startup.
const STARTUP_LOSS_EVENTS: u32 = 6;
const DRAIN_ROUNDS: u64 = 3;
/// Rounds after which Reno beside us would have grown by a bandwidth-delay product: no wait is longer.
const MAX_RENO_ROUNDS: u64 = 63;
const MIN_PROBE_WAIT: Duration = Duration::from_secs(2);
const MAX_SLOPE_ROUNDS: u32 = 30;

impl Bbr {
    /// `UpdateModelAndState`.
    pub(super) fn update_model_and_state(&mut self, sample: &Sample) {
        self.model.update_latest_delivery_signals(sample);
        self.update_congestion_signals(sample);
        let filled = self.cycle.full_bandwidth_reached;
        self.model.update_aggregation(sample, self.cwnd_bytes, filled);
        self.check_full_bandwidth_reached(sample);
        self.check_startup_done(sample);
        self.check_drain_done(sample);
        self.update_probe_bandwidth_phase(sample);
        self.model.update_min_rtt(sample.now, sample.rtt, PROBE_RTT_INTERVAL);
        self.check_probe_rtt(sample);
        self.model.advance_latest_delivery_signals(sample);
        self.model.bound_bandwidth();
    }

    // ---- Startup and Drain

    fn check_full_bandwidth_reached(&mut self, sample: &Sample) {
        let cycle = &mut self.cycle;
        if cycle.full_bandwidth_now || !self.model.round_start || sample.app_limited {
            return;
        }
        if sample.rate == 0.0 {
            // Acknowledgments came too fast to tell: nothing says that it grows no more.
            return;
        }
        if sample.rate >= cycle.full_bandwidth * FULL_BANDWIDTH_GROWTH {
            cycle.reset_full_bandwidth();
            cycle.full_bandwidth = sample.rate;
            return;
        }
        cycle.full_bandwidth_count += 1;
        cycle.full_bandwidth_now = cycle.full_bandwidth_count >= FULL_BANDWIDTH_ROUNDS;
        cycle.full_bandwidth_reached |= cycle.full_bandwidth_now;
    }

    fn check_startup_done(&mut self, sample: &Sample) {
        self.check_startup_high_loss(sample);
        if self.cycle.state == State::Startup && self.cycle.full_bandwidth_reached {
            self.cycle.state = State::Drain;
            self.cycle.drain_start_round = self.model.round_count;
        }
    }

    fn check_startup_high_loss(&mut self, sample: &Sample) {
        if !self.model.loss_round_start {
            return;
        }
        let events = core::mem::take(&mut self.model.loss_events_in_round);
        if self.cycle.full_bandwidth_reached
            || !self.in_recovery
            || events < STARTUP_LOSS_EVENTS
            || !is_too_much_in_flight(sample)
        {
            return;
        }
        self.cycle.undo_state = Some(State::Startup);
        self.cycle.full_bandwidth_reached = true;
        let pipe_bytes = to_bytes(self.bdp_multiple(self.model.max_bandwidth(), 1.0));
        self.model.long_term_bytes = pipe_bytes.max(self.model.volume_latest_bytes);
    }

    fn check_drain_done(&mut self, sample: &Sample) {
        if self.cycle.state != State::Drain {
            return;
        }
        let drained = sample.in_flight_bytes <= self.volume_bytes(self.model.bandwidth, 1.0);
        if drained || self.model.round_count > self.cycle.drain_start_round + DRAIN_ROUNDS {
            self.start_probe_down(sample.now, sample.delivered_bytes);
        }
    }

    // ---- ProbeBW

    fn start_probe_down(&mut self, now: Instant, delivered_bytes: u64) {
        self.model.reset_congestion_signals();
        self.cycle.probe_up_bytes_per_step = u64::MAX;
        self.pick_probe_wait(now, delivered_bytes);
        self.cycle.started_at = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.model.start_round(delivered_bytes);
        self.cycle.state = State::ProbeDown;
    }

    /// `PickProbeWait`: at random, so that flows which share a bottleneck do not probe in step; here by a hash of what no
    /// two flows have in common for long.
    fn pick_probe_wait(&mut self, now: Instant, delivered_bytes: u64) {
        let mut hash = now.as_nanos() ^ delivered_bytes.rotate_left(32);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        self.cycle.rounds_since_probe_up = hash & 1;
        self.cycle.probe_wait = MIN_PROBE_WAIT + Duration::from_nanos((hash >> 1) % 1_000_000_000);
    }

    fn start_probe_refill(&mut self, delivered_bytes: u64) {
        self.model.reset_short_term();
        self.cycle.probe_up_rounds = 0;
        self.cycle.probe_up_acked_bytes = 0;
        self.cycle.previous_probe_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.model.start_round(delivered_bytes);
        self.cycle.state = State::ProbeRefill;
    }

    fn start_probe_up(&mut self, sample: &Sample) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.model.start_round(sample.delivered_bytes);
        self.cycle.reset_full_bandwidth();
        self.cycle.full_bandwidth = sample.rate;
        self.cycle.state = State::ProbeUp;
        self.raise_slope();
    }

    /// `UpdateProbeBWCyclePhase`.
    fn update_probe_bandwidth_phase(&mut self, sample: &Sample) {
        if !self.cycle.full_bandwidth_reached || self.adapt_long_term_model(sample) {
            return;
        }
        match self.cycle.state {
            State::ProbeDown if self.is_time_to_probe(sample.now) => {
                self.start_probe_refill(sample.delivered_bytes);
            }
            State::ProbeDown if self.is_time_to_cruise(sample) => self.cycle.state = State::ProbeCruise,
            State::ProbeCruise if self.is_time_to_probe(sample.now) => {
                self.start_probe_refill(sample.delivered_bytes);
            }
            State::ProbeRefill if self.model.round_start => {
                self.cycle.is_probe_sample = true;
                self.start_probe_up(sample);
            }
            State::ProbeUp => self.go_down_in_time(sample),
            _ => {}
        }
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        let reno_rounds = (self.target_bytes() / self.mss_bytes).min(MAX_RENO_ROUNDS);
        now > self.cycle.started_at + self.cycle.probe_wait || self.cycle.rounds_since_probe_up >= reno_rounds
    }

    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        sample.in_flight_bytes <= self.with_headroom_bytes()
            && sample.in_flight_bytes <= self.volume_bytes(self.model.max_bandwidth(), 1.0)
    }

    fn go_down_in_time(&mut self, sample: &Sample) {
        if self.is_time_to_go_down(sample) {
            self.cycle.previous_probe_too_high = false;
            self.start_probe_down(sample.now, sample.delivered_bytes);
        }
    }

    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        let cap_bytes = self.model.long_term_bytes;
        if self.cycle.previous_probe_too_high && sample.in_flight_bytes >= cap_bytes {
            self.cycle.previous_probe_precautionary = true;
            return true;
        }
        if sample.window_limited && self.cwnd_bytes >= cap_bytes {
            // The bound limits the bandwidth, not the path.
            self.cycle.reset_full_bandwidth();
            self.cycle.full_bandwidth = sample.rate;
            return false;
        }
        self.cycle.full_bandwidth_now
    }

    /// `RaiseInflightLongtermSlope`: the bound rises by 1, 2, 4, … segments a round.
    fn raise_slope(&mut self) {
        let growth = 1_u64 << self.cycle.probe_up_rounds;
        self.cycle.probe_up_rounds = (self.cycle.probe_up_rounds + 1).min(MAX_SLOPE_ROUNDS);
        self.cycle.probe_up_bytes_per_step = (self.cwnd_bytes / growth).max(self.mss_bytes);
    }

    /// `ProbeInflightLongtermUpward`.
    fn probe_upward(&mut self, sample: &Sample) {
        if !sample.window_limited || self.cwnd_bytes < self.model.long_term_bytes {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.probe_up_acked_bytes = cycle.probe_up_acked_bytes.saturating_add(sample.acked_bytes);
        let steps = cycle.probe_up_acked_bytes / cycle.probe_up_bytes_per_step;
        cycle.probe_up_acked_bytes %= cycle.probe_up_bytes_per_step;
        let growth_bytes = steps.saturating_mul(self.mss_bytes);
        // Infinity is not reached by steps.
        self.model.long_term_bytes =
            self.model.long_term_bytes.saturating_add(growth_bytes).min(u64::MAX - 1);
        if self.model.round_start {
            self.raise_slope();
        }
    }

    /// `AdaptLongTermModel`. True if it decided on a state.
    fn adapt_long_term_model(&mut self, sample: &Sample) -> bool {
        if self.cycle.ack_phase == AckPhase::ProbeStarting && self.model.round_start {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && self.model.round_start {
            self.cycle.is_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.cycle.state.is_probe_bandwidth() {
                if !sample.app_limited {
                    self.model.advance_max_bandwidth_filter();
                }
                if self.cycle.previous_probe_precautionary && !self.cycle.previous_probe_too_high {
                    self.start_probe_refill(sample.delivered_bytes);
                    return true;
                }
            }
        }
        if is_too_much_in_flight(sample) {
            if self.cycle.is_probe_sample {
                return self.handle_too_much_in_flight(sample);
            }
            return false;
        }
        if self.model.long_term_bytes == u64::MAX {
            return false;
        }
        self.model.long_term_bytes = self.model.long_term_bytes.max(sample.tx_in_flight_bytes);
        if self.cycle.state == State::ProbeUp {
            self.probe_upward(sample);
        }
        false
    }

    /// `HandleInflightTooHigh`.
    fn handle_too_much_in_flight(&mut self, sample: &Sample) -> bool {
        self.cycle.previous_probe_too_high = true;
        self.cycle.is_probe_sample = false;
        if !sample.app_limited {
            let reduced_bytes = to_bytes(self.target_bytes() as f64 * BETA);
            self.model.long_term_bytes = sample.tx_in_flight_bytes.max(reduced_bytes);
        }
        if self.cycle.state == State::ProbeUp {
            self.cycle.undo_state = Some(State::ProbeUp);
            self.start_probe_down(sample.now, sample.delivered_bytes);
            return true;
        }
        false
    }

    // ---- ProbeRTT

    fn check_probe_rtt(&mut self, sample: &Sample) {
        if self.cycle.state != State::ProbeRtt && self.model.probe_rtt_expired && !self.cycle.idle_restart {
            self.save_window();
            self.cycle.state = State::ProbeRtt;
            self.cycle.probe_rtt_done_at = None;
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.model.start_round(sample.delivered_bytes);
        }
        if self.cycle.state == State::ProbeRtt {
            self.handle_probe_rtt(sample);
        }
        if sample.interval_bytes > 0 {
            self.cycle.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, sample: &Sample) {
        self.model.mark_app_limited(sample);
        if self.cycle.probe_rtt_done_at.is_none() {
            if sample.in_flight_bytes <= self.probe_rtt_window_bytes() {
                self.cycle.probe_rtt_done_at = Some(sample.now + PROBE_RTT_DURATION);
                self.cycle.probe_rtt_round_done = false;
                self.model.start_round(sample.delivered_bytes);
            }
            return;
        }
        self.cycle.probe_rtt_round_done |= self.model.round_start;
        if self.cycle.probe_rtt_round_done {
            self.check_probe_rtt_done(sample.now);
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.cycle.probe_rtt_done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.model.probe_rtt_min_at = now;
        self.restore_window();
        // ExitProbeRTT
        self.model.reset_short_term();
        if self.cycle.full_bandwidth_reached {
            let delivered_bytes = self.model.delivered_bytes;
            self.start_probe_down(now, delivered_bytes);
            self.cycle.state = State::ProbeCruise;
        } else {
            self.cycle.state = State::Startup;
        }
    }

    /// The part of `HandleSpuriousLossDetection` that is about states.
    pub(super) fn return_to_probing(&mut self) {
        self.cycle.reset_full_bandwidth();
        let undo_state = self.cycle.undo_state.take();
        match undo_state {
            Some(State::Startup) if self.cycle.state != State::Startup => {
                self.cycle.full_bandwidth_reached = false;
                if self.cycle.state != State::ProbeRtt {
                    self.cycle.state = State::Startup;
                }
            }
            Some(State::ProbeUp) if !matches!(self.cycle.state, State::ProbeUp | State::ProbeRtt) => {
                let delivered_bytes = self.model.delivered_bytes;
                self.start_probe_refill(delivered_bytes);
            }
            _ => {}
        }
    }
}
