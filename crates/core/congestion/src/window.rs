//! What the windows of all loss-based algorithms have in common.

use alloc::boxed::Box;

use crate::hystart::{CSS_GROWTH_DIVISOR, HyStart, Phase};
use crate::{Ack, Config, Flows};

/// No window grows beyond this: 1 TiB, a thousand times what TCP can advertise (RFC 7323 §2.3), and far below where
/// `f64` stops telling bytes apart.
pub(crate) const MAX_WINDOW_BYTES: u64 = 1 << 40;

/// A congestion window and its slow-start threshold (RFC 5681): slow start, reduction, undo and idle restart. How it
/// grows in congestion avoidance and how far it falls is for the algorithm that owns it.
///
/// The window is kept in whole bytes and a fraction of one, so that growth by small steps loses nothing to rounding.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    cwnd_bytes: u64,
    /// Growth that does not yet make a byte: from 0 to below 1.
    fraction_bytes: f64,
    ssthresh_bytes: u64,
    /// What the window let through at most, in this round and in the one before: the whole window if it limited the
    /// sender, otherwise the bytes in flight.
    used_bytes: u64,
    used_before_bytes: u64,
    mss_bytes: u32,
    initial_window_packets: u32,
    min_ssthresh_packets: u32,
    reduced: Reduced,
    /// Neither data nor loss was seen yet: the window is the initial one.
    untouched: bool,
    undo: Option<Box<Undo>>,
    hystart: Option<HyStart>,
}

/// Whether what is in flight has already cost a reduction. Data acknowledged outside recovery begins a new flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduced {
    No,
    ByCongestion,
    ByTimeout,
}

/// The state before the last congestion event or timeout.
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd_bytes: u64,
    fraction_bytes: f64,
    ssthresh_bytes: u64,
}

impl Window {
    /// The initial window; with `hystart`, HyStart++ (RFC 9406) ends the first slow start when the round-trip time rises.
    pub(crate) fn new(config: &Config, hystart: bool) -> Self {
        let mut window = Self {
            cwnd_bytes: 0,
            fraction_bytes: 0.0,
            ssthresh_bytes: u64::MAX,
            // Before the first round trip nothing is known, and the window counts as used.
            used_bytes: u64::MAX,
            used_before_bytes: u64::MAX,
            mss_bytes: config.mss_bytes.max(1),
            initial_window_packets: config.initial_window_packets.max(1),
            min_ssthresh_packets: config.min_ssthresh_packets.max(1),
            reduced: Reduced::No,
            untouched: true,
            undo: None,
            hystart: hystart.then(HyStart::new),
        };
        window.cwnd_bytes = window.initial_bytes();
        window
    }

    pub(crate) fn cwnd_bytes(&self) -> u64 {
        self.cwnd_bytes
    }

    pub(crate) fn ssthresh_bytes(&self) -> u64 {
        self.ssthresh_bytes
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd_bytes < self.ssthresh_bytes
    }

    /// The window with its fraction.
    pub(crate) fn cwnd_exact_bytes(&self) -> f64 {
        self.cwnd_bytes as f64 + self.fraction_bytes
    }

    /// The window in segments.
    pub(crate) fn cwnd_packets(&self) -> f64 {
        self.cwnd_exact_bytes() / self.mss_bytes()
    }

    pub(crate) fn mss_bytes(&self) -> f64 {
        f64::from(self.mss_bytes)
    }

    /// The least slow-start threshold of a coupled algorithm in segments: 1 as soon as the connection has other
    /// subflows to send on, so that a congested path can be left almost unused (Paasch 2.2.3).
    pub(crate) fn coupled_min_ssthresh_packets(&self, flows: &Flows<'_>) -> u32 {
        if flows.all.len() > 1 { 1 } else { self.min_ssthresh_packets }
    }

    pub(crate) fn min_ssthresh_packets(&self) -> u32 {
        self.min_ssthresh_packets
    }

    /// Slow start (RFC 5681 §3.1, by bytes acknowledged as in RFC 3465). Returns the acknowledged bytes that are left for
    /// congestion avoidance: all of them, what remains after the threshold was reached, or none.
    ///
    /// RFC 3465's limit `L` is not 2 segments: with receive offload one acknowledgment stands for many segments and the
    /// sender is paced, so (as in Linux, and in RFC 9406 for paced senders) the window grows by all that was
    /// acknowledged. One acknowledgment at most doubles it, though: after a timeout a single one may cover a whole
    /// flight, which must not come back as one burst.
    pub(crate) fn on_ack(&mut self, ack: &Ack) -> u64 {
        let acked_bytes = self.use_ack(ack);
        if !self.in_slow_start() {
            return if ack.window_limited { acked_bytes } else { 0 };
        }
        // HyStart++ is for the initial slow start only (RFC 9406 §4.3).
        if self.ssthresh_bytes == u64::MAX
            && let Some(hystart) = &mut self.hystart
        {
            match hystart.on_ack(ack.rtt, ack.round_ended) {
                Phase::SlowStart => {}
                Phase::Conservative if ack.window_limited => {
                    self.grow(acked_bytes as f64 / CSS_GROWTH_DIVISOR);
                    return 0;
                }
                Phase::Conservative => {}
                Phase::Over => self.ssthresh_bytes = self.cwnd_bytes,
            }
        }
        if !ack.window_limited {
            return 0;
        }
        let room_bytes = self.ssthresh_bytes.saturating_sub(self.cwnd_bytes);
        let grown_bytes = acked_bytes.min(room_bytes);
        self.cwnd_bytes = (self.cwnd_bytes + grown_bytes).min(MAX_WINDOW_BYTES);
        acked_bytes - grown_bytes
    }

    /// Like [`Self::on_ack`], for an algorithm whose slow start grows by `factor` times what was acknowledged.
    pub(crate) fn on_ack_times(&mut self, ack: &Ack, factor: f64) -> u64 {
        let acked_bytes = self.use_ack(ack);
        if !ack.window_limited {
            return 0;
        }
        if !self.in_slow_start() {
            return acked_bytes;
        }
        let room_bytes = self.ssthresh_bytes.saturating_sub(self.cwnd_bytes) as f64;
        let wanted_bytes = acked_bytes as f64 * factor;
        self.grow(wanted_bytes.min(room_bytes));
        if wanted_bytes <= room_bytes { 0 } else { acked_bytes - (room_bytes / factor) as u64 }
    }

    /// What an acknowledgment says of how the window is used. Returns the acknowledged bytes that count.
    fn use_ack(&mut self, ack: &Ack) -> u64 {
        self.untouched = false;
        self.reduced = Reduced::No;
        if ack.round_ended {
            self.used_before_bytes = self.used_bytes;
            self.used_bytes = 0;
        }
        let used_bytes = if ack.window_limited { self.cwnd_bytes } else { ack.in_flight_bytes };
        self.used_bytes = self.used_bytes.max(used_bytes);
        ack.acked_bytes.min(self.cwnd_bytes)
    }

    /// Congestion avoidance by so many segments in a round trip, of which `acked_bytes` are a part. Reno's is one (RFC 5681 §3.1).
    /// It never is faster than slow start.
    pub(crate) fn grow_a_round(&mut self, acked_bytes: u64, packets: f64) {
        let acked_bytes = acked_bytes as f64;
        let bytes = acked_bytes * (packets * self.mss_bytes()) / self.cwnd_exact_bytes();
        self.grow(bytes.min(acked_bytes));
    }

    /// Grows the window by a number of bytes with fraction; a negative number shrinks it.
    pub(crate) fn grow(&mut self, bytes: f64) {
        self.set_exact_bytes(self.cwnd_exact_bytes() + bytes);
    }

    /// Sets the window, within its bounds. Not a number sets the least window.
    pub(crate) fn set_exact_bytes(&mut self, bytes: f64) {
        let bytes = bytes.max(self.mss_bytes()).min(MAX_WINDOW_BYTES as f64);
        // The range is known, and conversion from and to i64 is one instruction each.
        let whole = bytes as i64;
        self.cwnd_bytes = whole as u64;
        self.fraction_bytes = bytes - whole as f64;
    }

    /// Ends slow start here, if it lasts: for an algorithm that sees congestion before loss does.
    pub(crate) fn avoid_congestion(&mut self) {
        self.ssthresh_bytes = self.ssthresh_bytes.min(self.cwnd_bytes);
    }

    /// What a reduction starts from.
    ///
    /// RFC 5681 takes FlightSize, so that a window that the application did not fill does not hide congestion. At the
    /// moment of a loss, though, what is in flight lacks the segments that were lost or acknowledged selectively. So: the
    /// most that the window let through in the last two rounds, which for a window-limited flow is exactly the window.
    pub(crate) fn pipe_bytes(&self, in_flight_bytes: u64) -> u64 {
        self.used_bytes.max(self.used_before_bytes).max(in_flight_bytes).min(self.cwnd_bytes)
    }

    /// What Reno leaves of it (RFC 5681, equation 4).
    pub(crate) fn half_bytes(&self, in_flight_bytes: u64) -> f64 {
        self.pipe_bytes(in_flight_bytes) as f64 / 2.0
    }

    /// A congestion event: window and threshold become `ssthresh_bytes`, or `min_packets` if that is more.
    pub(crate) fn on_congestion(&mut self, ssthresh_bytes: f64, min_packets: u32) {
        self.save();
        self.reduced = Reduced::ByCongestion;
        self.lower_threshold(ssthresh_bytes, min_packets);
        self.cwnd_bytes = self.ssthresh_bytes;
        self.fraction_bytes = 0.0;
    }

    /// A retransmission timeout: the window becomes one segment (RFC 5681 §3.1).
    ///
    /// The threshold becomes `ssthresh_bytes` like at a congestion event, but only once per flight: it is held when the
    /// flight has already cost a reduction, by an earlier timeout (RFC 5681 §3.1) or by the fast
    /// recovery that this timeout ends. Returns whether there is now a state to go back to that was not there before.
    pub(crate) fn on_timeout(&mut self, ssthresh_bytes: f64, min_packets: u32) -> bool {
        let repeated = self.reduced == Reduced::ByTimeout;
        if !repeated {
            self.save();
        }
        if self.reduced == Reduced::No {
            self.lower_threshold(ssthresh_bytes, min_packets);
        }
        self.reduced = Reduced::ByTimeout;
        self.cwnd_bytes = u64::from(self.mss_bytes);
        self.fraction_bytes = 0.0;
        !repeated
    }

    /// True if a timeout now would lower the threshold.
    pub(crate) fn timeout_reduces(&self) -> bool {
        self.reduced == Reduced::No
    }

    /// Goes back to before the last congestion event or timeout; never to less than what is there now. Returns whether
    /// there was anything to go back to.
    pub(crate) fn on_spurious(&mut self) -> bool {
        let Some(undo) = self.undo.take() else { return false };
        self.reduced = Reduced::No;
        self.ssthresh_bytes = self.ssthresh_bytes.max(undo.ssthresh_bytes);
        if undo.cwnd_bytes >= self.cwnd_bytes {
            self.set_exact_bytes(undo.cwnd_bytes as f64 + undo.fraction_bytes);
        }
        true
    }

    /// The restart window of RFC 5681 §4.1. A flow in congestion avoidance remembers three quarters of what it had in the
    /// threshold (RFC 7661 §4.4.3), up to where it slow-starts again.
    pub(crate) fn on_idle_restart(&mut self) {
        if !self.in_slow_start() {
            self.ssthresh_bytes = self.ssthresh_bytes.max(self.cwnd_bytes / 4 * 3);
        }
        if self.cwnd_bytes > self.initial_bytes() {
            self.cwnd_bytes = self.initial_bytes();
            self.fraction_bytes = 0.0;
        }
        self.undo = None;
    }

    /// Keeps the window in bytes, but at least one segment. Before any data was acknowledged (the peer's MSS arrives
    /// with the SYN/ACK) it is the initial window in segments of the new size.
    pub(crate) fn on_mss(&mut self, mss_bytes: u32) {
        self.mss_bytes = mss_bytes.max(1);
        if self.untouched {
            self.cwnd_bytes = self.initial_bytes();
        }
        self.cwnd_bytes = self.cwnd_bytes.max(u64::from(self.mss_bytes));
        self.ssthresh_bytes = self.ssthresh_bytes.max(u64::from(self.mss_bytes));
    }

    /// Sets the window, and the threshold if given, to at least one segment. What was before a congestion event cannot
    /// come back after that.
    pub(crate) fn set_window(&mut self, window_bytes: u64, ssthresh_bytes: Option<u64>) {
        let mss_bytes = u64::from(self.mss_bytes);
        self.cwnd_bytes = window_bytes.clamp(mss_bytes, MAX_WINDOW_BYTES.max(mss_bytes));
        self.fraction_bytes = 0.0;
        if let Some(ssthresh_bytes) = ssthresh_bytes {
            self.ssthresh_bytes = ssthresh_bytes.max(mss_bytes);
        }
        self.untouched = false;
        self.undo = None;
    }

    fn initial_bytes(&self) -> u64 {
        u64::from(self.initial_window_packets)
            .saturating_mul(u64::from(self.mss_bytes))
            .clamp(u64::from(self.mss_bytes), MAX_WINDOW_BYTES)
    }

    fn lower_threshold(&mut self, ssthresh_bytes: f64, min_packets: u32) {
        let least_bytes = u64::from(min_packets.max(1)) * u64::from(self.mss_bytes);
        self.ssthresh_bytes = (ssthresh_bytes as u64).max(least_bytes).min(MAX_WINDOW_BYTES);
    }

    fn save(&mut self) {
        self.untouched = false;
        self.undo = Some(Box::new(Undo {
            cwnd_bytes: self.cwnd_bytes,
            fraction_bytes: self.fraction_bytes,
            ssthresh_bytes: self.ssthresh_bytes,
        }));
    }
}

/// Implements what the loss-based algorithms leave to their field `window`, inside of `impl Controller`.
macro_rules! forward_to_window {
    ($name:literal) => {
        $crate::window::forward_sizes_to_window!($name);

        fn on_spurious(&mut self, _now: Instant) {
            self.window.on_spurious();
        }

        fn on_idle_restart(&mut self, _now: Instant) {
            self.window.on_idle_restart();
        }
    };
}

/// The same but for what an algorithm with a state of its own has to add to.
macro_rules! forward_sizes_to_window {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn on_mss(&mut self, mss_bytes: u32) {
            self.window.on_mss(mss_bytes);
        }

        fn set_window(&mut self, window_bytes: u64, ssthresh_bytes: Option<u64>) {
            self.window.set_window(window_bytes, ssthresh_bytes);
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
    };
}
pub(crate) use {forward_sizes_to_window, forward_to_window};
