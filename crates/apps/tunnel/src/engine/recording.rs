//! What comes from a peer is recorded, if somebody asks for it.

use super::config::PeerId;
use super::state::Engine;
use crate::recording::{Recorded, Recording};

impl Engine {
    /// Begins to record what comes from a peer; [`Engine::take_recorded`] takes it, and has to do so often: there is room for 131072
    /// records. False if it is recorded already, or the peer is gone.
    pub fn start_recording(&mut self, peer: PeerId) -> bool {
        let Some(peer) = self.peer_mut(peer).filter(|peer| peer.recording.is_none()) else { return false };
        peer.start_recording();
        true
    }

    /// What was recorded since it was taken last. `None` if nothing is recorded, or the peer is gone.
    pub fn take_recorded(&mut self, peer: PeerId) -> Option<Recorded> {
        self.peer_mut(peer)?.recording.as_deref_mut().map(Recording::take)
    }

    /// Ends it.
    pub fn stop_recording(&mut self, peer: PeerId) {
        if let Some(peer) = self.peer_mut(peer) {
            peer.recording = None;
        }
    }
}
