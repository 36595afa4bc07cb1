use polypath_units::Instant;
use polypath_wire::{Packet, SeqNumber};

use super::flows::{FlowTable, flow_of, segment_mut};
use super::options::{icmp_quote, map_sack};
use super::{Direction, Middlebox, Outputs};
use crate::random::Random;

/// A firewall that "randomizes" initial sequence numbers (P 2.3.1): in each direction of each flow it adds a
/// random number to all sequence numbers, and takes it off acknowledgments. Mappings in a DSS are relative,
/// and it leaves them alone.
///
/// Flows whose SYN it has not seen pass as they are.
#[derive(Debug)]
pub struct RandomizeIsn {
    flows: FlowTable<Shifts>,
    random: Random,
}

#[derive(Clone, Copy, Debug)]
struct Shifts {
    /// The client's initial sequence number, by which a retransmitted SYN is known.
    client_isn: SeqNumber,
    /// By direction.
    shift: [u32; 2],
}

impl RandomizeIsn {
    /// The box; it has no settings.
    pub fn new(seed: u64) -> Self {
        Self { flows: FlowTable::new(), random: Random::new(seed) }
    }
}

impl Middlebox for RandomizeIsn {
    fn name(&self) -> &'static str {
        "randomize-isn"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, mut packet: Packet, out: &mut Outputs) {
        if let Some((flow, seq)) = icmp_quote(&mut packet) {
            // The error goes to the sender of what it quotes, who knows its own numbers.
            let quoted = direction.reversed();
            let flow = if quoted == Direction::Forward { *flow } else { flow.reversed() };
            if let Some(shifts) = self.flows.get(flow) {
                *seq = seq.sub(shifts.shift[quoted.index()]);
            }
        }
        let flow = flow_of(direction, &packet);
        if let (Some(flow), Some(segment)) = (flow, segment_mut(&mut packet)) {
            if direction == Direction::Forward
                && segment.flags.syn()
                && !segment.flags.ack()
                && self.flows.get(flow).is_none_or(|known| known.client_isn != segment.seq)
            {
                let shift = [self.random.u32(), self.random.u32()];
                self.flows.insert(flow, Shifts { client_isn: segment.seq, shift });
            }
            if let Some(shifts) = self.flows.get(flow) {
                let ahead = shifts.shift[direction.index()];
                let back = shifts.shift[direction.reversed().index()];
                segment.seq = segment.seq.add(ahead);
                if segment.flags.ack() {
                    segment.ack = segment.ack.sub(back);
                }
                map_sack(&mut segment.options, |seq| seq.sub(back));
            }
        }
        out.push(direction, packet);
    }
}

#[cfg(test)]
mod tests {
    use polypath_wire::{FourTuple, IcmpMessage, IpHeader, SackBlock, Transport};

    use super::super::testing::*;
    use super::*;
    use crate::testing::{CLIENT, FLOW, SERVER, segment_of};

    #[test]
    fn each_end_sees_its_own_numbers_acknowledged() {
        let mut path = Path::new(RandomizeIsn::new(3));
        let heard = segment_of(&path.client(syn(100))[0]).clone();
        let client_shift = heard.seq.diff(SeqNumber(100)) as u32;
        assert_ne!(client_shift, 0);
        assert_eq!(heard.ack, SeqNumber(0), "nothing is acknowledged yet");
        // The server acknowledges what it saw; the client sees what it sent acknowledged.
        let answer = segment_of(&path.server(syn_ack(500, heard.seq.add(1).0))[0]).clone();
        assert_eq!(answer.ack, SeqNumber(101));
        let server_shift = answer.seq.diff(SeqNumber(500)) as u32;
        assert_ne!(server_shift, client_shift);

        let sent = with_dss(seg(101, answer.seq.add(1).0, 10), 1, 10);
        let heard = segment_of(&path.client(sent.clone())[0]).clone();
        assert_eq!(heard.seq, SeqNumber(101).add(client_shift));
        assert_eq!(heard.ack, SeqNumber(501));
        assert_eq!(heard.options, segment_of(&sent).options, "the mapping is relative");

        let mut with_sack = seg(501, SeqNumber(101).add(client_shift).0, 0);
        let start = SeqNumber(300).add(client_shift);
        segment_mut(&mut with_sack).unwrap().options.sack.push(SackBlock { start, end: start.add(50) });
        let heard = path.server(with_sack);
        let heard = segment_of(&heard[0]);
        assert_eq!(heard.options.sack[0], SackBlock { start: SeqNumber(300), end: SeqNumber(350) });
        assert_eq!(heard.ack, SeqNumber(101));
    }

    #[test]
    fn a_syn_sent_again_gets_the_same_shift_and_a_new_flow_another() {
        let mut path = Path::new(RandomizeIsn::new(3));
        let mut shift = |isn| segment_of(&path.client(syn(isn))[0]).seq.diff(SeqNumber(isn));
        let first = shift(100);
        assert_eq!(shift(100), first);
        assert_ne!(shift(777), first);
    }

    #[test]
    fn an_error_quotes_the_senders_number() {
        let mut path = Path::new(RandomizeIsn::new(3));
        path.handshake();
        let heard = segment_of(&path.client(seg(101, 501, 1400))[0]).seq;
        let error = |flow: FourTuple, seq| Packet {
            ip: IpHeader::new(SERVER.addr, CLIENT.addr),
            transport: Transport::Icmp(IcmpMessage::PacketTooBig { mtu: 1300, flow, seq }),
        };
        let passed = path.pass(Direction::Backward, error(FLOW, heard));
        assert_eq!(passed, [error(FLOW, SeqNumber(101))]);
    }

    #[test]
    fn a_flow_that_was_there_before_the_box_passes() {
        let mut path = Path::new(RandomizeIsn::new(3));
        assert_eq!(path.client(seg(101, 501, 10)), [seg(101, 501, 10)]);
    }
}
