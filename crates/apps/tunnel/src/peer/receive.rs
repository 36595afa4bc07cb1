//! What a peer's datagrams do.

use std::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::Packet;

use super::link::{Direction, Link, PathEnds};
use super::state::Peer;
use crate::allowed_ips::AllowedIps;
use crate::engine::PeerId;
use crate::frame::{
    DATA_HEADER_BYTES, DataHeader, Frame, Order, PROBE_BYTES, RepairHeader, Sequence, TAKES_AES,
};
use crate::inner_packet::InnerPacket;
use crate::noise::{Cipher, Index, OpenError, PATH_HEADER_BYTES, PathId, TAG_BYTES};
use crate::path::PathSettings;
use crate::recording::{RecordedFlow, Recording};
use crate::resequencer::{Leave, Resequencer};
use crate::tcp_split::only_acknowledges;

/// A path counts for deadlines so long after its last packet.
const RECENT: Duration = Duration::from_secs(1);
/// What timers and scheduling may add to a delay.
const MARGIN: Duration = Duration::from_millis(1);

/// Three packets more tell of a loss (RFC 9002 §6.1.1), which takes time on slow paths.
const AGAIN_MARGIN: Duration = Duration::from_millis(10);
/// A packet that is sent again is not waited for longer.
const MOST_AGAIN: Duration = Duration::from_millis(300);

/// Which addresses the peer may send from.
pub(crate) struct Source<'a> {
    pub(crate) allowed: &'a AllowedIps<PeerId>,
    pub(crate) peer: PeerId,
}

impl Source<'_> {
    /// Length of a packet that is its own.
    pub(super) fn len_of(&self, packet: &[u8]) -> Option<usize> {
        let inner = InnerPacket::parse(packet)?;
        self.owns(inner.source).then_some(inner.len_bytes)
    }

    pub(super) fn owns(&self, address: IpAddr) -> bool {
        self.allowed.find(address) == Some(self.peer)
    }
}

impl Peer {
    /// A datagram with a path. Returns a session that is not used any more.
    pub(crate) fn handle_on_path(
        &mut self,
        now: Instant,
        (local, path, cipher, counter): (Index, PathId, Cipher, u32),
        from: PathEnds,
        datagram: &mut [u8],
        source: &Source<'_>,
        deliver: &mut dyn FnMut(&[u8]),
    ) -> Option<Index> {
        let len_bytes = datagram.len();
        if len_bytes < PATH_HEADER_BYTES + TAG_BYTES {
            self.counts.malformed += 1;
            return None;
        }
        let session = self.sessions.by_local(local)?;
        if session.is_over(now) {
            return None;
        }
        let opened = match session.transport.open_on_path((path, cipher, counter), datagram) {
            Ok(opened) => opened,
            Err(error) => {
                self.count_error(error);
                return None;
            }
        };
        let forgotten = self.sessions.handle_authentic(local);
        let Some(frame) = Frame::parse(opened) else {
            self.counts.malformed += 1;
            return forgotten;
        };
        if let Some(recording) = &mut self.recording {
            recording.handle_datagram(now, (local, path, counter), len_bytes);
        }
        let mss_bytes = self.shared.long_bytes() as u32;
        let policy = &self.shared.policy;
        let link = self.links[path.index()].get_or_insert_with(|| {
            Box::new(Link::new(now, from, PathSettings::default(), false, policy, mss_bytes))
        });
        link.handle_received(now, from);
        let [a, b, c, _] = local.to_bytes();
        let only_acknowledges = match &frame {
            Frame::Ack(_) => true,
            Frame::Data(header, at) => header.order == Order::Across && only_acknowledges(&opened[*at..]),
            _ => false,
        };
        let asks = !only_acknowledges;
        link.receiver.handle(now, [a, b, c], counter, len_bytes, asks);
        match frame {
            Frame::Data(header, at) => {
                // What only acknowledges keeps nothing busy.
                if asks {
                    self.data_at = Some(now);
                }
                if header.order == Order::Across {
                    if let Some(time) = header.time {
                        link.delay.sample(now, time);
                    }
                    self.handle_across(now, &opened[at..], source, deliver);
                    return forgotten;
                }
                let Some(packet) = source.len_of(&opened[at..]).map(|len| &opened[at..at + len]) else {
                    self.counts.foreign += 1;
                    return forgotten;
                };
                self.handle_data(now, path, &header, packet, deliver);
                if let Some(esi) = header.esi {
                    self.handle_protected_data(now, path, (esi, &header), &opened[at..], source, deliver);
                }
            }
            Frame::Repair(header) => {
                let combination = &opened[RepairHeader::BYTES..];
                self.handle_repair(now, path, &header, combination, source, deliver);
            }
            Frame::Ack(ack) => {
                let outcome = link.sender.handle_ack(now, &ack);
                link.loss.handle(outcome.acked_packets, outcome.lost_packets, outcome.late_packets);
                self.counts.sent_again += outcome.lost_contents.len() as u64;
                self.again.extend(outcome.lost_contents);
            }
            Frame::Probe { token, rank } => {
                // Who made the path says what it is for, at both ends.
                if !link.is_ours() {
                    link.settings.set_rank(rank);
                }
                let probe_bytes = u16::try_from(len_bytes).unwrap_or(u16::MAX);
                let mut contents = Vec::with_capacity(PROBE_BYTES + 2);
                Frame::ProbeReply { token, probe_bytes }.write(&mut contents);
                self.send_control(now, path, from, &contents, 0);
            }
            Frame::ProbeReply { token, .. } => {
                link.handle_probe_reply(now, token, from);
            }
            Frame::Leave => {
                let contents = link.sender.give_up(now);
                self.again.extend(contents);
            }
            Frame::Hello { .. } => self.counts.malformed += 1,
        }
        forgotten
    }

    pub(super) fn handle_data(
        &mut self,
        now: Instant,
        path: PathId,
        header: &DataHeader,
        packet: &[u8],
        deliver: &mut dyn FnMut(&[u8]),
    ) {
        if let (Some(time), Some(link)) = (header.time, self.links[path.index()].as_deref_mut()) {
            link.delay.sample(now, time);
        }
        if let Some(recording) = &mut self.recording {
            recording.handle_packet(now, header, packet);
        }
        match header.order {
            // It is for nobody inside.
            Order::Across => {}
            Order::Free => {
                self.counts.received += 1;
                deliver(packet);
            }
            Order::FirstCopy => {
                if self.resequencer.is_first_copy(header.flow, header.sequence) {
                    self.counts.received += 1;
                    if let Some(recording) = &mut self.recording {
                        let flow = RecordedFlow { is_copied: true, number: header.flow };
                        recording.handle_left(now, flow, header.sequence, packet.len());
                    }
                    deliver(packet);
                }
            }
            Order::Kept => {
                let deadline = now + self.patience(now, path);
                let (resequencer, mut leave) = self.leaving(now, deliver);
                resequencer.handle(header.flow, header.sequence, packet, deadline, &mut leave);
            }
        }
    }

    /// Records what comes from now on.
    pub(crate) fn start_recording(&mut self) {
        self.recording = Some(Box::new(Recording::new(|number| self.resequencer.next_new(number))));
    }

    /// What puts packets in order, and what takes those that leave it.
    pub(super) fn leaving<'a>(
        &'a mut self,
        now: Instant,
        deliver: &'a mut dyn FnMut(&[u8]),
    ) -> (&'a mut Resequencer, impl Leave + 'a) {
        let (counts, recording) = (&mut self.counts, &mut self.recording);
        let leave = move |number: u8, sequence: Sequence, packet: &[u8]| {
            counts.received += 1;
            if let Some(recording) = recording {
                let flow = RecordedFlow { is_copied: false, number };
                recording.handle_left(now, flow, sequence, packet.len());
            }
            deliver(packet);
        };
        (&mut self.resequencer, leave)
    }

    /// How long a packet that left before one that just came over `path` may still take.
    fn patience(&self, now: Instant, path: PathId) -> Duration {
        let here = self.links[path.index()].as_deref().and_then(|link| link.delay.last_micros());
        let recent = || self.links.iter().flatten().filter(|link| link.delay.is_recent(now, RECENT));
        let latest = recent().filter_map(|link| link.delay.latest_micros()).max();
        // What was lost is missed by what comes behind it, and sent again once that is known.
        let round_trips = || recent().filter_map(|link| link.sender.min_rtt());
        let again = match (round_trips().min(), round_trips().max()) {
            (Some(least), Some(most)) => ((least + most) / 2 + AGAIN_MARGIN).min(MOST_AGAIN),
            _ => Duration::ZERO,
        };
        let margin = MARGIN + again;
        match (here, latest) {
            (Some(here), Some(latest)) => {
                Duration::from_micros((latest - here).clamp(0, 2_000_000) as u64) + margin
            }
            _ => margin,
        }
    }

    /// A datagram in WireGuard's own form. Returns a session that is not used any more.
    pub(crate) fn handle_plain(
        &mut self,
        now: Instant,
        (local, counter): (Index, u64),
        from: PathEnds,
        datagram: &mut [u8],
        source: &Source<'_>,
        deliver: &mut dyn FnMut(&[u8]),
    ) -> Option<Index> {
        let len_bytes = datagram.len();
        let session = self.sessions.by_local(local)?;
        if session.is_over(now) {
            return None;
        }
        let opened = match session.transport.open_plain(counter, datagram) {
            Ok(opened) => &*opened,
            Err(error) => {
                self.count_error(error);
                return None;
            }
        };
        let hello = match Frame::parse(opened) {
            Some(Frame::Hello { instance, flags }) if opened.len() == 11 => Some((instance, flags)),
            _ => None,
        };
        if let Some((_, flags)) = hello {
            if self.shared.has_fast_aes && flags & TAKES_AES != 0 {
                session.transport.allow_aes();
            }
            if session.handle_hello() {
                session.owe_hello(now);
            }
        }
        let forgotten = self.sessions.handle_authentic(local);
        self.count_plain(from, Direction::Received, len_bytes);
        self.note_plain_ends(from);
        self.plain_unanswered_since = None;
        if let Some((instance, flags)) = hello {
            // Of keys that were replaced since, it tells of a process that may be gone.
            if self.sessions.is_current(local) {
                (self.peer_flags, self.was_stock) = (flags, false);
                self.handle_hello(now, instance, deliver);
            }
        } else if !opened.is_empty() {
            self.plain_received_at.get_or_insert(now);
            self.data_at = Some(now);
            match source.len_of(opened) {
                Some(len) => {
                    self.counts.received += 1;
                    if let Some(recording) = &mut self.recording {
                        recording.handle_unnumbered();
                    }
                    deliver(&opened[..len]);
                }
                None => self.counts.foreign += 1,
            }
        }
        forgotten
    }

    fn handle_hello(&mut self, now: Instant, instance: u64, deliver: &mut dyn FnMut(&[u8])) {
        if self.instance != Some(instance) {
            // Another process: its numbers begin anew, and so do ours to it.
            {
                let (resequencer, mut leave) = self.leaving(now, deliver);
                resequencer.restart(&mut leave);
            }
            if let Some(split) = &mut self.split {
                let questions = split.abandon(now);
                self.deliver_split(now, deliver);
                self.ask(now, &questions);
            }
            self.kept.clear();
            self.copied.clear();
            self.counts.dropped += self.again.len() as u64 + u64::from(self.stash.is_some());
            self.again.clear();
            self.stash = None;
            if let Some(recording) = &mut self.recording {
                recording.handle_restart();
            }
            (self.fec_sender, self.fec_receiver) = (None, None);
            // What has numbers already would be taken for what comes later.
            for link in self.links.iter_mut().flatten() {
                self.counts.dropped += link.drop_own();
                link.sender.forget_contents();
            }
            self.instance = Some(instance);
        }
        // What waited goes over the paths now.
        for frame in std::mem::take(&mut self.plain) {
            let inner = frame.get(DATA_HEADER_BYTES..).and_then(InnerPacket::parse);
            if let Some(inner) = inner {
                self.handle_packet(now, &inner, frame);
            }
        }
    }

    /// Packets of ours for hosts on the peer's side, whatever the rules say: paths may still be silent, and nobody asks again.
    fn ask(&mut self, now: Instant, questions: &[Packet]) {
        for frame in questions.iter().map(behind_room) {
            if let Some(inner) = InnerPacket::parse(&frame[DATA_HEADER_BYTES..]) {
                self.waiting.push(now, inner.flow(self.shared.flow_key), frame);
            }
        }
    }

    fn count_error(&mut self, error: OpenError) {
        match error {
            OpenError::Replayed => self.counts.replayed += 1,
            OpenError::NotAuthentic => self.counts.not_authentic += 1,
        }
    }
}

/// A packet behind room for a frame's header.
fn behind_room(packet: &Packet) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(packet.len_bytes());
    packet.emit(&mut bytes);
    let mut frame = vec![0; DATA_HEADER_BYTES];
    frame.append(&mut bytes);
    frame.into()
}
