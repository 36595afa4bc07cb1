use alloc::vec::Vec;

use polypath_units::Instant;
use polypath_wire::Packet;

use super::stream_edit::{EditRules, Replacement, StreamEditor};
use super::{Direction, EditTarget, Flows, Middlebox, Outputs, Retransmissions, Rewrite};

/// Settings of a [`RewriteLength`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriteLengthConfig {
    /// What is changed. Default: four bytes from offset 3000 of each stream.
    pub target: EditTarget,
    /// What takes its place: longer, shorter, or nothing. Default: an address as FTP writes it.
    pub replacement: Vec<u8>,
    /// In which flows. Default all.
    pub flows: Flows,
    /// In which direction; `None` (the default) is both.
    pub direction: Option<Direction>,
    /// Most changes that the box makes in all. Default 1.
    pub limit: u64,
    /// A flow with an infinite mapping, and so without Multipath TCP, is left alone from there. Default
    /// false.
    pub stop_at_infinite_mapping: bool,
}

impl Default for RewriteLengthConfig {
    fn default() -> Self {
        Self {
            target: EditTarget::Place { offset: 3000, len: 4 },
            replacement: b"192,0,2,1,195,80".to_vec(),
            flows: Flows::All,
            direction: None,
            limit: 1,
            stop_at_infinite_mapping: false,
        }
    }
}

/// An application-level gateway, as for FTP (P 2.3.1, Fig. 2.15): puts longer or shorter data in the place of
/// what was there, and from then on shifts the sequence numbers of the flow, and the acknowledgments and SACK
/// blocks that come back, so that both ends see a consistent stream. Mappings in a DSS keep pointing to where
/// they did.
///
/// Data that is sent again is changed in the same way, however it is cut.
#[derive(Debug)]
pub struct RewriteLength {
    editor: StreamEditor,
}

impl RewriteLength {
    /// The box.
    pub fn new(config: RewriteLengthConfig) -> Self {
        Self {
            editor: StreamEditor::new(EditRules {
                target: config.target,
                replacement: Replacement::With(config.replacement),
                flows: config.flows,
                direction: config.direction,
                limit: config.limit,
                retransmissions: Retransmissions::Same,
                stop_at_infinite_mapping: config.stop_at_infinite_mapping,
            }),
        }
    }
}

impl Middlebox for RewriteLength {
    fn name(&self) -> &'static str {
        "rewrite-length"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        self.editor.handle_packet(direction, packet, out);
    }

    fn rewrites(&self) -> &[Rewrite] {
        self.editor.rewrites()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::testing::segment_of;

    /// The exchange of P Fig. 2.15: ten bytes at 110 become twelve; what comes at 120 leaves at 122, its
    /// mapping as it was.
    #[test]
    fn the_mapping_is_no_longer_in_step_with_the_sequence_numbers() {
        let mut path = Path::new(RewriteLength::new(RewriteLengthConfig {
            target: EditTarget::Place { offset: 12, len: 1 },
            replacement: b"xyz".to_vec(),
            ..Default::default()
        }));
        path.client(syn(99));
        path.server(syn_ack(500, 100));
        let passed = path.client(with_dss(seg(110, 501, 10), 11, 10));
        assert_eq!(shapes(&passed), [(110, 12, true)]);
        let passed = path.client(with_dss(seg(120, 501, 10), 21, 10));
        assert_eq!(shapes(&passed), [(122, 10, true)]);
        assert_eq!(segment_of(&passed[0]).options.dss.unwrap().mapping.unwrap().subflow_offset, 21);
        let ack = path.server(seg(501, 132, 0));
        assert_eq!(segment_of(&ack[0]).ack.0, 130);
        assert_eq!(path.middlebox.rewrites().len(), 1);
    }
}
