use polypath_units::Instant;

use super::lowest_rtt::lowest_rtt;
use super::{Decision, Scheduler, SubflowView, View};

/// BLEST (Ferlin, Alay, Mehani, Boreli 2016): waits for the fastest subflow where data on a slower one would block the
/// connection's window before it is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Blest {
    /// Corrects the estimate of what the fastest will send: it grows when the window blocked, and shrinks when it did not.
    lambda: f64,
    corrected_at: Instant,
    has_blocked: bool,
}

/// By how much λ changes, and its bounds.
const STEP: f64 = 0.1;
const LEAST: f64 = 0.9;
const MOST: f64 = 1.3;

impl Default for Blest {
    fn default() -> Self {
        Self { lambda: 1.0, corrected_at: Instant::ZERO, has_blocked: false }
    }
}

impl Scheduler for Blest {
    fn name(&self) -> &'static str {
        "blest"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        let fastest = view
            .subflows
            .iter()
            .filter(|subflow| subflow.timeouts == 0)
            .min_by_key(|subflow| subflow.srtt)?;
        self.correct(view, fastest);
        let decision = lowest_rtt(view, SubflowView::is_available)?;
        let chosen = view.subflow(decision.subflow)?;
        // Nothing in flight: no acknowledgment would end the wait.
        if chosen.id == fastest.id || fastest.in_flight_bytes == 0 || self.fits(view, fastest, chosen) {
            Some(decision)
        } else {
            None
        }
    }
}

impl Blest {
    /// What the fastest sends during a round trip of `slow` fits in the window beside what `slow` holds.
    fn fits(&self, view: &View<'_>, fast: &SubflowView, slow: &SubflowView) -> bool {
        if fast.srtt.is_zero() {
            return true;
        }
        let rounds = slow.srtt.as_secs_f64() / fast.srtt.as_secs_f64();
        let segment_bytes = f64::from(fast.segment_bytes);
        let window_packets = fast.window_bytes as f64 / segment_bytes;
        // One more packet in each round.
        let fast_bytes = segment_bytes * (window_packets + (rounds - 1.0) / 2.0) * rounds;
        let left_bytes = view.window_left_bytes as f64 - f64::from(slow.segment_bytes);
        // What the fastest has in flight is in the window already.
        fast_bytes * self.lambda <= left_bytes + fast.pending_bytes() as f64
    }

    /// Once in a round trip of the fastest.
    fn correct(&mut self, view: &View<'_>, fastest: &SubflowView) {
        self.has_blocked |= view.window_limited;
        if view.now.since(self.corrected_at) >= fastest.srtt {
            let step = if self.has_blocked { STEP } else { -STEP };
            self.lambda = (self.lambda + step).clamp(LEAST, MOST);
            self.corrected_at = view.now;
            self.has_blocked = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Data;
    use super::super::tests::{subflow, view};
    use super::*;
    use crate::identifiers::SubflowId;

    #[test]
    fn a_slow_subflow_is_left_out_where_it_would_block() {
        // Five rounds of the fast subflow: 1460 · (10 + 2) · 5 = 87 600 bytes, all of its window in flight.
        let mut subflows = [subflow(1, 20, 0), subflow(2, 100, 5)];
        subflows[0].in_flight_bytes = 14_600;
        let pick = |left_bytes| {
            let view = View { window_left_bytes: left_bytes, ..view(&subflows) };
            Blest::default().select(&view)
        };
        assert_eq!(pick(87_600 + 1460 - 14_600), Some(Decision::send(SubflowId(2), Data::New)));
        assert_eq!(pick(70_000 - 14_600), None);
        subflows[0].room_bytes = 1460;
        let view = View { window_left_bytes: 2000, ..view(&subflows) };
        assert_eq!(Blest::default().select(&view), Some(Decision::send(SubflowId(1), Data::New)));
    }

    #[test]
    fn a_blocked_window_makes_it_careful_and_an_open_one_bold() {
        let subflows = [subflow(1, 20, 0), subflow(2, 100, 5)];
        let mut scheduler = Blest::default();
        let mut view = View { window_limited: true, now: Instant::from_millis(20), ..view(&subflows) };
        scheduler.select(&view);
        assert!((scheduler.lambda - 1.1).abs() < 1e-9);
        view.window_limited = false;
        for round in 2..9 {
            view.now = Instant::from_millis(20 * round);
            scheduler.select(&view);
        }
        assert!((scheduler.lambda - LEAST).abs() < 1e-9);
    }
}
