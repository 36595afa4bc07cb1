use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

use crate::window::{Window, forward_sizes_to_window};
use crate::{Ack, Config, Controller, Flows};

/// So long after congestion growth is Reno's (the paper's `Δ_L`).
const DELTA_L_SECS: f64 = 1.0;
/// What congestion leaves of the window.
const BETA_MIN: f64 = 0.5;
const BETA_MAX: f64 = 0.8;
/// A rate that changed by more than this share since the last congestion asks for half (the paper's `Δ_B`).
const DELTA_B: f64 = 0.2;
/// The round-trip time at which growth is not scaled, and the bounds of the scale.
const SCALE_RTT_SECS: f64 = 0.1;
const SCALE: (f64, f64) = (0.5, 10.0);
/// A round-trip time so far beyond the longest does not count as the longest: it is no queue of this path.
const LONGEST_RISE: Duration = Duration::from_millis(20);
/// With a shorter round trip, its measurement says too little of the queue.
const LEAST_RTT: Duration = Duration::from_millis(10);
/// What the rate keeps of what it had, and how many round trips after congestion it begins anew.
const RATE_KEPT: f64 = 0.75;
const RATE_ROUND_TRIPS: u64 = 3;
/// With each congestion, the longest round-trip time fades to this share of what it is above the least.
const LONGEST_KEPT: f64 = 0.95;

/// H-TCP (Leith, Shorten: H-TCP: TCP for High-Speed and Long-Distance Networks, PFLDnet 2004, section 2, and
/// draft-leith-tcp-htcp-06): growth follows the time `Δ` since congestion, a second of Reno, then `1 + 10(Δ-1) + ((Δ-1)/2)²`
/// segments a round trip, scaled by the round-trip time. Congestion leaves the least over the longest round-trip
/// time of the window: what empties the queue; half where the rate changed by more than a fifth since the last.
///
/// Two things are of Linux: a single outlier is not the longest round-trip time, and congestion halves until the rate was steady once.
#[derive(Clone, Debug)]
pub struct HTcp {
    window: Window,
    beta: f64,
    /// The rate was steady at the last congestion.
    is_steady: bool,
    /// Since when `Δ` counts; none before the first acknowledgment.
    congested: Option<Instant>,
    recovers: bool,
    round_trips: RoundTrips,
    rate: Rate,
    /// What the last congestion event or timeout changed.
    before: Option<Before>,
}

/// Least and longest smoothed round-trip time; zero before the first sample.
#[derive(Clone, Copy, Debug)]
struct RoundTrips {
    least: Duration,
    longest: Duration,
}

/// The rate at which data is acknowledged, in bytes per second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Since when `acked_bytes` count; none where measuring begins anew.
    since: Option<Instant>,
    acked_bytes: u64,
    smoothed: f64,
    /// Highest since the last congestion, and before it.
    highest: f64,
    last_highest: f64,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    congested: Option<Instant>,
    longest: Duration,
    last_highest_rate: f64,
}

impl RoundTrips {
    fn sample(&mut self, srtt: Duration, recovers: bool) {
        if srtt.is_zero() {
            return;
        }
        if self.least.is_zero() || srtt < self.least {
            self.least = srtt;
        }
        if !recovers {
            self.longest = self.longest.max(self.least);
            if srtt <= self.longest + LONGEST_RISE {
                self.longest = self.longest.max(srtt);
            }
        }
    }

    /// What empties the queue, if the longest round trip filled it.
    fn unqueued(&self) -> f64 {
        let share = self.least.as_nanos() as f64 / self.longest.as_nanos().max(1) as f64;
        share.clamp(BETA_MIN, BETA_MAX)
    }

    fn fade(&mut self) {
        self.longest = self.least + self.longest.saturating_sub(self.least).mul_f64(LONGEST_KEPT);
    }
}

impl Rate {
    const NONE: Self = Self { since: None, acked_bytes: 0, smoothed: 0.0, highest: 0.0, last_highest: 0.0 };

    /// Measures over a window, and over no less than a round trip. `begins` says that congestion is only just over.
    fn measure(&mut self, now: Instant, acked_bytes: u64, window_bytes: f64, rtt: Duration, begins: bool) {
        let Some(since) = self.since else {
            self.since = Some(now);
            self.acked_bytes = 0;
            return;
        };
        self.acked_bytes = self.acked_bytes.saturating_add(acked_bytes);
        let elapsed = now.since(since);
        if (self.acked_bytes as f64) < window_bytes || elapsed < rtt || elapsed.is_zero() {
            return;
        }
        let sample = self.acked_bytes as f64 / elapsed.as_secs_f64();
        if begins {
            self.smoothed = sample;
            self.highest = sample;
        } else {
            self.smoothed = RATE_KEPT * self.smoothed + (1.0 - RATE_KEPT) * sample;
            self.highest = self.highest.max(self.smoothed);
        }
        self.since = Some(now);
        self.acked_bytes = 0;
    }

    /// Congestion: true if the rate is what it was at the last.
    fn compare(&mut self) -> bool {
        let last = core::mem::replace(&mut self.last_highest, self.highest);
        (self.highest - last).abs() <= DELTA_B * last
    }
}

impl HTcp {
    /// A flow that starts.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            window: Window::new(config, false),
            beta: BETA_MIN,
            is_steady: false,
            congested: None,
            recovers: false,
            round_trips: RoundTrips { least: Duration::ZERO, longest: Duration::ZERO },
            rate: Rate::NONE,
            before: None,
        }
    }

    /// Congestion: the share of the window that is left.
    fn adapt_beta(&mut self) -> f64 {
        let was_steady = self.is_steady;
        self.is_steady = self.rate.compare();
        let measured = self.round_trips.least > LEAST_RTT;
        self.beta =
            if self.is_steady && was_steady && measured { self.round_trips.unqueued() } else { BETA_MIN };
        self.beta
    }

    fn begin_epoch(&mut self, now: Instant) {
        self.before = Some(Before {
            congested: self.congested,
            longest: self.round_trips.longest,
            last_highest_rate: self.rate.last_highest,
        });
        self.congested = Some(now);
        self.recovers = true;
    }

    fn reduced_bytes(&mut self, in_flight_bytes: u64) -> f64 {
        let left_bytes = self.adapt_beta() * self.window.pipe_bytes(in_flight_bytes) as f64;
        self.round_trips.fade();
        left_bytes
    }
}

/// Growth in a round trip, in segments: `2(1-β)` of what the time since congestion allows, scaled by the round-trip time.
fn growth_packets(since_congestion: Duration, least_rtt: Duration, beta: f64) -> f64 {
    let beyond_secs = (since_congestion.as_secs_f64() - DELTA_L_SECS).max(0.0);
    let unscaled = 1.0 + 10.0 * beyond_secs + (beyond_secs / 2.0) * (beyond_secs / 2.0);
    let scale = if least_rtt.is_zero() { 1.0 } else { SCALE_RTT_SECS / least_rtt.as_secs_f64() };
    2.0 * (1.0 - beta) * (unscaled / scale.clamp(SCALE.0, SCALE.1)).max(1.0)
}

impl Controller for HTcp {
    forward_sizes_to_window!("htcp");

    fn on_ack(&mut self, ack: &Ack, _flows: &Flows<'_>) {
        let congested = *self.congested.get_or_insert(ack.now);
        let since_congestion = ack.now.since(congested);
        self.round_trips.sample(ack.srtt, self.recovers);
        let least_rtt = self.round_trips.least;
        let packets = growth_packets(since_congestion, least_rtt, self.beta);
        if !self.recovers {
            let begins = since_congestion < least_rtt * (RATE_ROUND_TRIPS + 1);
            let window_bytes = self.window.cwnd_exact_bytes() - packets.max(1.0) * self.window.mss_bytes();
            self.rate.measure(ack.now, ack.acked_bytes, window_bytes, least_rtt, begins);
        }
        let acked_bytes = self.window.on_ack(ack);
        self.window.grow_a_round(acked_bytes, packets);
    }

    fn on_congestion(&mut self, now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        self.begin_epoch(now);
        let left_bytes = self.reduced_bytes(in_flight_bytes);
        self.window.on_congestion(left_bytes, self.window.min_ssthresh_packets());
    }

    fn on_timeout(&mut self, now: Instant, in_flight_bytes: u64, _flows: &Flows<'_>) {
        let left_bytes = if self.window.timeout_reduces() {
            self.begin_epoch(now);
            self.reduced_bytes(in_flight_bytes)
        } else {
            self.congested = Some(now);
            self.recovers = true;
            0.0
        };
        self.window.on_timeout(left_bytes, self.window.min_ssthresh_packets());
    }

    fn on_spurious(&mut self, _now: Instant) {
        if self.window.on_spurious()
            && let Some(before) = self.before.take()
        {
            self.congested = before.congested;
            self.round_trips.longest = before.longest;
            self.rate.last_highest = before.last_highest_rate;
        }
        self.recovers = false;
        self.rate.since = None;
    }

    fn on_recovery_end(&mut self, now: Instant) {
        self.congested = Some(now);
        self.recovers = false;
        self.rate.since = None;
    }

    fn on_idle_restart(&mut self, _now: Instant) {
        self.window.on_idle_restart();
        self.rate.since = None;
    }
}

#[cfg(test)]
mod tests;
