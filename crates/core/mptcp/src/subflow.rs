//! One subflow: a TCP connection and what Multipath TCP keeps beside it.

use alloc::vec::Vec;

use polypath_tcp::Connection as TcpConnection;
use polypath_units::Instant;
use polypath_wire::{DataSeq, MptcpOption, Payload, ResetReason};

use crate::event::SubflowError;
use crate::mapping::Mapping;
use crate::ordered::{OrderedQueue, Stretch};

/// Slow start has doubled the window so often, at most, when a subflow catches up: four times the initial one, as TCP's
/// third flight.
const MOST_ROUNDS: f64 = 2.0;
/// It takes no more than this share of the buffers at either end: the others' data is to have room beside a path of unknown rate.
const BUFFER_SHARE: u64 = 4;

/// A subflow of a connection.
#[derive(Debug)]
pub(crate) struct Subflow {
    pub(crate) tcp: TcpConnection<Mapping>,
    pub(crate) meta: Meta,
    pub(crate) rx: Receiver,
}

/// What a subflow's options depend on.
#[derive(Debug)]
pub(crate) struct Meta {
    /// Stable identifier within the connection.
    pub(crate) id: u8,
    pub(crate) stage: Stage,
    pub(crate) local_id: u8,
    pub(crate) remote_id: u8,
    /// This end asked for backup.
    pub(crate) backup_local: bool,
    /// The peer asked for backup.
    pub(crate) backup_remote: bool,
    /// The peer is asked not to send here while another subflow works, for what that holds up: see [`crate::reception`]. Our own data is
    /// not concerned.
    pub(crate) is_aside: bool,
    /// Its MP_JOIN said so.
    pub(crate) joined_aside: bool,
    pub(crate) local_nonce: u32,
    pub(crate) remote_nonce: u32,
    /// A SYN left without Multipath TCP option: what dropped the earlier ones may be gone with it.
    pub(crate) syn_without_option: bool,
    /// This end sent its FIN, or is about to.
    pub(crate) finishing: bool,
    /// Options that leave once, with the next acknowledgment.
    pub(crate) signals: Vec<MptcpOption>,
    /// Stream offset after the first data that left with a DSS in each segment: once it is acknowledged, options pass.
    pub(crate) first_mapped_end: Option<u64>,
    /// The latest DATA_ACK that left here.
    pub(crate) data_acked: DataSeq,
    /// Data left without the DATA_ACK that was due; nothing else may say it.
    pub(crate) owes_data_ack: bool,
    /// What had arrived from the peer when the latest mapping was made here.
    pub(crate) received_before: DataSeq,
    /// DATA_FIN is to leave with an acknowledgment, once no data goes before it.
    pub(crate) owes_data_fin: bool,
    /// Client, before the first DSS came: the keys have left, which the peer must have before it can read a DATA_FIN.
    pub(crate) keys_said: bool,
    /// Carried by the RST that ends the subflow.
    pub(crate) reset_reason: Option<ResetReason>,
    /// Data sequence number of an MP_FAIL that the RST carries.
    pub(crate) fail_on_reset: Option<DataSeq>,
    /// Why the subflow is ending, once that is known.
    pub(crate) error: Option<SubflowError>,
    /// The peer reset the subflow for a cause that will not pass (MP_TCPRST without its T bit).
    pub(crate) is_refused_for_good: bool,
    /// When the third ACK of MP_JOIN is sent again.
    pub(crate) join_retry_at: Instant,
    pub(crate) join_retries: u8,
    /// The peer has been silent for longer than a round trip explains.
    pub(crate) is_silent: bool,
    /// What the path carried when it was used before.
    pub(crate) remembered_bytes_per_s: Option<u64>,
    /// Until when the path's bottleneck is busy with what the subflow was given, if nothing else stands before it.
    pub(crate) busy_until: Instant,
    /// Nothing was acknowledged over several retransmission timeouts.
    pub(crate) is_stale: bool,
    /// The budget that its packets are taken from, as of this generation of budgets.
    pub(crate) account: Option<u16>,
    pub(crate) account_generation: u32,
}

/// How far a subflow's handshake is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Client: SYN with MP_CAPABLE sent.
    CapableSyn,
    /// Server: SYN/ACK with MP_CAPABLE sent; the third ACK is awaited.
    CapableSynAck,
    /// Client: third ACK sent; the first DSS is awaited.
    CapableAck,
    /// Client: SYN with MP_JOIN sent.
    JoinSyn,
    /// Server: SYN/ACK with MP_JOIN sent; the third ACK is awaited.
    JoinSynAck,
    /// Client: third ACK sent; the fourth is awaited, and no data may leave before it (RFC 8684 §3.2).
    JoinAck,
    /// Multipath TCP.
    Established,
    /// TCP, from the start or after a fallback.
    Plain,
}

impl Stage {
    /// Data may be scheduled.
    pub(crate) const fn carries_data(self) -> bool {
        matches!(self, Self::CapableAck | Self::Established | Self::Plain)
    }

    /// MP_JOIN is not complete.
    pub(crate) const fn is_joining(self) -> bool {
        matches!(self, Self::JoinSyn | Self::JoinSynAck | Self::JoinAck)
    }
}

impl Subflow {
    /// Something that it was given is not acknowledged yet.
    pub(crate) fn holds_data(&self) -> bool {
        self.tcp.acked_offset() < self.tcp.enqueued_offset()
    }

    /// The window with which a subflow begins that joins a connection which was opened then, with buffers of so many bytes:
    /// see [`catch_up`](crate::ConnectionConfig::catch_up).
    pub(crate) fn catch_up(&mut self, now: Instant, opened_at: Instant, buffer_bytes: u64) {
        let round_trip_s = self.tcp.srtt().as_secs_f64();
        if round_trip_s <= 0.0 {
            return;
        }
        // TCP's first data leaves after a round trip.
        let rounds = (now.since(opened_at).as_secs_f64() / round_trip_s - 1.0).clamp(0.0, MOST_ROUNDS);
        let initial_bytes = self.tcp.window_bytes();
        let mut window_bytes = (initial_bytes as f64 * libm::exp2(rounds)) as u64;
        window_bytes = window_bytes.min(buffer_bytes / BUFFER_SHARE);
        if let Some(rate) = self.bottleneck_bytes_per_s() {
            window_bytes = window_bytes.min((rate as f64 * round_trip_s) as u64);
        }
        if window_bytes > initial_bytes {
            self.tcp.controller_mut().set_window(window_bytes, None);
        }
    }

    /// What the path's bottleneck carries, as it shows now or showed before.
    pub(crate) fn bottleneck_bytes_per_s(&self) -> Option<u64> {
        self.tcp.bottleneck_bytes_per_s().or(self.meta.remembered_bytes_per_s)
    }
}

impl Meta {
    pub(crate) fn new(id: u8, stage: Stage) -> Self {
        Self {
            id,
            stage,
            local_id: 0,
            remote_id: 0,
            backup_local: false,
            backup_remote: false,
            is_aside: false,
            joined_aside: false,
            local_nonce: 0,
            remote_nonce: 0,
            syn_without_option: false,
            finishing: false,
            signals: Vec::new(),
            first_mapped_end: None,
            data_acked: DataSeq(0),
            owes_data_ack: false,
            received_before: DataSeq(0),
            owes_data_fin: false,
            keys_said: false,
            reset_reason: None,
            fail_on_reset: None,
            error: None,
            is_refused_for_good: false,
            join_retry_at: Instant::FAR_FUTURE,
            join_retries: 0,
            is_silent: false,
            remembered_bytes_per_s: None,
            busy_until: Instant::ZERO,
            is_stale: false,
            account: None,
            account_generation: 0,
        }
    }

    /// What MP_JOIN and MP_PRIO tell the peer.
    pub(crate) const fn asks_for_backup(&self) -> bool {
        self.backup_local || self.is_aside
    }

    /// It joined set aside, and the peer is to use it all the same.
    pub(crate) const fn is_tried(&self) -> bool {
        self.joined_aside && !self.is_aside
    }

    pub(crate) const fn backup(&self) -> bool {
        self.backup_local || self.backup_remote
    }
}

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
    pub(crate) gathered: Payload,
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
        bytes: Payload,
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
        let waits = self.mappings.front().filter(|_| !self.gathered.is_empty());
        waits.map_or(self.offset, |mapping| mapping.start)
    }

    /// Bytes that are mapped have not arrived.
    pub(crate) fn is_within_mapping(&self) -> bool {
        self.mappings.back().is_some_and(|mapping| mapping.end() > self.offset)
    }

    /// Forgets mappings and gathered bytes.
    pub(crate) fn forget_mappings(&mut self) {
        self.mappings.clear();
        self.gathered = Payload::EMPTY;
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
        receiver.gathered = alloc::vec![0; 4].into();
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
