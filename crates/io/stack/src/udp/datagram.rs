//! What a datagram of the encapsulation looks like, and the addresses that the stack sees instead of the network's.
//!
//! Version 1. All numbers are in network order.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | high 4 bits: version, 1; low 4 bits: kind |
//! | 1 | 1 if it goes to the owner of the path identifier, else 0 |
//! | 2–3 | zero |
//! | 4–11 | path identifier |
//! | 12– | what the kind says |
//!
//! | kind | from | bytes from 12 on |
//! |---|---|---|
//! | 1 segment | both | a TCP header with options, and payload; its checksum field means nothing, since UDP's covers it |
//! |   | | behind the header of a SYN that goes to a peer there are zeros, up to 160 bytes in all: its answers are no longer |
//! | 2 keep-alive | owner | 8 zero bytes, so that a challenge is no longer than what caused it |
//! | 3 its answer | peer | nothing |
//! | 4 challenge | peer | nonce (8) |
//! | 5 challenge of a path that the peer does not know | peer | nonce (8) |
//! | 6 proof | owner | nonce (8), the first 128 bits of HMAC-SHA256(path key, nonce) |
//! | 7 introduction | owner | nonce (8), path key (16) |
//! | 8 challenge in place of a SYN that was not taken | peer | nonce (8), the SYN's ports (4), as they were in it |
//! | 9 the same for a path that the peer does not know | peer | nonce (8), the SYN's ports (4) |
//!
//! Behind the answer to 8 or 9 the owner sends that SYN again.
//!
//! The owner of a path is the end that opens connections. For each of its interfaces and each address that it dials it has a
//! path key of 128 bits; the path identifier is the first 64 bits of SHA-256 over a label and the key ([`super::keys`]). So
//! no identifier can be had without its key, and nobody can tell which identifiers belong to one owner.
//!
//! Neither end's addresses are in a datagram, so translation on the way changes nothing. The stack knows a path of a peer by
//! the unique address that [`PathId::addr`] makes of its identifier and of the network it was proven in, its own paths by [`OwnPath::addr`](super::address::OwnPath::addr), and the end that was
//! dialled by the address that was dialled.
//!
//! Version 0 had the version and the kind in one byte, one identifier for all peers, and no kind above 3. It is not
//! understood any more.

use bytes::Bytes;
use polypath_wire::{Checksum, Packet, Segment, Transport};

use super::address::PathId;
use super::keys::{Challenge, PathKey, Proof};

/// Length of the header.
pub(super) const HEADER_BYTES: usize = 12;

/// What the headers of an IPv6 packet, with which the stack reckons, take more than none.
const IPV6_HEADER_BYTES: usize = 40;

/// The version of the format.
const VERSION: u8 = 1;

const SEGMENT: u8 = 1;
const KEEP_ALIVE: u8 = 2;
const KEEP_ALIVE_ANSWER: u8 = 3;
const CHALLENGE: u8 = 4;
const CHALLENGE_OF_STRANGER: u8 = 5;
const PROOF: u8 = 6;
const INTRODUCTION: u8 = 7;
const RETRY: u8 = 8;
const RETRY_OF_STRANGER: u8 = 9;

/// Length of a datagram with a challenge. Nothing shorter is answered by one.
pub(super) const CHALLENGE_BYTES: usize = HEADER_BYTES + 8;

/// Length of a datagram with a challenge in place of a SYN, which is longer.
pub(super) const RETRY_BYTES: usize = CHALLENGE_BYTES + 4;

/// Length of a datagram with a reset in answer to a segment that belongs to nothing: a TCP header without options.
pub(super) const RESET_BYTES: usize = HEADER_BYTES + 20;

/// Least length of a datagram with a SYN of an owner. With their IP and UDP headers, a challenge and the longest SYN/ACK are
/// no longer together.
pub(super) const OPENING_BYTES: usize = 160;

/// What a datagram takes on the way beside its content: headers of IPv6 and UDP.
pub(super) const OVERHEAD_BYTES: usize = IPV6_HEADER_BYTES + 8;

/// Where the sequence number and the flags are in a TCP header, and where its checksum.
const SEQUENCE: std::ops::Range<usize> = 4..8;
const FLAGS: usize = 13;
const CHECKSUM: std::ops::Range<usize> = 16..18;
const FIN_AND_PUSH: u8 = 0x09;
const SYN: u8 = 0x02;
const SYN_AND_ACK: u8 = 0x12;

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Segment,
    KeepAlive,
    KeepAliveAnswer,
    /// Asks the owner of a path to prove that it is at this address.
    Challenge(Challenge),
    /// Asks who owns a path, too.
    ChallengeOfStranger(Challenge),
    Proof(Challenge, Proof),
    Introduction(Challenge, PathKey),
    /// Is a challenge, of a stranger or not, and says that a SYN was not taken: it is to come again behind the answer.
    Retry(Challenge, Ports, bool),
}

/// Ports of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    /// Of the path's owner.
    pub(super) owner: u16,
    /// Of the other end.
    pub(super) peer: u16,
}

impl Ports {
    /// As in the TCP header of a datagram from the owner.
    fn to_bytes(self) -> [u8; 4] {
        (u32::from(self.owner) << 16 | u32::from(self.peer)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; 4]) -> Self {
        let [a, b, c, d] = bytes;
        Self { owner: u16::from_be_bytes([a, b]), peer: u16::from_be_bytes([c, d]) }
    }
}

/// The ports of a datagram's segment if that is a SYN without an acknowledgment, read without parsing it.
pub(super) fn syn_ports(datagram: &[u8]) -> Option<Ports> {
    let tcp = datagram.get(HEADER_BYTES..)?;
    (tcp.get(FLAGS)? & SYN_AND_ACK == SYN).then(|| tcp.first_chunk().copied().map(Ports::from_bytes))?
}

/// The ports and the sequence number in the first bytes of an owner's datagram.
pub(super) fn quoted_flow(quoted: &[u8]) -> Option<(Ports, u32)> {
    let tcp = quoted.get(HEADER_BYTES..)?;
    let seq = tcp.get(SEQUENCE)?.first_chunk().copied().map(u32::from_be_bytes)?;
    Some((Ports::from_bytes(*tcp.first_chunk()?), seq))
}

/// Lengthens a datagram with a SYN of an owner as is due.
pub(super) fn pad_opening(datagram: &mut Vec<u8>) {
    datagram.resize(datagram.len().max(OPENING_BYTES), 0);
}

/// A datagram's header, and all that follows it unless that is a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// It goes to the owner of the path.
    pub(super) to_owner: bool,
    pub(super) path: PathId,
}

/// Why a datagram is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strange {
    /// It has another version of the format.
    Version,
    /// It is cut, or its fields have values that mean nothing.
    Malformed,
}

impl Header {
    /// What every datagram begins with.
    fn start(self) -> [u8; HEADER_BYTES] {
        let kind = match self.kind {
            Kind::Segment => SEGMENT,
            Kind::KeepAlive => KEEP_ALIVE,
            Kind::KeepAliveAnswer => KEEP_ALIVE_ANSWER,
            Kind::Challenge(_) => CHALLENGE,
            Kind::ChallengeOfStranger(_) => CHALLENGE_OF_STRANGER,
            Kind::Proof(..) => PROOF,
            Kind::Introduction(..) => INTRODUCTION,
            Kind::Retry(_, _, false) => RETRY,
            Kind::Retry(_, _, true) => RETRY_OF_STRANGER,
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&[VERSION << 4 | kind, u8::from(self.to_owner)]);
        bytes[4..].copy_from_slice(&self.path.0.to_be_bytes());
        bytes
    }

    /// A datagram without a segment.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut out = self.start().to_vec();
        match self.kind {
            Kind::Segment | Kind::KeepAliveAnswer => {}
            Kind::KeepAlive => out.extend_from_slice(&[0; CHALLENGE_BYTES - HEADER_BYTES]),
            Kind::Challenge(nonce) | Kind::ChallengeOfStranger(nonce) => out.extend_from_slice(&nonce.0),
            Kind::Proof(nonce, proof) => {
                out.extend_from_slice(&nonce.0);
                out.extend_from_slice(&proof.0);
            }
            Kind::Introduction(nonce, key) => {
                out.extend_from_slice(&nonce.0);
                out.extend_from_slice(&key.0);
            }
            Kind::Retry(nonce, syn, _) => {
                out.extend_from_slice(&nonce.0);
                out.extend_from_slice(&syn.to_bytes());
            }
        }
        out
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Strange> {
        if bytes.first().is_some_and(|first| first >> 4 != VERSION) {
            return Err(Strange::Version);
        }
        Self::parse_known(bytes).ok_or(Strange::Malformed)
    }

    fn parse_known(bytes: &[u8]) -> Option<Self> {
        let (&[first, to_owner, 0, 0, ref path @ ..], body) = bytes.split_first_chunk::<HEADER_BYTES>()?
        else {
            return None;
        };
        let path = PathId(u64::from_be_bytes(*path));
        let nonce = || body.first_chunk().copied().map(Challenge);
        let rest = || body.get(8..).and_then(<[u8]>::first_chunk).copied();
        let ports = || body.get(8..).and_then(<[u8]>::first_chunk).copied().map(Ports::from_bytes);
        let kind = match first & 0xf {
            SEGMENT => Kind::Segment,
            KEEP_ALIVE => Kind::KeepAlive,
            KEEP_ALIVE_ANSWER => Kind::KeepAliveAnswer,
            CHALLENGE => Kind::Challenge(nonce()?),
            CHALLENGE_OF_STRANGER => Kind::ChallengeOfStranger(nonce()?),
            PROOF => Kind::Proof(nonce()?, Proof(rest()?)),
            INTRODUCTION => Kind::Introduction(nonce()?, PathKey(rest()?)),
            kind @ (RETRY | RETRY_OF_STRANGER) => Kind::Retry(nonce()?, ports()?, kind == RETRY_OF_STRANGER),
            _ => return None,
        };
        let goes_to_owner = match kind {
            Kind::Segment => to_owner == 1,
            Kind::KeepAliveAnswer | Kind::Challenge(_) | Kind::ChallengeOfStranger(_) | Kind::Retry(..) => {
                true
            }
            Kind::KeepAlive | Kind::Proof(..) | Kind::Introduction(..) => false,
        };
        (to_owner == u8::from(goes_to_owner)).then_some(Self { kind, to_owner: goes_to_owner, path })
    }
}

/// Writes a packet, which may be an aggregate, as datagrams of one size one after the other, the last one shorter maybe.
/// Returns that size.
pub(super) fn emit(header: Header, packet: &Packet, out: &mut Vec<u8>) -> Option<usize> {
    let Transport::Tcp(segment) = &packet.transport else { return None };
    let mut tcp = Vec::with_capacity(128);
    packet.emit_header(&mut tcp, Checksum::Partial);
    let tcp = tcp.get_mut(packet.ip.len_bytes()..)?;
    let (len, flags) = (segment.payload.len(), segment.flags.0);
    let piece = if segment.segment_size == 0 { len.max(1) } else { usize::from(segment.segment_size) };
    let prefix = header.start();
    let mut slices = segment.payload.slices().iter();
    let mut left: &[u8] = &[];
    let mut at = 0;
    loop {
        let count = piece.min(len - at);
        let is_last = at + count == len;
        tcp[SEQUENCE].copy_from_slice(&segment.seq.0.wrapping_add(at as u32).to_be_bytes());
        tcp[FLAGS] = if is_last { flags } else { flags & !FIN_AND_PUSH };
        tcp[CHECKSUM].fill(0);
        out.extend_from_slice(&prefix);
        out.extend_from_slice(tcp);
        let mut wanted = count;
        while wanted > 0 {
            if left.is_empty() {
                left = slices.next()?;
            }
            let (now, later) = left.split_at(wanted.min(left.len()));
            out.extend_from_slice(now);
            wanted -= now.len();
            left = later;
        }
        at += count;
        if is_last {
            return Some(HEADER_BYTES + tcp.len() + piece.min(len));
        }
    }
}

/// Puts segments that follow each other and say the same together again, so that the stack handles one for many.
#[derive(Debug, Default)]
pub(super) struct Merger {
    current: Option<Merging>,
}

#[derive(Debug)]
struct Merging {
    /// Header of the datagram and of TCP, of the latest piece.
    header: Bytes,
    next_seq: u32,
    piece_bytes: usize,
    segment: Segment,
}

/// Datagrams that were put together.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) header: Header,
    pub(super) segment: Segment,
}

/// Most payload of an aggregate: it must fit an IP packet.
const MOST_MERGED_BYTES: usize = 65_000;

impl Merger {
    /// Takes a datagram with a segment; gives back the one before if this doesn't belong to it.
    pub(super) fn push(&mut self, datagram: &Bytes) -> Option<Merged> {
        if self.append(datagram) {
            return None;
        }
        let done = self.finish();
        let header_len = header_len(datagram)?;
        // What is behind the header of a SYN is padding.
        let end = if syn_ports(datagram).is_some() { header_len } else { datagram.len() };
        let segment = Segment::parse(datagram.slice(HEADER_BYTES..end)).ok()?;
        let piece_bytes = segment.payload.len();
        let next_seq = segment.seq.0.wrapping_add(piece_bytes as u32);
        let may_grow = piece_bytes > 0 && segment.flags.0 & !FIN_AND_PUSH == 0x10 && segment.flags.0 & 1 == 0;
        let next_seq = if may_grow { next_seq } else { next_seq.wrapping_sub(1 << 31) };
        self.current = Some(Merging { header: datagram.slice(..header_len), next_seq, piece_bytes, segment });
        done
    }

    fn append(&mut self, datagram: &Bytes) -> bool {
        let Some(current) = &mut self.current else { return false };
        let header_len = current.header.len();
        let Some((header, payload)) = datagram.split_at_checked(header_len) else { return false };
        let before = &current.header;
        let tcp = HEADER_BYTES;
        let (sequence, flags, checksum) = (tcp + SEQUENCE.start, tcp + FLAGS, tcp + CHECKSUM.start);
        let is_same = header[..sequence] == before[..sequence]
            && header[sequence + 4..flags] == before[sequence + 4..flags]
            && header[flags + 1..checksum] == before[flags + 1..checksum]
            && header[checksum + 2..] == before[checksum + 2..];
        let (own_flags, piece) = (header[flags], payload.len());
        let follows = header[sequence..sequence + 4] == current.next_seq.to_be_bytes()
            && own_flags & !FIN_AND_PUSH == 0x10
            // FIN takes a number of its own; PSH ends an aggregate.
            && own_flags & 1 == 0
            && before[flags] & FIN_AND_PUSH == 0
            && piece > 0
            && piece <= current.piece_bytes
            && current.segment.payload.len() % current.piece_bytes == 0
            && current.segment.payload.len() + piece <= MOST_MERGED_BYTES;
        if !is_same || !follows {
            return false;
        }
        current.segment.segment_size = current.piece_bytes as u16;
        current.segment.flags.0 |= own_flags;
        current.segment.payload.push(datagram.slice(header_len..));
        current.next_seq = current.next_seq.wrapping_add(piece as u32);
        current.header = datagram.slice(..header_len);
        true
    }

    /// What was put together last.
    pub(super) fn finish(&mut self) -> Option<Merged> {
        let done = self.current.take()?;
        Some(Merged { header: Header::parse(&done.header).ok()?, segment: done.segment })
    }
}

/// Length of both headers, if they are all there.
fn header_len(datagram: &[u8]) -> Option<usize> {
    let offset = usize::from(*datagram.get(HEADER_BYTES + 12)? >> 4) * 4;
    (offset >= 20 && datagram.len() >= HEADER_BYTES + offset).then_some(HEADER_BYTES + offset)
}

/// The MTU that the stack may reckon with (IPv6 and TCP) on a path whose packets have `mtu_bytes` with IPv6 and UDP.
pub(super) fn stack_mtu(mtu_bytes: u16) -> u16 {
    // IPv6, UDP and our header outside; IPv6 in the stack's mind.
    mtu_bytes - (IPV6_HEADER_BYTES + 8 + HEADER_BYTES) as u16 + IPV6_HEADER_BYTES as u16
}

#[cfg(test)]
mod tests {
    use polypath_wire::{Endpoint, FourTuple, Payload, SeqNumber, TcpFlags};
    use proptest::prelude::*;

    use super::super::address::SourceTag;
    use super::*;
    use crate::udp::address::stack_addr;

    const PATH: PathId = PathId(0x0123_4567_89ab_cdef);

    const PORTS: Ports = Ports { owner: 50_000, peer: 443 };

    fn packet(payload: Payload, segment_size: u16, flags: TcpFlags) -> Packet {
        let tuple = FourTuple {
            local: Endpoint::new(PATH.addr(SourceTag::new(1)), 5),
            remote: Endpoint::new(stack_addr([192, 0, 2, 1].into()), 80),
        };
        let seq = SeqNumber(u32::MAX - 3000);
        Packet::tcp(tuple, Segment { seq, flags, payload, segment_size, ..Segment::default() })
    }

    fn header() -> Header {
        Header { kind: Kind::Segment, to_owner: false, path: PATH }
    }

    fn through(packet: &Packet) -> Vec<(Header, Segment)> {
        let mut bytes = Vec::new();
        let size = emit(header(), packet, &mut bytes).expect("TCP");
        let bytes = Bytes::from(bytes);
        let mut merger = Merger::default();
        let mut out: Vec<_> = (0..bytes.len())
            .step_by(size)
            .filter_map(|at| merger.push(&bytes.slice(at..bytes.len().min(at + size))))
            .collect();
        out.extend(merger.finish());
        out.into_iter().map(|merged| (merged.header, merged.segment)).collect()
    }

    #[test]
    fn the_stack_reckons_with_headers_of_ipv6() {
        assert_eq!(stack_mtu(1500), 1480);
    }

    #[test]
    fn what_is_written_is_read() {
        let nonce = Challenge([7; 8]);
        for (kind, to_owner) in [
            (Kind::Segment, false),
            (Kind::Segment, true),
            (Kind::KeepAlive, false),
            (Kind::KeepAliveAnswer, true),
            (Kind::Challenge(nonce), true),
            (Kind::ChallengeOfStranger(nonce), true),
            (Kind::Proof(nonce, Proof([3; 16])), false),
            (Kind::Introduction(nonce, PathKey([4; 16])), false),
            (Kind::Retry(nonce, PORTS, false), true),
            (Kind::Retry(nonce, PORTS, true), true),
        ] {
            let header = Header { kind, to_owner, path: PATH };
            let bytes = header.to_bytes();
            assert_eq!(Header::parse(&bytes), Ok(header));
            // Only the answer of a challenge may be longer than what it answers, since it goes to one who was dialled.
            assert!(!matches!(kind, Kind::Challenge(_)) || bytes.len() == CHALLENGE_BYTES);
            assert!(!matches!(kind, Kind::Retry(..)) || bytes.len() == RETRY_BYTES);
            let mut cut = bytes.clone();
            cut.pop();
            assert!(kind == Kind::KeepAlive || Header::parse(&cut) == Err(Strange::Malformed));
            let mut turned = bytes;
            turned[1] ^= 1;
            assert!(kind == Kind::Segment || Header::parse(&turned) == Err(Strange::Malformed));
        }
    }

    #[test]
    fn a_syn_is_known_without_parsing_and_its_padding_is_no_payload() {
        let bytes = |flags| {
            let mut bytes = Vec::new();
            emit(header(), &packet(Payload::EMPTY, 0, flags), &mut bytes).expect("TCP");
            bytes
        };
        let mut syn = bytes(TcpFlags::SYN);
        pad_opening(&mut syn);
        assert_eq!(syn.len(), OPENING_BYTES);
        assert_eq!(syn_ports(&syn), Some(Ports { owner: 5, peer: 80 }));
        assert_eq!(syn_ports(&syn[..20]), None);
        assert_eq!(syn_ports(&bytes(TcpFlags::SYN.with(TcpFlags::ACK))), None);
        assert_eq!(syn_ports(&bytes(TcpFlags::ACK)), None);
        let mut merger = Merger::default();
        merger.push(&syn.into());
        assert_eq!(merger.finish().expect("a SYN").segment.payload.len(), 0);
    }

    #[test]
    fn other_versions_are_told_from_damage() {
        let old = [1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Header::parse(&old), Err(Strange::Version));
        assert_eq!(Header::parse(&[0x1f, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), Err(Strange::Malformed));
        assert_eq!(Header::parse(&[]), Err(Strange::Malformed));
    }

    #[test]
    fn an_aggregate_is_cut_and_put_together_again() {
        let slices = [1000, 5000, 7, 20_000].map(|len| Bytes::from(vec![len as u8; len]));
        let mut payload = Payload::EMPTY;
        slices.into_iter().for_each(|slice| payload.push(slice));
        let packet = packet(payload.clone(), 1400, TcpFlags::ACK.with(TcpFlags::PSH));
        let out = through(&packet);
        let [(back, segment)] = &out[..] else { panic!("{} pieces", out.len()) };
        assert_eq!((*back, segment.segment_size), (header(), 1400));
        assert_eq!(segment.payload.to_vec(), payload.to_vec());
        assert_eq!(segment.flags, TcpFlags::ACK.with(TcpFlags::PSH));
    }

    #[test]
    fn what_does_not_follow_is_not_merged() {
        let one = |flags| packet(vec![1; 100].into(), 0, flags);
        for flags in [TcpFlags::SYN, TcpFlags::ACK.with(TcpFlags::FIN), TcpFlags::ACK.with(TcpFlags::PSH)] {
            let mut merger = Merger::default();
            let mut bytes = Vec::new();
            emit(header(), &one(flags), &mut bytes);
            assert!(merger.push(&bytes.clone().into()).is_none());
            // The same again does not follow itself.
            assert!(merger.push(&bytes.into()).is_some(), "{flags:?}");
        }
        let fin = through(&packet(vec![1; 2500].into(), 1000, TcpFlags::ACK.with(TcpFlags::FIN)));
        assert_eq!(fin.iter().map(|(_, segment)| segment.payload.len()).collect::<Vec<_>>(), [2000, 500]);
    }

    proptest! {
        #[test]
        fn no_datagram_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut merger = Merger::default();
            let _ = Header::parse(&bytes);
            merger.push(&bytes.clone().into());
            merger.push(&bytes.into());
            merger.finish();
        }

        #[test]
        fn every_byte_arrives(len in 0_usize..60_000, size in 1_u16..3000, push in any::<bool>()) {
            let flags = if push { TcpFlags::ACK.with(TcpFlags::PSH) } else { TcpFlags::ACK };
            let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let out = through(&packet(data.clone().into(), size, flags));
            let back: Vec<u8> = out.iter().flat_map(|(_, segment)| segment.payload.to_vec()).collect();
            prop_assert_eq!(back, data);
        }
    }
}
