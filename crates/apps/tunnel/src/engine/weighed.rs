//! For fuzz targets: what an end holds, and a peer that sends what it likes.

use polypath_units::Instant;

use super::config::PeerId;
use super::state::Engine;
use crate::noise::PathId;

/// What an end holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighed {
    pub(crate) peers: usize,
    /// Numbers of sessions and handshakes.
    pub(crate) sessions: usize,
    /// Answers to strangers.
    pub(crate) answers: usize,
    /// Packets and datagrams of the peer that has most.
    pub(crate) items: usize,
    /// Bytes that wait of the peer that has most.
    pub(crate) bytes: usize,
}

impl Engine {
    pub(crate) fn weighed(&self) -> Weighed {
        let peers = || self.peers.iter().flatten();
        Weighed {
            peers: peers().count(),
            sessions: self.by_index.len(),
            answers: self.answers.len(),
            items: peers().map(|peer| peer.held_items()).max().unwrap_or(0),
            bytes: peers().map(|peer| peer.held_bytes()).max().unwrap_or(0),
        }
    }

    /// Sends a frame of these contents over one of the peer's paths.
    pub(crate) fn send_frame(&mut self, now: Instant, id: PeerId, path: PathId, contents: &[u8]) {
        self.touch(id);
        if let Some(peer) = self.peer_mut(id) {
            peer.send_frame(now, path, contents);
        }
    }

    /// Sends these contents as WireGuard sends a packet.
    pub(crate) fn send_plain(&mut self, id: PeerId, contents: &[u8]) {
        self.touch(id);
        if let Some(peer) = self.peer_mut(id) {
            peer.send_plain(contents);
        }
    }
}
