//! What comes in: packets and timeouts.

use super::*;
use polypath_wire::{Ecn, IcmpMessage, Segment};

use crate::stateless_syn_ack;

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
                        let (ecn, limit) = (packet.ip.ecn, &mut self.challenge_limit);
                        let (_, is_withheld) =
                            entry.tcp.handle_segment_within(now, ecn, &mut segment, &mut (), limit);
                        self.counters.challenges_withheld += u64::from(is_withheld);
                        self.after_input(key);
                    }
                    Some(Referred::TimeWait(index)) => {
                        self.handle_time_wait_segment(now, index, tuple, &mut segment);
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
            Some(listener) if is_ack && !is_syn && self.cookies.are_in_use(now) => {
                self.handle_cookie(now, tuple, ecn, segment, listener);
            }
            _ => self.refuse(now, tuple, segment),
        }
    }

    /// Resets what belongs to nothing, as often as the host's bound allows.
    fn refuse(&mut self, now: Instant, tuple: FourTuple, segment: &Segment) {
        let Some(reset) = reset_in_reply(segment) else { return };
        if self.reset_limit.allows(now, tuple.remote.addr) {
            self.reply(Packet::tcp(tuple, reset));
        } else {
            self.counters.resets_withheld += 1;
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
        let cookie = if isn_after.is_none() { self.cookies.isn_in_use(now, &tuple, segment) } else { None };
        let isn = cookie.unwrap_or_else(|| self.secrets.isn_after(now, &tuple, isn_after));
        let tcp = Connection::accept(now, self.setup(tuple, isn), segment);
        self.add(tuple, tcp, Some(listener));
    }

    fn answer_with_cookie(&mut self, now: Instant, tuple: FourTuple, syn: &Segment) {
        let config = &self.config.connection;
        let isn = self.cookies.isn(now, &tuple, syn);
        let clock = self.secrets.timestamp(now, &tuple);
        let answer = stateless_syn_ack(config, &tuple, syn, isn, clock, config.receive_buffer_bytes);
        self.counters.syncookies_sent += 1;
        self.reply(Packet::tcp(tuple, answer));
    }

    /// What is no third ACK of ours but echoes a timestamp of late may be a later segment of a client whose third ACK was lost: a
    /// reset would end what its retransmission completes. The rest is of connections that are gone, and is reset as ever; so is, as
    /// in Linux, such a segment of a client without timestamps.
    fn handle_cookie(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        ecn: Ecn,
        segment: &mut Segment,
        listener: ListenerId,
    ) {
        let clock = self.secrets.timestamp(now, &tuple);
        let Some((syn, _)) = self.cookies.check(now, &tuple, segment, clock) else {
            self.counters.syncookies_failed += 1;
            if !self.cookies.is_echo_recent(segment, clock) {
                self.refuse(now, tuple, segment);
            }
            return;
        };
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

    fn handle_time_wait_segment(
        &mut self,
        now: Instant,
        index: u32,
        tuple: FourTuple,
        segment: &mut Segment,
    ) {
        let time_wait = self.config.connection.time_wait;
        let Some((key, record)) = self.time_waits.at_mut(index) else { return };
        match record.handle_segment(now, segment, time_wait) {
            TimeWaitReaction::Drop => {}
            TimeWaitReaction::Acknowledge(ack) => {
                self.timers.schedule(&mut record.timer, FlowRef::time_wait(key), record.ends_at);
                self.reply(Packet::tcp(tuple, ack));
            }
            TimeWaitReaction::Reopen(isn_after) => {
                self.remove_time_wait(key);
                self.counters.tw_recycled += 1;
                match self.listeners.find(tuple.local) {
                    Some(listener) => self.handle_syn(now, tuple, segment, listener, Some(isn_after)),
                    None => self.handle_unknown(now, tuple, Ecn::NotCapable, segment),
                }
            }
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

    pub(super) fn handle_time_wait_timeout(&mut self, now: Instant, index: u32) {
        let Some((key, record)) = self.time_waits.at_mut(index) else { return };
        if record.ends_at <= now {
            self.remove_time_wait(key);
        } else {
            self.timers.schedule(&mut record.timer, FlowRef::time_wait(key), record.ends_at);
        }
    }

    /// Queues an answer that belongs to no connection. A flood of such answers is cut off, not stored.
    fn reply(&mut self, packet: Packet) {
        if self.replies.len() < self.config.max_replies {
            self.replies.push_back(packet);
        } else {
            self.counters.reply_queue_drops += 1;
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
