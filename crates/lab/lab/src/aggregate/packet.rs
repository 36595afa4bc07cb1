//! What goes over a path: a datagram of an aggregator, with the headers that it has there.

use std::net::IpAddr;

use bytes::Bytes;
use polypath_link::PacketLike;

/// Bytes of IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;

/// Its number among IP's protocols.
const UDP: u8 = 17;

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(super) struct OnPath {
    pub(super) datagram: Bytes,
    pub(super) header_bytes: u16,
}

impl PacketLike for OnPath {
    fn len_bytes(&self) -> usize {
        self.datagram.len() + usize::from(self.header_bytes)
    }

    fn is_aggregate(&self) -> bool {
        false
    }

    fn segments(self) -> impl Iterator<Item = Self> {
        std::iter::once(self)
    }

    fn dont_fragment(&self) -> bool {
        false
    }

    fn too_big(&self, _: u32, _: Option<IpAddr>) -> Option<Self> {
        None
    }
}

/// An IP packet of the stream: as long as it says, with its number behind the headers.
pub(super) fn numbered(sequence: u64, bytes: usize) -> Bytes {
    let mut packet = vec![0; bytes.max(LEAST_BYTES)];
    let len = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[9] = UDP;
    packet[HEADER_BYTES..LEAST_BYTES].copy_from_slice(&sequence.to_be_bytes());
    packet.into()
}

/// Bytes of the shortest packet that has room for a number.
pub(crate) const LEAST_BYTES: usize = HEADER_BYTES + 8;

/// The number of a packet of the stream.
pub(super) fn number(packet: &[u8]) -> Option<u64> {
    let sequence = packet.get(HEADER_BYTES..)?.first_chunk()?;
    Some(u64::from_be_bytes(*sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_number() {
        for bytes in [0, LEAST_BYTES, 1480] {
            let packet = numbered(77, bytes);
            assert_eq!((packet.len(), number(&packet)), (bytes.max(LEAST_BYTES), Some(77)));
        }
        assert_eq!(number(&[0; 35]), None);
    }
}
