//! Whether the peer sends the same over several paths. No peer tells its scheduler, but what its paths bring is more than what arrives.

use std::collections::BTreeMap;

use polypath_mptcp::{ConnectionId, ConnectionInfo};
use polypath_wire::DataSeq;

/// So many bytes at least have to arrive before they tell.
const LEAST_BYTES: u64 = 100_000;

/// What is sent again over another path, as when one is lost, is less than this share of what arrives.
const USUAL: f64 = 0.1;

/// What has arrived on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    /// Of the data: the last byte's number, as if all that waits were in order.
    data: DataSeq,
    /// Over its live subflows.
    path_bytes: u64,
    subflows: usize,
}

impl Arrived {
    pub(super) fn by(info: &ConnectionInfo) -> Self {
        Self {
            data: info.receive_next.add(info.reassembly_bytes),
            path_bytes: info.subflows.iter().map(|subflow| subflow.tcp.bytes_received).sum(),
            subflows: info.subflows.len(),
        }
    }
}

/// What arrived between looks, on all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    /// At the last look.
    connections: BTreeMap<ConnectionId, Arrived>,
    sums: Sums,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    data_bytes: u64,
    path_bytes: u64,
}

impl Copies {
    pub(super) fn look(&mut self, id: ConnectionId, now: Arrived) {
        if let Some(before) = self.connections.insert(id, now) {
            self.sums.add(before, now);
        }
    }

    /// No others are there any more.
    pub(super) fn keep(&mut self, ids: impl Iterator<Item = ConnectionId>) {
        let mut connections = std::mem::take(&mut self.connections);
        self.connections = ids.filter_map(|id| connections.remove_entry(&id)).collect();
    }

    pub(super) fn are_there(&self) -> bool {
        self.sums.have_copies()
    }
}

impl Sums {
    /// What came between two looks at a connection.
    fn add(&mut self, before: Arrived, now: Arrived) {
        // A subflow that ended takes its bytes along: the next look compares again.
        let more = now.path_bytes.checked_sub(before.path_bytes).filter(|_| now.subflows >= before.subflows);
        let Some(more) = more else { return };
        self.path_bytes += more;
        self.data_bytes += u64::try_from(now.data.diff(before.data)).unwrap_or(0);
    }

    /// Bytes on the paths are clearly more than those that arrived.
    fn have_copies(self) -> bool {
        self.data_bytes >= LEAST_BYTES && self.path_bytes as f64 > (1.0 + USUAL) * self.data_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a connection of so many subflows, of which data and paths have brought so many bytes.
    fn looked(looks: &[(u64, u64, usize)]) -> bool {
        // Numbers wrap.
        let arrived = |(data, path_bytes, subflows): (u64, u64, usize)| Arrived {
            data: DataSeq(u64::MAX - 5).add(data),
            path_bytes,
            subflows,
        };
        let mut sums = Sums::default();
        looks.windows(2).for_each(|pair| sums.add(arrived(pair[0]), arrived(pair[1])));
        sums.have_copies()
    }

    #[test]
    fn copies_are_what_paths_bring_beyond_what_arrives() {
        assert!(!looked(&[]));
        assert!(!looked(&[(0, 0, 1), (400_000, 400_000, 2), (900_000, 930_000, 2)]), "a few were sent again");
        assert!(looked(&[(0, 0, 1), (400_000, 400_000, 2), (900_000, 1_400_000, 2)]));
        assert!(!looked(&[(0, 0, 1), (90_000, 180_000, 2)]), "too few to tell");
        // What was there before the first look is not compared.
        assert!(!looked(&[(0, 700_000, 2), (400_000, 1_100_000, 2)]));
        // A subflow that ends takes its bytes along, whatever the others brought meanwhile.
        assert!(!looked(&[(0, 500_000, 2), (400_000, 600_000, 1), (900_000, 1_100_000, 1)]));
    }
}
