//! Whether what is written had better go over one subflow whole.
//!
//! A program that writes at its own pace waits for the last byte of what it wrote. Where the window of one subflow has room for all of it,
//! the parts that others would carry save next to nothing, unless that subflow's bottleneck takes long to let it out, and each
//! path more is one more that may lose or delay a part.

use core::cmp::Ordering;

use polypath_units::Duration;

use super::arrival::{new_arrives_in, stands_in_queue};
use super::{SubflowView, View};
use crate::identifiers::SubflowId;

/// So many mean deviations are more than a round trip as good as ever takes (RFC 6298 §2).
const DEVIATIONS: f64 = 4.0;
/// What is saved counts from this share of the whole time on.
const WORTHWHILE_SHARE: f64 = 1.0 / 8.0;

/// The subflow that brings all that is written, if none needs help. Of those that `may_send`.
pub(super) fn carries_all(view: &View<'_>, may_send: impl Fn(&SubflowView) -> bool) -> Option<SubflowId> {
    let bytes = view.unsent_bytes;
    let is_all_there_is = !view.more_to_come && view.reinjection_bytes == 0 && view.new_bytes == bytes;
    if bytes == 0 || !is_all_there_is || view.subflows.len() < 2 {
        return None;
    }
    let mut best: Option<(&SubflowView, Duration)> = None;
    for subflow in view.subflows {
        if subflow.room_bytes < bytes || !may_send(subflow) {
            continue;
        }
        let arrives_in = all_arrives_in(subflow, bytes);
        if best.is_none_or(|(other, other_in)| is_preferable((subflow, arrives_in), (other, other_in))) {
            best = Some((subflow, arrives_in));
        }
    }
    let (main, arrives_in) = best?;
    let helps = |subflow: &SubflowView| {
        subflow.id != main.id
            && may_send(subflow)
            && is_well_before(new_arrives_in(subflow), arrives_in)
            && is_well_before(arrives_in - saved(main, subflow, bytes), arrives_in)
    };
    (!view.subflows.iter().any(helps)).then_some(main.id)
}

/// When the last of so many bytes reaches the peer, as good as always, if this subflow gets them all.
fn all_arrives_in(subflow: &SubflowView, bytes: u64) -> Duration {
    let next = new_arrives_in(subflow);
    match subflow.bottleneck_bytes_per_s {
        Some(rate) => {
            let further_bytes = bytes.saturating_sub(subflow.segment_bytes.into());
            next + Duration::from_secs_f64(further_bytes as f64 / rate.max(1) as f64)
        }
        // What a block waits for its own first part, in a queue too short to tell a rate, shows in how round trips differ.
        None if subflow.acked_offset > 0 => {
            let late = subflow.srtt + subflow.rtt_variance.mul_f64(DEVIATIONS);
            next.max(late - subflow.min_rtt / 2)
        }
        None => next,
    }
}

/// A broader one has the better prospects where a queue of ours stands before the other: what that queue holds is not known well.
fn is_preferable(one: (&SubflowView, Duration), other: (&SubflowView, Duration)) -> bool {
    // No queue was ever seen before it if the rate is not known.
    let rate = |subflow: &SubflowView| subflow.bottleneck_bytes_per_s.unwrap_or(u64::MAX);
    match rate(one.0).cmp(&rate(other.0)) {
        Ordering::Greater if stands_in_queue(other.0, 1) => !is_well_before(other.1, one.1),
        Ordering::Less if stands_in_queue(one.0, 1) => is_well_before(one.1, other.1),
        _ => one.1 < other.1,
    }
}

fn is_well_before(earlier: Duration, later: Duration) -> bool {
    earlier.as_secs_f64() < (1.0 - WORTHWHILE_SHARE) * later.as_secs_f64()
}

/// What `main` saves at most of the time in which its bottleneck lets out so many bytes, with another's help.
fn saved(main: &SubflowView, helper: &SubflowView, bytes: u64) -> Duration {
    let Some(rate) = main.bottleneck_bytes_per_s.map(|rate| rate.max(1) as f64) else {
        return Duration::ZERO;
    };
    let helper_rate = helper.bottleneck_bytes_per_s.map_or(rate, |rate| rate as f64);
    Duration::from_secs_f64(bytes as f64 / rate * helper_rate / (rate + helper_rate))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{subflow, view};
    use super::*;

    fn pick(subflows: &[SubflowView], bytes: u64) -> Option<SubflowId> {
        let mut view = view(subflows);
        (view.unsent_bytes, view.new_bytes) = (bytes, bytes);
        carries_all(&view, SubflowView::is_available)
    }

    #[test]
    fn a_block_goes_whole_to_where_its_last_byte_arrives_first() {
        let mut subflows = [subflow(1, 20, 10), subflow(2, 100, 10)];
        assert_eq!(pick(&subflows, 8000), Some(SubflowId(1)));
        // The last of 8 000 bytes needs 80 ms there, and 50 over the other.
        subflows[0].bottleneck_bytes_per_s = Some(100_000);
        assert_eq!(pick(&subflows, 8000), Some(SubflowId(2)));
        assert_eq!(pick(&subflows, 1460), Some(SubflowId(1)));
        subflows[1].room_bytes = 7000;
        assert_eq!(pick(&subflows, 8000), None, "over both: one has no room for all, and the other is slow");
    }

    #[test]
    fn where_a_queue_stands_a_broader_one_that_is_about_as_quick_carries_it() {
        let mut subflows = [subflow(1, 40, 10), subflow(2, 44, 10)];
        subflows[0].bottleneck_bytes_per_s = Some(8_000_000);
        assert_eq!(pick(&subflows, 8000), Some(SubflowId(1)), "21 and 22 ms");
        subflows[0].bottleneck_busy = Duration::from_micros(200);
        subflows[0].in_flight_bytes = 1600;
        assert_eq!(pick(&subflows, 8000), Some(SubflowId(2)), "21.2 and 22 ms, but there is a queue");
        subflows[1].bottleneck_bytes_per_s = Some(4_000_000);
        assert_eq!(pick(&subflows, 8000), Some(SubflowId(1)), "the other is the broader one by now");
        assert_eq!(pick(&subflows[..1], 8000), None, "there is nothing to choose from");
    }

    #[test]
    fn two_bottlenecks_let_out_a_large_block_sooner_than_one() {
        let mut subflows = [subflow(1, 20, 40), subflow(2, 20, 40)];
        for subflow in &mut subflows {
            subflow.bottleneck_bytes_per_s = Some(1_000_000);
        }
        assert_eq!(pick(&subflows, 1460), Some(SubflowId(1)));
        assert_eq!(pick(&subflows, 40_000), None);
        // 5 ms of 41 are not worth it.
        subflows[1].bottleneck_bytes_per_s = Some(100_000);
        assert_eq!(pick(&subflows, 30_000), Some(SubflowId(1)));
    }
}
