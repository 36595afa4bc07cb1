//! What comes in: packets and timeouts.

use super::*;
use polypath_wire::{Ecn, IcmpMessage, Segment};

impl Host {
    /// Takes a packet that is addressed to this host.
    pub fn handle_packet(&mut self, now: Instant, packet: Packet) {
        let tuple = packet.receiver_tuple();
        match packet.transport {
            Transport::Tcp(mut segment) => {
                let Some(tuple) = tuple else { return };
                self.counters.in_segs += segment_count(&segment);
                match self.flows.get(&tuple).map(FlowRef::referred) {
                    Some(Referred::Connection(index)) => {
                        let Some((key, entry)) = self.connections.at_mut(index) else { return };
                        let (ecn, limit) = (packet.ip.ecn, self.strangers.challenges());
                        let (_, is_withheld) =
                            entry.tcp.handle_segment_within(now, ecn, &mut segment, &mut (), limit);
                        self.counters.challenges_withheld += u64::from(is_withheld);
                        self.after_input(key);
                    }
                    Some(Referred::TimeWait(index)) => {
                        self.handle_in_time_wait(now, index, tuple, &mut segment);
                    }
                    None => self.handle_unknown(now, tuple, packet.ip.ecn, &mut segment),
                }
            }
            Transport::Icmp(message) => self.handle_icmp(now, &message),
            // There is no UDP service here.
            Transport::Udp(_) => {}
        }
    }

    fn handle_icmp(&mut self, now: Instant, message: &IcmpMessage) {
        let (IcmpMessage::PacketTooBig { flow, .. } | IcmpMessage::Unreachable { flow, .. }) = message;
        if let Some(Referred::Connection(index)) = self.flows.get(flow).map(FlowRef::referred)
            && let Some((key, entry)) = self.connections.at_mut(index)
        {
            entry.tcp.handle_icmp(now, message);
            self.after_input(key);
        }
    }

    /// A segment without a connection: a SYN to a listener, the third ACK of one that was answered with a cookie, or one to
    /// reset.
    fn handle_unknown(&mut self, now: Instant, tuple: FourTuple, ecn: Ecn, segment: &mut Segment) {
        let listener = if segment.flags.rst() { None } else { self.listeners.find(tuple.local) };
        let (is_syn, is_ack) = (segment.flags.syn(), segment.flags.ack());
        match listener {
            Some(listener) if is_syn && !is_ack => self.handle_syn(now, tuple, segment, listener, None),
            Some(listener) if is_ack && !is_syn && self.strangers.are_cookies_in_use(now) => {
                self.handle_cookie(now, tuple, ecn, segment, listener);
            }
            _ => self.strangers.refuse(now, tuple, segment, None),
        }
    }

    /// With `isn_after`, the connection's initial sequence number comes after that one: it follows a TIME-WAIT. A cookie does not
    /// come after anything: then only chance and timestamps keep old segments out.
    fn handle_syn(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment,
        listener: ListenerId,
        isn_after: Option<SeqNumber>,
    ) {
        if self.connections.len() >= self.config.max_connections {
            self.counters.listen_drops += 1;
            return;
        }
        if !self.listeners.admit(listener, tuple.remote.addr) {
            self.counters.listen_overflows += 1;
            self.answer_with_cookie(now, tuple, segment);
            return;
        }
        self.half_open += 1;
        self.counters.passive_opens += 1;
        let cookie = match isn_after {
            None => self.strangers.cookie_in_use(now, &tuple, segment),
            Some(_) => None,
        };
        let isn = cookie.unwrap_or_else(|| self.secrets.isn_after(now, &tuple, isn_after));
        let tcp = Connection::accept(now, self.setup(tuple, isn), segment);
        self.add(tuple, tcp, Some(listener));
    }

    fn answer_with_cookie(&mut self, now: Instant, tuple: FourTuple, syn: &Segment) {
        let config = &self.config.connection;
        let clock = self.secrets.timestamp(now, &tuple);
        let window_bytes = config.receive_buffer_bytes;
        let answer = self.strangers.syn_ack(now, &tuple, syn, config, clock, window_bytes);
        self.strangers.answer_syn(tuple, answer);
    }

    fn handle_cookie(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        ecn: Ecn,
        segment: &mut Segment,
        listener: ListenerId,
    ) {
        let clock = self.secrets.timestamp(now, &tuple);
        let Some((syn, _)) = self.strangers.check_cookie(now, tuple, segment, clock) else { return };
        if self.connections.len() >= self.config.max_connections {
            self.counters.listen_drops += 1;
            return;
        }
        self.counters.syncookies_recv += 1;
        self.counters.passive_opens += 1;
        self.listeners.admit_always(listener, tuple.remote.addr);
        self.half_open += 1;
        let setup = self.setup(tuple, segment.ack.sub(1));
        let mut tcp = Connection::resume(now, setup, &syn, self.config.connection.receive_buffer_bytes);
        tcp.handle_segment(now, ecn, segment, &mut ());
        let key = self.add(tuple, tcp, Some(listener));
        self.after_input(key);
        if self.connections.get(key).is_some_and(|entry| entry.tcp.is_half_open()) {
            self.unbind(key);
        }
    }

    fn handle_in_time_wait(&mut self, now: Instant, index: u32, tuple: FourTuple, segment: &mut Segment) {
        let Some(isn_after) = self.strangers.handle_in_time_wait(now, index, tuple, segment) else { return };
        self.flows.remove(&tuple);
        match self.listeners.find(tuple.local) {
            Some(listener) => self.handle_syn(now, tuple, segment, listener, Some(isn_after)),
            None => self.handle_unknown(now, tuple, Ecn::NotCapable, segment),
        }
    }

    pub(super) fn handle_connection_timeout(&mut self, now: Instant, index: u32) {
        let Some((key, entry)) = self.connections.at_mut(index) else { return };
        if entry.orphan_ends_at.is_some_and(|end| end <= now) {
            // Silently, as Linux: a FIN that comes yet is reset.
            self.unbind(key);
            return;
        }
        if entry.tcp.poll_timeout().is_some_and(|due| due <= now) {
            entry.tcp.handle_timeout(now, &mut ());
            self.after_input(key);
        } else {
            self.arm(key);
        }
    }

    pub(super) fn count_sent(&mut self, packet: &Packet) {
        if let Transport::Tcp(segment) = &packet.transport {
            self.counters.out_segs += segment_count(segment);
            self.counters.out_rsts += u64::from(segment.flags.rst());
        }
    }
}

/// How many segments an aggregate stands for.
fn segment_count(segment: &Segment) -> u64 {
    if segment.segment_size == 0 {
        return 1;
    }
    (segment.payload.len() as u64).div_ceil(u64::from(segment.segment_size)).max(1)
}
