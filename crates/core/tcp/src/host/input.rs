//! What comes in: packets and timeouts.

use polypath_wire::{Segment, Transport};

use super::*;

impl Host {
    /// Takes a packet that is addressed to this host.
    pub fn handle_packet(&mut self, now: Instant, mut packet: Packet) {
        self.counters.count_received(&packet);
        match self.core.handle_packet(now, &mut self.counters, &mut packet) {
            Handled::ByConnection(id) => self.after_input(id),
            Handled::ByNobody { flow, isn_after } => {
                let Transport::Tcp(segment) = &mut packet.transport else { return };
                self.handle_unknown(now, flow, segment, isn_after);
            }
            Handled::Entirely => {}
        }
    }

    /// Lets timers expire.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.core.end_time_waits(now);
        while let Some(id) = self.core.poll_expired(now, &mut self.counters) {
            if self.core.get(id).is_some_and(PlainConnection::is_given_up) {
                self.unbind(id);
            } else {
                self.after_input(id);
            }
        }
    }

    /// A segment without a connection: a SYN to a listener, the third ACK of one that was answered with a cookie, or one to
    /// reset.
    fn handle_unknown(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &mut Segment,
        isn_after: Option<SeqNumber>,
    ) {
        let listener = if segment.flags.rst() { None } else { self.core.listeners().find(tuple.local) };
        let (is_syn, is_ack) = (segment.flags.syn(), segment.flags.ack());
        match listener {
            Some(listener) if is_syn && !is_ack => self.handle_syn(now, tuple, segment, listener, isn_after),
            Some(listener) if is_ack && !is_syn && self.core.strangers().are_cookies_in_use(now) => {
                self.handle_cookie(now, tuple, segment, listener);
            }
            _ => self.core.strangers_mut().refuse(now, tuple, segment, None),
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
        if self.core.len() >= self.config.max_connections {
            self.counters.listen_drops += 1;
            return;
        }
        if !self.core.listeners_mut().admit(listener, tuple.remote.addr) {
            self.counters.listen_overflows += 1;
            self.answer_with_cookie(now, tuple, segment);
            return;
        }
        self.counters.passive_opens += 1;
        let cookie = match isn_after {
            None => self.core.strangers().cookie_in_use(now, &tuple, segment),
            Some(_) => None,
        };
        let isn = cookie.unwrap_or_else(|| self.core.secrets().isn_after(now, &tuple, isn_after));
        let tcp = Connection::accept(now, self.setup(tuple, isn), segment);
        self.core.insert(tuple, (), PlainConnection::half_open(tcp), Some(listener));
    }

    fn answer_with_cookie(&mut self, now: Instant, tuple: FourTuple, syn: &Segment) {
        let config = &self.config.connection;
        let clock = self.core.secrets().timestamp(now, &tuple);
        let window_bytes = config.receive_buffer_bytes;
        let answer = self.core.strangers_mut().syn_ack(now, &tuple, syn, config, clock, window_bytes);
        self.core.strangers_mut().answer_syn(tuple, answer);
    }

    fn handle_cookie(&mut self, now: Instant, tuple: FourTuple, segment: &mut Segment, listener: ListenerId) {
        let clock = self.core.secrets().timestamp(now, &tuple);
        let Some((syn, _)) = self.core.strangers_mut().check_cookie(now, tuple, segment, clock) else {
            return;
        };
        if self.core.len() >= self.config.max_connections {
            self.counters.listen_drops += 1;
            return;
        }
        self.counters.syncookies_recv += 1;
        self.counters.passive_opens += 1;
        self.core.listeners_mut().admit_always(listener, tuple.remote.addr);
        let setup = self.setup(tuple, segment.ack.sub(1));
        let mut tcp = Connection::resume(now, setup, &syn, self.config.connection.receive_buffer_bytes);
        tcp.handle_segment(now, segment, &mut ());
        let id = self.core.insert(tuple, (), PlainConnection::half_open(tcp), Some(listener));
        self.after_input(id);
        if self.core.get(id).is_some_and(PlainConnection::is_half_open) {
            self.unbind(id);
        }
    }
}
