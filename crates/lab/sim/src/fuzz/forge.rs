//! Forged segments: every flag and every option, with numbers that are exact, near the window or far from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polypath_wire::{
    AddAddr, DataSeq, Dss, DssMapping, FourTuple, MpCapable, MpCapableKeys, MpJoin, MptcpOption,
    MptcpVersion, Packet, Payload, RemoveAddr, ResetReason, SackBlock, Segment, SeqNumber, TcpFlags,
    TcpOption, Timestamps, WireDataSeq,
};

use super::reader::Reader;
use super::setup::Strength;
use super::sniffer::{Direction, Sniffer};

/// Where a number lies, seen from the one that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is the next one.
    Exact,
    /// So far behind.
    Old(u32),
    /// So far ahead, and within the window if that is wide enough.
    Ahead(u32),
    /// So far from the window's end: behind it if negative.
    Edge(i32),
    /// Anywhere.
    Random(u32),
}

/// What a forged segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgery {
    /// Whose flow, modulo how many there are.
    pub flow: u8,
    /// Flags as on the wire.
    pub flags: TcpFlags,
    /// Sequence number.
    pub seq: Place,
    /// Acknowledgment.
    pub ack: Place,
    /// The window field.
    pub window: Window,
    /// Payload bytes.
    pub payload_bytes: u16,
    /// Timestamps: as they should be, with this added.
    pub timestamps: Option<i32>,
    /// One option.
    pub option: ForgedOption,
    /// For the numbers in the option.
    pub salt: u16,
}

/// The window field of a forged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// As it came last.
    Same,
    /// Closed.
    Zero,
    /// One byte.
    One,
    /// Wide open.
    Full,
}

/// One option of a forged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the options")]
pub(crate) enum ForgedOption {
    None,
    DataAck(Place),
    Mapping { data: Place, fin: bool },
    Fin(Place),
    Infinite(Place),
    Capable,
    Join,
    AddAddr,
    RemoveAddr,
    Prio,
    Fail(Place),
    Fastclose,
    Reset,
    Sack(Place),
    TcpOnly,
    Unknown,
}

const FLAGS: [TcpFlags; 16] = [
    TcpFlags::ACK,
    TcpFlags::ACK,
    TcpFlags::ACK,
    TcpFlags::ACK.with(TcpFlags::PSH),
    TcpFlags::ACK.with(TcpFlags::FIN),
    TcpFlags::ACK.with(TcpFlags::FIN),
    TcpFlags::RST,
    TcpFlags::RST.with(TcpFlags::ACK),
    TcpFlags::SYN,
    TcpFlags::SYN.with(TcpFlags::ACK),
    TcpFlags::SYN.with(TcpFlags::FIN).with(TcpFlags::ACK),
    TcpFlags::FIN,
    TcpFlags(0),
    TcpFlags::ACK.with(TcpFlags::URG),
    TcpFlags::ACK.with(TcpFlags::ECE).with(TcpFlags::CWR),
    TcpFlags(0xff),
];

impl Place {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        match reader.below(8) {
            0 | 1 => Self::Exact,
            2 => Self::Old(reader.log(26) as u32),
            3 => Self::Old(1),
            4 => Self::Ahead(reader.log(16) as u32),
            5 => Self::Edge(i32::from(reader.byte() as i8) / 16),
            6 => Self::Edge(reader.log(28) as i32),
            _ => Self::Random(u32::from(reader.u16()) << 16 | u32::from(reader.byte())),
        }
    }

    fn of(self, exact: SeqNumber, edge: SeqNumber) -> SeqNumber {
        match self {
            Self::Exact => exact,
            Self::Old(by) => exact.sub(by),
            Self::Ahead(by) => exact.add(by),
            Self::Edge(by) => SeqNumber(edge.0.wrapping_add(by as u32)),
            Self::Random(number) => SeqNumber(number),
        }
    }

    fn of_data(self, exact: DataSeq) -> DataSeq {
        match self {
            Self::Exact => exact,
            Self::Old(by) => exact.add((-i64::from(by)) as u64),
            Self::Ahead(by) => exact.add(by.into()),
            Self::Edge(by) => exact.add((i64::from(by) + (1 << 20)) as u64),
            Self::Random(number) => DataSeq(u64::from(number) << 32 | u64::from(!number)),
        }
    }
}

impl Forgery {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let flow = reader.byte();
        let flags = reader.pick(&FLAGS);
        let (seq, ack) = (Place::read(reader), Place::read(reader));
        Self {
            flow,
            flags,
            seq,
            ack,
            option: ForgedOption::read(reader),
            window: reader.pick(&[Window::Same, Window::Zero, Window::One, Window::Full]),
            payload_bytes: reader.pick(&[0, 0, 1, 100, 1400, 9000]),
            timestamps: reader.pick(&[Some(0), None, Some(-1_000_000), Some(1_000_000)]),
            salt: reader.u16(),
        }
    }

    /// The segment, as the sender of the flow would have sent it; none if there is no flow, or nothing of this kind is within the
    /// attacker's means. `most_window_bytes` is the largest window that any host opens.
    #[must_use]
    pub(crate) fn packet(
        &self,
        sniffer: &Sniffer,
        strength: Strength,
        most_window_bytes: u32,
        wanted: impl Fn(&FourTuple) -> bool,
    ) -> Option<Packet> {
        let tuple = sniffer.flow(self.flow, wanted)?;
        let (own, peer) = (sniffer.direction(&tuple), sniffer.direction(&tuple.reversed()));
        let mut segment = Segment {
            flags: self.flags,
            window: self.window.of(own.window),
            payload: self.payload(),
            ..Segment::default()
        };
        // In SYN-SENT any SYN is right (RFC 9293 §3.10.7.3).
        if strength != Strength::OnPath && peer.ack.is_none() && segment.flags.syn() {
            return None;
        }
        let exact = peer.ack.or(own.next).unwrap_or_default();
        let edge = peer.edge.unwrap_or(exact);
        segment.seq = self.seq.of(exact, edge);
        segment.ack = self.ack.of(peer.next.unwrap_or_default(), peer.next.unwrap_or_default());
        if strength != Strength::OnPath {
            self.keep_off(&mut segment, &own, &peer, most_window_bytes);
        }
        self.put_options(&mut segment, &own, &peer);
        if !segment.flags.ack() {
            segment.ack = SeqNumber(0);
        }
        Some(Packet::tcp(tuple, segment))
    }

    /// Moves a segment out of the window, and its acknowledgment off what is under way.
    fn keep_off(&self, segment: &mut Segment, own: &Direction, peer: &Direction, most_window_bytes: u32) {
        let len = segment.sequence_len();
        let acked = peer.ack.or(own.isn).unwrap_or_default();
        // Whatever the receiver has of it, its next byte is from here to there.
        // What lies further off is of another connection between the same ports, which the receiver does not have (any more).
        let is_of_same =
            |seq: &SeqNumber| (0..=2 * i64::from(most_window_bytes)).contains(&seq.diff(acked).into());
        let known = own.next.into_iter().chain(peer.edge).filter(is_of_same);
        let highest = known.fold(acked, SeqNumber::max).add(most_window_bytes);
        let is_before = !segment.seq.add(len.max(1)).after(acked);
        let is_after = !segment.seq.before(highest);
        if !is_before && !is_after {
            segment.seq = if self.salt & 1 == 0 {
                acked.sub(len.max(1) + u32::from(self.salt >> 1))
            } else {
                highest.add(u32::from(self.salt >> 1))
            };
        }
        let known = own.ack.unwrap_or_default();
        let next = peer.next.unwrap_or_default();
        if segment.ack.after(known) && !segment.ack.after(next.add(1)) || own.ack.is_none() {
            segment.ack = if self.salt & 2 == 0 { known } else { next.add(2 + u32::from(self.salt)) };
        }
        // Who keeps no state of a handshake resets what is acknowledged to it (RFC 9293 §3.10.7.2): to know that number is to be on the path.
        let may_have_no_state = peer.isn.is_some_and(|isn| peer.next == Some(isn.add(1)));
        if may_have_no_state && segment.ack == known {
            segment.ack = known.sub(1 + u32::from(self.salt));
        }
    }

    fn payload(&self) -> Payload {
        vec![0xa5; usize::from(self.payload_bytes)].into()
    }

    fn put_options(&self, segment: &mut Segment, own: &Direction, peer: &Direction) {
        if let (Some(by), Some(timestamps)) = (self.timestamps, own.timestamps) {
            let value = timestamps.value.wrapping_add(by as u32);
            let echo = peer.timestamps.map_or(timestamps.echo, |peer| peer.value);
            segment.options.timestamps = Some(Timestamps { value, echo });
        }
        let data = own.data_next.unwrap_or_default();
        let data_acked = peer.data_next.unwrap_or_default();
        let len = segment.payload.len() as u16;
        let salt = self.salt;
        let mut dss = Dss { data_ack: own.data_ack, ..Dss::default() };
        let map = |data_seq: DataSeq, len: u16| {
            let checksum = (salt & 1 == 1).then_some(salt);
            let offset = own.isn.map_or(own.mapped, |isn| segment.seq.diff(isn) as u32);
            Some(DssMapping { data_seq: WireDataSeq::Full(data_seq), subflow_offset: offset, len, checksum })
        };
        match self.option {
            ForgedOption::DataAck(place) => {
                dss.data_ack = Some(WireDataSeq::Full(place.of_data(data_acked)));
            }
            ForgedOption::Mapping { data: place, fin } => {
                dss.mapping = map(place.of_data(data), len.saturating_add(u16::from(fin)).max(1));
                dss.data_fin = fin;
            }
            ForgedOption::Fin(place) => {
                dss.mapping = map(place.of_data(data), 1);
                if let Some(mapping) = &mut dss.mapping {
                    mapping.subflow_offset = 0;
                }
                dss.data_fin = true;
            }
            ForgedOption::Infinite(place) => dss.mapping = map(place.of_data(data), 0),
            ForgedOption::Sack(place) => {
                let start = place.of(own.ack.unwrap_or_default(), peer.next.unwrap_or_default());
                segment.options.sack.push(SackBlock { start, end: start.add(1 + u32::from(salt)) });
                return;
            }
            option => return segment.options.rest.extend(option.others(salt, own, peer)),
        }
        segment.options.dss = Some(dss);
    }
}

impl Window {
    const fn of(self, same: u16) -> u16 {
        match self {
            Self::Same => same,
            Self::Zero => 0,
            Self::One => 1,
            Self::Full => u16::MAX,
        }
    }
}

impl ForgedOption {
    fn read(reader: &mut Reader<'_>) -> Self {
        match reader.below(20) {
            0..3 => Self::None,
            3 => Self::DataAck(Place::read(reader)),
            4 => Self::Mapping { data: Place::read(reader), fin: false },
            5 => Self::Mapping { data: Place::read(reader), fin: true },
            6 | 7 => Self::Fin(Place::read(reader)),
            8 | 9 => Self::Infinite(Place::read(reader)),
            10 => Self::Capable,
            11 => Self::Join,
            12 => Self::AddAddr,
            13 => Self::RemoveAddr,
            14 => Self::Prio,
            15 => Self::Fail(Place::read(reader)),
            16 => Self::Fastclose,
            17 => Self::Reset,
            18 => Self::Sack(Place::read(reader)),
            _ => {
                if reader.chance(128) {
                    Self::TcpOnly
                } else {
                    Self::Unknown
                }
            }
        }
    }

    /// All but DSS and SACK.
    fn others(self, salt: u16, own: &Direction, peer: &Direction) -> Vec<TcpOption> {
        let number = u32::from(salt) << 16 | u32::from(!salt);
        let wide = u64::from(number) << 32 | u64::from(number);
        let bit = |at: u32| salt >> at & 1 == 1;
        let mptcp = match self {
            Self::Capable => {
                let keys = match salt % 5 {
                    0 => MpCapableKeys::None,
                    1 => MpCapableKeys::Sender(own.key.unwrap_or(wide)),
                    2 => MpCapableKeys::Both { sender: wide, receiver: peer.key.unwrap_or(wide) },
                    3 => MpCapableKeys::BothWithData {
                        sender: own.key.unwrap_or(wide),
                        receiver: peer.key.unwrap_or(wide),
                        data_len: salt,
                        checksum: bit(3).then_some(salt),
                    },
                    _ => MpCapableKeys::Token(number),
                };
                MptcpOption::Capable(MpCapable {
                    version: (salt >> 4) as u8 % 3,
                    flags: (salt >> 8) as u8,
                    keys,
                })
            }
            Self::Join => MptcpOption::Join(join(salt, own)),
            Self::AddAddr => MptcpOption::AddAddr(add_addr(salt)),
            Self::RemoveAddr => {
                let ids = (0..1 + salt % 9).map(|number| (number + (salt >> 8) % 4) as u8);
                MptcpOption::RemoveAddr(RemoveAddr { address_ids: ids.collect() })
            }
            Self::Prio => {
                MptcpOption::Prio { backup: bit(0), address_id: bit(1).then_some((salt >> 8) as u8 % 4) }
            }
            Self::Fail(place) => {
                MptcpOption::Fail { data_seq: place.of_data(peer.data_next.unwrap_or_default()) }
            }
            Self::Fastclose => {
                MptcpOption::Fastclose { receiver_key: if bit(0) { wide } else { peer.key.unwrap_or(wide) } }
            }
            Self::Reset => {
                MptcpOption::Reset { flags: salt as u8 & 15, reason: ResetReason((salt >> 8) as u8 % 8) }
            }
            Self::Unknown => MptcpOption::Unknown {
                subtype: salt as u8 & 15,
                flags: (salt >> 4) as u8 & 15,
                data: (0..salt >> 8 & 15).map(|byte| byte as u8).collect(),
            },
            Self::TcpOnly => return tcp_only(salt),
            _ => return Vec::new(),
        };
        vec![TcpOption::Mptcp(mptcp)]
    }
}

fn join(salt: u16, own: &Direction) -> MpJoin {
    let (backup, address_id) = (salt & 1 == 1, (salt >> 8) as u8 % 4);
    let nonce = u32::from(salt);
    match salt % 4 {
        0 => MpJoin::Syn { backup, address_id, token: own.token.unwrap_or(nonce), nonce },
        1 => MpJoin::SynAck { backup, address_id, truncated_hmac: salt.into(), nonce },
        2 => MpJoin::Ack { hmac: [salt as u8; 20] },
        _ => MpJoin::LowOverhead { backup, address_id, token: (salt & 4 == 4).then_some(nonce) },
    }
}

/// Addresses that can't be right among them.
fn add_addr(salt: u16) -> AddAddr {
    let addr: IpAddr = match salt % 8 {
        0 => Ipv4Addr::new(10, 0, 0, 1).into(),
        1 => Ipv4Addr::new(10, 0, 0, 2).into(),
        2 => Ipv4Addr::LOCALHOST.into(),
        3 => Ipv4Addr::new(224, 0, 0, 1).into(),
        4 => Ipv4Addr::UNSPECIFIED.into(),
        5 => Ipv4Addr::BROADCAST.into(),
        6 => Ipv6Addr::LOCALHOST.into(),
        _ => Ipv4Addr::new(10, 9, 0, (salt >> 8) as u8).into(),
    };
    let version = if salt & 8 == 8 { MptcpVersion::V0 } else { MptcpVersion::V1 };
    let is_v1 = version == MptcpVersion::V1;
    let echo = is_v1 && salt & 16 == 16;
    let port = (salt & 32 == 32).then_some(80);
    let hmac = (is_v1 && !echo).then_some(salt.into());
    AddAddr { version, echo, address_id: (salt >> 8) as u8 % 8, addr, port, hmac }
}

fn tcp_only(salt: u16) -> Vec<TcpOption> {
    match salt % 4 {
        0 => vec![TcpOption::Mss(salt >> 2)],
        1 => vec![TcpOption::WindowScale((salt >> 8) as u8)],
        2 => vec![TcpOption::SackPermitted, TcpOption::Mss(0)],
        _ => vec![TcpOption::Unknown { kind: (salt >> 8) as u8, data: (0..8).collect() }],
    }
}
