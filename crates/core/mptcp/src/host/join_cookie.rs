//! Stateless MP_JOIN: while a connection has its fill of half-open joins, a SYN is answered and forgotten, and the HMAC of the
//! third ACK proves all (RFC 8684 §3.2).
//!
//! The third ACK carries no token, no nonce and no address identifier. It does acknowledge our initial sequence number and
//! echo our timestamp, 64 bits that are ours to choose, which is just what the SYN said:
//!
//! ```text
//! the client's nonce: 32 bits, place of the connection: 15, address identifier: 8, backup: 1, options of the SYN: 8
//! ```
//!
//! They leave XORed with a keyed hash of the 4-tuple and the client's sequence number, so a stranger can't guess the number.
//! Our nonce is a keyed hash of all of it and of the time, so a client that echoes anything else signs with the wrong nonce.
//! The timestamps of the subflow go on from the value in the SYN/ACK.

use polypath_tcp::{SynOptions, TupleHash};
use polypath_units::{Duration, Instant};
use polypath_wire::{FourTuple, SeqNumber};
use rand_core::Rng;

use crate::identifiers::AddressId;

/// How long a nonce is given out; it is believed for another.
const EPOCH_SECS: u64 = 64;

/// For how long after the last such SYN/ACK third ACKs are looked for.
pub(crate) const LIFE: Duration = Duration::from_secs(2 * EPOCH_SECS);

/// Places of connections that a cookie tells apart.
pub(super) const PLACES: u32 = 1 << 15;

const PURPOSE_PAD: u8 = 0;
const PURPOSE_NONCE: u8 = 1;

/// What the SYN said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JoinFacts {
    pub(super) remote_nonce: u32,
    /// Index of the connection, modulo [`PLACES`].
    pub(super) place: u32,
    pub(super) remote_id: AddressId,
    pub(super) backup: bool,
    pub(super) options: SynOptions,
}

impl JoinFacts {
    fn to_bits(self) -> u64 {
        u64::from(self.remote_nonce) << 32
            | u64::from(self.place % PLACES) << 17
            | u64::from(self.remote_id.0) << 9
            | u64::from(self.backup) << 8
            | u64::from(self.options.to_bits())
    }

    fn from_bits(bits: u64) -> Self {
        Self {
            remote_nonce: (bits >> 32) as u32,
            place: (bits >> 17) as u32 % PLACES,
            remote_id: AddressId((bits >> 9) as u8),
            backup: bits & 0x100 != 0,
            options: SynOptions::from_bits(bits as u8),
        }
    }
}

/// What stands in the SYN/ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JoinNumbers {
    pub(super) isn: SeqNumber,
    pub(super) timestamp: u32,
    pub(super) nonce: u32,
}

/// Makes and knows the numbers of stateless joins.
#[derive(Clone, Debug)]
pub(super) struct JoinCookies {
    hash: TupleHash,
    believed_until: Instant,
}

impl JoinCookies {
    pub(super) fn new(random: &mut impl Rng) -> Self {
        Self { hash: TupleHash::new(random), believed_until: Instant::ZERO }
    }

    /// The numbers of the answer to a SYN.
    pub(super) fn numbers(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        peer_isn: SeqNumber,
        facts: JoinFacts,
    ) -> JoinNumbers {
        self.believed_until = now + LIFE;
        let bits = facts.to_bits();
        let padded = bits ^ self.hash.hash(PURPOSE_PAD, tuple, [peer_isn.0, 0, 0, 0]);
        let nonce = self.nonce(tuple, peer_isn, bits, epoch(now));
        JoinNumbers { isn: SeqNumber((padded >> 32) as u32), timestamp: padded as u32, nonce }
    }

    /// Such answers left of late.
    pub(super) fn are_in_use(&self, now: Instant) -> bool {
        now < self.believed_until
    }

    /// What the numbers in a third ACK stand for, and the nonces that may have gone with them. Any numbers stand for something:
    /// only the HMAC tells.
    pub(super) fn recall(
        &self,
        now: Instant,
        tuple: &FourTuple,
        peer_isn: SeqNumber,
        isn: SeqNumber,
        timestamp: u32,
    ) -> (JoinFacts, [u32; 2]) {
        let padded = u64::from(isn.0) << 32 | u64::from(timestamp);
        let bits = padded ^ self.hash.hash(PURPOSE_PAD, tuple, [peer_isn.0, 0, 0, 0]);
        let epoch = epoch(now);
        let nonces = [epoch, epoch.wrapping_sub(1)].map(|epoch| self.nonce(tuple, peer_isn, bits, epoch));
        (JoinFacts::from_bits(bits), nonces)
    }

    fn nonce(&self, tuple: &FourTuple, peer_isn: SeqNumber, bits: u64, epoch: u32) -> u32 {
        self.hash.hash(PURPOSE_NONCE, tuple, [peer_isn.0, (bits >> 32) as u32, bits as u32, epoch]) as u32
    }
}

fn epoch(now: Instant) -> u32 {
    (now.as_millis() / (1000 * EPOCH_SECS)) as u32
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use polypath_wire::Endpoint;
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    use super::*;

    #[test]
    fn what_the_syn_said_comes_back_and_nothing_else_does() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut cookies = JoinCookies::new(&mut random);
        let tuple = FourTuple {
            local: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 443),
            remote: Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 5),
        };
        let now = Instant::from_secs(1000);
        assert!(!cookies.are_in_use(now));
        for _ in 0..1000 {
            let facts = JoinFacts::from_bits(random.next_u64());
            let peer_isn = SeqNumber(random.next_u32());
            let JoinNumbers { isn, timestamp, nonce } = cookies.numbers(now, &tuple, peer_isn, facts);
            let recall = |after, isn| {
                cookies.recall(now + Duration::from_secs(after), &tuple, peer_isn, isn, timestamp)
            };
            let (known, nonces) = recall(0, isn);
            assert_eq!((known, nonces[0]), (facts, nonce));
            assert!(recall(EPOCH_SECS, isn).1.contains(&nonce));
            assert!(!recall(2 * EPOCH_SECS, isn).1.contains(&nonce), "it is too old");
            let (other, nonces) = recall(0, isn.add(1));
            assert!(other != facts && !nonces.contains(&nonce));
        }
        assert!(cookies.are_in_use(now) && !cookies.are_in_use(now + LIFE));
    }
}
