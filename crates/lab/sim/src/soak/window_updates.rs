//! A box that loses window updates, and nothing else.

use std::collections::BTreeMap;

use polypath_link::middlebox::{Direction, Middlebox, Outputs};
use polypath_units::Instant;
use polypath_wire::{FourTuple, Packet, SeqNumber, Transport};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// Loses acknowledgments that say nothing but that a window has opened: what arrives reliably is data and its acknowledgment, so
/// that only a sender that probes learns of the window (RFC 9293 §3.8.6.1).
#[derive(Debug)]
pub(super) struct LoseWindowUpdates {
    probability: f64,
    random: ChaCha8Rng,
    /// What each end said last.
    said: BTreeMap<FourTuple, (SeqNumber, u16)>,
}

impl LoseWindowUpdates {
    pub(super) fn new(probability: f64, seed: u64) -> Self {
        Self { probability, random: ChaCha8Rng::seed_from_u64(seed), said: BTreeMap::new() }
    }

    fn is_update(&mut self, packet: &Packet) -> bool {
        let (Some(tuple), Transport::Tcp(segment)) = (packet.receiver_tuple(), &packet.transport) else {
            return false;
        };
        let said = self.said.insert(tuple, (segment.ack, segment.window));
        let flags = segment.flags;
        let is_plain = segment.payload.is_empty() && !flags.syn() && !flags.fin() && !flags.rst();
        // A DATA_FIN, an address or a handshake is more than a window.
        let says_more =
            !segment.options.rest.is_empty() || segment.options.dss.is_some_and(|dss| dss.data_fin);
        is_plain
            && !says_more
            && said.is_some_and(|(ack, window)| ack == segment.ack && window < segment.window)
    }
}

impl Middlebox for LoseWindowUpdates {
    fn name(&self) -> &'static str {
        "lose-window-updates"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        let unit = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        if !(self.is_update(&packet) && unit < self.probability) {
            out.push(direction, packet);
        }
    }
}
