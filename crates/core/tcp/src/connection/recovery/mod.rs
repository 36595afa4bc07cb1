//! State of loss recovery: the episode that is on, and what its acknowledgments have told.

mod detection;
mod frto;
mod patience;
mod prr;
mod rack;
mod tail_probe;
mod tally;
mod threshold;
mod undo;

use alloc::boxed::Box;

use polypath_congestion::{Controller, MOST_WINDOW_BYTES};
use polypath_units::{Duration, Instant};

use crate::loss_recovery::LossRecovery;
use crate::scoreboard::Sent;

use detection::Detection;
use prr::Prr;
use rack::Rack;
use tail_probe::TailProbe;
use tally::Tally;
use threshold::Threshold;
use undo::Undo;

pub(super) use frto::{Answer, Frto, Told};
pub(super) use threshold::DUPLICATE_THRESHOLD;

/// Loss recovery.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    phase: Phase,
    detection: Detection,
    /// Duplicate acknowledgments in a row, where there is no SACK.
    duplicates: u32,
    /// Selectively acknowledged by duplicate acknowledgments, which do not grow the window (RFC 5681 §3.2): the next that
    /// advances does, for them as well.
    deferred_bytes: u32,
    rack: Rack,
    /// Of the episode that is on, or the last one; none before the first, as in most idle connections.
    episode: Option<Box<Episode>>,
    tail_probe: TailProbe,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Episode {
    prr: Prr,
    undo: Undo,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Open,
    /// Fast recovery until this position is acknowledged.
    Fast { until: u64 },
    /// After a timeout at `since`, until this position is acknowledged: what had not left by then is behind it.
    Timeout { until: u64, since: Instant, frto: Frto },
}

impl Recovery {
    pub(super) fn new(settings: &LossRecovery) -> Self {
        Self { detection: Detection::new(settings), ..Self::default() }
    }

    // ---- episodes

    /// Losses were found: fast recovery of what lies in `range` (RFC 6675 §5). `is_clean`: nothing resent is in flight, which
    /// would look like this episode's original.
    pub(super) fn begin_fast(&mut self, range: (u64, u64), in_flight_bytes: u64, is_clean: bool) {
        self.tally.count_recovery();
        self.deferred_bytes = 0;
        self.phase = Phase::Fast { until: range.1 };
        let episode = self.episode.get_or_insert_default();
        **episode = Episode { prr: Prr::new(in_flight_bytes), undo: Undo::new(is_clean, range) };
        self.tail_probe.forget();
    }

    /// The retransmission timer passed. A further timeout of the same episode leaves open that the first one was spurious.
    pub(super) fn begin_timeout(&mut self, now: Instant, range: (u64, u64), is_clean: bool, frto: bool) {
        let before = self.phase;
        if let Some(threshold) = self.detection.threshold_mut() {
            threshold.handle_timeout();
        }
        self.deferred_bytes = 0;
        let frto = if frto { Frto::Resent } else { Frto::Off };
        self.phase = Phase::Timeout { until: range.1, since: now, frto };
        let episode = self.episode.get_or_insert_default();
        episode.prr = Prr::default();
        if !matches!(before, Phase::Timeout { .. }) {
            episode.undo = Undo::new(is_clean && before == Phase::Open, range);
        }
        self.tail_probe.forget();
    }

    /// Everything before `una` is acknowledged, and more than before. True if that ends the episode.
    pub(super) fn handle_advance(&mut self, una: u64) -> bool {
        let until = match self.phase {
            Phase::Open => return false,
            Phase::Fast { until } | Phase::Timeout { until, .. } => until,
        };
        // Without SACK, wait until something beyond is acknowledged, lest old duplicates start it again (RFC 6582 §4).
        if una < until {
            return false;
        }
        self.phase = Phase::Open;
        self.duplicates = 0;
        if let Some(episode) = &mut self.episode {
            episode.undo.handle_end();
        }
        self.rack.handle_recovery_end();
        true
    }

    /// The episode was spurious.
    pub(super) fn handle_undone(&mut self) {
        self.tally.count_spurious();
        self.phase = Phase::Open;
        if let Some(episode) = &mut self.episode {
            episode.undo.handle_undone();
        }
    }

    /// What is going on.
    #[inline]
    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    /// A loss is being repaired.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.phase != Phase::Open
    }

    // ---- F-RTO (RFC 5682 §2.1)

    /// Where the question stands whether the timeout was spurious.
    #[inline]
    pub(super) const fn frto(&self) -> Frto {
        match self.phase {
            Phase::Timeout { frto, .. } => frto,
            _ => Frto::Off,
        }
    }

    /// The first acknowledgment after the timeout advanced: two new segments may leave.
    pub(super) fn send_new_for_frto(&mut self) {
        self.set_frto(Frto::SentNew);
        if let Some(episode) = &mut self.episode {
            episode.prr.forget_sent();
        }
    }

    /// It was genuine.
    pub(super) fn end_frto(&mut self) {
        self.set_frto(Frto::Off);
    }

    fn set_frto(&mut self, new: Frto) {
        if let Phase::Timeout { frto, .. } = &mut self.phase {
            *frto = new;
        }
    }

    // ---- what may leave

    /// The window that holds now: congestion control's, or PRR's during fast recovery.
    #[inline]
    pub(super) fn window_bytes(
        &self,
        controller: &dyn Controller,
        in_flight_bytes: impl FnOnce() -> u64,
        mss: u32,
        has_sack: bool,
    ) -> u64 {
        let beyond = |most: u64| {
            in_flight_bytes()
                + most.saturating_sub(self.episode.as_ref().map_or(0, |episode| episode.prr.out_bytes()))
        };
        let by_congestion = || controller.window_bytes().min(MOST_WINDOW_BYTES);
        match self.phase {
            Phase::Fast { .. } if !controller.steers_recovery() => {
                self.episode.as_ref().map_or(0, |episode| episode.prr.window_bytes())
            }
            // What else is in flight may have been lost, so it does not hold back the one segment that tells.
            Phase::Timeout { frto: Frto::Resent, .. } => beyond(u64::from(mss)),
            Phase::Timeout { frto: Frto::SentNew, .. } => beyond(2 * u64::from(mss)),
            // Limited transmit (RFC 3042): with SACK, what is in flight shrinks instead.
            Phase::Open if !has_sack => {
                let segments = self.duplicates.min(self.detection.segments() - 1);
                by_congestion() + u64::from(segments * mss)
            }
            _ => by_congestion(),
        }
    }

    /// Something left.
    #[inline]
    pub(super) fn handle_sent(&mut self, bytes: u64) {
        if let Some(episode) = &mut self.episode {
            episode.prr.handle_sent(bytes);
        }
    }

    /// Something left again, at this time of the timestamp clock.
    pub(super) fn handle_resent(&mut self, now_ms: u32) {
        if let Some(episode) = &mut self.episode {
            episode.undo.handle_resent(now_ms);
        }
    }

    /// Something was delivered in fast recovery; see [`Prr::handle_delivered`].
    pub(super) fn reduce(&mut self, delivered: u64, pipe: u64, target: u64, mss: u64, safe: bool) {
        if let Some(episode) = &mut self.episode {
            episode.prr.handle_delivered(delivered, pipe, target, mss, safe);
        }
    }

    /// What an acknowledgment of `newly_bytes` grows the window by.
    #[inline]
    pub(super) fn growing_bytes(&mut self, newly_bytes: u64, advanced: bool) -> u64 {
        let growing = u64::from(self.deferred_bytes) + newly_bytes;
        self.deferred_bytes = if advanced { 0 } else { growing.try_into().unwrap_or(u32::MAX) };
        if advanced { growing } else { 0 }
    }

    // ---- what tells of losses

    /// A duplicate acknowledgment came, where there is no SACK. True if that makes enough of them (RFC 5681 §3.2).
    pub(super) fn handle_duplicate(&mut self) -> bool {
        self.duplicates += 1;
        self.duplicates == self.detection.segments() && !self.is_active()
    }

    /// The row of duplicates ended.
    #[inline]
    pub(super) fn forget_duplicates(&mut self) {
        self.duplicates = 0;
    }

    /// A segment that had left once arrived, so long after that.
    #[inline]
    pub(super) fn handle_arrival(&mut self, now: Instant, took: impl FnOnce() -> Option<Duration>) {
        if let Some(patience) = self.detection.patience_mut()
            && let Some(took) = took()
        {
            patience.handle_arrival(now, took);
        }
    }

    /// How many came in a row.
    pub(super) const fn duplicates_in_a_row(&self) -> u32 {
        self.duplicates
    }

    /// A segment arrived after so many had overtaken it; see [`Threshold::handle_reordered`].
    pub(super) fn handle_reordered(&mut self, segments: u64) {
        if let Some(threshold) = self.detection.threshold_mut() {
            threshold.handle_reordered(segments);
        }
    }

    /// Losses are counted, and not timed.
    #[inline]
    pub(super) fn counts_losses(&self) -> bool {
        self.detection.threshold().is_some()
    }

    /// So many segments that overtook another mean that it is lost.
    pub(super) fn duplicate_threshold(&self) -> u32 {
        self.detection.segments()
    }

    /// The least that this ever is.
    pub(super) fn least_duplicate_threshold(&self) -> u32 {
        self.detection.least_segments()
    }

    /// What is missing between segments that arrived counts as if it had overtaken as well.
    pub(super) fn counts_forward(&self) -> bool {
        self.detection.threshold().is_some_and(Threshold::is_forward)
    }

    /// An acknowledgment came; see [`Rack::handle_order`].
    #[inline]
    pub(super) fn handle_order(&mut self, reordered: bool) {
        self.rack.handle_order(reordered);
    }

    /// This piece was delivered, so long after it left.
    #[inline]
    pub(super) fn handle_delivered(&mut self, piece: &Sent, rtt: Duration) {
        self.rack.handle_delivered(piece, rtt);
    }

    /// What is older than this at the reference is lost (RFC 8985 §6.2, step 5). Nothing is waited for where the path does not
    /// reorder, and there is reason to believe in losses: a recovery, or `many_sacked`.
    #[inline]
    pub(super) fn loss_window(
        &self,
        min_rtt: Duration,
        srtt: Duration,
        many_sacked: impl FnOnce() -> bool,
    ) -> Duration {
        if let Some(patience) = self.detection.patience() {
            return patience.window();
        }
        let is_certain = !self.rack.reordering_seen() && (self.is_active() || many_sacked());
        let reordering = if is_certain { Duration::ZERO } else { self.rack.window(min_rtt, srtt) };
        self.rack.rtt() + reordering
    }

    /// When the latest delivered piece left, and where it ends.
    #[inline]
    pub(super) const fn reference(&self) -> (Instant, u64) {
        self.rack.reference()
    }

    /// The path was seen to reorder.
    pub(super) const fn reordering_seen(&self) -> bool {
        self.rack.reordering_seen()
    }

    // ---- what tells that there was none

    /// A duplicate was reported, of what lies in `range`. `resends`: how many segments were ever sent again. `by_probe`: a tail
    /// loss probe explains it. True if every retransmission of the last episode has been reported (RFC 3708).
    pub(super) fn handle_dsack(
        &mut self,
        range: (u64, u64),
        (una, next): (u64, u64),
        resends: u64,
        by_probe: bool,
    ) -> bool {
        if self.tally.duplicates() > resends {
            // The network duplicates by itself, and its reports prove nothing (RFC 3708 §3).
            return false;
        }
        if !by_probe {
            self.rack.handle_dsack(una, next);
        }
        self.episode.as_mut().is_some_and(|episode| episode.undo.handle_dsack(range))
    }

    /// An echo answers the original of what was sent again (RFC 3522).
    #[inline]
    pub(super) fn is_spurious_by(&self, echo: u32) -> bool {
        self.is_active() && self.episode.as_ref().is_some_and(|episode| episode.undo.is_proven_by(echo))
    }

    /// After a timeout: when the first retransmission left, by the timestamp clock.
    #[inline]
    pub(super) fn timed_out_ms(&self) -> Option<u32> {
        match self.phase {
            Phase::Timeout { .. } => self.episode.as_ref()?.undo.first_resend_ms(),
            Phase::Open | Phase::Fast { .. } => None,
        }
    }

    // ---- totals

    /// The retransmission timer passed, for data or a SYN.
    pub(super) fn count_timeout(&mut self) {
        self.tally.count_timeout();
    }

    /// A duplicate was reported (RFC 2883).
    pub(super) fn count_duplicate(&mut self) {
        self.tally.count_duplicate();
    }

    /// Retransmission timeouts.
    pub(super) const fn timeouts(&self) -> u64 {
        self.tally.timeouts()
    }

    /// Times that losses were found without a timeout.
    pub(super) const fn recoveries(&self) -> u64 {
        self.tally.recoveries()
    }

    /// Recoveries and timeouts that turned out spurious.
    pub(super) const fn spurious(&self) -> u64 {
        self.tally.spurious()
    }

    /// Duplicates that the peer reported.
    pub(super) const fn duplicates(&self) -> u64 {
        self.tally.duplicates()
    }

    // ---- tail loss probes (RFC 8985 §7)

    /// A probe may be of use: nothing is being repaired, and none is out (§7.2).
    #[inline]
    pub(super) fn may_probe_tail(&self) -> bool {
        !self.is_active() && !self.tail_probe.is_out() && !self.counts_losses()
    }

    /// Its timer passed: one is to leave, unless losses are known meanwhile.
    pub(super) fn handle_tail_timeout(&mut self, next: u64) {
        if !self.is_active() {
            self.tail_probe.handle_timeout(next);
        }
    }

    /// True once if one is to leave.
    #[inline]
    pub(super) fn poll_tail_probe(&mut self) -> bool {
        self.tail_probe.poll_due()
    }

    /// One left: the last segment again, or new data.
    pub(super) fn handle_tail_probe_sent(&mut self, next: u64, is_resent: bool) {
        self.tail_probe.handle_sent(next, is_resent);
    }

    /// Something was acknowledged, or reported as a duplicate. True if that shows that the probe repaired a loss without a trace,
    /// which is a congestion event all the same (§7.4).
    pub(super) fn handle_tail_probe_ack(&mut self, una: u64, is_duplicate: bool) -> bool {
        self.tail_probe.handle_ack(una, is_duplicate) == Some(true) && !self.is_active()
    }

    /// None is to leave any longer.
    pub(super) fn cancel_tail_probe(&mut self) {
        self.tail_probe.cancel();
    }

    /// One is to leave.
    pub(super) const fn is_tail_probe_due(&self) -> bool {
        self.tail_probe.is_due()
    }

    /// One is out, and nothing has told what became of it.
    #[inline]
    pub(super) const fn is_tail_probe_out(&self) -> bool {
        self.tail_probe.is_out()
    }

    /// It is the last segment again.
    pub(super) const fn is_tail_probe_resent(&self) -> bool {
        self.tail_probe.is_resent()
    }

    /// One is out, and nothing was acknowledged of what it covers.
    pub(super) fn is_tail_probe_waiting(&self, una: u64) -> bool {
        self.tail_probe.is_waiting(una)
    }
}
