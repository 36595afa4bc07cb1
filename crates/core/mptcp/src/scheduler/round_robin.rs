use super::{Decision, Scheduler, View};
use crate::identifiers::SubflowId;

/// Each available subflow in turn sends one segment (Paasch 4.3.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundRobin {
    /// Id of the subflow that sent last.
    last: Option<SubflowId>,
}

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        let count = view.subflows.len();
        let after_last =
            self.last.and_then(|last| view.subflows.iter().position(|s| s.id == last)).map_or(0, |at| at + 1);
        for step in 0..count {
            let subflow = view.subflows.get((after_last + step) % count)?;
            if !subflow.is_available() {
                continue;
            }
            if let Some(data) = view.next_data(subflow.id) {
                self.last = Some(subflow.id);
                let limit_bytes = u64::from(subflow.segment_bytes);
                return Some(Decision { limit_bytes, ..Decision::send(subflow.id, data) });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{subflow, view};
    use super::*;

    #[test]
    fn takes_turns_and_skips_who_cannot_send() {
        let mut policy = RoundRobin::default();
        let mut subflows = [subflow(1, 40, 5), subflow(2, 20, 5), subflow(3, 30, 5)];
        let mut turns = |subflows: &[_], count: usize| -> alloc::vec::Vec<u8> {
            (0..count)
                .filter_map(|_| policy.select(&view(subflows)))
                .map(|decision| decision.subflow.0)
                .collect()
        };
        assert_eq!(turns(&subflows, 4), [1, 2, 3, 1]);
        subflows[1].room_bytes = 0;
        assert_eq!(turns(&subflows, 4), [3, 1, 3, 1]);
        assert_eq!(turns(&subflows[1..2], 1), []);
    }
}
