mod config;
mod relay;

use alloc::collections::BTreeSet;

use polypath_units::Instant;
use polypath_wire::{
    Endpoint, FourTuple, IpHeader, Options, Packet, Segment, SeqNumber, TcpFlags, Timestamps, Transport,
};

use super::flows::{FlowTable, flow_of, segment, segment_mut};
use super::options::{has_mptcp, remove_sack};
use super::{Direction, Middlebox, Outputs};
pub use config::AckProxyConfig;
use relay::Relay;

/// A proxy that acknowledges data to its sender as soon as it sees it, and then has to bring it to the
/// receiver itself: it keeps a copy, has a congestion window of its own, and retransmits what is lost behind
/// it.
///
/// Data keeps its options, DSS included. The box's own ACKs have none but timestamps and SACK. The receiver's
/// ACKs pass with their options, so that DATA_ACKs reach the sender; their subflow acknowledgment becomes
/// that of the box, and their window is made smaller by what the box still owes the receiver.
///
/// Flows whose handshake it has not seen, or with data in a SYN, pass as they are.
#[derive(Debug)]
pub struct AckProxy {
    config: AckProxyConfig,
    flows: FlowTable<ProxiedFlow>,
    timers: BTreeSet<(Instant, (Endpoint, Endpoint), Direction)>,
}

#[derive(Debug, Default)]
struct ProxiedFlow {
    /// Initial sequence numbers by direction.
    isn: [Option<SeqNumber>; 2],
    relays: Option<[Relay; 2]>,
    /// By direction: what the last segment said.
    latest: [Latest; 2],
    sack_permitted: [bool; 2],
    scale: [Option<u8>; 2],
    data_in_syn: bool,
    /// Deadlines as they are in the set of timers.
    timers: [Option<Instant>; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    window_bytes: u32,
    timestamps: Option<Timestamps>,
    /// The window that was last sent on.
    window_shown: Option<u16>,
}

impl AckProxy {
    /// The box.
    pub fn new(config: AckProxyConfig) -> Self {
        Self { config, flows: FlowTable::new(), timers: BTreeSet::new() }
    }

    fn handle_segment(
        &mut self,
        now: Instant,
        direction: Direction,
        flow: FourTuple,
        packet: Packet,
        out: &mut Outputs,
    ) {
        let Some(segment) = segment(&packet) else { return };
        if segment.flags.rst() {
            self.flows.remove(flow);
            out.push(direction, packet);
            return;
        }
        if segment.flags.syn() {
            let (_, known) = self.flows.get_or_insert(flow, ProxiedFlow::default);
            known.see_syn(direction, segment, self.config);
            out.push(direction, packet);
            return;
        }
        match self.flows.get(flow).filter(|known| known.relays.is_some()) {
            Some(known) => known.handle(now, direction, packet, out),
            None => out.push(direction, packet),
        }
        self.set_timers(flow);
    }

    /// Brings the set of timers in line with the deadlines of a flow.
    fn set_timers(&mut self, flow: FourTuple) {
        let Some(known) = self.flows.get(flow) else { return };
        let key = (flow.local, flow.remote);
        for direction in [Direction::Forward, Direction::Backward] {
            let wanted = known.relays.as_ref().and_then(|relays| relays[direction.index()].deadline);
            let set = &mut known.timers[direction.index()];
            if *set != wanted {
                if let Some(at) = *set {
                    self.timers.remove(&(at, key, direction));
                }
                if let Some(at) = wanted {
                    self.timers.insert((at, key, direction));
                }
                *set = wanted;
            }
        }
    }
}

impl ProxiedFlow {
    fn see_syn(&mut self, direction: Direction, segment: &Segment, config: AckProxyConfig) {
        let side = direction.index();
        if !segment.flags.ack() && self.isn[side].is_some_and(|isn| isn != segment.seq) {
            let timers = self.timers;
            *self = Self { timers, ..Self::default() };
        }
        if self.relays.is_some() {
            return;
        }
        self.isn[side] = Some(segment.seq);
        // The window of a SYN is not scaled (RFC 7323 §2.2).
        self.latest[side].window_bytes = u32::from(segment.window);
        self.latest[side].timestamps = segment.options.timestamps;
        self.sack_permitted[side] = segment.options.sack_permitted();
        self.scale[side] = segment.options.window_scale();
        self.data_in_syn |= !segment.payload.is_empty();
        if let ([Some(client), Some(server)], false) = (self.isn, self.data_in_syn) {
            self.relays = Some([client, server].map(|isn| Relay::new(isn.add(1), config)));
        }
    }

    fn handle(&mut self, now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        let Some(segment) = segment(&packet) else { return };
        let side = direction.index();
        self.latest[side].window_bytes = u32::from(segment.window) << self.shift(side);
        if segment.options.timestamps.is_some() {
            self.latest[side].timestamps = segment.options.timestamps;
        }
        let (ip, ports) = (packet.ip, (segment.src_port, segment.dst_port));
        let acknowledges = segment.flags.ack().then_some(segment.ack);
        let has_data = segment.sequence_len() > 0;
        // With SACK, a duplicate acknowledgment has news in it (RFC 6675 §2).
        let sack_in_use = self.sack_permitted == [true, true];
        let could_be_duplicate = !has_data && sack_in_use != segment.options.sack.is_empty();
        // What the segment acknowledges has gone the other way.
        if let Some(ack) = acknowledges {
            let again = self
                .relays
                .as_mut()
                .and_then(|relays| relays[1 - side].acknowledge(now, ack, could_be_duplicate));
            if let Some(again) = again {
                self.send(direction.reversed(), again, out);
            }
            self.send_waiting(now, direction.reversed(), out);
        }
        if !has_data {
            self.pass_on(direction, packet, acknowledges, out);
            return;
        }
        if let Some(relays) = &mut self.relays {
            relays[side].receive(packet);
        }
        self.send_waiting(now, direction, out);
        self.acknowledge(direction, ip, ports, out);
    }

    fn send_waiting(&mut self, now: Instant, direction: Direction, out: &mut Outputs) {
        while let Some(packet) =
            self.relays.as_mut().and_then(|relays| relays[direction.index()].next_to_send(now))
        {
            self.send(direction, packet, out);
        }
    }

    /// Sends data on, with what its sender last said about the other direction.
    fn send(&mut self, direction: Direction, mut packet: Packet, out: &mut Outputs) {
        let Some(segment) = segment_mut(&mut packet) else { return };
        if segment.options.timestamps.is_some() {
            segment.options.timestamps = self.latest[direction.index()].timestamps;
        }
        self.speak_for_the_box(direction, segment);
        out.push(direction, packet);
    }

    /// Sends on a segment without data.
    fn pass_on(
        &mut self,
        direction: Direction,
        mut packet: Packet,
        acknowledges: Option<SeqNumber>,
        out: &mut Outputs,
    ) {
        let side = direction.index();
        let Some(relays) = &self.relays else { return };
        let Some(segment) = segment_mut(&mut packet) else { return };
        let behind = acknowledges.is_some_and(|ack| ack.before(relays[1 - side].expected));
        // What is still with the box has not been sent, as far as the receiver can know.
        segment.seq = segment.seq.min(relays[side].sent_end());
        let shown = self.latest[side].window_shown;
        self.speak_for_the_box(direction, segment);
        // The other end has heard it from the box already.
        if behind && shown == Some(segment.window) && !has_mptcp(&segment.options) {
            return;
        }
        out.push(direction, packet);
    }

    /// Writes into a segment of `direction` what the box answers for: acknowledgment and window.
    fn speak_for_the_box(&mut self, direction: Direction, segment: &mut Segment) {
        let window = self.window_of(direction);
        let Some(relays) = &self.relays else { return };
        if segment.flags.ack() {
            segment.ack = relays[direction.reversed().index()].expected;
        }
        remove_sack(&mut segment.options);
        segment.window = window;
        self.latest[direction.index()].window_shown = Some(window);
    }

    /// The window to show in segments of `direction`: that of their sender, less what the box owes it, and no
    /// more than the box has room for.
    fn window_of(&self, direction: Direction) -> u16 {
        let side = direction.index();
        let Some(relays) = &self.relays else { return 0 };
        let relay = &relays[1 - side];
        let room = u32::try_from(relay.room_bytes()).unwrap_or(u32::MAX);
        let window =
            self.latest[side].window_bytes.saturating_sub(relay.owed_bytes()).min(room) >> self.shift(side);
        u16::try_from(window).unwrap_or(u16::MAX)
    }

    /// The window scale shift of segments from a side.
    fn shift(&self, side: usize) -> u8 {
        match self.scale {
            [Some(_), Some(_)] => self.scale[side].unwrap_or(0).min(14),
            _ => 0,
        }
    }

    /// Acknowledges what came in `direction`, in the name of its receiver.
    fn acknowledge(&mut self, direction: Direction, ip: IpHeader, ports: (u16, u16), out: &mut Outputs) {
        let back = direction.reversed();
        let Some(relays) = &self.relays else { return };
        let relay = &relays[direction.index()];
        let timestamps = self.latest[direction.index()].timestamps.map(|theirs| Timestamps {
            value: self.latest[back.index()].timestamps.map_or(0, |last| last.value),
            echo: theirs.value,
        });
        let most_blocks = match self.sack_permitted {
            [true, true] => 3,
            _ => 0,
        };
        let mut segment = Segment {
            src_port: ports.1,
            dst_port: ports.0,
            seq: relays[back.index()].sent_end(),
            flags: TcpFlags::ACK,
            ..Segment::default()
        };
        let sack = relay.sack_blocks(most_blocks);
        self.speak_for_the_box(back, &mut segment);
        segment.options = Options { timestamps, sack, ..Options::default() };
        let ip = IpHeader { dont_fragment: ip.dont_fragment, ..IpHeader::new(ip.dst, ip.src) };
        out.push(back, Packet { ip, transport: Transport::Tcp(segment) });
    }
}

impl Middlebox for AckProxy {
    fn name(&self) -> &'static str {
        "ack-proxy"
    }

    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        match flow_of(direction, &packet) {
            Some(flow) => self.handle_segment(now, direction, flow, packet, out),
            None => out.push(direction, packet),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, ..)| *at)
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outputs) {
        while let Some((at, (local, remote), direction)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            let flow = FourTuple { local, remote };
            let Some(known) = self.flows.get(flow) else { continue };
            known.timers[direction.index()] = None;
            let Some(relays) = &mut known.relays else { continue };
            let relay = &mut relays[direction.index()];
            if relay.deadline.is_none_or(|deadline| deadline > now) {
                self.set_timers(flow);
                continue;
            }
            if relay.time_out() {
                known.send_waiting(now, direction, out);
                self.set_timers(flow);
            } else {
                self.flows.remove(flow);
            }
        }
    }
}

#[cfg(test)]
mod tests;
