use super::lowest_rtt::lowest_rtt;
use super::{Decision, Scheduler, SubflowView, View};

/// Lowest round-trip time with bufferbloat mitigation (Paasch 4.3.2): as soon as a subflow's own data stands in a queue on
/// its path, it gets no more than λ times what the path holds without the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowestRttBm {
    lambda: f64,
}

impl LowestRttBm {
    pub(super) fn new(lambda: f64) -> Self {
        Self { lambda }
    }
}

impl Scheduler for LowestRttBm {
    fn name(&self) -> &'static str {
        "lowest-rtt-bm"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        lowest_rtt(view, |subflow| {
            subflow.is_available() && subflow.pending_bytes() < window_limit_bytes(subflow, self.lambda)
        })
    }
}

/// λ · srtt_min / srtt · cwnd.
pub(super) fn window_limit_bytes(subflow: &SubflowView, lambda: f64) -> u64 {
    if subflow.srtt.is_zero() {
        return subflow.window_bytes;
    }
    let unqueued = subflow.min_rtt.as_secs_f64() / subflow.srtt.as_secs_f64();
    (lambda * unqueued * subflow.window_bytes as f64) as u64
}

#[cfg(test)]
mod tests {
    use polypath_units::Duration;

    use super::super::tests::{subflow, view};
    use super::*;

    #[test]
    fn a_queue_of_its_own_holds_a_subflow_back() {
        let mut subflows = [subflow(1, 200, 5)];
        subflows[0].min_rtt = Duration::from_millis(20);
        subflows[0].window_bytes = 100_000;
        // 3 · 20/200 · 100 000.
        for (pending_bytes, may_send) in [(29_999, true), (30_000, false)] {
            subflows[0].in_flight_bytes = pending_bytes - 9_000;
            subflows[0].unsent_bytes = 9_000;
            assert_eq!(LowestRttBm::new(3.0).select(&view(&subflows)).is_some(), may_send);
        }
        assert!(LowestRttBm::new(3.1).select(&view(&subflows)).is_some());
    }

    #[test]
    fn without_a_queue_the_window_is_the_limit() {
        let mut subflows = [subflow(1, 20, 5)];
        subflows[0].in_flight_bytes = subflows[0].window_bytes - 5 * 1460;
        assert!(LowestRttBm::new(3.0).select(&view(&subflows)).is_some());
        subflows[0].srtt = Duration::ZERO;
        assert_eq!(window_limit_bytes(&subflows[0], 3.0), subflows[0].window_bytes);
    }
}
