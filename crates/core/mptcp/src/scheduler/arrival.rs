//! When data arrives that a subflow holds, or is given, and how much it brings: what schedulers that look ahead decide by.

use polypath_units::Duration;

use super::SubflowView;

/// When what a subflow is given now reaches the peer.
pub(super) fn new_arrives_in(subflow: &SubflowView) -> Duration {
    match subflow.bottleneck_bytes_per_s {
        Some(rate) => {
            let rate = rate.max(1) as f64;
            let leaves_s = (queued_bytes(subflow, rate) + f64::from(subflow.segment_bytes)) / rate;
            subflow.min_rtt / 2 + Duration::from_secs_f64(leaves_s)
        }
        None => subflow.srtt / 2 + leaves_in(subflow),
    }
}

/// When what a subflow is given now leaves: at once within its window, but for what has not left yet. Beyond it, as the window does:
/// evenly within a round trip, twice as fast in slow start.
fn leaves_in(subflow: &SubflowView) -> Duration {
    let window = subflow.window_bytes.max(1) as f64;
    let pending = subflow.pending_bytes();
    let beyond = (pending + u64::from(subflow.segment_bytes)).saturating_sub(subflow.window_bytes);
    let waits = pending.saturating_sub(subflow.in_flight_bytes).max(beyond) as f64 / window;
    let rounds = if subflow.in_slow_start() { waits / 2.0 } else { waits };
    Duration::from_secs_f64(subflow.srtt.as_secs_f64() * rounds)
}

/// Some of what a subflow holds is known to wait for its bottleneck: at least so many bytes.
pub(super) fn stands_in_queue(subflow: &SubflowView, bytes: u64) -> bool {
    let rate = subflow.bottleneck_bytes_per_s;
    rate.is_some_and(|rate| queued_bytes(subflow, rate.max(1) as f64) >= bytes as f64)
}

/// How much waits for a bottleneck that carries so many bytes a second: what is more than a round trip's worth, or was given at
/// once.
fn queued_bytes(subflow: &SubflowView, bytes_per_s: f64) -> f64 {
    let pending = subflow.pending_bytes() as f64;
    let at_once = bytes_per_s * subflow.bottleneck_busy.as_secs_f64();
    (pending - bytes_per_s * subflow.min_rtt.as_secs_f64()).max(at_once.min(pending))
}

/// How many new bytes a subflow brings to the peer within `time`, beyond what it has in flight: a window each round, twice as
/// much each round in slow start.
pub(super) fn deliverable_bytes(subflow: &SubflowView, time: Duration) -> u64 {
    let srtt_s = subflow.srtt.as_secs_f64();
    let after_s = time.as_secs_f64() - srtt_s / 2.0;
    if srtt_s <= 0.0 || after_s < 0.0 {
        return 0;
    }
    let rounds = after_s / srtt_s;
    let windows = if subflow.in_slow_start() {
        // More rounds bring more than there is.
        2.0 * libm::exp2(rounds.min(30.0)) - 1.0
    } else {
        1.0 + rounds
    };
    let most = subflow.bottleneck_bytes_per_s.map_or(f64::INFINITY, |rate| {
        rate as f64 * (time.as_secs_f64() - subflow.min_rtt.as_secs_f64() / 2.0)
    });
    ((windows * subflow.window_bytes as f64).min(most) as u64).saturating_sub(subflow.pending_bytes())
}

/// The same with a window that does not grow.
pub(super) fn steady_bytes(subflow: &SubflowView, time: Duration) -> u64 {
    deliverable_bytes(&SubflowView { ssthresh_bytes: 0, ..*subflow }, time)
}

/// When what ends at `end_offset` of a subflow's stream will have reached the peer: what is in flight arrives within a round
/// trip, evenly.
pub(super) fn arrives_in(subflow: &SubflowView, end_offset: u64) -> Duration {
    let ahead_bytes = end_offset.saturating_sub(subflow.acked_offset);
    let rounds = ahead_bytes as f64 / subflow.in_flight_bytes.max(1) as f64;
    // Something lost is found out, and comes a round trip later.
    let again = if subflow.is_probing || subflow.timeouts > 0 {
        2.0
    } else if subflow.in_recovery {
        1.0
    } else {
        0.0
    };
    let srtt_s = subflow.srtt.as_secs_f64();
    let by_rounds = (srtt_s * (rounds + again - 0.5)).max(0.0);
    // Acknowledgments that are on their way back are of bytes that have arrived: half a round trip's worth.
    let by_rate = subflow
        .bottleneck_bytes_per_s
        .map_or(0.0, |rate| ahead_bytes as f64 / rate.max(1) as f64 - subflow.min_rtt.as_secs_f64() / 2.0);
    Duration::from_secs_f64(by_rounds.max(by_rate))
}

#[cfg(test)]
mod tests {
    use super::super::tests::subflow;
    use super::*;

    #[test]
    fn slow_start_doubles_what_a_round_brings() {
        let mut path = subflow(1, 20, 0);
        path.in_flight_bytes = path.window_bytes;
        // (2 · 2² − 1 − 1) · 14 600.
        assert_eq!(deliverable_bytes(&path, Duration::from_millis(50)), 6 * 14_600);
        assert_eq!(deliverable_bytes(&path, Duration::from_millis(9)), 0);
        path.in_flight_bytes = 0;
        assert_eq!(deliverable_bytes(&path, Duration::from_millis(10)), 14_600);
    }

    #[test]
    fn within_the_window_it_leaves_at_once() {
        let mut path = subflow(1, 100, 5);
        path.ssthresh_bytes = 0;
        let mut arrives_in_millis = |in_flight_bytes, unsent_bytes| {
            (path.in_flight_bytes, path.unsent_bytes) = (in_flight_bytes, unsent_bytes);
            new_arrives_in(&path).as_millis()
        };
        // A window of 14 600 bytes, 50 ms of delay.
        assert_eq!(arrives_in_millis(0, 0), 50);
        assert_eq!(arrives_in_millis(13_140, 0), 50);
        assert_eq!(arrives_in_millis(0, 7300), 100, "half a window has to leave before");
        assert_eq!(arrives_in_millis(14_600, 0), 60, "a segment is beyond the window");
    }

    #[test]
    fn what_was_given_at_once_waits_for_the_bottleneck() {
        let mut path = subflow(1, 100, 5);
        path.bottleneck_bytes_per_s = Some(100_000);
        let mut arrives_in_micros = |in_flight_bytes, busy_ms| {
            path.in_flight_bytes = in_flight_bytes;
            path.bottleneck_busy = Duration::from_millis(busy_ms);
            new_arrives_in(&path).as_micros()
        };
        // 50 ms of delay, and 14.6 for the segment.
        assert_eq!(arrives_in_micros(8_000, 0), 64_600);
        assert_eq!(arrives_in_micros(8_000, 30), 94_600);
        assert_eq!(arrives_in_micros(8_000, 1_000), 144_600, "no more waits than is under way");
        assert_eq!(arrives_in_micros(15_000, 30), 114_600, "10 000 of 15 000 bytes are a round trip's worth");
    }
}
