//! The receive side of a subflow: which bytes of it are which data (RFC 8684 §3.3.1).

use alloc::boxed::Box;

use arrayvec::ArrayVec;
use polypath_wire::{DataSeq, Payload};

use crate::ordered::{OrderedQueue, Stretch};

/// The receive side of a subflow: which bytes of it are which data.
///
/// # Cost
/// A mapping that continues the last one costs what it does in a queue, any other log *n*. At most
/// [`Receiver::MAX_MAPPINGS`] wait; a segment uses each at most once, and each came with a segment of its own.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// Stream offset of the next byte to be taken from TCP.
    offset: u64,
    /// Mappings that are not used up, sorted, without overlap.
    mappings: OrderedQueue<ReceivedMapping>,
    /// Up to here mappings may be missing since their segments were merged with those before.
    unmapped_until: u64,
    /// Bytes of the front mapping that wait for its checksum: all of it up to `offset`, or none.
    gathered: Option<Box<Payload>>,
    mode: ReceiveMode,
    /// After the latest data that came by a mapping.
    newest: DataSeq,
}

/// How a subflow's bytes become data.
#[derive(Debug, Default)]
enum ReceiveMode {
    /// By mappings.
    #[default]
    Mapped,
    /// A checksum failed on the only subflow: bytes wait for an infinite mapping (RFC 8684 §3.7).
    Held {
        /// Stream offset of the first byte held.
        from: u64,
        /// Boxed: it is rare, and would make every subflow larger.
        bytes: Box<Payload>,
    },
    /// Every byte from `offset` on, in order, starting at `data_seq`.
    Infinite { offset: u64, data_seq: DataSeq },
}

/// What bytes in order are.
pub(crate) enum Arrived {
    /// What mappings say of them: none of them is taken yet.
    Mapped(Payload),
    /// They wait for an infinite mapping.
    Held,
    /// Data with its number.
    Data(DataSeq, Payload),
}

/// A mapping as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedMapping {
    /// Stream offset of its first byte; the first byte of the subflow is 0 here and 1 on the wire.
    pub(crate) start: u64,
    /// Payload bytes, without DATA_FIN.
    pub(crate) len: u32,
    pub(crate) data_seq: DataSeq,
    pub(crate) subflow_offset: u32,
    /// Length as on the wire, and the checksum over it.
    pub(crate) wire_len: u16,
    pub(crate) checksum: Option<u16>,
}

impl ReceivedMapping {
    pub(crate) const fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

impl ReceivedMapping {
    /// What it says of the bytes from `start` to `end`, which it covers, as a mapping of its own without a checksum.
    const fn part(self, start: u64, end: u64) -> Self {
        let (ahead, len) = (start - self.start, end - start);
        Self {
            start,
            len: len as u32,
            data_seq: self.data_seq.add(ahead),
            subflow_offset: self.subflow_offset.wrapping_add(ahead as u32),
            wire_len: len as u16,
            checksum: None,
        }
    }
}

impl Stretch for ReceivedMapping {
    fn start(&self) -> u64 {
        self.start
    }

    fn end(&self) -> u64 {
        self.end()
    }
}

impl Receiver {
    /// Mappings that a peer may have outstanding; the rest is dropped and comes again.
    pub(crate) const MAX_MAPPINGS: usize = 16_384;

    /// Known mappings that a new one is compared with: no peer cuts its own otherwise so often.
    const MOST_COMPARED: usize = 4;

    // ---- how bytes become data

    /// Bytes in order from TCP.
    #[inline]
    pub(crate) fn handle_bytes(&mut self, mut bytes: Payload) -> Arrived {
        match &mut self.mode {
            ReceiveMode::Mapped => Arrived::Mapped(bytes),
            ReceiveMode::Held { bytes: held, .. } => {
                self.offset += bytes.len() as u64;
                held.append(bytes);
                Arrived::Held
            }
            ReceiveMode::Infinite { offset, data_seq } => {
                let seq = data_seq.add(self.offset.saturating_sub(*offset));
                let skip = offset.saturating_sub(self.offset).min(bytes.len() as u64);
                self.offset += bytes.len() as u64;
                bytes.advance(skip as usize);
                Arrived::Data(seq, bytes)
            }
        }
    }

    /// A checksum failed on the only subflow: these bytes, which begin at stream offset `from`, and all that follow are held for an
    /// infinite mapping.
    pub(crate) fn hold(&mut self, from: u64, bytes: Payload) {
        self.forget_mappings();
        self.mode = ReceiveMode::Held { from, bytes: Box::new(bytes) };
    }

    /// From stream offset `offset` on, all is data from `data_seq` on. What was not delivered is [released](Self::release) before.
    pub(crate) fn become_infinite(&mut self, offset: u64, data_seq: DataSeq) {
        self.mode = ReceiveMode::Infinite { offset, data_seq };
    }

    /// What was taken from TCP and is not delivered, and the stream offset where it begins. No mapping holds any more.
    pub(crate) fn release(&mut self) -> (u64, Payload) {
        let gathered_from = self.gathered_from();
        let gathered = self.gathered.take().map_or(Payload::EMPTY, |gathered| *gathered);
        self.forget_mappings();
        match core::mem::take(&mut self.mode) {
            ReceiveMode::Held { from, bytes } => (from, *bytes),
            ReceiveMode::Mapped | ReceiveMode::Infinite { .. } => (gathered_from, gathered),
        }
    }

    /// Bytes wait for an infinite mapping.
    pub(crate) const fn is_held(&self) -> bool {
        matches!(self.mode, ReceiveMode::Held { .. })
    }

    /// Where the infinite mapping begins, in the stream of the subflow and in the data, once there is one.
    pub(crate) const fn infinite(&self) -> Option<(u64, DataSeq)> {
        match self.mode {
            ReceiveMode::Infinite { offset, data_seq } => Some((offset, data_seq)),
            _ => None,
        }
    }

    /// Stream offset of the first byte that is not delivered, until there is an infinite mapping.
    pub(crate) fn first_missing(&self) -> Option<u64> {
        match &self.mode {
            ReceiveMode::Held { from, .. } => Some(*from),
            ReceiveMode::Mapped => Some(self.gathered_from()),
            ReceiveMode::Infinite { .. } => None,
        }
    }

    /// If nothing more came, bytes of the stream would be missing.
    pub(crate) fn misses_bytes(&self) -> bool {
        match self.mode {
            ReceiveMode::Mapped => self.is_within_mapping(),
            ReceiveMode::Held { .. } => true,
            ReceiveMode::Infinite { .. } => false,
        }
    }

    // ---- bytes taken from TCP

    /// Stream offset of the next byte.
    #[inline]
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `count` bytes are taken, and are no data by a mapping.
    pub(crate) fn skip(&mut self, count: usize) {
        self.offset += count as u64;
    }

    /// The next `count` bytes are data by `mapping`; returns how far into it they begin.
    #[inline]
    pub(crate) fn handle_mapped(&mut self, mapping: &ReceivedMapping, count: usize) -> u64 {
        self.unmapped_until = 0;
        let into = self.offset - mapping.start;
        self.newest = mapping.data_seq.add(into + count as u64);
        self.offset += count as u64;
        into
    }

    /// After the latest data that came by a mapping.
    #[inline]
    pub(crate) const fn newest(&self) -> DataSeq {
        self.newest
    }

    /// Mappings may be missing in the next `most_bytes`: their segments were merged with those before.
    pub(crate) fn expect_unmapped(&mut self, most_bytes: u64) {
        self.unmapped_until = self.offset + most_bytes;
    }

    /// See [`Receiver::expect_unmapped`].
    pub(crate) const fn expects_unmapped(&self) -> bool {
        self.offset < self.unmapped_until
    }

    // ---- mappings

    /// Look-ups and changes of mappings so far.
    #[cfg(any(test, feature = "attacks"))]
    pub(crate) fn steps(&self) -> u64 {
        self.mappings.steps()
    }

    /// Remembers a mapping; false if it contradicts an earlier one.
    pub(crate) fn add(&mut self, mapping: ReceivedMapping) -> bool {
        if mapping.len == 0 || mapping.end() <= self.offset {
            return true;
        }
        match self.mappings.back() {
            Some(last) if mapping.start < last.end() => {}
            _ => {
                self.keep(mapping);
                return true;
            }
        }
        // The last mapping again is what every further segment of it carries.
        if self.mappings.back() == Some(&mapping) {
            return true;
        }
        self.add_among(mapping)
    }

    /// A retransmission may be cut otherwise; what matters is that byte and data number agree. What it says of bytes that no known
    /// mapping covers is kept, but where a checksum covers all of it, which is nothing to verify a part by: that comes again.
    fn add_among(&mut self, mapping: ReceivedMapping) -> bool {
        let mut gaps = ArrayVec::<(u64, u64), { Self::MOST_COMPARED + 1 }>::new();
        let mut from = mapping.start;
        for _ in 0..Self::MOST_COMPARED {
            if from >= mapping.end() {
                break;
            }
            let Some(known) =
                self.mappings.first_ending_after(from).filter(|known| known.start < mapping.end())
            else {
                gaps.push((from, mapping.end()));
                break;
            };
            if mapping.data_seq.diff(known.data_seq) != mapping.start as i64 - known.start as i64 {
                return false;
            }
            if from < known.start {
                gaps.push((from, known.start));
            }
            from = known.end();
        }
        if gaps.as_slice() == [(mapping.start, mapping.end())] {
            self.keep(mapping);
        } else if mapping.checksum.is_none() {
            let offset = self.offset;
            for (start, end) in gaps.into_iter().filter(|(_, end)| *end > offset) {
                self.keep(mapping.part(start, end));
            }
        }
        true
    }

    fn keep(&mut self, mapping: ReceivedMapping) {
        if self.mappings.len() < Self::MAX_MAPPINGS {
            self.mappings.push(mapping);
        }
    }

    /// The mapping of the next byte, or how many bytes come before the next mapping.
    pub(crate) fn current(&mut self) -> Result<ReceivedMapping, Option<u64>> {
        while self.mappings.front().is_some_and(|mapping| mapping.end() <= self.offset) {
            self.mappings.pop_front();
        }
        match self.mappings.front() {
            Some(mapping) if mapping.start <= self.offset => Ok(*mapping),
            Some(mapping) => Err(Some(mapping.start - self.offset)),
            None => Err(None),
        }
    }

    /// Stream offset of the first byte that is not delivered.
    fn gathered_from(&self) -> u64 {
        let waits = self.mappings.front().filter(|_| self.has_gathered());
        waits.map_or(self.offset, |mapping| mapping.start)
    }

    /// Bytes that are mapped have not arrived.
    fn is_within_mapping(&self) -> bool {
        self.mappings.back().is_some_and(|mapping| mapping.end() > self.offset)
    }

    /// Bytes wait for the checksum of their mapping.
    pub(crate) fn has_gathered(&self) -> bool {
        self.gathered.is_some()
    }

    /// Further bytes of the front mapping wait for its checksum.
    pub(crate) fn gather(&mut self, bytes: Payload) {
        match &mut self.gathered {
            Some(gathered) => gathered.append(bytes),
            none => *none = Some(Box::new(bytes)),
        }
    }

    /// What waits, and `bytes` behind it.
    pub(crate) fn take_gathered_with(&mut self, bytes: Payload) -> Payload {
        let Some(mut gathered) = self.gathered.take() else { return bytes };
        gathered.append(bytes);
        *gathered
    }

    /// Forgets mappings and gathered bytes.
    fn forget_mappings(&mut self) {
        self.mappings.clear();
        self.gathered = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, len: u32, data_seq: u64) -> ReceivedMapping {
        ReceivedMapping {
            start,
            len,
            data_seq: DataSeq(data_seq),
            subflow_offset: start as u32 + 1,
            wire_len: len as u16,
            checksum: None,
        }
    }

    #[test]
    fn mappings_are_kept_in_order_once_each() {
        let mut receiver = Receiver::default();
        assert!(receiver.add(mapping(0, 10, 100)));
        assert!(receiver.add(mapping(20, 10, 300)));
        assert!(receiver.add(mapping(0, 10, 100)), "repeated");
        assert!(receiver.add(mapping(10, 10, 200)), "late");
        assert!(receiver.add(mapping(15, 5, 205)), "cut otherwise, but the same data");
        assert!(!receiver.add(mapping(15, 5, 999)), "contradiction");
        assert_eq!(receiver.mappings.starts(), [0, 10, 20]);
    }

    #[test]
    fn what_a_mapping_says_beyond_known_ones_is_kept() {
        let mut receiver = Receiver::default();
        receiver.add(mapping(10, 10, 110));
        receiver.add(mapping(30, 10, 130));
        assert!(receiver.add(mapping(15, 10, 115)), "beyond the first");
        assert!(receiver.add(mapping(5, 10, 105)), "before the first");
        assert_eq!(receiver.mappings.starts(), [5, 10, 20, 30]);
        assert!(receiver.add(mapping(0, 50, 100)), "around all of them");
        assert_eq!(receiver.mappings.starts(), [0, 5, 10, 20, 25, 30], "with four known ones it is compared");
        assert!(receiver.add(mapping(35, 15, 135)), "beyond the last");
        // Each byte is the data that the mappings say.
        for at in 0..50 {
            receiver.offset = at;
            let found = receiver.current().expect("it is mapped");
            assert_eq!(found.data_seq.add(at - found.start), DataSeq(100 + at));
            assert_eq!(u64::from(found.subflow_offset), found.start + 1);
        }
        receiver.offset = 50;
        assert_eq!(receiver.current(), Err(None));
    }

    #[test]
    fn nothing_of_a_mapping_that_contradicts_is_kept_and_no_part_of_one_with_a_checksum() {
        let mut receiver = Receiver::default();
        receiver.add(mapping(10, 10, 110));
        receiver.add(mapping(30, 10, 130));
        assert!(!receiver.add(mapping(15, 10, 116)));
        assert!(!receiver.add(ReceivedMapping { len: 30, ..mapping(5, 10, 9) }));
        let second = ReceivedMapping { data_seq: DataSeq(115), ..mapping(15, 20, 0) };
        receiver.mappings.clear();
        receiver.add(mapping(10, 10, 110));
        receiver.add(mapping(30, 10, 999));
        assert!(!receiver.add(second), "it agrees with the first and not with the second");
        assert!(receiver.add(ReceivedMapping { checksum: Some(1), ..mapping(15, 10, 115) }));
        assert_eq!(receiver.mappings.starts(), [10, 30]);
        receiver.offset = 22;
        assert!(receiver.add(mapping(0, 24, 100)), "what has passed is not kept");
        assert_eq!(receiver.mappings.starts(), [10, 20, 30]);
    }

    #[test]
    fn a_mapping_around_many_known_ones_costs_little() {
        let mut receiver = Receiver::default();
        for at in 0..10_000 {
            receiver.add(mapping(at * 2, 1, at * 2));
        }
        let before = receiver.mappings.steps();
        assert!(receiver.add(mapping(0, 20_000, 0)));
        assert!(receiver.mappings.steps() - before <= 9);
    }

    #[test]
    fn every_byte_is_released_once_from_whatever_mode() {
        let bytes = |len: usize| Payload::from(alloc::vec![0; len]);
        let mut receiver = Receiver::default();
        receiver.add(mapping(0, 10, 100));
        receiver.handle_mapped(&mapping(0, 10, 100), 4);
        receiver.gather(bytes(4));
        let (from, released) = receiver.release();
        assert_eq!((from, released.len(), receiver.offset()), (0, 4, 4));
        receiver.hold(4, bytes(3));
        receiver.skip(3);
        assert!(matches!(receiver.handle_bytes(bytes(5)), Arrived::Held) && receiver.is_held());
        let (from, released) = receiver.release();
        assert_eq!((from, released.len(), receiver.offset()), (4, 8, 12));
        receiver.become_infinite(14, DataSeq(200));
        let Arrived::Data(seq, data) = receiver.handle_bytes(bytes(5)) else { panic!("it is infinite") };
        assert_eq!((seq, data.len(), receiver.infinite()), (DataSeq(200), 3, Some((14, DataSeq(200)))));
        let Arrived::Data(seq, _) = receiver.handle_bytes(bytes(5)) else { panic!("it is infinite") };
        assert_eq!((seq, receiver.first_missing()), (DataSeq(203), None));
    }

    #[test]
    fn what_is_gathered_begins_with_its_mapping() {
        let mut receiver = Receiver::default();
        receiver.add(mapping(10, 10, 100));
        receiver.offset = 14;
        assert_eq!(receiver.gathered_from(), 14, "the head was dropped");
        receiver.gather(alloc::vec![0; 4].into());
        assert_eq!(receiver.gathered_from(), 10);
        receiver.forget_mappings();
        assert_eq!(receiver.gathered_from(), 14);
    }

    #[test]
    fn a_mapping_costs_a_logarithm_in_whatever_order() {
        const COUNT: u64 = Receiver::MAX_MAPPINGS as u64;
        let mut receiver = Receiver::default();
        for at in 0..COUNT {
            // From the middle outwards.
            let at = if at % 2 == 0 { COUNT / 2 + at / 2 } else { COUNT / 2 - 1 - at / 2 };
            let before = receiver.mappings.steps();
            assert!(receiver.add(mapping(at * 4, 4, 7 * at)));
            assert!(receiver.add(mapping(at * 4, 4, 7 * at)), "repeated");
            assert!(receiver.mappings.steps() - before <= 3);
        }
        assert_eq!(receiver.mappings.len() as u64, COUNT);
        receiver.add(mapping(COUNT * 4, 4, 0));
        assert_eq!(receiver.mappings.len() as u64, COUNT, "one too many");
        let before = receiver.mappings.steps();
        for at in 0..COUNT {
            receiver.offset = at * 4;
            assert_eq!(receiver.current(), Ok(mapping(at * 4, 4, 7 * at)));
        }
        assert!(receiver.mappings.steps() - before <= COUNT);
    }

    #[test]
    fn bytes_without_mapping_are_told_apart() {
        let mut receiver = Receiver::default();
        assert_eq!(receiver.current(), Err(None));
        receiver.add(mapping(5, 10, 100));
        assert_eq!(receiver.current(), Err(Some(5)));
        receiver.offset = 14;
        assert_eq!(receiver.current(), Ok(mapping(5, 10, 100)));
        receiver.offset = 15;
        assert_eq!(receiver.current(), Err(None));
    }
}
