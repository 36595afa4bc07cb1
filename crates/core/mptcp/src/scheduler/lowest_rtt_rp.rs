use alloc::vec::Vec;

use polypath_units::Instant;
use polypath_wire::DataSeq;

use super::lowest_rtt::lowest_rtt;
use super::{Data, Decision, Penalty, Scheduler, SubflowView, View};
use crate::identifiers::SubflowId;

/// Lowest round-trip time with opportunistic retransmission and penalization (Paasch 4.2.1).
///
/// When the buffer of either end keeps new data back while a subflow could send, that subflow sends the first unacknowledged
/// segment again, unless it has carried it before; and the congestion window of the slower subflow that holds it is halved, as
/// [`Form`] says.
#[derive(Clone, Debug)]
pub(super) struct LowestRttRp {
    form: Form,
    penalties: Penalties,
    carriers: Carriers,
}

/// When a subflow is penalized, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Paasch 4.2.1, mechanism 2: if its throughput is lower than that of the subflow that waits, at most once in its own
    /// round-trip time; the slow-start threshold becomes the halved window.
    First,
    /// Paasch Fig. 4.14: if its round-trip time is larger, at most once in a round-trip time of the subflow that waits (the deeper
    /// the queue of the slow path, the more often). In slow start the threshold stays, as the subflow has yet to find out what
    /// the path carries. A subflow that repairs a loss has its window halved already; less would only draw out the repair.
    Improved,
}

/// What is not left for a copy of its own. Each segment behind the first of a mapping is longer than a copy by the 20 bytes of one, so that
/// three copies in a row leave 60.
const SLIVER_BYTES: u64 = 64;

/// Which subflows have carried the first unacknowledged segment, by id: none of them is given it again.
#[derive(Clone, Debug, Default)]
struct Carriers {
    of: Option<DataSeq>,
    ids: Vec<SubflowId>,
}

/// When penalties were counted last, by the id of the subflow whose round trips count.
#[derive(Clone, Debug, Default)]
struct Penalties(Vec<(SubflowId, Instant)>);

impl LowestRttRp {
    pub(super) fn improved() -> Self {
        Self { form: Form::Improved, penalties: Penalties::default(), carriers: Carriers::default() }
    }

    pub(super) fn first_form() -> Self {
        Self { form: Form::First, ..Self::improved() }
    }

    /// The penalty for the subflow that holds what others wait for, if there is one.
    fn penalty(&mut self, held_by: &SubflowView, waiting: &SubflowView, now: Instant) -> Option<Penalty> {
        let (is_slower, counts, ssthresh) = match self.form {
            Form::First => (is_lower_throughput(held_by, waiting), held_by, true),
            Form::Improved => {
                let is_slower = held_by.srtt > waiting.srtt && !held_by.in_recovery;
                (is_slower, waiting, !held_by.in_slow_start())
            }
        };
        (is_slower && self.penalties.may_ask(counts, now))
            .then_some(Penalty { subflow: held_by.id, ssthresh })
    }
}

impl Scheduler for LowestRttRp {
    fn name(&self) -> &'static str {
        match self.form {
            Form::First => "lowest-rtt-rp-first",
            Form::Improved => "lowest-rtt-rp",
        }
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        if let Some(decision) = lowest_rtt(view, SubflowView::is_available) {
            return Some(decision);
        }
        if !view.window_limited && !view.send_buffer_full {
            return None;
        }
        let held_by = view.subflow(view.holder_of_una?)?;
        self.carriers.note(view.data_una, held_by.id);
        let subflow = view
            .subflows
            .iter()
            .filter(|subflow| subflow.is_available() && !self.carriers.ids.contains(&subflow.id))
            .min_by_key(|subflow| subflow.srtt)?;
        let penalize = self.penalty(held_by, subflow, view.now);
        let limit_bytes = copied_bytes(view, subflow);
        Some(Decision { subflow: subflow.id, data: Data::Copy(view.data_una), limit_bytes, penalize })
    }

    fn copies(&self) -> bool {
        true
    }
}

/// How much of the first unacknowledged data goes out again at once: a segment, and with it what little would be left of the piece.
/// Segments without a mapping are longer than a copy, which has one, and a rest of twenty bytes would hold up everything once more.
fn copied_bytes(view: &View<'_>, subflow: &SubflowView) -> u64 {
    let segment_bytes = u64::from(subflow.segment_bytes);
    let held_bytes = view.held_at(view.data_una).map_or(0, |held| held.len_bytes());
    if held_bytes <= segment_bytes + SLIVER_BYTES { held_bytes.max(segment_bytes) } else { segment_bytes }
}

/// A window in a round-trip time is less than another; that of a subflow without a round-trip time is not known.
fn is_lower_throughput(one: &SubflowView, other: &SubflowView) -> bool {
    let scaled = |window: u64, rtt: polypath_units::Duration| u128::from(window) * u128::from(rtt.as_nanos());
    scaled(one.window_bytes, other.srtt) < scaled(other.window_bytes, one.srtt)
}

impl Carriers {
    /// `holder` has the segment that begins at `una`.
    fn note(&mut self, una: DataSeq, holder: SubflowId) {
        if self.of != Some(una) {
            self.of = Some(una);
            self.ids.clear();
        }
        if !self.ids.contains(&holder) {
            self.ids.push(holder);
        }
    }
}

impl Penalties {
    /// True, and noted, if it is a round-trip time of `subflow` since a penalty was last counted for it.
    fn may_ask(&mut self, subflow: &SubflowView, now: Instant) -> bool {
        match self.0.iter_mut().find(|(id, _)| *id == subflow.id) {
            Some((_, at)) if now.since(*at) < subflow.srtt => false,
            Some((_, at)) => {
                *at = now;
                true
            }
            None => {
                self.0.push((subflow.id, now));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::Duration;

    use super::super::tests::{sent, subflow, view};
    use super::*;

    /// The slow subflow 2 holds what the window waits for, and the fast subflow 1 could send.
    fn blocked(subflows: &[SubflowView]) -> View<'_> {
        let limited =
            View { new_bytes: 0, window_limited: true, holder_of_una: Some(SubflowId(2)), ..view(subflows) };
        View { data_una: DataSeq(77), now: Instant::from_secs(1), ..limited }
    }

    #[test]
    fn sends_what_blocks_again_once_and_halves_the_slow_window_once_a_round_trip() {
        let subflows = [subflow(1, 20, 5), subflow(2, 100, 0)];
        let mut scheduler = LowestRttRp::improved();
        let mut view = blocked(&subflows);
        let penalty = Some(Penalty { subflow: SubflowId(2), ssthresh: false });
        let copy = |seq, penalize| {
            Some(Decision {
                subflow: SubflowId(1),
                data: Data::Copy(DataSeq(seq)),
                limit_bytes: 1460,
                penalize,
            })
        };
        assert_eq!(scheduler.select(&view), copy(77, penalty));
        // The fast one has it now, and neither gets it again.
        view.holder_of_una = Some(SubflowId(1));
        assert_eq!(scheduler.select(&view), None);
        view =
            View { data_una: DataSeq(78), now: view.now + Duration::from_millis(19), ..blocked(&subflows) };
        assert_eq!(scheduler.select(&view), copy(78, None));
        view = View { data_una: DataSeq(79), now: view.now + Duration::from_millis(1), ..view };
        assert_eq!(scheduler.select(&view), copy(79, penalty));
    }

    #[test]
    fn a_copy_takes_along_what_little_is_left_of_a_piece() {
        let subflows = [subflow(1, 20, 5), subflow(2, 100, 0)];
        for (held_bytes, copied_bytes) in
            [(1000, 1460), (1460, 1460), (1480, 1480), (1560, 1460), (2940, 1460)]
        {
            let sent = sent(&[(77, held_bytes, 2), (77 + u64::from(held_bytes), 5000, 1)]);
            let view = View { sent: &sent, ..blocked(&subflows) };
            let limit_bytes = LowestRttRp::improved().select(&view).map(|decision| decision.limit_bytes);
            assert_eq!(limit_bytes, Some(copied_bytes), "of {held_bytes}");
        }
    }

    #[test]
    fn a_copy_does_not_wander_back() {
        let subflows = [subflow(1, 20, 5), subflow(2, 100, 5), subflow(3, 200, 5)];
        let mut scheduler = LowestRttRp::improved();
        let mut view = blocked(&subflows);
        let mut next = |holder| {
            view.holder_of_una = Some(holder);
            scheduler.select(&view).map(|decision| decision.subflow)
        };
        assert_eq!(
            [next(SubflowId(2)), next(SubflowId(1)), next(SubflowId(3))],
            [Some(SubflowId(1)), Some(SubflowId(3)), None]
        );
    }

    #[test]
    fn a_full_send_buffer_is_as_bad_as_a_closed_window() {
        let subflows = [subflow(1, 20, 5), subflow(2, 100, 0)];
        let full =
            View { unsent_bytes: 0, window_limited: false, send_buffer_full: true, ..blocked(&subflows) };
        let copied = LowestRttRp::improved().select(&full).map(|decision| decision.data);
        assert_eq!(copied, Some(Data::Copy(DataSeq(77))));
        let idle = View { send_buffer_full: false, ..full };
        assert_eq!(LowestRttRp::improved().select(&idle), None);
        assert!(LowestRttRp::improved().copies());
    }

    #[test]
    fn the_improved_form_leaves_the_threshold_alone_in_slow_start() {
        let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 0)];
        let lowers_threshold = |mut scheduler: LowestRttRp, subflows: &[SubflowView]| {
            scheduler.select(&blocked(subflows)).and_then(|decision| decision.penalize).map(|p| p.ssthresh)
        };
        assert_eq!(lowers_threshold(LowestRttRp::improved(), &subflows), Some(false));
        assert_eq!(lowers_threshold(LowestRttRp::first_form(), &subflows), Some(true));
        subflows[1].ssthresh_bytes = subflows[1].window_bytes;
        assert_eq!(lowers_threshold(LowestRttRp::improved(), &subflows), Some(true));
    }

    /// Paasch 4.2.1, mechanism 2: "only one reduction is applied per subflow round-trip time and only if the subflow's
    /// throughput is lower than the other one".
    #[test]
    fn the_first_form_goes_by_throughput_and_the_round_trips_of_the_penalized() {
        let (mut penalized, mut spared) = (0, 0);
        for case in 0..2000_u64 {
            // Numbers without pattern, but the same each time.
            let any =
                |salt: u64, most: u64| ((case * 7 + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % most;
            let (fast_ms, slow_ms) = (1 + any(1, 300), 1 + any(2, 300));
            let mut subflows = [subflow(1, fast_ms, 5), subflow(2, slow_ms, 0)];
            (subflows[0].window_bytes, subflows[1].window_bytes) =
                (1460 * (1 + any(3, 99)), 1460 * (1 + any(4, 99)));
            subflows[1].in_recovery = any(5, 2) == 0;
            let throughput = |at: usize| subflows[at].window_bytes as f64 / subflows[at].srtt.as_secs_f64();
            let (holder, waiting) = (throughput(1), throughput(0));
            if (holder / waiting - 1.0).abs() < 1e-9 {
                continue;
            }
            let mut scheduler = LowestRttRp::first_form();
            // Each segment anew, every fifth of the slow subflow's round trip.
            let mut times = 0;
            for step in 0..10 {
                let now = Instant::from_secs(1) + subflows[1].srtt * step / 5;
                let view = View { data_una: DataSeq(100 + step), now, ..blocked(&subflows) };
                let penalty = scheduler.select(&view).and_then(|decision| decision.penalize);
                times += u32::from(penalty == Some(Penalty { subflow: SubflowId(2), ssthresh: true }));
            }
            assert_eq!(times, if holder < waiting { 2 } else { 0 }, "{holder} {waiting}");
            penalized += u32::from(times > 0);
            spared += u32::from(times == 0);
        }
        assert!(penalized > 300 && spared > 300, "{penalized} {spared}");
    }

    #[test]
    fn a_faster_subflow_is_not_penalized_nor_anything_copied_while_new_data_may_leave() {
        let mut subflows = [subflow(1, 20, 5), subflow(2, 10, 0)];
        let decision = LowestRttRp::improved().select(&blocked(&subflows)).unwrap();
        assert_eq!((decision.penalize, decision.data), (None, Data::Copy(DataSeq(77))));
        let unlimited = View { holder_of_una: Some(SubflowId(2)), ..view(&subflows) };
        assert_eq!(LowestRttRp::improved().select(&unlimited), Some(Decision::send(SubflowId(1), Data::New)));
        subflows[0].room_bytes = 0;
        assert_eq!(LowestRttRp::improved().select(&blocked(&subflows)), None);
        // Nor one that repairs a loss, however slow.
        let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 0)];
        subflows[1].in_recovery = true;
        let decision = LowestRttRp::improved().select(&blocked(&subflows)).unwrap();
        assert_eq!((decision.penalize, decision.data), (None, Data::Copy(DataSeq(77))));
    }
}
