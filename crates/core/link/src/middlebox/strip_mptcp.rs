use polypath_units::Instant;
use polypath_wire::Packet;

use super::flows::segment_mut;
use super::options::remove_mptcp;
use super::{Direction, Middlebox, Outputs};

/// From which segments a [`StripMptcp`] takes options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripFrom {
    /// SYN without ACK.
    Syn,
    /// SYN with ACK.
    SynAck,
    /// All others: the handshake succeeds, and then nothing passes.
    Data,
}

/// Takes Multipath TCP options out of segments of one kind, in both directions (P 2.3.1: firewalls that
/// remove options that they do not know).
#[derive(Debug)]
pub struct StripMptcp {
    from: StripFrom,
}

impl StripMptcp {
    /// A box that strips segments of this kind.
    pub const fn new(from: StripFrom) -> Self {
        Self { from }
    }
}

impl Middlebox for StripMptcp {
    fn name(&self) -> &'static str {
        match self.from {
            StripFrom::Syn => "strip-mptcp-syn",
            StripFrom::SynAck => "strip-mptcp-synack",
            StripFrom::Data => "strip-mptcp-data",
        }
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, mut packet: Packet, out: &mut Outputs) {
        if let Some(segment) = segment_mut(&mut packet) {
            let kind = match (segment.flags.syn(), segment.flags.ack()) {
                (true, false) => StripFrom::Syn,
                (true, true) => StripFrom::SynAck,
                _ => StripFrom::Data,
            };
            if kind == self.from {
                remove_mptcp(&mut segment.options);
            }
        }
        out.push(direction, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::has_mptcp;
    use super::super::testing::*;
    use super::*;
    use crate::testing::segment_of;

    #[test]
    fn each_kind_loses_its_options_and_no_other_does() {
        for (from, expected) in [
            (StripFrom::Syn, [false, true, true, true]),
            (StripFrom::SynAck, [true, false, true, true]),
            (StripFrom::Data, [true, true, false, false]),
        ] {
            let mut path = Path::new(StripMptcp::new(from));
            let passed = [
                path.client(syn(100)),
                path.server(syn_ack(500, 101)),
                path.client(with_dss(seg(101, 501, 10), 1, 10)),
                path.server(with_dss(seg(501, 111, 10), 1, 10)),
            ];
            let kept = passed.map(|packets| {
                let [packet] = &packets[..] else { panic!("{packets:?}") };
                if segment_of(packet).flags.syn() {
                    assert!(segment_of(packet).options.sack_permitted(), "the other options stay");
                }
                has_mptcp(&segment_of(packet).options)
            });
            assert_eq!(kept, expected, "{from:?}");
        }
    }
}
