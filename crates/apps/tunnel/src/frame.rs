//! What is inside a datagram between two Polypath peers, once it is decrypted: one frame of data, or one of control.
//!
//! | first byte | frame | fields, little-endian |
//! |---|---|---|
//! | 0 to 2, and 0x80 if a time follows, 0x40 if an ESI does | an IP packet | flow 1, sequence 3, time 4, ESI 2, the packet |
//! | 3 | a repair packet | first ESI 2, how many 1, repair key 2, then the combination of their frames without time and ESI |
//! | 8, and 0x80 if a time follows | a segment of the Multipath TCP between the ends | the same, with the segment |
//! | 0x10 | acknowledgment | session 3, largest 4, delay 4 (µs), ranges 1, then for each: length 2, gap 2 |
//! | 0x11 | probe | token 8, rank of the path 1 (0: no backup, 255: carries nothing), then padding |
//! | 0x12 | answer to a probe | token 8, length of the probe 2 |
//! | 0x13 | path leaves | |
//! | 0xf0 | hello, in WireGuard's own datagrams | version 1, instance 8, flags 1 |
//!
//! A stock WireGuard drops a hello, as no IP packet begins so. An ESI (encoding symbol ID, RFC 8681) has 16 bits here, and the coefficients
//! of a combination are those of the repair key, in GF(2^8) and of full density. What a combination ends in is zeros, if nothing.

/// How the receiver treats the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    /// Packets of a flow leave in the order in which they came.
    Kept,
    /// Leaves at once.
    Free,
    /// Comes over several paths; the first copy leaves at once.
    FirstCopy,
    /// Is for the Multipath TCP that carries flows between the two ends.
    Across,
}

/// Longest header of an IP packet's frame.
pub(crate) const MOST_DATA_HEADER_BYTES: usize = 11;
/// The header without a time and an ESI.
pub(crate) const DATA_HEADER_BYTES: usize = 5;
/// Length of a probe without padding.
pub(crate) const PROBE_BYTES: usize = 10;
/// Ranges that an acknowledgment can tell of.
pub(crate) const MOST_RANGES: usize = 24;
/// Longest frame of control but for padded probes.
#[cfg(test)]
const MOST_CONTROL_BYTES: usize = 13 + 4 * MOST_RANGES;

const TIME_BYTES: usize = 4;
const TIME_FOLLOWS: u8 = 0x80;
const ESI_FOLLOWS: u8 = 0x40;
const REPAIR: u8 = 3;
const ACK: u8 = 0x10;
/// Of a probe, the first byte.
pub(crate) const PROBE: u8 = 0x11;
const PROBE_REPLY: u8 = 0x12;
const LEAVE: u8 = 0x13;
const HELLO: u8 = 0xf0;
const VERSION: u8 = 1;

/// Sequence numbers of a flow wrap at 2^24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Sequence(u32);

impl Sequence {
    pub(crate) const fn new(bits: u32) -> Self {
        Self(bits & 0x00ff_ffff)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn next(self) -> Self {
        self.plus(1)
    }

    pub(crate) const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The rest of a division by a power of two.
    pub(crate) const fn modulo(self, divisor: u32) -> u32 {
        self.0 % divisor
    }

    /// How far ahead of `other` it is; negative if behind.
    pub(crate) const fn ahead_of(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }
}

/// The end of the number of a packet that repair packets cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Esi(u16);

impl Esi {
    pub(crate) const BYTES: usize = 2;

    pub(crate) const fn new(bits: u16) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u16 {
        self.0
    }
}

/// The header of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataHeader {
    pub(crate) order: Order,
    /// Packets with the same one are in one sequence.
    pub(crate) flow: u8,
    pub(crate) sequence: Sequence,
    /// The sender's clock in µs, on some packets.
    pub(crate) time: Option<u32>,
    /// Its number for repair packets, if they cover it.
    pub(crate) esi: Option<Esi>,
}

impl DataHeader {
    /// Without time and ESI.
    pub(crate) const fn new(order: Order, flow: u8, sequence: Sequence) -> Self {
        Self { order, flow, sequence, time: None, esi: None }
    }

    pub(crate) const fn len_bytes(&self) -> usize {
        Self::len_with(self.time.is_some(), self.esi.is_some())
    }

    pub(crate) const fn len_with(time: bool, esi: bool) -> usize {
        DATA_HEADER_BYTES + if time { TIME_BYTES } else { 0 } + if esi { Esi::BYTES } else { 0 }
    }

    /// Writes it to the beginning of `into`.
    pub(crate) fn write(&self, into: &mut [u8]) {
        let order = match self.order {
            Order::Kept => 0,
            Order::Free => 1,
            Order::FirstCopy => 2,
            Order::Across => 8,
        };
        let [a, b, c, _] = self.sequence.0.to_le_bytes();
        into[..DATA_HEADER_BYTES].copy_from_slice(&[order, self.flow, a, b, c]);
        let mut end = DATA_HEADER_BYTES;
        if let Some(time) = self.time {
            into[0] |= TIME_FOLLOWS;
            into[end..end + TIME_BYTES].copy_from_slice(&time.to_le_bytes());
            end += TIME_BYTES;
        }
        if let Some(Esi(esi)) = self.esi {
            into[0] |= ESI_FOLLOWS;
            into[end..end + Esi::BYTES].copy_from_slice(&esi.to_le_bytes());
        }
    }
}

/// What a repair packet is a combination of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairHeader {
    /// The first packet that it covers.
    pub(crate) first: Esi,
    /// How many it covers.
    pub(crate) count: u8,
    /// The coefficients follow from it.
    pub(crate) key: u16,
}

impl RepairHeader {
    pub(crate) const BYTES: usize = 6;

    /// Writes it to the beginning of `into`.
    pub(crate) fn write(&self, into: &mut [u8]) {
        let ([a, b], [c, d]) = (self.first.0.to_le_bytes(), self.key.to_le_bytes());
        into[..Self::BYTES].copy_from_slice(&[REPAIR, a, b, self.count, c, d]);
    }

    fn parse(rest: &[u8]) -> Option<Self> {
        let &[a, b, count, c, d] = rest.first_chunk()?;
        let (first, key) = (Esi(u16::from_le_bytes([a, b])), u16::from_le_bytes([c, d]));
        Some(Self { first, count, key })
    }
}

/// So many in a row came; before them so many did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) len: u16,
    pub(crate) gap: u16,
}

/// Which numbers of a path came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AckFrame {
    /// Low 24 bits of the number of the session in which they were sent.
    pub(crate) session: [u8; 3],
    pub(crate) largest: u32,
    /// How long the largest waited for this acknowledgment, in µs.
    pub(crate) delay_micros: u32,
    /// From the largest down.
    pub(crate) ranges: Vec<Range>,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// An IP packet, which begins so many bytes into the frame.
    Data(DataHeader, usize),
    /// A repair packet; the combination begins [`RepairHeader::BYTES`] into the frame.
    Repair(RepairHeader),
    Ack(AckFrame),
    Probe {
        token: u64,
        /// By the one who made the path; only paths of the smallest rank carry data.
        rank: u8,
    },
    ProbeReply {
        token: u64,
        probe_bytes: u16,
    },
    Leave,
    Hello {
        instance: u64,
        /// [`TAKES_AES`], [`TAKES_FEC`], [`SPLITS_TCP`], and what later versions say.
        flags: u8,
    },
}

/// In a hello: paths may be encrypted by AES on the way to who says it.
pub(crate) const TAKES_AES: u8 = 1;
/// In a hello: who says it knows repair packets, and packets with an ESI.
pub(crate) const TAKES_FEC: u8 = 2;
/// In a hello: TCP may be carried by Multipath TCP to who says it.
pub(crate) const SPLITS_TCP: u8 = 4;

impl Frame {
    /// `None` for what is cut off or unknown.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            REPAIR => RepairHeader::parse(rest).map(Self::Repair),
            ACK => parse_ack(rest).map(Self::Ack),
            PROBE => {
                Some(Self::Probe { token: u64::from_le_bytes(*rest.first_chunk()?), rank: *rest.get(8)? })
            }
            PROBE_REPLY => Some(Self::ProbeReply {
                token: u64::from_le_bytes(*rest.first_chunk()?),
                probe_bytes: u16::from_le_bytes(*rest.get(8..)?.first_chunk()?),
            }),
            LEAVE => Some(Self::Leave),
            HELLO => {
                let (&version, rest) = rest.split_first()?;
                let instance = u64::from_le_bytes(*rest.first_chunk()?);
                (version == VERSION).then_some(Self::Hello { instance, flags: *rest.get(8)? })
            }
            _ => parse_data(kind, rest),
        }
    }

    /// Writes a frame of control. Data has [`DataHeader::write`], and repair packets [`RepairHeader::write`].
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::Data(..) | Self::Repair(_) => unreachable!("what is long is written where it lies"),
            Self::Ack(ack) => {
                into.push(ACK);
                into.extend_from_slice(&ack.session);
                into.extend_from_slice(&ack.largest.to_le_bytes());
                into.extend_from_slice(&ack.delay_micros.to_le_bytes());
                into.push(ack.ranges.len() as u8);
                for range in &ack.ranges {
                    into.extend_from_slice(&range.len.to_le_bytes());
                    into.extend_from_slice(&range.gap.to_le_bytes());
                }
            }
            Self::Probe { token, rank } => {
                into.push(PROBE);
                into.extend_from_slice(&token.to_le_bytes());
                into.push(*rank);
            }
            Self::ProbeReply { token, probe_bytes } => {
                into.push(PROBE_REPLY);
                into.extend_from_slice(&token.to_le_bytes());
                into.extend_from_slice(&probe_bytes.to_le_bytes());
            }
            Self::Leave => into.push(LEAVE),
            Self::Hello { instance, flags } => {
                into.extend_from_slice(&[HELLO, VERSION]);
                into.extend_from_slice(&instance.to_le_bytes());
                into.push(*flags);
            }
        }
    }
}

fn parse_data(kind: u8, rest: &[u8]) -> Option<Frame> {
    let order = match kind & !(TIME_FOLLOWS | ESI_FOLLOWS) {
        0 => Order::Kept,
        1 => Order::Free,
        2 => Order::FirstCopy,
        8 => Order::Across,
        _ => return None,
    };
    let &[flow, a, b, c] = rest.first_chunk()?;
    let mut rest = rest.get(4..)?;
    let time = match kind & TIME_FOLLOWS {
        0 => None,
        _ => Some(u32::from_le_bytes(*rest.split_off(..TIME_BYTES)?.first_chunk()?)),
    };
    let esi = match kind & ESI_FOLLOWS {
        0 => None,
        _ => Some(Esi(u16::from_le_bytes(*rest.first_chunk()?))),
    };
    let sequence = Sequence::new(u32::from_le_bytes([a, b, c, 0]));
    let header = DataHeader { time, esi, ..DataHeader::new(order, flow, sequence) };
    Some(Frame::Data(header, header.len_bytes()))
}

fn parse_ack(rest: &[u8]) -> Option<AckFrame> {
    let (&session, rest) = rest.split_first_chunk::<3>()?;
    let (&largest, rest) = rest.split_first_chunk::<4>()?;
    let (&delay, rest) = rest.split_first_chunk::<4>()?;
    let (&count, rest) = rest.split_first()?;
    let count = usize::from(count);
    if count == 0 || count > MOST_RANGES || rest.len() < 4 * count {
        return None;
    }
    let ranges = rest[..4 * count]
        .chunks_exact(4)
        .map(|bytes| Range {
            len: u16::from_le_bytes([bytes[0], bytes[1]]),
            gap: u16::from_le_bytes([bytes[2], bytes[3]]),
        })
        .collect();
    let (largest, delay_micros) = (u32::from_le_bytes(largest), u32::from_le_bytes(delay));
    Some(AckFrame { session, largest, delay_micros, ranges })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let ranges = vec![Range { len: 3, gap: 1 }, Range { len: 700, gap: 0 }];
        let ack = AckFrame { session: [1, 2, 3], largest: 900, delay_micros: 250, ranges };
        let frames = [
            Frame::Ack(ack),
            Frame::Probe { token: 7, rank: 3 },
            Frame::ProbeReply { token: 7, probe_bytes: 1400 },
            Frame::Leave,
            Frame::Hello { instance: 1 << 40, flags: 1 },
        ];
        for frame in frames {
            let mut bytes = Vec::new();
            frame.write(&mut bytes);
            assert!(bytes.len() <= MOST_CONTROL_BYTES);
            for cut in 0..bytes.len() {
                assert_eq!(Frame::parse(&bytes[..cut]), None, "{frame:?} cut to {cut}");
            }
            assert_eq!(Frame::parse(&bytes), Some(frame));
        }
    }

    #[test]
    fn headers_of_data_come_back_as_they_were() {
        for (time, esi) in
            [(None, None), (Some(u32::MAX), None), (None, Some(Esi(7))), (Some(9), Some(Esi(0xfff0)))]
        {
            let header = DataHeader::new(Order::FirstCopy, 200, Sequence::new(0xff_fffe));
            let header = DataHeader { time, esi, ..header };
            let mut bytes = [0; MOST_DATA_HEADER_BYTES];
            header.write(&mut bytes);
            assert_eq!(Frame::parse(&bytes), Some(Frame::Data(header, header.len_bytes())));
            assert_eq!(Frame::parse(&bytes[..header.len_bytes() - 1]), None);
        }
    }

    #[test]
    fn headers_of_repair_packets_come_back_as_they_were() {
        let header = RepairHeader { first: Esi(0x1234), count: 16, key: 0xabcd };
        let mut bytes = [0; RepairHeader::BYTES];
        header.write(&mut bytes);
        assert_eq!(Frame::parse(&bytes), Some(Frame::Repair(header)));
        assert_eq!(Frame::parse(&bytes[..5]), None);
    }

    #[test]
    fn sequences_wrap() {
        let last = Sequence::new(0xff_ffff);
        assert_eq!(last.next(), Sequence::new(0));
        assert_eq!(last.next().ahead_of(last), 1);
        assert_eq!(last.ahead_of(Sequence::new(4)), -5);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(Frame::Data(header, at)) = Frame::parse(&bytes) {
                prop_assert!(at <= bytes.len() && at == header.len_bytes());
            }
        }
    }
}
