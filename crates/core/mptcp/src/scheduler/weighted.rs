use alloc::vec::Vec;

use polypath_wire::DataSeq;

use super::{Decision, Scheduler, SubflowView, View};
use crate::identifiers::SubflowId;

/// Subflows share the data in proportion to their capacity as congestion control knows it, window over round-trip time,
/// whatever the order in which their acknowledgments come.
#[derive(Clone, Debug, Default)]
pub(super) struct Weighted {
    /// What each subflow, by id, has had, in seconds of its capacity, and that capacity in bytes per second.
    shares: Vec<Share>,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    id: SubflowId,
    served_s: f64,
    capacity: f64,
}

impl Scheduler for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        let mut best: Option<(f64, Decision)> = None;
        for subflow in view.subflows {
            if !subflow.is_available() {
                continue;
            }
            let served_s = self.refresh(subflow);
            if best.is_some_and(|(least, _)| least <= served_s) {
                continue;
            }
            if let Some(data) = view.next_data(subflow.id) {
                let limit_bytes = u64::from(subflow.segment_bytes);
                best = Some((served_s, Decision { limit_bytes, ..Decision::send(subflow.id, data) }));
            }
        }
        best.map(|(_, decision)| decision)
    }

    fn on_sent(&mut self, subflow: SubflowId, _seq: DataSeq, len_bytes: u64) {
        if let Some(share) = self.shares.iter_mut().find(|share| share.id == subflow) {
            share.served_s += len_bytes as f64 / share.capacity;
        }
        // Those that could not send have nothing to make up for: their windows were full.
        let most = self.shares.iter().map(|share| share.served_s).fold(0.0, f64::max);
        for share in &mut self.shares {
            share.served_s = share.served_s.max(most - MOST_CREDIT_S);
        }
    }
}

/// A subflow that has been full for longer gets no more than this in a row.
const MOST_CREDIT_S: f64 = 0.1;

impl Weighted {
    /// Notes the capacity; returns what the subflow has had.
    fn refresh(&mut self, subflow: &SubflowView) -> f64 {
        let srtt_s = subflow.srtt.as_secs_f64().max(1e-6);
        let capacity = subflow.window_bytes.max(1) as f64 / srtt_s;
        if let Some(share) = self.shares.iter_mut().find(|share| share.id == subflow.id) {
            share.capacity = capacity;
            return share.served_s;
        }
        // A new one begins where the others are.
        let least = self.shares.iter().map(|share| share.served_s).reduce(f64::min);
        let served_s = least.unwrap_or(0.0);
        self.shares.push(Share { id: subflow.id, served_s, capacity });
        served_s
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{subflow, view};
    use super::*;

    #[test]
    fn each_gets_its_share_of_the_capacity() {
        // 14 600 bytes in 20 ms against 14 600 bytes in 60 ms: three to one.
        let subflows = [subflow(1, 20, 50), subflow(2, 60, 50)];
        let mut scheduler = Weighted::default();
        let mut packets = [0; 2];
        for _ in 0..400 {
            let decision = scheduler.select(&view(&subflows)).unwrap();
            packets[usize::from(decision.subflow.0) - 1] += 1;
            scheduler.on_sent(decision.subflow, DataSeq(0), 1460);
        }
        assert!((299..=301).contains(&packets[0]), "{packets:?}");
    }

    #[test]
    fn who_was_full_does_not_make_up_for_it_without_end() {
        let mut subflows = [subflow(1, 20, 50), subflow(2, 20, 0)];
        let mut scheduler = Weighted::default();
        for _ in 0..1000 {
            scheduler.select(&view(&subflows)).unwrap();
            scheduler.on_sent(SubflowId(1), DataSeq(0), 1460);
        }
        subflows[1].room_bytes = 1 << 20;
        let mut in_a_row = 0;
        while scheduler.select(&view(&subflows)).unwrap().subflow == SubflowId(2) {
            scheduler.on_sent(SubflowId(2), DataSeq(0), 1460);
            in_a_row += 1;
            assert!(in_a_row < 100);
        }
    }
}
