//! Repair packets, and packets that they cover.

use crate::fec::FecReceiver;
use crate::frame::{DataHeader, Esi, Order, RepairHeader, Sequence};

/// Bytes as packets and repair packets of any numbers and contents: no more is rebuilt than repair packets came, and each once.
pub fn repair(bytes: &[u8]) {
    let mut receiver: Option<FecReceiver> = None;
    let (mut repairs, mut rebuilt) = (0, 0);
    let mut rest = bytes;
    let mut last = 0_u16;
    while let Some((&[kind, step, count, key, len], after)) = rest.split_first_chunk() {
        let (contents, after) = after.split_at(after.len().min(len.into()));
        rest = after;
        // Mostly close to each other, and now and then far away.
        last = last.wrapping_add(u16::from(step) << if kind >= 250 { 8 } else { 0 }).wrapping_sub(3);
        let esi = Esi::new(last);
        let Some(receiver) = receiver.as_mut() else {
            receiver = FecReceiver::new(esi);
            continue;
        };
        let mut take = |frame: &[u8]| {
            assert!(frame.len() > contents.len());
            rebuilt += 1;
        };
        let outcome = if kind % 2 == 0 {
            let header = DataHeader::new(Order::FirstCopy, count, Sequence::new(last.into()));
            receiver.handle_source(esi, &header, contents, &mut take)
        } else {
            repairs += 1;
            receiver.handle_repair(&RepairHeader { first: esi, count, key: key.into() }, contents, &mut take)
        };
        assert!(outcome.missing <= u64::from(u128::BITS) && rebuilt <= repairs);
    }
}
