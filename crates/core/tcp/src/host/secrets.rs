use core::net::IpAddr;
use core::ops::RangeInclusive;

use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, SeqNumber};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use siphasher::sip::SipHasher24;

/// What a host must choose so that an outsider can't guess it: initial sequence numbers, timestamp offsets
/// and ephemeral ports. All follow from one seed, so a simulated host repeats itself exactly; outside of a
/// simulator the seed must come from the operating system's random generator.
#[derive(Clone, Debug)]
pub struct HostSecrets {
    isn: SipHasher24,
    timestamp: SipHasher24,
    port: SipHasher24,
    flow_table_seed: u64,
    next_port: u32,
}

/// A keyed hash of 4-tuples and a few numbers beside them: what stateless handshakes are made of.
#[derive(Clone, Debug)]
pub struct TupleHash(SipHasher24);

impl TupleHash {
    /// Takes a key from `random`.
    #[must_use]
    pub fn new(random: &mut impl Rng) -> Self {
        Self(SipHasher24::new_with_keys(random.next_u64(), random.next_u64()))
    }

    /// 64 bits that nobody can guess who lacks the key. Hashes for different purposes have nothing to do with each other.
    #[must_use]
    pub fn hash(&self, purpose: u8, tuple: &FourTuple, words: [u32; 4]) -> u64 {
        let mut bytes = [0; 54];
        bytes[..37].copy_from_slice(&tuple_bytes(tuple));
        bytes[37] = purpose;
        for (place, word) in bytes[38..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        self.0.hash(&bytes)
    }
}

/// Address family, two addresses, two ports.
type TupleBytes = [u8; 37];

impl HostSecrets {
    /// Derives all secrets from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut hasher = || SipHasher24::new_with_keys(random.next_u64(), random.next_u64());
        let (isn, timestamp, port) = (hasher(), hasher(), hasher());
        Self { isn, timestamp, port, flow_table_seed: random.next_u64(), next_port: random.next_u32() }
    }

    /// The seed of a table of flows.
    #[must_use]
    pub(crate) fn flow_table_seed(&self) -> u64 {
        self.flow_table_seed
    }

    /// The initial sequence number of a connection (RFC 6528 §3): a clock of 4 µs plus a keyed hash of the
    /// 4-tuple.
    #[must_use]
    pub fn isn(&self, now: Instant, tuple: &FourTuple) -> SeqNumber {
        let clock = (now.as_micros() / 4) as u32;
        SeqNumber(clock.wrapping_add(self.isn.hash(&tuple_bytes(tuple)) as u32))
    }

    /// The initial sequence number of a connection that may follow another between the same ends, which used numbers up to
    /// `last` (RFC 6191 §2): beyond any window of the one before, as Linux has it.
    #[must_use]
    pub fn isn_after(&self, now: Instant, tuple: &FourTuple, last: Option<SeqNumber>) -> SeqNumber {
        let isn = self.isn(now, tuple);
        last.filter(|&last| !isn.after(last)).map_or(isn, |last| last.add(65_537))
    }

    /// What the timestamps of a connection show now.
    #[must_use]
    pub fn timestamp(&self, now: Instant, tuple: &FourTuple) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.timestamp_offset(tuple))
    }

    /// What is added to the clock to make a connection's timestamps (RFC 7323 §5.4): constant for a 4-tuple,
    /// so that its next connection continues where the last one ended.
    #[must_use]
    pub fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        self.timestamp.hash(&tuple_bytes(tuple)) as u32
    }

    /// A local port such that `is_free` says yes, for a connection from `local` to `remote` (RFC 6056 §3.3.3,
    /// algorithm 3: simple hash-based selection). `None` if every port of the range is taken.
    pub(crate) fn ephemeral_port(
        &mut self,
        local: IpAddr,
        remote: Endpoint,
        range: &RangeInclusive<u16>,
        mut is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let first = u32::from(*range.start());
        let count = (u32::from(*range.end()) + 1).checked_sub(first).filter(|&count| count > 0)?;
        let tuple = FourTuple { local: Endpoint::new(local, 0), remote };
        let offset = self.port.hash(&tuple_bytes(&tuple)) as u32;
        for _ in 0..count {
            let port = first + self.next_port.wrapping_add(offset) % count;
            self.next_port = self.next_port.wrapping_add(1);
            let port = port as u16;
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }
}

fn tuple_bytes(tuple: &FourTuple) -> TupleBytes {
    let mut bytes = [0; 37];
    for (end, at) in [(tuple.local, 1), (tuple.remote, 19)] {
        match end.addr {
            IpAddr::V4(addr) => {
                bytes[0] = 4;
                bytes[at..at + 4].copy_from_slice(&addr.octets());
            }
            IpAddr::V6(addr) => {
                bytes[0] = 6;
                bytes[at..at + 16].copy_from_slice(&addr.octets());
            }
        }
        bytes[at + 16..at + 18].copy_from_slice(&end.port.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use core::net::Ipv4Addr;

    use polypath_units::Duration;

    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), port),
            remote: Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80),
        }
    }

    #[test]
    fn sequence_numbers_advance_with_the_clock_and_differ_between_flows_and_seeds() {
        let secrets = HostSecrets::new(1);
        let now = Instant::from_secs(5);
        let first = secrets.isn(now, &tuple(1));
        assert_eq!(secrets.isn(now + Duration::from_millis(1), &tuple(1)).diff(first), 250);
        assert_ne!(secrets.isn(now, &tuple(2)), first);
        assert_ne!(HostSecrets::new(2).isn(now, &tuple(1)), first);
        assert_eq!(HostSecrets::new(1).isn(now, &tuple(1)), first);
        assert_ne!(secrets.timestamp_offset(&tuple(1)), secrets.timestamp_offset(&tuple(2)));
    }

    #[test]
    fn ephemeral_ports_use_the_whole_range_once() {
        let mut secrets = HostSecrets::new(1);
        let range = 40_000..=40_099;
        let mut used = BTreeSet::new();
        let local = tuple(0).local.addr;
        for _ in 0..100 {
            let port = secrets.ephemeral_port(local, tuple(0).remote, &range, |port| !used.contains(&port));
            assert!(range.contains(&port.unwrap()) && used.insert(port.unwrap()));
        }
        assert_eq!(
            secrets.ephemeral_port(local, tuple(0).remote, &range, |port| !used.contains(&port)),
            None
        );
        assert!(
            secrets.ephemeral_port(local, tuple(0).remote, &(1..=u16::MAX), |port| port == 65_535).is_some()
        );
        #[expect(clippy::reversed_empty_ranges, reason = "an empty range has no port to give")]
        let empty = 2..=1;
        assert_eq!(secrets.ephemeral_port(local, tuple(0).remote, &empty, |_| true), None);
    }
}
