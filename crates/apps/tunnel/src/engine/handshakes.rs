//! Handshakes: begun, answered, and refused in a flood.

use polypath_units::{Duration, Instant};

use super::config::PeerId;
use super::state::Engine;
use crate::noise::{
    COOKIE_REPLY_BYTES, Handshake, INITIATION_BYTES, Index, Macs, RESPONSE_BYTES, Timestamp, cookie_from,
    receive_initiation,
};
use crate::peer::{Direction, PathEnds, Session};

/// Answers to strangers that wait to leave.
const MOST_ANSWERS: usize = 1_024;

impl Engine {
    fn random32(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        (self.random)(&mut bytes);
        bytes
    }

    /// A number that no session of ours has.
    fn new_index(&mut self, id: PeerId) -> Index {
        loop {
            let [a, b, c, d, ..] = self.random32();
            let index = Index::new(u32::from_le_bytes([a, b, c, d]));
            if let std::collections::btree_map::Entry::Vacant(entry) = self.by_index.entry(index.to_bytes()) {
                entry.insert(id);
                return index;
            }
        }
    }

    /// Begins a handshake with a peer that is due for one: the same message to each place where it may be, of which it takes the first.
    pub(super) fn begin_handshake(&mut self, now: Instant, id: PeerId) {
        let is_due = self.peers[id.index()].as_ref().is_some_and(|peer| peer.sessions.takes_handshake(now));
        if !is_due {
            return;
        }
        let ephemeral = self.random32();
        let [jitter, ..] = self.random32();
        let index = self.new_index(id);
        let timestamp = Timestamp::since_1970(self.zero_since_1970 + Duration::from_nanos(now.as_nanos()));
        let Some(peer) = self.peers[id.index()].as_mut() else { return };
        let (handshake, message) = Handshake::initiate(
            &self.identity,
            (&peer.key, &peer.preshared, &peer.macs),
            peer.cookie.as_ref(),
            index,
            (timestamp, now),
            ephemeral,
        );
        let jitter = Duration::from_millis(u64::from(jitter));
        let persists = peer.has_links();
        let unanswered = peer.sessions.attempts();
        if let Some(before) = peer.sessions.handle_begun(now, handshake, jitter, persists) {
            self.by_index.remove(&before.to_bytes());
        }
        for ends in peer.places(unanswered) {
            peer.push_ready(ends, message.to_vec());
        }
    }

    pub(super) fn handle_initiation(
        &mut self,
        now: Instant,
        from: PathEnds,
        message: &[u8; INITIATION_BYTES],
    ) {
        if !self.is_welcome(now, from, message) {
            return;
        }
        let ephemeral = self.random32();
        let Some(received) = receive_initiation(&self.identity, message, ephemeral) else {
            self.counts.refused_handshakes += 1;
            return;
        };
        let Some(&id) = self.by_key.get(&received.peer) else {
            self.counts.unknown_peers += 1;
            return;
        };
        let index = self.new_index(id);
        let Some(peer) = self.peers[id.index()].as_mut() else { return };
        if !peer.answers_at(from) {
            self.by_index.remove(&index.to_bytes());
            return;
        }
        // One that came before, or is not newer, is a replay.
        if peer.last_timestamp.is_some_and(|last| received.timestamp <= last) {
            self.counts.replayed_handshakes += 1;
            self.by_index.remove(&index.to_bytes());
            return;
        }
        peer.last_timestamp = Some(received.timestamp);
        peer.count_plain(from, Direction::Received, INITIATION_BYTES);
        let Some((transport, response)) = received.respond(&peer.preshared, &peer.macs, index) else {
            self.by_index.remove(&index.to_bytes());
            return;
        };
        let forgotten = peer.sessions.handle_answering(Session::new(now, index, transport, false));
        if let Some(forgotten) = forgotten {
            self.by_index.remove(&forgotten.to_bytes());
        }
        peer.push_ready(from, response.to_vec());
        self.touch(id);
    }

    pub(super) fn handle_response(&mut self, now: Instant, from: PathEnds, message: &[u8; RESPONSE_BYTES]) {
        let receiver: [u8; 4] = message[8..12].try_into().expect("four bytes");
        // Only who was asked is listened to, so no cookie is needed.
        if !self.identity.macs().is_for_us(message) {
            self.counts.refused_handshakes += 1;
            return;
        }
        let Some(&id) = self.by_index.get(&receiver) else {
            self.counts.unknown_session += 1;
            return;
        };
        let Some(peer) = self.peers[id.index()].as_mut() else { return };
        let Some(handshake) = peer.sessions.handshake_mut() else { return };
        if !handshake.local().is(receiver) {
            return;
        }
        let local = handshake.local();
        let Some(transport) = handshake.receive_response(message) else {
            self.counts.refused_handshakes += 1;
            return;
        };
        peer.count_plain(from, Direction::Received, RESPONSE_BYTES);
        peer.set_plain_ends(from);
        let forgotten = peer.sessions.handle_answered(Session::new(now, local, transport, true));
        if let Some(forgotten) = forgotten {
            self.by_index.remove(&forgotten.to_bytes());
        }
        self.touch(id);
    }

    pub(super) fn handle_cookie_reply(&mut self, now: Instant, message: &[u8; COOKIE_REPLY_BYTES]) {
        let receiver: [u8; 4] = message[4..8].try_into().expect("four bytes");
        let Some(&id) = self.by_index.get(&receiver) else {
            self.counts.unknown_session += 1;
            return;
        };
        let Some(peer) = self.peers[id.index()].as_mut() else { return };
        let Some(first) = peer.sessions.handshake_mut().map(|handshake| *handshake.first_proof()) else {
            return;
        };
        if let Some(cookie) = cookie_from(message, &peer.macs, &first, now) {
            peer.cookie = Some(cookie);
            self.touch(id);
        }
    }

    /// Whether a handshake's message is to be looked at: its sender knows our key and, in a flood, receives at its address.
    fn is_welcome(&mut self, now: Instant, from: PathEnds, message: &[u8]) -> bool {
        if !self.identity.macs().is_for_us(message) {
            self.counts.refused_handshakes += 1;
            return false;
        }
        self.flood.note(now);
        if !self.flood.is_one() {
            return true;
        }
        let random = self.random32();
        self.jar.renew(now, || random);
        if self.jar.is_proven(message, from.remote) {
            return self.flood.takes_proven(from.remote.ip());
        }
        self.counts.cookies += 1;
        if self.answers.len() < MOST_ANSWERS {
            let random = self.random32();
            let nonce = random[..24].try_into().expect("24 bytes");
            let macs: &Macs = self.identity.macs();
            let reply = self.jar.reply(message, from.remote, macs, nonce);
            self.answers.push_back((from, reply.to_vec()));
        }
        false
    }
}
