use hashbrown::HashTable;
use polypath_wire::FourTuple;

use crate::flow_hasher::FlowHasher;

/// The flow of each packet: 4-tuple to what it leads to. The 4-tuples stand with what the flows lead to, and not here: an entry
/// takes 13 bytes, where one with its 4-tuple would need 49.
///
/// Each operation is told how to find the 4-tuple of an entry. To look at it is the price of a look-up that finds something; an
/// entry of another flow is passed over by its hash in all but one of four billion cases.
#[derive(Debug)]
pub(super) struct FlowIndex<V> {
    table: HashTable<Entry<V>>,
    hasher: FlowHasher,
    /// The last two flows looked up, because packets come in trains.
    recent: [Option<(FourTuple, V)>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Entry<V> {
    hash: u32,
    value: V,
}

/// As the table wants it, which takes an entry's place from the low bits and its tag from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl<V: Copy> FlowIndex<V> {
    /// An empty index, which allocates nothing. The seed must be secret where peers are not trusted.
    pub(super) fn new(seed: u64) -> Self {
        Self { table: HashTable::new(), hasher: FlowHasher::new(seed), recent: [None; 2] }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    fn hash(&self, flow: &FourTuple) -> u32 {
        let hash = self.hasher.hash(flow);
        (hash ^ hash >> 32) as u32
    }

    /// What a flow leads to, where `leads` tells whether an entry is of that flow.
    #[inline]
    pub(super) fn get(&mut self, flow: &FourTuple, leads: impl Fn(V) -> bool) -> Option<V> {
        if let Some((recent, value)) = &self.recent[0]
            && recent == flow
        {
            return Some(*value);
        }
        if let Some((recent, value)) = &self.recent[1]
            && recent == flow
        {
            let value = *value;
            self.recent.swap(0, 1);
            return Some(value);
        }
        let found = self.find(flow, leads)?;
        self.recent[1] = self.recent[0].replace((*flow, found));
        Some(found)
    }

    /// As [`FlowIndex::get`], without disturbing the memory of recent flows.
    pub(super) fn find(&self, flow: &FourTuple, leads: impl Fn(V) -> bool) -> Option<V> {
        let hash = self.hash(flow);
        let is_found = |entry: &Entry<V>| entry.hash == hash && leads(entry.value);
        self.table.find(spread(hash), is_found).map(|entry| entry.value)
    }

    /// Adds a flow, which must not be there.
    pub(super) fn insert(&mut self, flow: &FourTuple, value: V) {
        let hash = self.hash(flow);
        self.table.insert_unique(spread(hash), Entry { hash, value }, |entry| spread(entry.hash));
    }

    /// Removes a flow, where `leads` tells whether an entry is of that flow. The table gives storage back when most of it is empty.
    pub(super) fn remove(&mut self, flow: &FourTuple, leads: impl Fn(V) -> bool) {
        if self.recent.iter().flatten().any(|(recent, _)| recent == flow) {
            self.recent = [None; 2];
        }
        let hash = self.hash(flow);
        let is_found = |entry: &Entry<V>| entry.hash == hash && leads(entry.value);
        let Ok(entry) = self.table.find_entry(spread(hash), is_found) else { return };
        entry.remove();
        // A factor of eight between shrinking and growing keeps the cost of both constant per operation.
        if self.table.capacity() > 1024 && self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(self.table.len() * 2, |entry| spread(entry.hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;

    use polypath_wire::Endpoint;

    use super::*;

    fn flow(number: u32) -> FourTuple {
        FourTuple {
            local: Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 443),
            remote: Endpoint::new(Ipv4Addr::from_bits(0x0a00_0000 + number / 7).into(), number as u16),
        }
    }

    #[test]
    fn finds_and_removes_and_gives_storage_back() {
        let count = 50_000;
        let mut flows: Vec<Option<FourTuple>> = (0..count).map(|number| Some(flow(number))).collect();
        let mut index = FlowIndex::new(7);
        (0..count).for_each(|number| index.insert(&flow(number), number));
        assert_eq!(index.len(), count as usize);
        for number in (0..count).rev() {
            let leads = |value: u32| flows[value as usize] == Some(flow(number));
            assert_eq!(index.get(&flow(number), leads), Some(number));
            assert_eq!(index.get(&flow(number), |_| false), Some(number), "it is remembered");
            assert_eq!(index.get(&flow(number).reversed(), |_| true), None);
        }
        for number in 0..count {
            index.remove(&flow(number), |value| flows[value as usize] == Some(flow(number)));
            flows[number as usize] = None;
            assert_eq!(index.get(&flow(number), |_| true), None);
        }
        assert_eq!(index.len(), 0);
        assert!(index.table.allocation_size() < 60_000, "{} bytes", index.table.allocation_size());
    }

    #[test]
    fn an_entry_takes_13_bytes() {
        let mut index = FlowIndex::new(3);
        (0..14_000).for_each(|number| index.insert(&flow(number), (number, 0_u8)));
        assert_eq!(index.table.capacity(), 14_336);
        assert!(index.table.allocation_size() <= 13 * 16_384 + 32, "{}", index.table.allocation_size());
    }
}
