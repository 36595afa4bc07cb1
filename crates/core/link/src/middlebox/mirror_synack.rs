use alloc::vec::Vec;

use polypath_units::Instant;
use polypath_wire::{Packet, SeqNumber, TcpOption};

use super::flows::{FlowTable, flow_of, segment_mut};
use super::options::remove_mptcp;
use super::{Direction, Middlebox, Outputs};

/// A front end that copies the Multipath TCP options of the client's SYN into the SYN/ACK, in place of the
/// server's: the client sees its own MP_CAPABLE come back (the baidu.com case).
///
/// The server behind it sees the SYN as it was, so that a server that knows Multipath TCP believes in it
/// until the client's third ACK.
#[derive(Debug)]
pub struct MirrorSynAck {
    /// Sequence number and options of the last SYN.
    syns: FlowTable<(SeqNumber, Vec<TcpOption>)>,
}

impl MirrorSynAck {
    /// The box; it has no settings.
    pub fn new() -> Self {
        Self { syns: FlowTable::new() }
    }
}

impl Default for MirrorSynAck {
    fn default() -> Self {
        Self::new()
    }
}

impl Middlebox for MirrorSynAck {
    fn name(&self) -> &'static str {
        "mirror-synack"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, mut packet: Packet, out: &mut Outputs) {
        let flow = flow_of(direction, &packet);
        if let (Some(flow), Some(segment)) = (flow, segment_mut(&mut packet))
            && segment.flags.syn()
        {
            if !segment.flags.ack() {
                let is_mptcp = |option: &&TcpOption| matches!(option, TcpOption::Mptcp(_));
                let options = segment.options.rest.iter().filter(is_mptcp).cloned().collect();
                self.syns.insert(flow, (segment.seq, options));
            } else if let Some((seq, options)) = self.syns.get(flow)
                && segment.ack == seq.add(1)
            {
                remove_mptcp(&mut segment.options);
                segment.options.rest.extend(options.iter().cloned());
            }
        }
        out.push(direction, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::testing::segment_of;

    #[test]
    fn the_client_sees_its_own_option() {
        let mut path = Path::new(MirrorSynAck::new());
        let sent = segment_of(&path.client(syn(100))[0]).clone();
        let answer = path.server(syn_ack(500, 101));
        let answer = segment_of(&answer[0]);
        assert!(answer.options.mptcp().eq(sent.options.mptcp()));
        assert_eq!(answer.options.mss(), Some(1460), "the server's other options stay");
    }

    #[test]
    fn a_plain_syn_leaves_nothing_to_mirror() {
        let mut path = Path::new(MirrorSynAck::new());
        path.client(plain_syn(100));
        let answer = path.server(syn_ack(500, 101));
        assert_eq!(segment_of(&answer[0]).options.mptcp().count(), 0);
    }
}
