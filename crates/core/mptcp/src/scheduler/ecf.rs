use super::lowest_rtt::lowest_rtt;
use super::{Decision, Scheduler, SubflowView, View};

/// ECF, earliest completion first (Lim, Nahum, Towsley, Gibbens 2017): with the fastest subflow's window full, waits for it
/// if all that is left would arrive earlier that way than a slower subflow takes for a part of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ecf {
    is_waiting: bool,
}

/// Hysteresis: who waits goes on waiting.
const BETA: f64 = 0.25;

impl Scheduler for Ecf {
    fn name(&self) -> &'static str {
        "ecf"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        let decision = lowest_rtt(view, SubflowView::is_available)?;
        let slow = view.subflow(decision.subflow)?;
        let fast = view
            .subflows
            .iter()
            .filter(|subflow| subflow.timeouts == 0)
            .min_by_key(|subflow| subflow.srtt)?;
        // Nothing in flight: no acknowledgment would end the wait.
        if fast.id == slow.id || fast.in_flight_bytes == 0 {
            return Some(decision);
        }
        let seconds = |subflow: &SubflowView| subflow.srtt.as_secs_f64();
        let delta = fast.rtt_variance.max(slow.rtt_variance).as_secs_f64();
        let left_bytes = view.unsent_bytes as f64;
        let rounds = |subflow: &SubflowView| left_bytes / subflow.window_bytes.max(1) as f64;
        let bonus = if self.is_waiting { 1.0 + BETA } else { 1.0 };
        let fast_is_earlier = (1.0 + rounds(fast)) * seconds(fast) < bonus * (seconds(slow) + delta);
        if !fast_is_earlier {
            self.is_waiting = false;
            return Some(decision);
        }
        if rounds(slow) * seconds(slow) >= 2.0 * seconds(fast) + delta {
            self.is_waiting = true;
            return None;
        }
        Some(decision)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Data;
    use super::super::tests::{subflow, view};
    use super::*;
    use crate::identifiers::SubflowId;

    fn pick(scheduler: &mut Ecf, srtt_ms: u64, left_bytes: u64) -> Option<Decision> {
        let mut subflows = [subflow(1, 20, 0), subflow(2, srtt_ms, 5)];
        subflows[0].in_flight_bytes = 14_600;
        scheduler.select(&View { unsent_bytes: left_bytes, new_bytes: left_bytes, ..view(&subflows) })
    }

    #[test]
    fn waits_while_the_fast_subflow_is_earlier() {
        let slow = Some(Decision::send(SubflowId(2), Data::New));
        // Fast: (1 + 58 400 / 14 600) · 20 ms = 100 ms.
        assert_eq!(pick(&mut Ecf::default(), 101, 58_400), None);
        assert_eq!(pick(&mut Ecf::default(), 99, 58_400), slow);
        assert_eq!(pick(&mut Ecf::default(), 101, 60_000), slow);
    }

    #[test]
    fn who_waits_goes_on_waiting() {
        let mut scheduler = Ecf::default();
        assert_eq!(pick(&mut scheduler, 101, 58_400), None);
        // 1.25 · 90 ms = 112.5 ms is later than 100 ms.
        assert_eq!(pick(&mut scheduler, 90, 58_400), None);
        assert!(pick(&mut scheduler, 79, 58_400).is_some());
        assert!(pick(&mut scheduler, 90, 58_400).is_some(), "it waits no more");
    }

    #[test]
    fn what_the_slow_subflow_has_done_at_once_is_given_to_it() {
        // 1460 / 14 600 · 101 ms is less than 40 ms.
        assert!(pick(&mut Ecf::default(), 101, 1460).is_some());
    }
}
