//! State of loss recovery: the episode that is on, and what its acknowledgments have told.

use polypath_units::Instant;

use super::prr::Prr;
use super::rack::Rack;
use super::tail_probe::TailProbe;
use super::undo::Undo;

/// Duplicate acknowledgments that mean loss where nothing better is known.
pub(super) const DUPLICATE_THRESHOLD: u32 = 3;

/// Loss recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    phase: Phase,
    frto: Frto,
    /// Duplicate acknowledgments in a row, where there is no SACK.
    duplicates: u32,
    /// Selectively acknowledged by duplicate acknowledgments, which do not grow the window (RFC 5681 §3.2): the next that
    /// advances does, for them as well.
    deferred_bytes: u64,
    rack: Rack,
    prr: Prr,
    undo: Undo,
    tail_probe: TailProbe,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Open,
    /// Fast recovery until this position is acknowledged.
    Fast { until: u64 },
    /// After a timeout at `since`, until this position is acknowledged: what had not left by then is behind it.
    Timeout { until: u64, since: Instant },
}

/// RFC 5682: whether a timeout was spurious, where timestamps can't tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Frto {
    #[default]
    Off,
    /// The first segment was retransmitted; the next acknowledgment tells more.
    Resent,
    /// It advanced: two new segments may leave, and the acknowledgment after decides.
    SentNew,
}

impl Recovery {
    // ---- episodes

    /// Losses were found: fast recovery of what lies in `range` (RFC 6675 §5). `is_clean`: nothing resent is in flight, which
    /// would look like this episode's original.
    pub(super) fn begin_fast(&mut self, range: (u64, u64), in_flight_bytes: u64, is_clean: bool) {
        self.deferred_bytes = 0;
        self.phase = Phase::Fast { until: range.1 };
        self.prr = Prr::new(in_flight_bytes);
        self.undo = Undo::new(is_clean, range);
        self.tail_probe.forget();
    }

    /// The retransmission timer passed. A further timeout of the same episode leaves open that the first one was spurious.
    pub(super) fn begin_timeout(&mut self, now: Instant, range: (u64, u64), is_clean: bool, frto: bool) {
        let before = self.phase;
        self.frto = if frto { Frto::Resent } else { Frto::Off };
        self.deferred_bytes = 0;
        self.phase = Phase::Timeout { until: range.1, since: now };
        self.prr = Prr::default();
        if !matches!(before, Phase::Timeout { .. }) {
            self.undo = Undo::new(is_clean && before == Phase::Open, range);
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
        self.frto = Frto::Off;
        self.duplicates = 0;
        self.undo.handle_end();
        self.rack.handle_recovery_end();
        true
    }

    /// The episode was spurious.
    pub(super) fn handle_undone(&mut self) {
        self.phase = Phase::Open;
        self.frto = Frto::Off;
        self.undo.handle_undone();
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

    /// A tail loss probe may be of use: nothing is being repaired, and none is out (RFC 8985 §7.2).
    #[inline]
    pub(super) fn may_probe_tail(&self) -> bool {
        !self.is_active() && !self.tail_probe.is_out()
    }

    // ---- F-RTO (RFC 5682 §2.1)

    /// Where the question stands whether the timeout was spurious.
    #[inline]
    pub(super) const fn frto(&self) -> Frto {
        self.frto
    }

    /// The first acknowledgment after the timeout advanced: two new segments may leave.
    pub(super) fn send_new_for_frto(&mut self) {
        self.frto = Frto::SentNew;
        self.prr.forget_sent();
    }

    /// It was genuine.
    pub(super) fn end_frto(&mut self) {
        self.frto = Frto::Off;
    }

    // ---- duplicates, and growth

    /// Duplicate acknowledgments in a row.
    #[inline]
    pub(super) const fn duplicates(&self) -> u32 {
        self.duplicates
    }

    /// One came; returns how many there were in a row.
    pub(super) fn count_duplicate(&mut self) -> u32 {
        self.duplicates += 1;
        self.duplicates
    }

    /// The row ended.
    #[inline]
    pub(super) fn forget_duplicates(&mut self) {
        self.duplicates = 0;
    }

    /// What an acknowledgment of `newly_bytes` grows the window by.
    #[inline]
    pub(super) fn growing_bytes(&mut self, newly_bytes: u64, advanced: bool) -> u64 {
        self.deferred_bytes += newly_bytes;
        if advanced { core::mem::take(&mut self.deferred_bytes) } else { 0 }
    }

    // ---- parts

    /// Something left.
    #[inline]
    pub(super) fn handle_sent(&mut self, bytes: u64) {
        self.prr.handle_sent(bytes);
    }

    #[inline]
    pub(super) const fn rack(&self) -> &Rack {
        &self.rack
    }

    #[inline]
    pub(super) const fn rack_mut(&mut self) -> &mut Rack {
        &mut self.rack
    }

    #[inline]
    pub(super) const fn prr(&self) -> &Prr {
        &self.prr
    }

    #[inline]
    pub(super) const fn prr_mut(&mut self) -> &mut Prr {
        &mut self.prr
    }

    #[inline]
    pub(super) const fn undo(&self) -> &Undo {
        &self.undo
    }

    #[inline]
    pub(super) const fn undo_mut(&mut self) -> &mut Undo {
        &mut self.undo
    }

    #[inline]
    pub(super) const fn tail_probe(&self) -> &TailProbe {
        &self.tail_probe
    }

    #[inline]
    pub(super) const fn tail_probe_mut(&mut self) -> &mut TailProbe {
        &mut self.tail_probe
    }
}
