//! What fuzz targets do, shared with the deterministic run in the tests. Each function compares a part of this crate with a plain
//! model of it, and panics where they differ.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use polypath_wire::{DataSeq, Payload};

use crate::reassembly::{Inserted, Reassembly};
use crate::subflow::{ReceivedMapping, Receiver};

/// A place near which data sequence numbers wrap.
const ORIGIN: DataSeq = DataSeq(u64::MAX - 5000);

fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Pieces in any order, of any length: they come out in order, once, and what is held is counted right.
pub fn reassembly(bytes: &[u8]) {
    let mut queue = Reassembly::default();
    let mut held: BTreeMap<u64, u8> = BTreeMap::new();
    let mut next = 0;
    for record in bytes.chunks(4) {
        let [ahead, scale, len, kind] = core::array::from_fn(|at| record.get(at).copied().unwrap_or(0));
        if kind < 200 {
            let from = next + 1 + (u64::from(ahead) << (scale % 5));
            let to = from + u64::from(len) + 1;
            let data: Vec<u8> = (from..to).map(byte_at).collect();
            let is_new = (from..to).any(|at| !held.contains_key(&at));
            let inserted = queue.insert(ORIGIN.add(from), data.into());
            assert_eq!(inserted, if is_new { Inserted::Kept } else { Inserted::Duplicate });
            held.extend((from..to).map(|at| (at, byte_at(at))));
        } else {
            // Something else brought what is missing before them.
            next += u64::from(ahead);
            while let Some(piece) = queue.pop(ORIGIN.add(next)) {
                next = check_piece(next, &piece);
            }
            held = held.split_off(&next);
            assert!(!held.contains_key(&next), "what continues the stream stays");
        }
        assert_eq!(queue.is_empty(), held.is_empty());
        let end = held.last_key_value().map(|(at, _)| ORIGIN.add(at + 1));
        assert_eq!(queue.end(), end);
        // A piece of which a part is old is held until it is reached.
        assert!(queue.len_bytes() >= held.len() as u64);
    }
}

/// The piece continues the stream at `next`; returns where it ends.
fn check_piece(next: u64, piece: &Payload) -> u64 {
    let bytes = piece.to_vec();
    assert!(!bytes.is_empty(), "an empty piece");
    for (at, byte) in (next..).zip(&bytes) {
        assert_eq!(*byte, byte_at(at), "another byte at {at}");
    }
    next + bytes.len() as u64
}

/// Mappings in any order, of any length, right and wrong: each byte of the subflow is the data that the first mapping said it is.
pub fn mappings(bytes: &[u8]) {
    let mut receiver = Receiver::default();
    // What a byte of the subflow may be, by the mappings that were taken: what the first said of it. Of one that reaches beyond
    // others, parts may have been left out.
    let mut said: BTreeMap<u64, Vec<DataSeq>> = BTreeMap::new();
    let mut is_sure: BTreeSet<u64> = BTreeSet::new();
    for record in bytes.chunks(5) {
        let [start, scale, len, lie, kind] = core::array::from_fn(|at| record.get(at).copied().unwrap_or(0));
        if kind < 200 {
            let start = receiver.offset().saturating_sub(100) + (u64::from(start) << (scale % 6));
            let data_seq = ORIGIN.add(start).add(if lie < 240 { 0 } else { lie.into() });
            let mapping = ReceivedMapping {
                start,
                len: len.into(),
                data_seq,
                subflow_offset: start as u32 + 1,
                wire_len: len.into(),
                checksum: None,
            };
            let is_apart = said.range(start..mapping.end()).next().is_none();
            if receiver.add(mapping) {
                for at in start..mapping.end() {
                    if !is_sure.contains(&at) {
                        said.entry(at).or_default().push(data_seq.add(at - start));
                    }
                    if is_apart {
                        is_sure.insert(at);
                    }
                }
            }
        } else {
            receiver.skip(start.into());
        }
        match receiver.current() {
            Ok(mapping) => {
                let at = receiver.offset();
                assert!(mapping.start <= at && at < mapping.end(), "a mapping of other bytes");
                let number = mapping.data_seq.add(at - mapping.start);
                let was_said = said.get(&at).is_some_and(|said| said.contains(&number));
                assert!(was_said, "another data number at {at}");
            }
            Err(Some(gap)) => assert!(gap > 0),
            Err(None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    fn run(target: fn(&[u8])) {
        for seed in 0..3000 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut bytes = std::vec![0; 4 + random.next_u32() as usize % 600];
            random.fill_bytes(&mut bytes);
            target(&bytes);
        }
    }

    #[test]
    fn pieces_come_out_in_order_once() {
        run(reassembly);
    }

    #[test]
    fn mappings_say_what_they_said_first() {
        run(mappings);
    }
}
