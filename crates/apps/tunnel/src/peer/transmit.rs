//! What leaves for a peer, and in which order.

use polypath_units::Instant;

use super::departure::{Departure, datagram_bytes, is_marked};
use super::link::{Direction, PathEnds};
use super::schedule;
use super::state::{Peer, take_number};
use super::tcp_split::begins_split;
use crate::frame::{
    DATA_HEADER_BYTES, DataHeader, Frame, Order, PROBE, PROBE_BYTES, SPLITS_TCP, Sequence, TAKES_AES,
    TAKES_FEC,
};
use crate::noise::{PATH_HEADER_BYTES, PLAIN_HEADER_BYTES, PathId, TAG_BYTES};
use crate::path::{BASE_BYTES, Tracking};
use crate::tcp_split::only_acknowledges;
use crate::transmit::Transmit;

/// Most of one system call: what UDP can say of its length, and what Linux takes in segments.
const MOST_TRAIN_BYTES: usize = 60_000;
const MOST_TRAIN_SEGMENTS: usize = 60;
/// Urgent packets that wait behind each other are a flood.
const FLOOD_PACKETS: usize = 16;

impl Peer {
    /// The next datagram, or several of one length, written to the end of `into`. `random` gives tokens.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        into: &mut Vec<u8>,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Transmit> {
        self.poll_hello(now);
        self.poll_control(now, random);
        self.poll_repair(now);
        if let Some((ends, datagram)) = self.ready.pop_front() {
            into.extend_from_slice(&datagram);
            return Some(Self::transmit(ends, datagram.len()));
        }
        self.poll_plain(now, into).or_else(|| self.poll_train(now, into))
    }

    /// A hello goes to each place where the peer may be: the path of the handshake may have gone since. The first one counts.
    fn poll_hello(&mut self, now: Instant) {
        let is_known = self.instance.is_some();
        let Some(session) = self.sessions.current(now) else { return };
        let Some(unanswered) = session.take_hello(now, is_known) else { return };
        let mut contents = Vec::new();
        let splits = if self.shared.split_memory.is_some() { SPLITS_TCP } else { 0 };
        let flags = TAKES_FEC | splits | if self.shared.has_fast_aes { TAKES_AES } else { 0 };
        Frame::Hello { instance: self.secrets.instance, flags }.write(&mut contents);
        let datagram = plain_datagram(&contents, |datagram| session.transport.seal_plain(datagram));
        // To backups only if it is no stock peer that leaves hellos unanswered.
        let mut places = self.places(if is_known { unanswered } else { 0 });
        places.extend(self.plain_ends().filter(|plain| !places.contains(plain)));
        for ends in places {
            self.push_ready(ends, datagram.clone());
        }
    }

    /// Acknowledgments and probes that are due.
    fn poll_control(&mut self, now: Instant, random: &mut dyn FnMut() -> u64) {
        if self.sessions.for_paths(now).is_none() {
            return;
        }
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_deref_mut() else { continue };
            let Some(path) = PathId::new(at as u8) else { continue };
            if link.receiver.due_at().is_some_and(|due| due <= now) {
                let ends = link.ends();
                if let Some(ack) = link.receiver.acknowledge(now) {
                    let mut contents = Vec::new();
                    Frame::Ack(ack).write(&mut contents);
                    self.send_control(now, path, ends, &contents, 0);
                }
            }
            let Some(due) = self.links[at].as_deref().map(|link| self.probe_due(link)) else { continue };
            let Some(link) = self.links[at].as_deref_mut() else { continue };
            if let Some(probe) = link.poll_probe(now, due) {
                let (token, rank) = (random(), link.settings.rank());
                link.handle_probe_sent(token, probe);
                let mut contents = Vec::new();
                Frame::Probe { token, rank }.write(&mut contents);
                let overhead = PATH_HEADER_BYTES + PROBE_BYTES + TAG_BYTES;
                let padding = probe.len_bytes.map_or(0, |len| len.saturating_sub(overhead));
                self.send_control(now, path, probe.to, &contents, padding);
            }
        }
    }

    pub(super) fn send_control(
        &mut self,
        now: Instant,
        path: PathId,
        ends: PathEnds,
        contents: &[u8],
        padding_bytes: usize,
    ) {
        let Some(session) = self.sessions.for_paths(now) else { return };
        let mut datagram = vec![0; PATH_HEADER_BYTES + contents.len() + padding_bytes + TAG_BYTES];
        datagram[PATH_HEADER_BYTES..PATH_HEADER_BYTES + contents.len()].copy_from_slice(contents);
        let Some(number) = session.transport.seal_on_path(path, &mut datagram) else { return };
        let [a, b, c, _] = session.transport.remote();
        if let Some(link) = self.links[path.index()].as_deref_mut() {
            // What goes to another address, or may be too long, says nothing of the path if it is lost.
            let counts = contents[0] == PROBE && ends == link.ends() && padding_bytes == 0;
            let tracking = if counts { Tracking::Counted } else { Tracking::Untracked };
            link.sender.handle_sent(now, [a, b, c], number, datagram.len(), tracking, None);
        }
        self.ready.push_back((ends, datagram));
    }

    /// Packets for a peer without paths.
    fn poll_plain(&mut self, now: Instant, into: &mut Vec<u8>) -> Option<Transmit> {
        if self.plain.is_empty() {
            return None;
        }
        let ends = self.plain_ends()?;
        let session = self.sessions.current(now)?;
        // A flow that is to be split can't begin otherwise.
        let may_be_split = session.is_asking() && !self.was_stock;
        if may_be_split && self.plain.front().is_some_and(|frame| begins_split(&self.rules, frame)) {
            return None;
        }
        self.was_stock |= !session.is_asking();
        let frame = self.plain.pop_front()?;
        let packet = frame.get(DATA_HEADER_BYTES..).unwrap_or_default();
        let datagram = plain_datagram(packet, |datagram| session.transport.seal_plain(datagram));
        self.plain_sent_at = Some(now);
        self.plain_received_at = None;
        if !packet.is_empty() {
            self.plain_unanswered_since.get_or_insert(now);
        }
        self.counts.sent += u64::from(!packet.is_empty());
        self.count_plain(ends, Direction::Sent, datagram.len());
        into.extend_from_slice(&datagram);
        // Shorter ones fit everywhere, and leave the driver's socket as it is.
        let may_fragment = datagram.len() > BASE_BYTES;
        Some(Transmit { may_fragment, ..Self::transmit(ends, datagram.len()) })
    }

    /// Data for one path, as much as may leave at once and has one length.
    fn poll_train(&mut self, now: Instant, into: &mut Vec<u8>) -> Option<Transmit> {
        self.sessions.for_paths(now)?;
        let begin = into.len();
        let mut departure = self.poll_departure(now, None)?;
        let at = departure.at;
        let with_time = self.links[at].as_deref_mut().is_some_and(|link| link.takes_time(now));
        let first = self.seal(now, &mut departure, with_time, into)?;
        let mut segments = 1;
        while segments < MOST_TRAIN_SEGMENTS && into.len() - begin + first <= MOST_TRAIN_BYTES {
            let Some(mut departure) = self.poll_departure(now, Some((at, first, with_time))) else { break };
            let Some(len) = self.seal(now, &mut departure, with_time, into) else { break };
            segments += 1;
            if len < first {
                break;
            }
        }
        let ends = self.links[at].as_deref()?.ends();
        let len_bytes = into.len() - begin;
        let segment_bytes = (segments > 1).then_some(first);
        Some(Transmit { segment_bytes, ..Self::transmit(ends, len_bytes) })
    }

    /// The next packet of data and its path. With `on`, only one for that path, and with a time or not no longer a datagram than that.
    fn poll_departure(&mut self, now: Instant, on: Option<(usize, usize, bool)>) -> Option<Departure> {
        let departure = match self.stash.take() {
            Some(departure) => departure,
            None => self.next_departure(now)?,
        };
        let fits = |path, most, with_time| departure.at == path && departure.len_bytes(with_time) <= most;
        if on.is_none_or(|(path, most, with_time)| fits(path, most, with_time)) {
            return Some(departure);
        }
        self.stash = Some(departure);
        None
    }

    fn next_departure(&mut self, now: Instant) -> Option<Departure> {
        self.drop_too_long();
        if let Some(at) = self.path_for_urgent(now) {
            let (flow, frame) = self.urgent.pop_front()?;
            let is_protected = is_marked(&frame) && self.protects_on(at, &frame);
            // What is rebuilt may come late all the same: copies have to be told apart.
            let header = if is_protected {
                DataHeader::new(Order::FirstCopy, flow, take_number(&mut self.copied, flow))
            } else {
                DataHeader::new(Order::Free, flow, Sequence::default())
            };
            return Some(Departure { is_protected, ..Departure::new(at, header, frame) });
        }
        if let Some(departure) = self.split_departure(now) {
            return Some(departure);
        }
        if let Some((at, frame)) = self.pop_own(now) {
            return self.depart_again(at, frame);
        }
        if let Some(frame) = self.again.front() {
            let at = self.path_for_waiting(now, datagram_bytes(frame))?;
            let frame = self.again.pop_front()?;
            return self.depart_again(at, frame);
        }
        let ((flow, packet), free) = match self.head.take() {
            Some(head) => (head, None),
            None if self.waiting.is_empty() => {
                self.note_idle(now);
                return None;
            }
            None => {
                let free = self.path_for_waiting(now, 0)?;
                let behind = schedule::behind(self.usable());
                let (flow, queued) = self.waiting.pop(now, behind)?;
                ((flow, queued.packet), Some(free))
            }
        };
        // The path that was free may be too narrow for what came.
        let len_bytes = datagram_bytes(&packet);
        let carries =
            |at: &usize| self.links[*at].as_deref().is_some_and(|link| link.limit_bytes() >= len_bytes);
        let Some(at) = free.filter(carries).or_else(|| self.path_for_waiting(now, len_bytes)) else {
            self.head = Some((flow, packet));
            return None;
        };
        self.is_others_turn = false;
        let sequence = take_number(&mut self.kept, flow);
        let header = DataHeader::new(Order::Kept, flow, sequence);
        let is_protected = is_marked(&packet) && self.protects_on(at, &packet);
        Some(Departure { is_protected, ..Departure::new(at, header, packet) })
    }

    /// Urgent packets go before all others. If many of them wait, they are a flood: they are paced as others are, and take turns.
    fn path_for_urgent(&mut self, now: Instant) -> Option<usize> {
        let (_, frame) = self.urgent.front()?;
        let len_bytes = datagram_bytes(frame);
        if !self.is_flooded() {
            return schedule::for_urgent(now, self.usable_for(len_bytes));
        }
        if self.is_others_turn {
            return None;
        }
        let at = self.path_for_waiting(now, len_bytes)?;
        self.is_others_turn = true;
        Some(at)
    }

    /// Many urgent packets wait, and others too.
    pub(super) fn is_flooded(&self) -> bool {
        self.urgent.len() > FLOOD_PACKETS && (self.head.is_some() || !self.waiting.is_empty())
    }

    /// What waits at the front, and is longer than any path carries by now.
    fn drop_too_long(&mut self) {
        let Some(most) = self.usable().map(|(_, link)| link.limit_bytes()).max() else { return };
        if most >= self.shared.long_bytes() {
            return;
        }
        let is_long = |frame: &[u8]| datagram_bytes(frame) > most;
        let mut dropped = 0;
        while self.urgent.front().is_some_and(|(_, frame)| is_long(frame)) {
            self.urgent.pop_front();
            dropped += 1;
        }
        while self.again.front().is_some_and(is_long) {
            self.again.pop_front();
            dropped += 1;
        }
        dropped += u64::from(self.head.take_if(|(_, frame)| is_long(frame)).is_some());
        self.counts.too_long += dropped;
    }

    /// A packet whose header is there already.
    fn depart_again(&mut self, at: usize, frame: Box<[u8]>) -> Option<Departure> {
        match Frame::parse(&frame)? {
            Frame::Data(header, _) => Some(Departure::new(at, header, frame)),
            Frame::Repair(_) => Some(Departure { at, header: None, is_protected: false, frame }),
            _ => None,
        }
    }

    /// A frame that only one path may carry.
    fn pop_own(&mut self, now: Instant) -> Option<(usize, Box<[u8]>)> {
        self.links.iter_mut().enumerate().find_map(|(at, link)| {
            let link = link.as_deref_mut()?;
            let is_open = link.is_usable() && link.sender.is_open(now);
            is_open.then(|| link.pop_own()).flatten().map(|frame| (at, frame))
        })
    }

    /// Nothing waits: what is measured now is us, not the paths.
    fn note_idle(&mut self, now: Instant) {
        for link in self.links.iter_mut().flatten() {
            if link.sender.window_left_bytes() > 0 {
                link.sender.handle_idle(now);
            }
        }
    }

    /// The path for a packet of what waits, if it is so long. It may be better off without the paths that would let it go.
    fn path_for_waiting(&mut self, now: Instant, len_bytes: usize) -> Option<usize> {
        let waiting_bytes = self.waiting_bytes() as u64;
        let path = schedule::for_waiting(now, self.usable_for(len_bytes), waiting_bytes);
        if path.is_none() {
            self.note_left_out(now);
        }
        path
    }

    fn note_left_out(&mut self, now: Instant) {
        for link in self.links.iter_mut().flatten().filter(|link| link.sender.is_open(now)) {
            link.sender.handle_left_out(now);
        }
    }

    /// Writes and encrypts a departure; returns its length.
    fn seal(
        &mut self,
        now: Instant,
        departure: &mut Departure,
        with_time: bool,
        into: &mut Vec<u8>,
    ) -> Option<usize> {
        let len = departure.len_bytes(with_time);
        let at = departure.at;
        let esi = if departure.is_protected { Some(self.next_esi()?) } else { None };
        let session = self.sessions.for_paths(now)?;
        let begin = into.len();
        match departure.header {
            Some(header) => {
                let time = with_time.then_some(now.as_micros() as u32);
                let header = DataHeader { time, esi, ..header };
                into.resize(begin + PATH_HEADER_BYTES + header.len_bytes(), 0);
                header.write(&mut into[begin + PATH_HEADER_BYTES..]);
                into.extend_from_slice(&departure.frame[DATA_HEADER_BYTES..]);
            }
            None => {
                into.resize(begin + PATH_HEADER_BYTES, 0);
                into.extend_from_slice(&departure.frame);
            }
        }
        into.resize(begin + len, 0);
        let path = PathId::new(at as u8)?;
        let Some(number) = session.transport.seal_on_path(path, &mut into[begin..]) else {
            into.truncate(begin);
            return None;
        };
        let [a, b, c, _] = session.transport.remote();
        let is_kept = departure.header.is_some_and(|header| header.order == Order::Kept);
        if let Some(header) = departure.header.filter(|_| is_kept || departure.is_protected) {
            header.write(&mut departure.frame);
        }
        if departure.is_protected {
            self.handle_protected(now, at, &departure.frame);
        }
        // Packets in order are kept until they are acknowledged: another path takes them if this one falls silent.
        let kept = is_kept.then(|| std::mem::take(&mut departure.frame));
        let link = self.links[at].as_deref_mut()?;
        let tracking = match departure.header.map(|header| header.order) {
            Some(Order::Across) if only_acknowledges(&departure.frame[DATA_HEADER_BYTES..]) => {
                Tracking::Untracked
            }
            // Multipath TCP controls what it has on the path.
            Some(Order::Across) => Tracking::Watched,
            _ => Tracking::Counted,
        };
        link.sender.handle_sent(now, [a, b, c], number, len, tracking, kept);
        if link.sender.window_left_bytes() == 0 {
            link.sender.mark_window_limited();
        }
        match departure.header {
            Some(_) => self.counts.sent += 1,
            None => self.counts.repairs_sent += 1,
        }
        Some(len)
    }
}

fn plain_datagram(contents: &[u8], seal: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut datagram = vec![0; PLAIN_HEADER_BYTES + contents.len() + TAG_BYTES];
    datagram[PLAIN_HEADER_BYTES..PLAIN_HEADER_BYTES + contents.len()].copy_from_slice(contents);
    seal(&mut datagram);
    datagram
}
