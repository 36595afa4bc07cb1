use alloc::boxed::Box;
use core::any::Any;
use core::fmt;

use polypath_units::{BitRate, Duration, Instant};

/// What a congestion window counts for at most: four times the largest window that a peer can advertise (RFC 7323 §2.3).
pub const MOST_WINDOW_BYTES: u64 = 1 << 32;

/// One congestion control instance: one subflow.
///
/// The owner (the TCP engine) calls the `on_*` methods; each returns at once and touches nothing but `self`.
///
/// `Any` is a supertrait so that an owner can look at an algorithm's own state: `(controller as &dyn Any)
/// .downcast_ref::<Cubic>()`.
///
/// ```
/// # mod polypath { pub use {polypath_congestion as congestion, polypath_units as units}; }
/// use polypath::congestion::{Config, FlowView, Flows, RENO};
/// use polypath::units::Instant;
///
/// let mut reno = RENO.build_for(&Config::default());
/// assert_eq!(reno.window_bytes(), 14_600);
/// // All of the window is in flight, and a segment of it is lost.
/// let flow = FlowView { window_bytes: 14_600, mss_bytes: 1460, ..FlowView::default() };
/// reno.on_congestion(Instant::ZERO, 14_600, &Flows::single(&flow));
/// assert_eq!(reno.window_bytes(), 7_300);
/// assert!(!reno.is_coupled());
/// ```
pub trait Controller: Any + fmt::Debug + Send {
    /// The name by which users choose the algorithm, in lower case: `reno`, `cubic`, `lia`.
    fn name(&self) -> &'static str;

    /// New data was acknowledged, cumulatively or selectively. Not called between a congestion event and the end of its
    /// recovery, when proportional rate reduction (RFC 9937) steers, unless [`Controller::steers_recovery`]. Called in
    /// the slow start that follows a timeout.
    fn on_ack(&mut self, ack: &Ack, flows: &Flows<'_>);

    /// Loss or ECN tells of congestion; called once per recovery episode. Afterwards `window_bytes` is the window after
    /// recovery (the slow-start threshold).
    fn on_congestion(&mut self, now: Instant, in_flight_bytes: u64, flows: &Flows<'_>);

    /// A retransmission timeout (RFC 5681 §3.1): the window becomes one segment.
    fn on_timeout(&mut self, now: Instant, in_flight_bytes: u64, flows: &Flows<'_>);

    /// The last congestion event or timeout was spurious (RFC 3522, RFC 5682): window and threshold go back to what
    /// they were before it.
    fn on_spurious(&mut self, now: Instant);

    /// Recovery ended: all that was outstanding at the congestion event or timeout has been acknowledged.
    fn on_recovery_end(&mut self, now: Instant) {
        let _ = now;
    }

    /// True for an algorithm that sets its window during recovery as well (BBR): the owner then leaves out proportional
    /// rate reduction, calls `on_ack` during recovery too and obeys `window_bytes` all the time.
    fn steers_recovery(&self) -> bool {
        false
    }

    /// True for an algorithm that looks at the other subflows too, to leave congested paths to others.
    fn is_coupled(&self) -> bool {
        false
    }

    /// True for an algorithm that wants [`Ack::rate`] (BBR); for others the owner may leave it out.
    fn needs_rate_samples(&self) -> bool {
        self.steers_recovery()
    }

    /// The flow was idle for longer than a retransmission timeout (RFC 5681 §4.1): the window falls back to the
    /// initial one.
    fn on_idle_restart(&mut self, now: Instant);

    /// The sender maximum segment size changed.
    fn on_mss(&mut self, mss_bytes: u32);

    /// Sets the window, and the threshold if given, from outside: penalization by a scheduler (Paasch 4.2.1).
    fn set_window(&mut self, window_bytes: u64, ssthresh_bytes: Option<u64>);

    /// Congestion window in bytes; at least one segment. More than [`MOST_WINDOW_BYTES`] counts as that.
    fn window_bytes(&self) -> u64;

    /// Slow-start threshold in bytes; `u64::MAX` until the first congestion event.
    fn ssthresh_bytes(&self) -> u64;

    /// The rate at which segments leave, or `None` to let the sender pace by window over round-trip time. A rate of zero counts
    /// as one bit per second.
    fn pacing_rate(&self) -> Option<BitRate> {
        None
    }

    /// True below the threshold.
    fn in_slow_start(&self) -> bool {
        self.window_bytes() < self.ssthresh_bytes()
    }

    /// A copy with all its state, behind the trait.
    fn clone_box(&self) -> Box<dyn Controller>;
}

impl Clone for Box<dyn Controller> {
    fn clone(&self) -> Self {
        (**self).clone_box()
    }
}

/// What every algorithm is built from.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Sender maximum segment size in bytes, options excluded.
    pub mss_bytes: u32,
    /// Initial window in segments (RFC 6928: 10).
    pub initial_window_packets: u32,
    /// Least slow-start threshold in segments: 2 (RFC 5681), or 1 where the algorithm may leave a path almost
    /// unused (Paasch 2.2.3) and the connection has several subflows.
    pub min_ssthresh_packets: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { mss_bytes: 1460, initial_window_packets: 10, min_ssthresh_packets: 2 }
    }
}

/// What one acknowledgment says.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When it arrived.
    pub now: Instant,
    /// Bytes by which the window may grow: newly acknowledged, cumulatively or selectively. What is acknowledged selectively only counts
    /// with the next cumulative acknowledgment, and is zero before; to an algorithm that needs rate samples, at once. Our FIN counts as
    /// one byte, so that the last acknowledgment of a stream says one more than its data.
    pub acked_bytes: u64,
    /// Bytes in flight before this acknowledgment.
    pub in_flight_bytes: u64,
    /// Round-trip time measured by this acknowledgment, if it measured one.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Least round-trip time seen.
    pub min_rtt: Duration,
    /// The window was what limited the sender; if not, it must not grow (RFC 7661, RFC 9293 §3.8.2).
    pub window_limited: bool,
    /// A round trip ended: this acknowledges the first segment sent after the previous round ended.
    pub round_ended: bool,
    /// Delivery rate (draft-cheng-iccrg-delivery-rate-estimation), if this acknowledgment gives a sample.
    pub rate: Option<RateSample>,
}

/// A delivery-rate sample (draft-ietf-ccwg-bbr §4.1): from when the segment left that was sent last of those that are newly
/// acknowledged, to now.
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes delivered over the sample's interval, as a rate; zero if the interval was too short to tell.
    pub delivery_rate: BitRate,
    /// The application, not the network, limited the sender during the interval.
    pub app_limited: bool,
    /// Bytes that this connection delivered in all, before the interval and after this acknowledgment.
    pub prior_delivered_bytes: u64,
    /// See `prior_delivered_bytes`.
    pub delivered_bytes: u64,
    /// Bytes in flight when that segment had left, itself included.
    pub tx_in_flight_bytes: u64,
    /// Bytes in flight now.
    pub in_flight_bytes: u64,
    /// Bytes taken for lost during the interval.
    pub lost_bytes: u64,
    /// Bytes that this connection took for lost in all.
    pub total_lost_bytes: u64,
}

/// All subflows of a connection, as a coupled algorithm sees them, and which of them is its own.
#[derive(Clone, Copy, Debug)]
pub struct Flows<'a> {
    /// Every subflow of the connection, in the order in which they came, the own one included. Among them are those that still join or
    /// already end: they have a window, and before the first sample no round-trip time.
    ///
    /// Of several, each entry is as its subflow was when it had last handled a segment or a timeout. The own one is as before the
    /// segment or timeout that is being handled: the round-trip time in [`Ack`] is not in its `srtt` yet, and what the controller did
    /// earlier in the same call, or what set its window from outside since, is not in its window. For a connection of one subflow the
    /// entry is as of now.
    pub all: &'a [FlowView],
    /// Index of the own subflow in `all`.
    pub own: usize,
}

impl<'a> Flows<'a> {
    /// A connection of one flow: what plain TCP is.
    #[must_use]
    pub const fn single(flow: &'a FlowView) -> Self {
        Self { all: core::slice::from_ref(flow), own: 0 }
    }
}

/// One subflow of a connection in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowView {
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Sender maximum segment size in bytes.
    pub mss_bytes: u32,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Least round-trip time; zero before the first sample.
    pub min_rtt: Duration,
    /// Bytes acknowledged since the last loss (OLIA's ℓ₁).
    pub acked_since_loss_bytes: u64,
    /// Bytes acknowledged between the last two losses (OLIA's ℓ₂).
    pub acked_between_losses_bytes: u64,
    /// The flow is in slow start.
    pub in_slow_start: bool,
}

impl FlowView {
    /// Congestion window in segments.
    #[must_use]
    pub fn window_packets(&self) -> f64 {
        self.window_bytes as f64 / f64::from(self.mss_bytes.max(1))
    }
}
