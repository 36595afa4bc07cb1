use polypath_units::Duration;

use super::{Decision, Scheduler, SubflowView, View};

/// The available subflow with the lowest smoothed round-trip time sends next (Paasch 4.3.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LowestRtt;

impl Scheduler for LowestRtt {
    fn name(&self) -> &'static str {
        "lowest-rtt"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        lowest_rtt(view, SubflowView::is_available)
    }
}

/// Reinjections first, then new data, through that subflow which has the lowest smoothed round-trip time of those that
/// `may_send`.
pub(super) fn lowest_rtt(view: &View<'_>, may_send: impl Fn(&SubflowView) -> bool) -> Option<Decision> {
    let mut best: Option<(Duration, Decision)> = None;
    for subflow in view.subflows {
        if best.is_some_and(|(srtt, _)| srtt <= subflow.srtt) || !may_send(subflow) {
            continue;
        }
        if let Some(data) = view.next_data(subflow.id) {
            best = Some((subflow.srtt, Decision::send(subflow.id, data)));
        }
    }
    best.map(|(_, decision)| decision)
}

#[cfg(test)]
mod tests {
    use super::super::Data;
    use super::super::tests::{subflow, view};
    use super::*;
    use crate::identifiers::SubflowId;

    #[test]
    fn fills_the_fastest_window_then_the_next() {
        let mut subflows = [subflow(1, 40, 5), subflow(2, 20, 5), subflow(3, 30, 5)];
        let pick = |subflows: &[_]| LowestRtt.select(&view(subflows)).map(|decision| decision.subflow.0);
        assert_eq!(pick(&subflows), Some(2));
        subflows[1].room_bytes = 1459;
        assert_eq!(pick(&subflows), Some(3));
        subflows[2].timeouts = 1;
        assert_eq!(pick(&subflows), Some(1));
        subflows[0].room_bytes = 0;
        assert_eq!(pick(&subflows), None);
    }

    #[test]
    fn reinjects_before_it_sends_new_data() {
        let subflows = [subflow(1, 20, 5), subflow(2, 40, 5)];
        let mut view = view(&subflows);
        view.reinjection_bytes = 10;
        view.reinjection_from = Some(SubflowId(2));
        assert_eq!(LowestRtt.select(&view), Some(Decision::send(SubflowId(1), Data::Reinjection)));
    }
}
