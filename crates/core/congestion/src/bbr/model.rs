//! The model of the path: bandwidth, least round-trip time, aggregation, and the bounds that loss has taught.

use polypath_units::{Duration, Instant};

use super::sample::{Sample, to_bytes};

/// Share of a flight whose loss shows that it was too large.
pub(super) const LOSS_THRESHOLD: f64 = 0.02;
/// Multiplicative decrease upon loss.
pub(super) const BETA: f64 = 0.7;
/// Share of the long-term bound that is left free while cruising.
pub(super) const HEADROOM: f64 = 0.15;
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
/// Rounds over which the most aggregation is remembered.
const EXTRA_ACKED_ROUNDS: u64 = 10;

pub(super) fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 * 1e-9
}

/// Rates are in bytes per second; `f64::MAX` and `u64::MAX` are the draft's infinity.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// `BBR.max_bw` in the last and in this ProbeBW cycle, and `BBR.bw`.
    max_bandwidths: [f64; 2],
    pub(super) bandwidth: f64,
    pub(super) min_rtt: Duration,
    min_rtt_at: Instant,
    /// The least of the last 5 s: scheduling of ProbeRTT.
    pub(super) probe_rtt_min: Duration,
    pub(super) probe_rtt_min_at: Instant,
    pub(super) probe_rtt_expired: bool,

    /// Packet-timed rounds.
    next_round_delivered_bytes: u64,
    pub(super) round_start: bool,
    pub(super) round_count: u64,

    pub(super) extra_acked: ExtraAcked,
    pub(super) app_limited_until_bytes: u64,
    pub(super) delivered_bytes: u64,
    pub(super) total_lost_bytes: u64,

    // Congestion signals of this round.
    pub(super) loss_round_delivered_bytes: u64,
    pub(super) loss_round_start: bool,
    pub(super) loss_in_round: bool,
    pub(super) loss_events_in_round: u32,
    bandwidth_latest: f64,
    pub(super) volume_latest_bytes: u64,

    /// `BBR.bw_shortterm`, `BBR.inflight_shortterm`, `BBR.inflight_longterm`.
    pub(super) short_term_bandwidth: f64,
    pub(super) short_term_bytes: u64,
    pub(super) long_term_bytes: u64,
    undo: (f64, u64, u64),
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            max_bandwidths: [0.0; 2],
            bandwidth: 0.0,
            min_rtt: Duration::MAX,
            min_rtt_at: Instant::ZERO,
            probe_rtt_min: Duration::MAX,
            probe_rtt_min_at: Instant::ZERO,
            probe_rtt_expired: false,
            next_round_delivered_bytes: 0,
            round_start: false,
            round_count: 0,
            extra_acked: ExtraAcked::default(),
            app_limited_until_bytes: 0,
            delivered_bytes: 0,
            total_lost_bytes: 0,
            loss_round_delivered_bytes: 0,
            loss_round_start: false,
            loss_in_round: false,
            loss_events_in_round: 0,
            bandwidth_latest: 0.0,
            volume_latest_bytes: 0,
            short_term_bandwidth: f64::MAX,
            short_term_bytes: u64::MAX,
            long_term_bytes: u64::MAX,
            undo: (0.0, 0, 0),
        }
    }

    pub(super) fn max_bandwidth(&self) -> f64 {
        self.max_bandwidths[0].max(self.max_bandwidths[1])
    }

    /// `AdvanceMaxBwFilter`. A cycle without a sample leaves what was known.
    pub(super) fn advance_max_bandwidth_filter(&mut self) {
        if self.max_bandwidths[1] > 0.0 {
            self.max_bandwidths = [self.max_bandwidths[1], 0.0];
        }
    }

    pub(super) fn start_round(&mut self, delivered_bytes: u64) {
        self.next_round_delivered_bytes = delivered_bytes;
    }

    fn update_round(&mut self, sample: &Sample) -> bool {
        self.round_start = sample.prior_delivered_bytes >= self.next_round_delivered_bytes;
        if self.round_start {
            self.start_round(sample.delivered_bytes);
            self.round_count += 1;
        }
        self.round_start
    }

    /// `UpdateMaxBw`. Returns whether a round started.
    pub(super) fn update_max_bandwidth(&mut self, sample: &Sample) -> bool {
        let round_start = self.update_round(sample);
        if sample.rate > 0.0 && (sample.rate >= self.max_bandwidth() || !sample.app_limited) {
            self.max_bandwidths[1] = self.max_bandwidths[1].max(sample.rate);
        }
        round_start
    }

    /// `UpdateLatestDeliverySignals`.
    pub(super) fn update_latest_delivery_signals(&mut self, sample: &Sample) {
        self.bandwidth_latest = self.bandwidth_latest.max(sample.rate);
        self.volume_latest_bytes = self.volume_latest_bytes.max(sample.interval_bytes);
        self.loss_round_start = sample.prior_delivered_bytes >= self.loss_round_delivered_bytes;
        if self.loss_round_start {
            self.loss_round_delivered_bytes = sample.delivered_bytes;
        }
    }

    /// `AdvanceLatestDeliverySignals`.
    pub(super) fn advance_latest_delivery_signals(&mut self, sample: &Sample) {
        if self.loss_round_start {
            self.bandwidth_latest = sample.rate;
            self.volume_latest_bytes = sample.interval_bytes;
        }
    }

    /// `ResetCongestionSignals`.
    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.loss_events_in_round = 0;
        self.bandwidth_latest = 0.0;
        self.volume_latest_bytes = 0;
    }

    /// `ResetShortTermModel`.
    pub(super) fn reset_short_term(&mut self) {
        self.short_term_bandwidth = f64::MAX;
        self.short_term_bytes = u64::MAX;
    }

    /// `InitLowerBounds` and `LossLowerBounds`.
    pub(super) fn lower_bounds(&mut self, cwnd_bytes: u64) {
        if self.short_term_bandwidth == f64::MAX {
            self.short_term_bandwidth = self.max_bandwidth();
        }
        if self.short_term_bytes == u64::MAX {
            self.short_term_bytes = cwnd_bytes;
        }
        self.short_term_bandwidth = self.bandwidth_latest.max(BETA * self.short_term_bandwidth);
        let reduced_bytes = to_bytes(BETA * self.short_term_bytes as f64);
        self.short_term_bytes = self.volume_latest_bytes.max(reduced_bytes);
    }

    pub(super) fn bound_bandwidth(&mut self) {
        self.bandwidth = self.max_bandwidth().min(self.short_term_bandwidth);
    }

    /// `UpdateMinRTT`.
    pub(super) fn update_min_rtt(&mut self, now: Instant, rtt: Option<Duration>, interval: Duration) {
        let unknown = self.probe_rtt_min == Duration::MAX;
        self.probe_rtt_expired = !unknown && now > self.probe_rtt_min_at + interval;
        if let Some(rtt) = rtt
            && (rtt < self.probe_rtt_min || self.probe_rtt_expired)
        {
            self.probe_rtt_min = rtt;
            self.probe_rtt_min_at = now;
        }
        let min_rtt_expired = now > self.min_rtt_at + MIN_RTT_FILTER;
        if self.probe_rtt_min < self.min_rtt || min_rtt_expired {
            self.min_rtt = self.probe_rtt_min;
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    pub(super) fn restart_aggregation(&mut self, now: Instant) {
        self.extra_acked.since = now;
        self.extra_acked.acked_bytes = 0;
    }

    /// `UpdateACKAggregation`.
    pub(super) fn update_aggregation(&mut self, sample: &Sample, cwnd_bytes: u64, filled: bool) {
        let bandwidth = self.bandwidth;
        let extra = &mut self.extra_acked;
        let mut expected = bandwidth * seconds(sample.now.since(extra.since));
        if extra.acked_bytes as f64 <= expected {
            extra.acked_bytes = 0;
            extra.since = sample.now;
            expected = 0.0;
        }
        extra.acked_bytes = extra.acked_bytes.saturating_add(sample.acked_bytes);
        let excess_bytes = to_bytes(extra.acked_bytes as f64 - expected).min(cwnd_bytes);
        let rounds = if filled { EXTRA_ACKED_ROUNDS / 2 } else { 1 };
        if self.round_count >= extra.slot_round + rounds {
            extra.slot_round = self.round_count;
            extra.slots = [if filled { extra.slots[1] } else { 0 }, 0];
        }
        extra.slots[1] = extra.slots[1].max(excess_bytes);
    }

    pub(super) fn save_bounds(&mut self) {
        self.undo = (self.short_term_bandwidth, self.short_term_bytes, self.long_term_bytes);
    }

    pub(super) fn restore_bounds(&mut self) {
        self.loss_in_round = false;
        let (bandwidth, short_bytes, long_bytes) = self.undo;
        self.short_term_bandwidth = self.short_term_bandwidth.max(bandwidth);
        self.short_term_bytes = self.short_term_bytes.max(short_bytes);
        self.long_term_bytes = self.long_term_bytes.max(long_bytes);
    }

    pub(super) fn mark_app_limited(&mut self, sample: &Sample) {
        let until_bytes = sample.delivered_bytes.saturating_add(sample.in_flight_bytes);
        self.app_limited_until_bytes = until_bytes.max(1);
    }
}

/// How much more than expected was acknowledged, at most: what is kept in flight on top, so that a receiver or link that
/// acknowledges in bursts does not let the pipe run dry. The maximum is over half the filter's length at least, and over
/// all of it at most.
#[derive(Clone, Debug, Default)]
pub(super) struct ExtraAcked {
    since: Instant,
    acked_bytes: u64,
    slot_round: u64,
    slots: [u64; 2],
}

impl ExtraAcked {
    pub(super) fn most(&self) -> u64 {
        self.slots[0].max(self.slots[1])
    }
}

/// `IsInflightTooHigh`.
pub(super) fn is_too_much_in_flight(sample: &Sample) -> bool {
    sample.lost_bytes as f64 > sample.tx_in_flight_bytes as f64 * LOSS_THRESHOLD
}
