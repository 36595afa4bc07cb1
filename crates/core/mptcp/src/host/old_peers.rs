//! Servers that speak version 0 only. A version 1 SYN has no key, so the connection that finds out falls back to TCP; the next
//! ones can ask in version 0 at once (RFC 8684 §3.1).

use alloc::collections::VecDeque;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::MptcpVersion;

/// More are not remembered; the oldest go first.
const MOST_PEERS: usize = 64;
/// After this long a server may speak version 1.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Addresses of servers that answered in version 0, the oldest first.
#[derive(Debug, Default)]
pub(super) struct OldPeers {
    known: VecDeque<(IpAddr, Instant)>,
}

impl OldPeers {
    pub(super) fn remember(&mut self, now: Instant, remote: IpAddr) {
        self.known.retain(|(known, _)| *known != remote);
        if self.known.len() >= MOST_PEERS {
            self.known.pop_front();
        }
        self.known.push_back((remote, now));
    }

    /// The version in which to ask a server, where `wanted` is the choice.
    pub(super) fn version_for(&self, now: Instant, remote: IpAddr, wanted: MptcpVersion) -> MptcpVersion {
        let is_old = |(known, at): &(IpAddr, Instant)| *known == remote && now.since(*at) < FORGET_AFTER;
        if self.known.iter().any(is_old) { MptcpVersion::V0 } else { wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_all_after_a_time() {
        let mut peers = OldPeers::default();
        let addr = |last: u8| IpAddr::from([10, 0, 0, last]);
        let at = |seconds| Instant::from_secs(seconds);
        for last in 0..=MOST_PEERS as u8 {
            peers.remember(at(1), addr(last));
        }
        let version = |peers: &OldPeers, now, last| peers.version_for(at(now), addr(last), MptcpVersion::V1);
        assert_eq!(version(&peers, 1, 0), MptcpVersion::V1);
        assert_eq!(version(&peers, 600, 1), MptcpVersion::V0);
        assert_eq!(version(&peers, 601, 1), MptcpVersion::V1);
    }
}
