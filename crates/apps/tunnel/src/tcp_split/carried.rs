//! A segment between the two ends: one byte in place of the IP header, then TCP's header without a checksum, then the data.
//!
//! The byte is the path's number, and 0x80 if who called says it. Encryption has the datagram's integrity.

use bytes::Bytes;
use polypath_wire::{Checksum, IpHeader, Packet, Segment, Transport};

use super::addresses::{SERVICE, caller, path_between};
use crate::frame::DATA_HEADER_BYTES;
use crate::noise::PathId;

const BY_CALLER: u8 = 0x80;
/// IPv4's header.
const IP_BYTES: usize = 20;
/// What a segment is shorter by than as a packet.
pub(super) const SAVED_BYTES: usize = IP_BYTES - 1;

/// A segment that leaves.
pub(crate) struct Carried {
    pub(crate) path: PathId,
    /// A number that segments of a subflow share.
    pub(crate) flow: u8,
    /// The segment, behind room for a frame's header.
    pub(crate) frame: Box<[u8]>,
}

impl Carried {
    /// `None` for what is between addresses that are not ours.
    pub(super) fn new(packet: &Packet) -> Option<Self> {
        let path = path_between(packet.ip.src, packet.ip.dst)?;
        let Transport::Tcp(segment) = &packet.transport else { return None };
        let mut frame = Vec::with_capacity(packet.len_bytes());
        packet.emit_header(&mut frame, Checksum::Partial);
        // The room and the byte take the place of the IP header's end.
        frame.drain(..IP_BYTES - 1 - DATA_HEADER_BYTES);
        let by_caller = if packet.ip.dst == SERVICE.addr { BY_CALLER } else { 0 };
        *frame.get_mut(DATA_HEADER_BYTES)? = path.index() as u8 | by_caller;
        segment.payload.slices().iter().for_each(|slice| frame.extend_from_slice(slice));
        let flow = (segment.src_port ^ segment.dst_port) as u8;
        Some(Self { path, flow, frame: frame.into() })
    }
}

/// Whether a segment has neither data nor a flag that the peer's TCP acknowledges.
pub(crate) fn only_acknowledges(segment: &[u8]) -> bool {
    const OFFSET_AT: usize = 1 + 12;
    const SYN_OR_FIN: u8 = 0x03;
    let [Some(offset), Some(flags)] = [OFFSET_AT, OFFSET_AT + 1].map(|at| segment.get(at).copied()) else {
        return false;
    };
    segment.len() <= 1 + usize::from(offset >> 4) * 4 && flags & SYN_OR_FIN == 0
}

/// The packet of a segment that came.
pub(super) fn parse(bytes: Bytes) -> Option<Packet> {
    let first = *bytes.first()?;
    let path = PathId::new(first & !BY_CALLER)?;
    let (caller, service) = (caller(path.index()), SERVICE.addr);
    let (src, dst) = if first & BY_CALLER == 0 { (service, caller) } else { (caller, service) };
    let segment = Segment::parse(bytes.slice(1..)).ok()?;
    Some(Packet { ip: IpHeader::new(src, dst), transport: Transport::Tcp(segment) })
}

#[cfg(test)]
mod tests {
    use polypath_wire::{Endpoint, FourTuple, TcpFlags};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        for (by_caller, path) in [(true, 0), (false, 7)] {
            let caller = Endpoint::new(caller(path), 50_000);
            let (local, remote) = if by_caller { (SERVICE, caller) } else { (caller, SERVICE) };
            let payload = Bytes::from_static(b"data").into();
            let segment = Segment { flags: TcpFlags::ACK, payload, ..Segment::default() };
            let packet = Packet::tcp(FourTuple { local: remote, remote: local }, segment);
            let carried = Carried::new(&packet).unwrap();
            assert_eq!(carried.path.index(), path);
            assert!(!only_acknowledges(&carried.frame[DATA_HEADER_BYTES..]));
            assert_eq!(carried.frame.len() - DATA_HEADER_BYTES, packet.len_bytes() - SAVED_BYTES);
            let bytes = Bytes::from(carried.frame).slice(DATA_HEADER_BYTES..);
            assert_eq!(parse(bytes), Some(packet));
        }
    }

    #[test]
    fn one_without_data_only_acknowledges() {
        let tuple = FourTuple { local: Endpoint::new(caller(1), 50_000), remote: SERVICE };
        for (flags, does) in [(TcpFlags::ACK, true), (TcpFlags::SYN, false), (TcpFlags::FIN, false)] {
            let carried = Carried::new(&Packet::tcp(tuple, Segment { flags, ..Segment::default() })).unwrap();
            assert_eq!(only_acknowledges(&carried.frame[DATA_HEADER_BYTES..]), does, "{flags:?}");
        }
        assert!(!only_acknowledges(&[]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(bytes.into());
        }
    }
}
