use alloc::vec::Vec;

use polypath_units::Instant;
use polypath_wire::Packet;

use super::stream_edit::{EditRules, Replacement, StreamEditor};
use super::{Direction, EditTarget, Flows, Middlebox, Outputs, Retransmissions, Rewrite};

/// Settings of a [`RewritePayload`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewritePayloadConfig {
    /// What is changed. Default: four bytes from offset 3000 of each stream.
    pub target: EditTarget,
    /// What takes its place, cut or filled with zeros to the same length; `None` (the default) inverts every
    /// bit.
    pub replacement: Option<Vec<u8>>,
    /// In which flows. Default all.
    pub flows: Flows,
    /// In which direction; `None` (the default) is both.
    pub direction: Option<Direction>,
    /// Most changes that the box makes in all. Default 1.
    pub limit: u64,
    /// What happens to data that is sent again. Default the same.
    pub retransmissions: Retransmissions,
    /// A flow with an infinite mapping, and so without Multipath TCP, is left alone from there. Default
    /// false.
    pub stop_at_infinite_mapping: bool,
}

impl Default for RewritePayloadConfig {
    fn default() -> Self {
        Self {
            target: EditTarget::Place { offset: 3000, len: 4 },
            replacement: None,
            flows: Flows::All,
            direction: None,
            limit: 1,
            retransmissions: Retransmissions::Same,
            stop_at_infinite_mapping: false,
        }
    }
}

/// Changes data and keeps its length, as a gateway that rewrites an address. No TCP end can notice; the DSS
/// checksum does.
///
/// [`Middlebox::rewrites`] says what a plain TCP receiver has got in place of what was sent.
#[derive(Debug)]
pub struct RewritePayload {
    editor: StreamEditor,
}

impl RewritePayload {
    /// The box.
    pub fn new(config: RewritePayloadConfig) -> Self {
        let replacement = config.replacement.map_or(Replacement::Inverted, Replacement::Fitted);
        Self {
            editor: StreamEditor::new(EditRules {
                target: config.target,
                replacement,
                flows: config.flows,
                direction: config.direction,
                limit: config.limit,
                retransmissions: config.retransmissions,
                stop_at_infinite_mapping: config.stop_at_infinite_mapping,
            }),
        }
    }
}

impl Middlebox for RewritePayload {
    fn name(&self) -> &'static str {
        "rewrite-payload"
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
    use crate::testing::{segment_of, stream};

    #[test]
    fn the_length_stays_and_the_rest_too() {
        for (replacement, put) in [(None, [!135_u8, !136, !137, !138]), (Some(b"xy".to_vec()), *b"xy\0\0")] {
            let config = RewritePayloadConfig {
                target: EditTarget::Place { offset: 34, len: 4 },
                replacement,
                ..Default::default()
            };
            let mut path = Path::new(RewritePayload::new(config));
            path.handshake();
            let passed = path.client(with_dss(seg(101, 501, 100), 1, 100));
            assert_eq!(shapes(&passed), [(101, 100, true)]);
            let mut expected = stream(101, 100);
            expected[34..38].copy_from_slice(&put);
            assert_eq!(segment_of(&passed[0]).payload.to_vec(), expected);
            assert_eq!(path.middlebox.rewrites()[0].inserted, put);
            assert_eq!(
                path.server(seg(501, 201, 100)),
                [turned(seg(501, 201, 100))],
                "one change is the limit"
            );
        }
    }

    #[test]
    fn a_place_at_the_end_of_a_segment_is_changed_as_far_as_it_goes() {
        let target = EditTarget::Place { offset: 98, len: 4 };
        let mut path = Path::new(RewritePayload::new(RewritePayloadConfig {
            target,
            replacement: Some(b"wxyz".to_vec()),
            ..Default::default()
        }));
        path.handshake();
        let passed = path.client(seg(101, 501, 100));
        assert_eq!(shapes(&passed), [(101, 100, false)]);
        assert_eq!(segment_of(&passed[0]).payload.to_vec()[98..], *b"wx");
        assert_eq!(shapes(&path.client(seg(201, 501, 100))), [(201, 100, false)]);
    }
}
