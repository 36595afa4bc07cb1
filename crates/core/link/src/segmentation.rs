//! Cutting segments as segmentation offload does.

use polypath_wire::{Packet, Segments, Transport};

/// True if `packet` stands for several segments.
#[inline]
pub(crate) fn is_aggregate(packet: &Packet) -> bool {
    matches!(&packet.transport, Transport::Tcp(segment) if segment.segment_size > 0)
}

/// Cuts a TCP packet into pieces of at most `piece_bytes` of payload, each with all the options. Anything
/// else, a SYN, and what is short enough comes out as it is, but is an aggregate no more.
pub(crate) fn cut(mut packet: Packet, piece_bytes: usize) -> Segments {
    if let Transport::Tcp(segment) = &mut packet.transport {
        let piece_bytes = if segment.flags.syn() { usize::MAX } else { piece_bytes.max(1) };
        segment.segment_size = u16::try_from(piece_bytes).unwrap_or(0);
    }
    packet.segments()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use polypath_wire::TcpFlags;

    use super::*;
    use crate::testing::{data, segment_of};

    #[test]
    fn pieces_have_the_given_size_and_a_syn_is_not_cut() {
        let lens = |packet: Packet, piece_bytes| -> Vec<usize> {
            cut(packet, piece_bytes).map(|piece| segment_of(&piece).payload.len()).collect()
        };
        assert_eq!(lens(data(1, 2500), 1000), [1000, 1000, 500]);
        assert_eq!(lens(data(1, 2500), usize::MAX), [2500]);
        assert_eq!(lens(data(1, 3), 0), [1, 1, 1]);
        let mut syn = data(1, 2500);
        let Transport::Tcp(segment) = &mut syn.transport else { unreachable!() };
        segment.flags = TcpFlags::SYN;
        segment.segment_size = 100;
        assert!(is_aggregate(&syn));
        assert_eq!(lens(syn, 1000), [2500]);
    }
}
