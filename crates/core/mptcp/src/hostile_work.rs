//! What a peer can make a receiver look up and change, counted, for `polypath bench attacks`.

use polypath_wire::{DataSeq, Payload};

use crate::reassembly::Reassembly;
use crate::subflow::{ReceivedMapping, Receiver};

/// From the middle of `0..count` outwards, so that nothing comes behind what is there.
fn outwards(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |at| if at % 2 == 0 { count / 2 + at / 2 } else { count / 2 - 1 - at / 2 })
}

/// Look-ups and changes, each of them a logarithm, that one piece of data costs at the most: as many pieces as may be held, a
/// kilobyte each, 64 MB in all, with a gap before each.
#[must_use]
pub fn pieces_with_gaps() -> u64 {
    const PIECE_BYTES: u64 = 1024;
    let count = Reassembly::MAX_PIECES as u64;
    let mut queue = Reassembly::default();
    let data = Payload::from(alloc::vec![0; PIECE_BYTES as usize]);
    let one = |at: u64| {
        let before = queue.steps();
        queue.insert(DataSeq(at * 2 * PIECE_BYTES), data.clone());
        queue.steps() - before
    };
    outwards(count).map(one).max().unwrap_or(u64::MAX)
}

/// The same of one mapping: as many as may wait, 4 KB each, 64 MB in all; and of each that is used up.
#[must_use]
pub fn mappings() -> u64 {
    const LEN_BYTES: u32 = 4096;
    let count = Receiver::MAX_MAPPINGS as u64;
    let mut receiver = Receiver::default();
    let mapping = |at: u64| ReceivedMapping {
        start: at * 2 * u64::from(LEN_BYTES),
        len: LEN_BYTES,
        data_seq: DataSeq(at << 32),
        subflow_offset: (at * 2) as u32 * LEN_BYTES + 1,
        wire_len: LEN_BYTES as u16,
        checksum: None,
    };
    let mut most = 0;
    for at in outwards(count) {
        let before = receiver.steps();
        receiver.add(mapping(at));
        most = most.max(receiver.steps() - before);
    }
    for at in 0..count {
        let before = receiver.steps();
        receiver.skip((mapping(at).start - receiver.offset()) as usize);
        let is_there = receiver.current() == Ok(mapping(at));
        most = most.max(if is_there { receiver.steps() - before } else { u64::MAX });
    }
    most
}
