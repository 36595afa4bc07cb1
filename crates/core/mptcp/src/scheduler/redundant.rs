use alloc::vec::Vec;

use polypath_wire::DataSeq;

use super::{Data, Decision, Scheduler, SubflowView, View};
use crate::identifiers::SubflowId;

/// All data on every subflow: as fast as the fastest at each moment, and no loss or outage of a path is felt. It costs
/// as much of every path as the connection sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Redundant {
    /// Up to where each subflow, by id, has had the data.
    cursors: Vec<(SubflowId, DataSeq)>,
}

impl Scheduler for Redundant {
    fn name(&self) -> &'static str {
        "redundant"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        let mut best: Option<(&SubflowView, Data)> = None;
        for subflow in view.subflows {
            let is_faster = best.is_none_or(|(best, _)| subflow.srtt < best.srtt);
            if !is_faster || !subflow.is_available() {
                continue;
            }
            // What others have delivered is skipped.
            let cursor = self.cursor(subflow.id).map_or(view.data_una, |cursor| cursor.max(view.data_una));
            if cursor.before(view.data_next) {
                best = Some((subflow, Data::Copy(cursor)));
            } else if view.new_bytes > 0 {
                best = Some((subflow, Data::New));
            }
        }
        best.map(|(subflow, data)| Decision::send(subflow.id, data))
    }

    fn on_sent(&mut self, subflow: SubflowId, seq: DataSeq, len_bytes: u64) {
        let end = seq.add(len_bytes);
        match self.cursors.iter_mut().find(|(id, _)| *id == subflow) {
            Some((_, cursor)) => *cursor = cursor.max(end),
            None => self.cursors.push((subflow, end)),
        }
    }

    fn copies(&self) -> bool {
        true
    }
}

impl Redundant {
    fn cursor(&self, id: SubflowId) -> Option<DataSeq> {
        self.cursors.iter().find(|(known, _)| *known == id).map(|(_, cursor)| *cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{subflow, view};
    use super::*;

    #[test]
    fn each_subflow_gets_everything_in_order_and_skips_what_arrived() {
        let mut subflows = [subflow(1, 20, 5), subflow(2, 100, 5)];
        let mut scheduler = Redundant::default();
        assert_eq!(scheduler.select(&view(&subflows)), Some(Decision::send(SubflowId(1), Data::New)));
        scheduler.on_sent(SubflowId(1), DataSeq(0), 5000);
        subflows[0].room_bytes = 0;
        let mut later = view(&subflows);
        later.data_next = DataSeq(5000);
        assert_eq!(scheduler.select(&later), Some(Decision::send(SubflowId(2), Data::Copy(DataSeq(0)))));
        scheduler.on_sent(SubflowId(2), DataSeq(0), 1460);
        assert_eq!(scheduler.select(&later), Some(Decision::send(SubflowId(2), Data::Copy(DataSeq(1460)))));
        later.data_una = DataSeq(5000);
        assert_eq!(scheduler.select(&later), Some(Decision::send(SubflowId(2), Data::New)));
        later.new_bytes = 0;
        assert_eq!(scheduler.select(&later), None);
    }
}
