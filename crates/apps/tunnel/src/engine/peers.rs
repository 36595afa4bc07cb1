//! Peers come, go, and change while the end runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::config::{PeerConfig, PeerId};
use super::state::Engine;
use crate::key::PublicKey;
use crate::peer::{Peer, PeerSecrets};

/// What [`Engine::set_peers`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerChanges {
    /// Peers that were not there before. They have no paths yet.
    pub added: Vec<PeerId>,
    /// Peers that are gone, with their sessions and paths.
    pub removed: Vec<PeerId>,
}

impl Engine {
    /// Adds a peer. One with the same key is replaced, and loses its sessions and paths; [`Engine::set_peers`] keeps them.
    pub fn add_peer(&mut self, config: PeerConfig) -> PeerId {
        if let Some(&before) = self.by_key.get(&config.public_key) {
            self.remove_peer(before);
        }
        let id = PeerId::new(self.peers.len());
        for network in config.allowed_ips {
            self.allowed.insert(network, id);
        }
        self.by_key.insert(config.public_key, id);
        let has_lower_key = self.public_key < config.public_key;
        let shared = Arc::clone(&self.shared);
        let mut seed = [0; 32];
        (self.random)(&mut seed);
        let mut instance = [0; 8];
        (self.random)(&mut instance);
        let secrets = PeerSecrets { instance: u64::from_le_bytes(instance), split_seed: seed };
        let (key, preshared) = (config.public_key, config.preshared_key);
        let peer = Peer::new(key, preshared, config.rules, has_lower_key, shared, secrets);
        self.peers.push(Some(Box::new(peer)));
        id
    }

    /// Takes a peer away, with its sessions and networks.
    pub fn remove_peer(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(id.index()).and_then(Option::take) {
            self.by_key.remove(&peer.key);
            self.by_index.retain(|_, other| *other != id);
            self.allowed.remove(id);
            self.changed.insert(id);
        }
    }

    /// These are the peers from now on. Those that stay keep their numbers, sessions and paths, whatever else changes of them: networks
    /// and rules count from the next packet on, a preshared key from the next handshake.
    pub fn set_peers(&mut self, configs: Vec<PeerConfig>) -> PeerChanges {
        let keys: BTreeSet<PublicKey> = configs.iter().map(|config| config.public_key).collect();
        let mut changes = PeerChanges::default();
        let gone: Vec<_> =
            self.by_key.iter().filter(|(key, _)| !keys.contains(*key)).map(|(_, &id)| id).collect();
        for id in gone {
            self.remove_peer(id);
            changes.removed.push(id);
        }
        self.allowed.clear();
        for config in configs {
            match self.by_key.get(&config.public_key).copied() {
                Some(id) => self.change_peer(id, config),
                None => changes.added.push(self.add_peer(config)),
            }
        }
        changes
    }

    fn change_peer(&mut self, id: PeerId, config: PeerConfig) {
        for network in config.allowed_ips {
            self.allowed.insert(network, id);
        }
        if let Some(peer) = self.peer_mut(id) {
            peer.set_config(config.preshared_key, config.rules);
        }
    }
}
