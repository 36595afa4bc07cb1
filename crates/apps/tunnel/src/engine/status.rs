//! What can be seen of an end.

use std::net::SocketAddr;

use polypath_units::{BitRate, Duration, Instant};

use super::config::PeerId;
use super::counts::EngineCounts;
use super::state::Engine;
use crate::key::PublicKey;
use crate::noise::{PATHS, PathId};
use crate::peer::PeerCounts;
use crate::resequencer::ResequencerCounts;
use crate::transmit::LocalId;

/// A peer at a moment.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Its key.
    pub key: PublicKey,
    /// It is a Polypath too, and not a stock WireGuard.
    pub knows_paths: bool,
    /// How old the keys are.
    pub keys_age: Option<Duration>,
    /// Where a stock peer is.
    pub plain_remote: Option<SocketAddr>,
    /// Bytes that wait for a path.
    pub waiting_bytes: usize,
    /// Bytes that wait for what is missing before them.
    pub held_bytes: usize,
    /// Flows of TCP that end here and are carried by Multipath TCP.
    pub split_flows: usize,
    /// What was counted.
    pub counts: PeerCounts,
    /// What was done for the order.
    pub order: ResequencerCounts,
    /// Its paths.
    pub paths: Vec<PathStatus>,
}

/// A path at a moment.
#[derive(Clone, Debug)]
pub struct PathStatus {
    /// Its number.
    pub id: PathId,
    /// The driver's socket.
    pub local: LocalId,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Its interface works.
    pub is_up: bool,
    /// The peer has answered there.
    pub is_believed: bool,
    /// It carries data now.
    pub is_usable: bool,
    /// Only for when no other works.
    pub is_backup: bool,
    /// It is to carry nothing.
    pub is_closed: bool,
    /// The longest packet that came through, its IP header included; while it is searched for, longer ones may be tried.
    pub mtu_bytes: usize,
    /// The longest datagrams of the tunnel come through.
    pub carries_long: bool,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// The least one.
    pub min_rtt: Option<Duration>,
    /// At which packets leave.
    pub rate: BitRate,
    /// Sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// Datagrams and bytes sent, and datagrams that were lost.
    pub sent: (u64, u64, u64),
    /// Datagrams and bytes received.
    pub received: (u64, u64),
    /// Since the last datagram came.
    pub silent_for: Option<Duration>,
}

impl Engine {
    /// What belongs to no peer.
    #[must_use]
    pub fn counts(&self) -> EngineCounts {
        self.counts
    }

    /// All peers.
    pub fn peer_ids(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.iter().enumerate().filter(|(_, peer)| peer.is_some()).map(|(at, _)| PeerId::new(at))
    }

    /// A peer as it is now.
    #[must_use]
    pub fn peer_status(&self, now: Instant, id: PeerId) -> Option<PeerStatus> {
        let peer = self.peers.get(id.index())?.as_deref()?;
        let paths = (0..PATHS).filter_map(|at| {
            let id = PathId::new(at as u8)?;
            let link = peer.link(id)?;
            let ends = link.ends();
            Some(PathStatus {
                id,
                local: ends.local,
                remote: ends.remote,
                is_up: link.is_up(),
                is_believed: link.is_believed(),
                is_usable: link.is_usable(),
                is_backup: link.settings.backup,
                is_closed: link.settings.closed,
                mtu_bytes: link.confirmed_bytes() + if ends.remote.is_ipv4() { 28 } else { 48 },
                carries_long: link.confirmed_bytes() >= peer.long_bytes(),
                srtt: link.sender.min_rtt().map(|_| link.sender.srtt()),
                min_rtt: link.sender.min_rtt(),
                rate: link.sender.pacing_rate(),
                in_flight_bytes: link.sender.in_flight_bytes(),
                sent: link.sent(),
                received: link.received(),
                silent_for: link.last_received_at().map(|at| now.since(at)),
            })
        });
        Some(PeerStatus {
            key: peer.key,
            knows_paths: peer.knows_paths(),
            keys_age: peer.sessions.since().map(|at| now.since(at)),
            plain_remote: peer.plain_ends().map(|ends| ends.remote),
            waiting_bytes: peer.waiting_bytes(),
            held_bytes: peer.resequencer().held_bytes(),
            split_flows: peer.split_flows(),
            counts: peer.counts(),
            order: peer.resequencer().counts(),
            paths: paths.collect(),
        })
    }
}
