//! The header in front of each packet of a device with `IFF_VNET_HDR` (virtio 1.2 §5.1.6), in native byte order.

use polypath_wire::{Checksums, Packet, ParseError, Transport};

/// Length of the header.
pub const VNET_HEADER_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_IS_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
/// Set in addition when the aggregate has CWR set in its first segment.
const GSO_ECN: u8 = 0x80;

/// Where the checksum is in a TCP and in a UDP header.
const TCP_CHECKSUM_AT: u16 = 16;
const UDP_CHECKSUM_AT: u16 = 6;

/// The header for a packet whose headers take `header_len_bytes`, and whether its checksum is left to the kernel.
pub fn emit(packet: &Packet, header_len_bytes: usize) -> [u8; VNET_HEADER_BYTES] {
    let ip_len = packet.ip.len_bytes() as u16;
    let (checksum_at, segment_size) = match &packet.transport {
        Transport::Tcp(segment) => (TCP_CHECKSUM_AT, segment.segment_size),
        Transport::Udp(_) => (UDP_CHECKSUM_AT, 0),
        // Its checksum is there already.
        Transport::Icmp(_) => return [0; VNET_HEADER_BYTES],
    };
    let is_aggregate = segment_size > 0 && packet.len_bytes() - header_len_bytes > usize::from(segment_size);
    let (gso_type, gso_size) = match (is_aggregate, packet.ip.src.is_ipv4()) {
        (false, _) => (GSO_NONE, 0),
        (true, true) => (GSO_TCP_V4, segment_size),
        (true, false) => (GSO_TCP_V6, segment_size),
    };
    let [h0, h1] = (header_len_bytes as u16).to_ne_bytes();
    let [g0, g1] = gso_size.to_ne_bytes();
    let [s0, s1] = ip_len.to_ne_bytes();
    let [o0, o1] = checksum_at.to_ne_bytes();
    [NEEDS_CHECKSUM, gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
}

/// Reads a header and the packet after it.
pub fn parse(mut bytes: bytes::Bytes) -> Result<Packet, ParseError> {
    let Some(&[flags, gso_type, _, _, g0, g1, ..]) = bytes.first_chunk::<VNET_HEADER_BYTES>() else {
        return Err(ParseError::Truncated {
            what: "vnet header",
            needed: VNET_HEADER_BYTES,
            available: bytes.len(),
        });
    };
    bytes::Buf::advance(&mut bytes, VNET_HEADER_BYTES);
    let checked = flags & (NEEDS_CHECKSUM | DATA_IS_VALID) != 0;
    let checksums = if checked { Checksums::Ignore } else { Checksums::Verify };
    let mut packet = Packet::parse_with(bytes, checksums)?;
    if matches!(gso_type & !GSO_ECN, GSO_TCP_V4 | GSO_TCP_V6)
        && let Transport::Tcp(segment) = &mut packet.transport
    {
        segment.segment_size = u16::from_ne_bytes([g0, g1]);
    }
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use polypath_wire::{Checksum, Endpoint, FourTuple, Segment, TcpFlags};

    use super::*;

    fn packet(payload_bytes: usize, segment_size: u16) -> Packet {
        let tuple = FourTuple {
            local: Endpoint::new([10, 0, 0, 1].into(), 1),
            remote: Endpoint::new([10, 0, 0, 2].into(), 2),
        };
        let segment = Segment {
            flags: TcpFlags::ACK,
            payload: vec![7; payload_bytes].into(),
            segment_size,
            ..Segment::default()
        };
        Packet::tcp(tuple, segment)
    }

    fn on_the_wire(packet: &Packet) -> Vec<u8> {
        let mut header = Vec::new();
        packet.emit_header(&mut header, Checksum::Partial);
        let mut bytes = emit(packet, header.len()).to_vec();
        bytes.extend(header);
        packet.payload_slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }

    #[test]
    fn aggregates_and_single_segments_come_back_as_they_were() {
        for (payload_bytes, segment_size, size_after) in [(5000, 1448, 1448), (1448, 1448, 0), (0, 0, 0)] {
            let bytes = on_the_wire(&packet(payload_bytes, segment_size));
            let back = parse(bytes.into()).unwrap();
            let Transport::Tcp(segment) = back.transport else { panic!("not TCP") };
            assert_eq!((segment.payload.len(), segment.segment_size), (payload_bytes, size_after));
        }
    }

    #[test]
    fn an_unfinished_checksum_passes_only_where_the_header_says_so() {
        let mut bytes = on_the_wire(&packet(100, 0));
        assert!(parse(bytes.clone().into()).is_ok());
        bytes[0] = 0;
        assert!(parse(bytes.into()).is_err());
        assert!(parse(vec![0; 4].into()).is_err());
    }
}
