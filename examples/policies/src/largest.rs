use polypath::mptcp::scheduler::{Decision, Policy, Scheduler, View};

/// A scheduler: the subflow with the largest congestion window.
pub const LARGEST: Policy = Policy::new("largest", |_| Box::new(Largest));

#[derive(Debug)]
struct Largest;

impl Scheduler for Largest {
    fn name(&self) -> &'static str {
        LARGEST.name()
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        // `None` waits: it is asked again with the next acknowledgment, write or timer.
        let available = view.subflows.iter().filter(|subflow| subflow.is_available());
        let subflow = available.max_by_key(|subflow| subflow.window_bytes)?.id;
        Some(Decision::send(subflow, view.next_data(subflow)?))
    }
}

#[cfg(test)]
mod tests {
    use polypath::mptcp::SubflowId;
    use polypath::mptcp::scheduler::SubflowView;
    use polypath::units::Duration;

    use super::*;

    #[test]
    fn the_larger_window_wins_while_it_has_room() {
        let small = SubflowView::new(1, Duration::from_millis(10));
        let large = SubflowView { window_bytes: 100_000, ..SubflowView::new(2, Duration::from_millis(50)) };
        let made_up = View::builder().subflow(small).subflow(large).unsent_bytes(50_000);
        assert_eq!(
            LARGEST.build().select(&made_up.view()).map(|decision| decision.subflow),
            Some(SubflowId(2))
        );
        let full = SubflowView { room_bytes: 0, ..large };
        let made_up = View::builder().subflow(small).subflow(full).unsent_bytes(50_000);
        assert_eq!(
            LARGEST.build().select(&made_up.view()).map(|decision| decision.subflow),
            Some(SubflowId(1))
        );
        assert_eq!(LARGEST.build().select(&View::builder().subflow(small).view()), None);
    }
}
