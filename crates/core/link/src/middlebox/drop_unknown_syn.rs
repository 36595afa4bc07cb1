use polypath_units::Instant;
use polypath_wire::Packet;

use super::flows::segment;
use super::options::has_mptcp;
use super::{Direction, Middlebox, Outputs};

/// Drops, without a word, a SYN with a Multipath TCP option (P 2.3.1: firewalls that drop SYNs with options
/// that they do not know). A connection comes about only if the client tries without.
#[derive(Debug, Default)]
pub struct DropUnknownSyn {
    _private: (),
}

impl DropUnknownSyn {
    /// The box; it has no settings.
    pub const fn new() -> Self {
        Self { _private: () }
    }
}

impl Middlebox for DropUnknownSyn {
    fn name(&self) -> &'static str {
        "drop-unknown-syn"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        let drop = segment(&packet).is_some_and(|segment| {
            segment.flags.syn() && !segment.flags.ack() && has_mptcp(&segment.options)
        });
        if !drop {
            out.push(direction, packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn only_a_syn_without_multipath_tcp_passes() {
        let mut path = Path::new(DropUnknownSyn::new());
        assert_eq!(path.client(syn(100)), []);
        assert_eq!(path.client(plain_syn(100)).len(), 1);
        assert_eq!(path.server(syn_ack(500, 101)).len(), 1);
        assert_eq!(path.client(with_dss(seg(101, 501, 10), 1, 10)).len(), 1);
    }
}
