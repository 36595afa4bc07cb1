//! The receive side of a subflow: which bytes of it are which data (RFC 8684 §3.3.1).

use alloc::boxed::Box;

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
    pub(crate) offset: u64,
    /// Mappings that are not used up, sorted, without overlap.
    mappings: OrderedQueue<ReceivedMapping>,
    /// Up to here mappings may be missing since their segments were merged with those before.
    pub(crate) unmapped_until: u64,
    /// Bytes of the front mapping that wait for its checksum: all of it up to `offset`, or none.
    gathered: Option<Box<Payload>>,
    pub(crate) mode: ReceiveMode,
    /// After the latest data that came by a mapping.
    pub(crate) newest: DataSeq,
}

/// How a subflow's bytes become data.
#[derive(Debug, Default)]
pub(crate) enum ReceiveMode {
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

    /// Look-ups and changes of mappings so far.
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
        match self.mappings.first_ending_after(mapping.start) {
            Some(known) if known.start < mapping.end() => {
                // A retransmission may be cut otherwise; what matters is that byte and data number agree.
                let shift = mapping.start as i64 - known.start as i64;
                mapping.data_seq.diff(known.data_seq) == shift
            }
            _ => {
                self.keep(mapping);
                true
            }
        }
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
    pub(crate) fn gathered_from(&self) -> u64 {
        let waits = self.mappings.front().filter(|_| self.has_gathered());
        waits.map_or(self.offset, |mapping| mapping.start)
    }

    /// Bytes that are mapped have not arrived.
    pub(crate) fn is_within_mapping(&self) -> bool {
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

    /// What waits.
    pub(crate) fn take_gathered(&mut self) -> Payload {
        self.gathered.take().map_or(Payload::EMPTY, |gathered| *gathered)
    }

    /// Forgets mappings and gathered bytes.
    pub(crate) fn forget_mappings(&mut self) {
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
