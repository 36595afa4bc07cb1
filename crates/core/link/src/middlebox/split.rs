use polypath_units::Instant;
use polypath_wire::Packet;

use super::flows::segment;
use super::{Direction, Middlebox, Outputs};
use crate::segmentation;

/// Settings of a [`Split`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SplitConfig {
    /// Most bytes of payload in a piece; `None` (the default) cuts every segment with two bytes or more in
    /// two.
    pub max_payload_bytes: Option<u16>,
}

/// Cuts segments as segmentation offload does (P 2.3.1): each piece has all options of the segment, its DSS
/// included.
#[derive(Debug, Default)]
pub struct Split {
    config: SplitConfig,
}

impl Split {
    /// The box.
    pub const fn new(config: SplitConfig) -> Self {
        Self { config }
    }
}

impl Middlebox for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        let len = segment(&packet).map_or(0, |segment| segment.payload.len());
        let piece_bytes = self.config.max_payload_bytes.map_or(len.div_ceil(2), usize::from);
        for piece in segmentation::cut(packet, piece_bytes) {
            out.push(direction, piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use polypath_wire::TcpFlags;

    use super::super::testing::*;
    use super::*;
    use crate::testing::{segment_of, stream};

    #[test]
    fn halves_share_the_mapping() {
        let mut path = Path::new(Split::default());
        path.handshake();
        let pieces = path.client(flagged(with_dss(seg(101, 501, 101), 1, 101), TcpFlags::PSH));
        assert_eq!(shapes(&pieces), [(101, 51, true), (152, 50, true)]);
        assert_eq!(segment_of(&pieces[0]).options, segment_of(&pieces[1]).options);
        assert_eq!(segment_of(&pieces[0]).flags, TcpFlags::ACK);
        assert_eq!(segment_of(&pieces[1]).flags, TcpFlags::ACK.with(TcpFlags::PSH));
        let joined: Vec<u8> = pieces.iter().flat_map(|piece| segment_of(piece).payload.to_vec()).collect();
        assert_eq!(joined, stream(101, 101));
    }

    #[test]
    fn small_pieces_and_things_that_need_no_cut() {
        let mut path = Path::new(Split::new(SplitConfig { max_payload_bytes: Some(40) }));
        let pieces = path.client(with_dss(seg(101, 501, 100), 1, 100));
        assert_eq!(shapes(&pieces), [(101, 40, true), (141, 40, true), (181, 20, true)]);
        assert_eq!(path.client(seg(201, 501, 40)).len(), 1);
        assert_eq!(path.client(seg(241, 501, 0)).len(), 1);
        assert_eq!(path.client(crate::testing::datagram(1, 500)).len(), 1);
    }
}
