//! What comes in: packets and timeouts.

use super::*;
use polypath_wire::{IcmpMessage, Segment};

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
                        entry.tcp.handle_segment(now, packet.ip.ecn, &mut segment, &mut ());
                        self.after_input(key);
                    }
                    Some(Referred::TimeWait(index)) => {
                        self.handle_time_wait_segment(now, index, tuple, &mut segment);
                    }
                    None => self.handle_unknown(now, tuple, &segment, None),
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

    /// A segment without a connection: a SYN to a listener, or one to reset. With `isn_after`, a new
    /// connection's initial sequence number comes after that one.
    fn handle_unknown(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment,
        isn_after: Option<SeqNumber>,
    ) {
        let is_syn = segment.flags.syn() && !segment.flags.ack() && !segment.flags.rst();
        let listener = if is_syn { self.listeners.find(tuple.local) } else { None };
        let Some(listener_id) = listener else {
            if let Some(reset) = reset_in_reply(segment) {
                self.reply(Packet::tcp(tuple, reset));
            }
            return;
        };
        let Some(listener) = self.listeners.get_mut(listener_id) else { return };
        if listener.half_open >= listener.config.backlog {
            self.counters.listen_overflows += 1;
            self.counters.listen_drops += 1;
            return;
        }
        if self.connections.len() >= self.config.max_connections {
            self.counters.listen_drops += 1;
            return;
        }
        listener.half_open += 1;
        self.half_open += 1;
        self.counters.passive_opens += 1;
        let mut isn = self.secrets.isn(now, &tuple);
        if let Some(last) = isn_after.filter(|&last| !isn.after(last)) {
            // As Linux: beyond any window of the connection before.
            isn = last.add(65_537);
        }
        let tcp = Connection::accept(now, self.setup(tuple, isn), segment);
        self.add(tuple, tcp, Some(listener_id));
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
                self.handle_unknown(now, tuple, segment, Some(isn_after));
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
        if self.replies.len() < MAX_REPLIES {
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
