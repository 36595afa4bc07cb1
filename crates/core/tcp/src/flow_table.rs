use core::net::IpAddr;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use polypath_wire::FourTuple;

/// The flow of each packet: 4-tuple to a small value, such as the key of a connection.
///
/// # Hash
/// Hashing all 36 bytes of a key with a general function costs more than the rest of a look-up. Here IPv4
/// needs one multiplication of 64 × 64 bits whose halves are folded together, and IPv6 three, each operand
/// mixed with a secret of 64 bits. Whoever does not know the seed can't compute tuples that collide; the
/// function is not a pseudo-random one in the cryptographic sense, and a peer that can measure single
/// look-ups might learn about it. A table of flows has a second defence: a host bounds half-open connections,
/// so each entry costs the peer a handshake.
///
/// # Storage
/// Open addressing (hashbrown), whose control bytes compare seven bits of the hash of 16 places at once; 49
/// bytes for each place with a value of 8 bytes. The last two flows looked up are remembered, because packets
/// come in trains.
#[derive(Clone, Debug)]
pub struct FlowTable<V> {
    table: HashTable<Entry<V>>,
    hasher: FlowHasher,
    recent: [Option<Entry<V>>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Entry<V> {
    tuple: FourTuple,
    value: V,
}

/// The secrets of a table's hash function.
#[derive(Clone, Copy, Debug)]
struct FlowHasher {
    secrets: [u64; 4],
}

impl FlowHasher {
    fn new(seed: u64) -> Self {
        // SplitMix64 (Steele, Lea, Flood 2014) spreads the seed over the secrets.
        let mut state = seed;
        let secrets = core::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Self { secrets }
    }

    #[inline]
    fn hash(&self, tuple: &FourTuple) -> u64 {
        let [k0, k1, k2, k3] = self.secrets;
        let addresses = match (tuple.local.addr, tuple.remote.addr) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits())
            }
            (local, remote) => {
                let (local, remote) = (wide(local), wide(remote));
                fold((local >> 64) as u64 ^ k2, local as u64 ^ k3)
                    ^ fold((remote >> 64) as u64 ^ k3, remote as u64 ^ k2).rotate_left(32)
            }
        };
        fold(addresses ^ k0, ports(tuple) ^ k1)
    }
}

#[inline]
fn ports(tuple: &FourTuple) -> u64 {
    u64::from(tuple.local.port) << 16 | u64::from(tuple.remote.port)
}

fn wide(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// The two halves of a product, folded: each bit of the result depends on all bits of both factors.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl<V: Copy> FlowTable<V> {
    /// An empty table, which allocates nothing. The seed must be secret where peers are not trusted.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { table: HashTable::new(), hasher: FlowHasher::new(seed), recent: [None; 2] }
    }

    /// Flows in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there is no flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes of heap storage in use.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.table.allocation_size()
    }

    /// The value of a flow. Takes `&mut self` for the memory of recent flows only.
    #[inline]
    pub fn get(&mut self, tuple: &FourTuple) -> Option<V> {
        if let Some(entry) = &self.recent[0]
            && entry.tuple == *tuple
        {
            return Some(entry.value);
        }
        if let Some(entry) = &self.recent[1]
            && entry.tuple == *tuple
        {
            let value = entry.value;
            self.recent.swap(0, 1);
            return Some(value);
        }
        let found = *self.table.find(self.hasher.hash(tuple), |entry| entry.tuple == *tuple)?;
        self.recent[1] = self.recent[0].replace(found);
        Some(found.value)
    }

    /// True if the flow is in the table; does not disturb the memory of recent flows.
    #[must_use]
    pub fn contains(&self, tuple: &FourTuple) -> bool {
        self.table.find(self.hasher.hash(tuple), |entry| entry.tuple == *tuple).is_some()
    }

    /// Adds a flow, or replaces its value; returns the value that it had.
    pub fn insert(&mut self, tuple: FourTuple, value: V) -> Option<V> {
        self.forget(&tuple);
        let hasher = self.hasher;
        let hash = hasher.hash(&tuple);
        match self.table.entry(hash, |entry| entry.tuple == tuple, |entry| hasher.hash(&entry.tuple)) {
            TableEntry::Occupied(mut entry) => {
                Some(core::mem::replace(entry.get_mut(), Entry { tuple, value }).value)
            }
            TableEntry::Vacant(entry) => {
                entry.insert(Entry { tuple, value });
                None
            }
        }
    }

    /// Removes a flow; returns the value that it had. The table gives storage back when most of it is empty.
    pub fn remove(&mut self, tuple: &FourTuple) -> Option<V> {
        self.forget(tuple);
        let hasher = self.hasher;
        let entry = self.table.find_entry(hasher.hash(tuple), |entry| entry.tuple == *tuple).ok()?.remove().0;
        // A factor of eight between shrinking and growing keeps the cost of both constant per operation.
        if self.table.capacity() > 1024 && self.table.len() < self.table.capacity() / 8 {
            let keep = self.table.len() * 2;
            self.table.shrink_to(keep, |entry| hasher.hash(&entry.tuple));
        }
        Some(entry.value)
    }

    fn forget(&mut self, tuple: &FourTuple) {
        if self.recent.iter().flatten().any(|entry| entry.tuple == *tuple) {
            self.recent = [None; 2];
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use polypath_wire::Endpoint;

    use super::*;

    fn v4(host: u32, port: u16) -> FourTuple {
        FourTuple {
            local: Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 443),
            remote: Endpoint::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + host)), port),
        }
    }

    fn v6(host: u128, port: u16) -> FourTuple {
        FourTuple {
            local: Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | 1)), 443),
            remote: Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | host)), port),
        }
    }

    #[test]
    fn finds_replaces_and_removes() {
        let mut flows = FlowTable::new(1);
        let tuple = v4(2, 1000);
        assert_eq!(flows.get(&tuple), None);
        assert_eq!(flows.insert(tuple, 'a'), None);
        assert_eq!(flows.get(&tuple), Some('a'));
        assert_eq!(flows.insert(tuple, 'b'), Some('a'));
        assert_eq!(flows.get(&tuple), Some('b'), "a replaced value must not come from the memory");
        assert_eq!(flows.get(&tuple.reversed()), None);
        assert_eq!(flows.remove(&tuple), Some('b'));
        assert_eq!(flows.get(&tuple), None, "a removed flow must not come from the memory");
        assert_eq!(flows.remove(&tuple), None);
        assert!(flows.is_empty() && !flows.contains(&tuple));
    }

    #[test]
    fn holds_many_flows_of_both_families_and_gives_storage_back() {
        let mut flows = FlowTable::new(7);
        let tuple =
            |i: u32| if i.is_multiple_of(2) { v4(i / 7, i as u16) } else { v6(u128::from(i / 7), i as u16) };
        for i in 0..50_000 {
            assert_eq!(flows.insert(tuple(i), i), None);
        }
        for i in (0..50_000).rev() {
            assert_eq!(flows.get(&tuple(i)), Some(i));
        }
        for i in 0..50_000 {
            assert_eq!(flows.remove(&tuple(i)), Some(i));
        }
        assert!(flows.is_empty());
        assert!(flows.allocated_bytes() < 200_000, "{} bytes", flows.allocated_bytes());
    }

    #[test]
    fn a_flow_takes_at_most_64_bytes() {
        assert!(size_of::<Entry<crate::slab::Key>>() < 64);
        let mut flows = FlowTable::new(3);
        for i in 0..100_000 {
            flows.insert(v4(i, 1), crate::slab::Key { index: i, generation: 0 });
        }
        assert!(flows.allocated_bytes() / flows.len() <= 64, "{}", flows.allocated_bytes() / flows.len());
    }

    /// Tuples as they come in practice (counting ports, counting hosts) must spread over the low bits, which
    /// choose the place, and the high ones, which hashbrown compares; and the secret must change where they
    /// go.
    #[test]
    fn the_hash_spreads_regular_tuples_under_any_seed() {
        for seed in 0..8 {
            let hasher = FlowHasher::new(seed);
            for family in [v4(1, 1), v6(1, 1)] {
                let (mut low, mut high) = ([0_u32; 256], [0_u32; 128]);
                for port in 0..32_768 {
                    let mut tuple = family;
                    tuple.remote.port = port;
                    let hash = hasher.hash(&tuple);
                    low[(hash & 255) as usize] += 1;
                    high[(hash >> 57) as usize] += 1;
                }
                assert!(low.iter().all(|&count| (64..192).contains(&count)), "{low:?}");
                assert!(high.iter().all(|&count| (128..384).contains(&count)), "{high:?}");
            }
        }
        assert_ne!(FlowHasher::new(1).hash(&v4(1, 1)), FlowHasher::new(2).hash(&v4(1, 1)));
    }
}
