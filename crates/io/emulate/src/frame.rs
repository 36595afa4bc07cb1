//! Ethernet frames as packet sockets give them: aggregates cut and checksums finished, so that what goes on is what a wire
//! would have carried.

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use polypath_link::PacketLike;
use polypath_system::tun::VNET_HEADER_BYTES;
use polypath_wire::{IncrementalSum, Packet};

const ETHERNET_HEADER_BYTES: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// IEEE 802.1Q and 802.1ad.
const VLAN: [u16; 2] = [0x8100, 0x88a8];
const TCP: u8 = 6;
const UDP: u8 = 17;
/// TCP flags that only the last piece of an aggregate keeps (FIN, PSH), and only the first (CWR).
const LAST_ONLY: u8 = 0x09;
const FIRST_ONLY: u8 = 0x80;

/// Flag of the virtio header: the checksum is left to be done.
const NEEDS_CHECKSUM: u8 = 1;

/// A frame of wire size.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// The Ethernet header, and all that follows.
    pub(super) bytes: Bytes,
    /// Length of the Ethernet header, VLAN tags included.
    header_bytes: u32,
    /// Length of the IP packet, or of what there is instead.
    network_bytes: u32,
    is_ip: bool,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_be_bytes(*field))
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|field| field.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}

/// Where the network header is, and the protocol there.
fn network_header(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = ETHERNET_HEADER_BYTES;
    let mut protocol = u16_at(frame, at - 2)?;
    while VLAN.contains(&protocol) {
        at += 4;
        protocol = u16_at(frame, at - 2)?;
    }
    Some((at, protocol))
}

impl Frame {
    /// `None` if the frame is too short to be one.
    pub(super) fn new(bytes: Bytes) -> Option<Self> {
        let (at, protocol) = network_header(&bytes)?;
        let available = bytes.len().checked_sub(at)?;
        let declared = match protocol {
            IPV4 => u16_at(&bytes, at + 2).map(usize::from),
            IPV6 => u16_at(&bytes, at + 4).map(|payload| usize::from(payload) + 40),
            _ => None,
        };
        Some(Self {
            header_bytes: at as u32,
            // Short frames are padded, which no IP packet counts.
            network_bytes: declared.unwrap_or(available).min(available) as u32,
            is_ip: declared.is_some(),
            bytes,
        })
    }

    /// The Ethernet header.
    pub(super) fn header(&self) -> &[u8] {
        self.bytes.get(..self.header_bytes as usize).unwrap_or_default()
    }

    /// To one station, not to several.
    pub(super) fn is_unicast(&self) -> bool {
        self.bytes.first().is_some_and(|first| first & 1 == 0)
    }

    /// The packet in it, if it is one that this crate reads: TCP, UDP or an ICMP error, whole and intact.
    pub(super) fn packet(&self) -> Option<Packet> {
        if !self.is_ip {
            return None;
        }
        Packet::parse(self.bytes.slice(self.header_bytes as usize..)).ok()
    }

    /// A packet behind an Ethernet header.
    pub(super) fn with_packet(header: &[u8], packet: &Packet) -> Option<Self> {
        let mut bytes = Vec::with_capacity(header.len() + packet.len_bytes());
        bytes.extend_from_slice(header);
        packet.emit(&mut bytes);
        Self::new(bytes.into())
    }
}

/// The header with which the other station answers.
pub(super) fn answering(header: &[u8]) -> Vec<u8> {
    let mut answer = header.to_vec();
    if let Some((destination, rest)) = answer.split_at_mut_checked(6)
        && let Some((source, _)) = rest.split_at_mut_checked(6)
    {
        destination.swap_with_slice(source);
    }
    answer
}

impl PacketLike for Frame {
    fn len_bytes(&self) -> usize {
        self.network_bytes as usize
    }

    fn is_aggregate(&self) -> bool {
        // Cut when it was received.
        false
    }

    fn segments(self) -> impl Iterator<Item = Self> {
        std::iter::once(self)
    }

    fn dont_fragment(&self) -> bool {
        let network = self.bytes.get(self.header_bytes as usize..).unwrap_or_default();
        match network.first().map(|first| first >> 4) {
            Some(4) if self.is_ip => network.get(6).is_some_and(|flags| flags & 0x40 != 0),
            Some(6) if self.is_ip => true,
            _ => false,
        }
    }

    fn too_big(&self, mtu_bytes: u32, source: Option<IpAddr>) -> Option<Self> {
        let message = self.packet()?.too_big(mtu_bytes, source)?;
        Self::with_packet(&answering(self.header()), &message)
    }
}

/// Makes frames of what a packet socket with `PACKET_VNET_HDR` has given.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// Storage of many frames, so that there is no allocation for each.
    arena: BytesMut,
}

/// Bytes of storage that are allocated at once.
const ARENA_BYTES: usize = 1 << 18;

impl Cutter {
    /// Takes a virtio header and the frame behind it apart; false if they make no sense.
    pub(super) fn cut(&mut self, received: &[u8], mut out: impl FnMut(Frame)) -> bool {
        let Some((&[flags, gso_type, _, _, g0, g1, s0, s1, o0, o1], frame)) =
            received.split_first_chunk::<VNET_HEADER_BYTES>()
        else {
            return false;
        };
        if gso_type != 0 {
            return self.cut_aggregate(frame, u16::from_ne_bytes([g0, g1]).into(), out).is_some();
        }
        self.reserve(frame.len());
        self.arena.extend_from_slice(frame);
        if flags & NEEDS_CHECKSUM != 0 {
            let start = usize::from(u16::from_ne_bytes([s0, s1]));
            let at = start + usize::from(u16::from_ne_bytes([o0, o1]));
            finish_checksum(&mut self.arena, start, at);
        }
        Frame::new(self.arena.split().freeze()).map(&mut out).is_some()
    }

    fn reserve(&mut self, bytes: usize) {
        if self.arena.capacity() < bytes {
            self.arena = BytesMut::with_capacity(ARENA_BYTES.max(bytes));
        }
    }

    /// As the hardware of a network card cuts it.
    fn cut_aggregate(&mut self, frame: &[u8], piece_bytes: usize, mut out: impl FnMut(Frame)) -> Option<()> {
        let (network, protocol) = network_header(frame)?;
        let (transport, number) = match protocol {
            IPV4 => (network + usize::from(frame.get(network)? & 15) * 4, *frame.get(network + 9)?),
            IPV6 => (network + 40, *frame.get(network + 6)?),
            _ => return None,
        };
        let headers = match number {
            TCP => transport + usize::from(frame.get(transport + 12)? >> 4) * 4,
            UDP => transport + 8,
            _ => return None,
        };
        let (headers, data) = frame.split_at_checked(headers)?;
        let identification = u16_at(headers, network + 4)?;
        let sequence = u32::from_be_bytes(*headers.get(transport + 4..)?.first_chunk()?);
        let pieces = data.chunks(piece_bytes.max(1));
        let count = pieces.len();
        for (number_of_piece, piece) in pieces.enumerate() {
            let len = headers.len() + piece.len();
            self.reserve(len);
            self.arena.extend_from_slice(headers);
            self.arena.extend_from_slice(piece);
            let copy = &mut self.arena[..];
            let mut pseudo = IncrementalSum::new();
            if protocol == IPV4 {
                put_u16(copy, network + 2, (len - network) as u16);
                put_u16(copy, network + 4, identification.wrapping_add(number_of_piece as u16));
                put_u16(copy, network + 10, 0);
                let mut sum = IncrementalSum::new();
                sum.push(copy.get(network..transport)?);
                put_u16(copy, network + 10, sum.finish());
                pseudo.push(copy.get(network + 12..network + 20)?);
            } else {
                put_u16(copy, network + 4, (len - network - 40) as u16);
                pseudo.push(copy.get(network + 8..network + 40)?);
            }
            let checksum_at = match number {
                TCP => {
                    let position = (number_of_piece * piece_bytes) as u32;
                    let field = copy.get_mut(transport + 4..)?.first_chunk_mut()?;
                    *field = sequence.wrapping_add(position).to_be_bytes();
                    let is_last = number_of_piece + 1 == count;
                    let flags = copy.get_mut(transport + 13)?;
                    *flags &= if is_last { !0 } else { !LAST_ONLY };
                    *flags &= if number_of_piece == 0 { !0 } else { !FIRST_ONLY };
                    transport + 16
                }
                _ => {
                    put_u16(copy, transport + 4, (len - transport) as u16);
                    transport + 6
                }
            };
            let [l0, l1] = ((len - transport) as u16).to_be_bytes();
            pseudo.push(&[0, number, l0, l1]);
            put_u16(copy, checksum_at, pseudo.folded());
            finish_checksum(copy, transport, checksum_at);
            out(Frame::new(self.arena.split().freeze())?);
        }
        Some(())
    }
}

/// Completes a checksum over everything from `start`, whose field has the sum of the pseudo header.
fn finish_checksum(frame: &mut [u8], start: usize, at: usize) {
    let mut sum = IncrementalSum::new();
    sum.push(frame.get(start..).unwrap_or_default());
    // Zero would say to UDP that there is none; to the others it is the same number.
    let sum = match sum.finish() {
        0 => 0xffff,
        sum => sum,
    };
    put_u16(frame, at, sum);
}

#[cfg(test)]
mod tests {
    use polypath_wire::{Checksum, Endpoint, FourTuple, Segment, SeqNumber, TcpFlags, Transport};

    use super::*;

    /// A TCP packet as a host with offloads gives it to its interface.
    fn offloaded(hosts: [IpAddr; 2], payload_bytes: usize, piece_bytes: u16, vlan: bool) -> Vec<u8> {
        let [local, remote] = hosts.map(|addr| Endpoint::new(addr, 80));
        let segment = Segment {
            seq: SeqNumber(u32::MAX - 100),
            flags: TcpFlags::ACK.with(TcpFlags::PSH).with(TcpFlags::CWR),
            payload: (0..payload_bytes).map(|byte| byte as u8).collect::<Vec<_>>().into(),
            ..Segment::default()
        };
        let packet = Packet::tcp(FourTuple { local, remote }, segment);
        let network = if vlan { 18 } else { 14 };
        let start = (network + packet.ip.len_bytes()) as u16;
        let mut bytes = vec![NEEDS_CHECKSUM, u8::from(piece_bytes > 0), 0, 0];
        bytes.extend([piece_bytes, start, 16].iter().flat_map(|field| field.to_ne_bytes()));
        bytes.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        if vlan {
            bytes.extend([0x81, 0, 0, 7]);
        }
        bytes.extend((if local.addr.is_ipv4() { IPV4 } else { IPV6 }).to_be_bytes());
        packet.emit_header(&mut bytes, Checksum::Partial);
        packet.payload_slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }

    fn cut(received: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        assert!(Cutter::default().cut(received, |frame| frames.push(frame)));
        frames
    }

    fn hosts() -> [[IpAddr; 2]; 2] {
        [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]].map(|pair| pair.map(|addr| addr.parse().unwrap()))
    }

    #[test]
    fn an_aggregate_becomes_the_segments_that_a_wire_carries() {
        for (hosts, vlan) in hosts().into_iter().zip([false, true]) {
            let frames = cut(&offloaded(hosts, 3000, 1400, vlan));
            let mut expected_seq = SeqNumber(u32::MAX - 100);
            for (number, (frame, len)) in frames.iter().zip([1400, 1400, 200]).enumerate() {
                // Verifies all checksums.
                let packet = frame.packet().expect("an intact packet");
                assert_eq!((packet.ip.src, packet.len_bytes()), (hosts[0], frame.len_bytes()));
                let Transport::Tcp(segment) = packet.transport else { panic!("not TCP") };
                assert_eq!((segment.seq, segment.payload.len()), (expected_seq, len));
                assert_eq!(segment.flags.contains(TcpFlags::PSH), number == 2);
                assert_eq!(segment.flags.contains(TcpFlags::CWR), number == 0);
                expected_seq = segment.seq_end();
                assert_eq!(frame.header().len(), if vlan { 18 } else { 14 });
            }
            assert_eq!(frames.len(), 3);
        }
    }

    #[test]
    fn a_single_segment_gets_its_checksum_and_stays_as_it_was() {
        for hosts in hosts() {
            let received = offloaded(hosts, 101, 0, false);
            let frames = cut(&received);
            assert_eq!(frames.len(), 1);
            assert!(frames[0].packet().is_some() && frames[0].dont_fragment());
            let differ = frames[0].bytes.iter().zip(&received[VNET_HEADER_BYTES..]).filter(|(a, b)| a != b);
            assert!(differ.count() <= 2, "only the checksum");
        }
    }

    #[test]
    fn what_is_no_ip_is_carried_whole_and_what_is_no_frame_is_not() {
        let mut arp = vec![0; VNET_HEADER_BYTES];
        arp.extend([0xff; 12]);
        arp.extend([8, 6]);
        arp.extend([1; 28]);
        let frames = cut(&arp);
        assert_eq!(frames[0].bytes, arp[VNET_HEADER_BYTES..]);
        assert_eq!((frames[0].len_bytes(), frames[0].packet(), frames[0].is_unicast()), (28, None, false));
        assert!(!frames[0].dont_fragment());
        assert!(!Cutter::default().cut(&[0; 9], |_| panic!("no frame")));
        assert!(!Cutter::default().cut(&[0; 20], |_| panic!("no frame")));
        let mut cut_short = offloaded(hosts()[0], 3000, 1400, false);
        for len in VNET_HEADER_BYTES..80 {
            cut_short.truncate(80 - (len - VNET_HEADER_BYTES));
            Cutter::default().cut(&cut_short, |_| {});
        }
    }

    #[test]
    fn who_sent_too_long_a_packet_is_told_so() {
        for hosts in hosts() {
            let frame = cut(&offloaded(hosts, 1000, 0, false)).remove(0);
            let answer = frame.too_big(900, None).expect("an answer");
            assert_eq!(answer.header()[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            let packet = answer.packet().expect("a packet");
            assert_eq!((packet.ip.src, packet.ip.dst), (hosts[1], hosts[0]));
        }
    }
}
