//! What a peer has, and what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use polypath_congestion::Policy;
use polypath_units::{Duration, Instant};

use super::again::Again;
use super::counts::PeerCounts;
use super::departure::{Departure, datagram_bytes, mark};
use super::link::{Link, PathEnds};
use super::path_bits::PathBits;
use super::schedule;
use super::sessions::Sessions;

use crate::fec::{FecReceiver, FecSender};
use crate::frame::{DATA_HEADER_BYTES, DataHeader, Frame, MOST_DATA_HEADER_BYTES, Order, Sequence};
use crate::inner_packet::InnerPacket;
use crate::key::{PresharedKey, PublicKey};
use crate::noise::{Index, Macs, PATH_HEADER_BYTES, PATHS, PathId, ReceivedCookie, TAG_BYTES, Timestamp};
use crate::path::PathSettings;
use crate::queue::FairQueue;
use crate::recording::Recording;
use crate::resequencer::Resequencer;
use crate::rules::{FlowPolicy, Rules};
use crate::tcp_split::{SplitMemory, TcpSplit};
use crate::too_big::{self, TooBig};
use crate::transmit::Transmit;

/// A peer counts as active so long after data.
const ACTIVE: Duration = Duration::from_secs(10);
/// Packets that wait for keys.
const MOST_EARLY: usize = 128;
/// Urgent packets that wait.
const MOST_URGENT: usize = 256;
/// No answer for so long on any path, while there were questions: the peer may have forgotten the keys.
const MOST_SILENCE: Duration = Duration::from_secs(3);

/// Answers to the inside, about packets that are too long, that wait.
const MOST_TOLD: usize = 16;
/// KEEPALIVE-TIMEOUT and REKEY-TIMEOUT.
const MOST_PLAIN_SILENCE: Duration = Duration::from_secs(15);

/// Settings that all peers share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) policy: Policy,
    /// Longest IP packet inside.
    pub(crate) mtu_bytes: usize,
    pub(crate) has_fast_aes: bool,
    /// Keeps strangers from foretelling which flows share a number.
    pub(crate) flow_key: u64,
    /// For TCP flows that end here, if any may.
    pub(crate) split_memory: Option<Arc<SplitMemory>>,
}

impl Shared {
    /// Length of the longest datagram.
    pub(crate) fn long_bytes(&self) -> usize {
        PATH_HEADER_BYTES + MOST_DATA_HEADER_BYTES + self.mtu_bytes + TAG_BYTES
    }
}

/// Random numbers of a peer's own.
#[derive(Clone, Copy)]
pub(crate) struct PeerSecrets {
    /// What tells this end's numbers from those that it gave before: they begin anew with each process, and with each time the peer
    /// is added.
    pub(crate) instance: u64,
    pub(crate) split_seed: [u8; 32],
}

pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) preshared: PresharedKey,
    pub(crate) macs: Macs,
    pub(super) rules: Rules,
    pub(super) shared: Arc<Shared>,
    /// Of the numbers of paths, one half is for those that this end makes.
    pub(super) first_path: usize,
    pub(crate) sessions: Sessions,
    pub(crate) cookie: Option<ReceivedCookie>,
    /// Of the last initiation that was taken.
    pub(crate) last_timestamp: Option<Timestamp>,
    /// Where the last authentic datagram in WireGuard's own form came from, or the handshake.
    pub(super) plain_ends: Option<PathEnds>,
    pub(super) links: [Option<Box<Link>>; PATHS],
    /// The peer's, by its hello.
    pub(super) instance: Option<u64>,
    /// What it can do, by its hello.
    pub(super) peer_flags: u8,
    /// It had nothing to say of paths when it was asked.
    pub(super) was_stock: bool,
    /// TCP flows that end here, once there are any.
    pub(super) split: Option<Box<TcpSplit>>,
    pub(super) splits_made: u64,
    /// When they were told last of the paths, before something left.
    pub(super) paths_followed_at: Option<Instant>,
    pub(super) secrets: PeerSecrets,
    pub(super) waiting: FairQueue,
    /// Left the queue, and waits for a path that carries its length.
    pub(super) head: Option<(u8, Box<[u8]>)>,
    pub(super) urgent: VecDeque<(u8, Box<[u8]>)>,
    /// One of a flood of urgent packets went: others go now.
    pub(super) is_others_turn: bool,
    /// Answers about packets that were too long, for the inside.
    told: VecDeque<Vec<u8>>,
    /// Was to leave, and did not fit behind others.
    pub(super) stash: Option<Departure>,
    /// Frames of a path that fell silent.
    pub(super) again: Again,
    /// Without keys, or for a stock WireGuard.
    pub(super) plain: VecDeque<Box<[u8]>>,
    /// Datagrams that are ready.
    pub(super) ready: VecDeque<(PathEnds, Vec<u8>)>,
    pub(super) kept: Vec<Sequence>,
    pub(super) copied: Vec<Sequence>,
    pub(super) resequencer: Resequencer,
    /// Once something was protected.
    pub(super) fec_sender: Option<Box<FecSender>>,
    pub(super) fec_receiver: Option<Box<FecReceiver>>,
    pub(super) data_at: Option<Instant>,
    pub(super) plain_sent_at: Option<Instant>,
    pub(super) plain_received_at: Option<Instant>,
    /// Since when plain data has had no answer.
    pub(super) plain_unanswered_since: Option<Instant>,
    pub(super) asked_since: Option<Instant>,
    pub(super) counts: PeerCounts,
    /// Of what comes, while somebody asked for it.
    pub(crate) recording: Option<Box<Recording>>,
}

impl Peer {
    /// `has_lower_key` if ours is the lower one of the two keys.
    pub(crate) fn new(
        key: PublicKey,
        preshared: PresharedKey,
        rules: Rules,
        has_lower_key: bool,
        shared: Arc<Shared>,
        secrets: PeerSecrets,
    ) -> Self {
        Self {
            macs: Macs::new(&key),
            key,
            preshared,
            rules,
            shared,
            first_path: if has_lower_key { 0 } else { PATHS / 2 },
            sessions: Sessions::default(),
            cookie: None,
            last_timestamp: None,
            plain_ends: None,
            links: [const { None }; PATHS],
            instance: None,
            peer_flags: 0,
            was_stock: false,
            split: None,
            splits_made: 0,
            paths_followed_at: None,
            secrets,
            waiting: FairQueue::new(),
            head: None,
            urgent: VecDeque::new(),
            is_others_turn: false,
            told: VecDeque::new(),
            stash: None,
            again: Again::default(),
            plain: VecDeque::new(),
            ready: VecDeque::new(),
            kept: Vec::new(),
            copied: Vec::new(),
            resequencer: Resequencer::new(),
            fec_sender: None,
            fec_receiver: None,
            data_at: None,
            plain_sent_at: None,
            plain_received_at: None,
            plain_unanswered_since: None,
            asked_since: None,
            counts: PeerCounts::default(),
            recording: None,
        }
    }

    /// What may change while it runs.
    pub(crate) fn set_config(&mut self, preshared: PresharedKey, rules: Rules) {
        (self.preshared, self.rules) = (preshared, rules);
    }

    /// A path of ours to the peer.
    pub(crate) fn add_link(
        &mut self,
        now: Instant,
        ends: PathEnds,
        settings: PathSettings,
    ) -> Option<PathId> {
        let at = (self.first_path..).take(PATHS / 2).find(|&at| self.links[at].is_none())?;
        let mss_bytes = self.shared.long_bytes() as u32;
        self.links[at] = Some(Box::new(Link::new(now, ends, settings, true, &self.shared.policy, mss_bytes)));
        self.sessions.want_handshake(now);
        PathId::new(at as u8)
    }

    /// Tells the peer that no path of ours works any more.
    pub(crate) fn leave(&mut self, now: Instant) {
        let mut contents = Vec::new();
        Frame::Leave.write(&mut contents);
        for at in 0..PATHS {
            let ends = self.links[at].as_deref().filter(|link| link.is_believed()).map(Link::ends);
            if let (Some(path), Some(ends)) = (PathId::new(at as u8), ends) {
                self.send_control(now, path, ends, &contents, 0);
            }
        }
    }

    pub(crate) fn link_mut(&mut self, path: PathId) -> Option<&mut Link> {
        self.links[path.index()].as_deref_mut()
    }

    pub(crate) fn link(&self, path: PathId) -> Option<&Link> {
        self.links[path.index()].as_deref()
    }

    pub(crate) fn remove_link(&mut self, now: Instant, path: PathId) {
        if let Some(mut link) = self.links[path.index()].take() {
            self.again.extend(link.sender.give_up(now));
            if self.instance.is_none() && self.plain_ends.take_if(|ends| *ends == link.ends()).is_some() {
                self.sessions.want_handshake(now);
            }
        }
    }

    /// Its interface works, or does not.
    pub(crate) fn set_link_up(&mut self, now: Instant, path: PathId, is_up: bool) {
        let Some(link) = self.links[path.index()].as_deref_mut() else { return };
        link.set_up(now, is_up);
        if !is_up {
            self.counts.dropped += link.drop_own();
            self.again.extend(link.sender.give_up(now));
        }
        self.follow_ranks(now);
    }

    /// The path of ours is for something else than before.
    pub(crate) fn set_link_settings(&mut self, now: Instant, path: PathId, settings: PathSettings) {
        let Some(link) = self.links[path.index()].as_deref_mut() else { return };
        link.set_settings(now, settings);
        self.follow_ranks(now);
    }

    /// Paths that may carry data. A backup only if no better one is there.
    pub(super) fn usable(&self) -> impl Iterator<Item = (usize, &Link)> + Clone {
        let (mut best, mut bits) = (None, PathBits::default());
        for (at, link) in self.links.iter().enumerate() {
            let Some(link) = link.as_deref().filter(|link| link.is_usable()) else { continue };
            let rank = link.settings.rank();
            if best.is_none_or(|best| rank < best) {
                (best, bits) = (Some(rank), PathBits::default());
            }
            if best == Some(rank) {
                bits = bits.with(at);
            }
        }
        bits.filter_map(|at| Some((at, self.links[at].as_deref()?)))
    }

    /// Those of them that carry a datagram of this length.
    pub(super) fn usable_for(&self, len_bytes: usize) -> impl Iterator<Item = (usize, &Link)> + Clone {
        self.usable().filter(move |(_, link)| link.limit_bytes() >= len_bytes)
    }

    /// The longest packet that goes over the path, or over any.
    fn fits_bytes(&self, on: Option<PathId>) -> Option<usize> {
        let limit = match on {
            Some(path) => self.link(path).map(Link::limit_bytes),
            None => self.usable().map(|(_, link)| link.limit_bytes()).max(),
        };
        limit.map(|limit| limit.saturating_sub(self.shared.long_bytes() - self.shared.mtu_bytes))
    }

    /// A packet that is longer than what its paths carry: it is cut, or its sender is told.
    fn treat_too_long(&mut self, now: Instant, packet: &[u8], fits_bytes: usize) {
        match too_big::treat(packet, fits_bytes) {
            TooBig::Cut(fragments) => {
                for fragment in fragments {
                    let frame = [&[0; DATA_HEADER_BYTES], &fragment[..]].concat();
                    if let Some(inner) = InnerPacket::parse(&fragment) {
                        self.handle_packet(now, &inner, frame.into());
                    }
                }
            }
            TooBig::Told(answer) => {
                self.counts.too_long += 1;
                if self.told.len() < MOST_TOLD {
                    self.told.push_back(answer);
                }
            }
            TooBig::Dropped => self.counts.too_long += 1,
        }
    }

    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.data_at.is_some_and(|at| now.since(at) < ACTIVE)
    }

    /// A packet for the peer.
    ///
    /// `frame` is the packet behind room for the header.
    pub(crate) fn handle_packet(&mut self, now: Instant, inner: &InnerPacket, frame: Box<[u8]>) {
        self.data_at = Some(now);
        if self.sessions.is_old(now) {
            self.sessions.want_handshake(now);
        }
        if self.sessions.for_paths(now).is_none() {
            self.plain.push_back(frame);
            if self.plain.len() > MOST_EARLY {
                self.plain.pop_front();
                self.counts.dropped += 1;
            }
            if self.sessions.current(now).is_none() {
                self.sessions.want_handshake(now);
            }
            return;
        }
        let (policy, with_fec) = self.rules.find(inner);
        let Err(mut frame) = self.handle_split(now, inner, policy, frame) else { return };
        let on = if let FlowPolicy::Pinned(path) = policy { Some(path) } else { None };
        if let Some(fits_bytes) = self.fits_bytes(on)
            && inner.len_bytes > fits_bytes
        {
            self.treat_too_long(now, &frame[DATA_HEADER_BYTES..], fits_bytes);
            return;
        }
        let flow = inner.flow(self.shared.flow_key);
        mark(&mut frame, with_fec);
        match policy {
            FlowPolicy::Aggregate | FlowPolicy::SplitTcp => self.waiting.push(now, flow, frame),
            FlowPolicy::LowLatency => {
                self.urgent.push_back((flow, frame));
                if self.urgent.len() > MOST_URGENT {
                    self.urgent.pop_front();
                    self.counts.dropped += 1;
                }
            }
            FlowPolicy::Redundant => self.copy(flow, frame),
            FlowPolicy::Pinned(path) => self.pin(path, flow, frame),
        }
    }

    pub(super) fn copy(&mut self, flow: u8, mut frame: Box<[u8]>) {
        let sequence = take_number(&mut self.copied, flow);
        DataHeader::new(Order::FirstCopy, flow, sequence).write(&mut frame);
        let mut taken = false;
        let len_bytes = datagram_bytes(&frame);
        // Copies over backups would cost, too.
        let rank = self.usable().next().map(|(_, link)| link.settings.rank());
        let is_used = |link: &Link| link.is_usable() && Some(link.settings.rank()) == rank;
        let carries = |link: &&mut Box<Link>| is_used(link) && link.limit_bytes() >= len_bytes;
        for link in self.links.iter_mut().flatten().filter(carries) {
            taken |= link.push_own(frame.clone());
        }
        self.counts.dropped += u64::from(!taken);
    }

    pub(super) fn pin(&mut self, path: PathId, flow: u8, mut frame: Box<[u8]>) {
        DataHeader::new(Order::Free, flow, Sequence::default()).write(&mut frame);
        let Some(link) = self.link_mut(path).filter(|link| link.is_usable()) else {
            self.counts.dropped += 1;
            self.counts.pinned_dropped += 1;
            return;
        };
        let is_taken = link.push_own(frame);
        self.counts.dropped += u64::from(!is_taken);
    }

    /// Something happens when it is `now` at the latest.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        // Without keys that know of paths, their timers rest.
        let has_keys = self.sessions.has_paths();
        let links = self.links.iter().flatten().filter(|link| link.is_up()).flat_map(|link| {
            let probe = has_keys.then(|| self.probe_due(link));
            [probe, link.sender.silent_at(), link.receiver.due_at().filter(|_| has_keys)]
        });
        let sessions = self.sessions.next_timeout(self.has_links());
        let repair = self.fec_sender.as_ref().and_then(|fec| fec.due_at());
        let send = [self.send_at(), repair].into_iter().flatten().min().filter(|_| has_keys);
        let order = self.resequencer.next_deadline();
        let told = (!self.told.is_empty()).then_some(Instant::ZERO);
        let split = self.split.as_ref().and_then(|split| split.next_timeout());
        links
            .chain([told, split, sessions, order, self.keepalive_at(), self.answer_wanted_at(), send])
            .flatten()
            .min()
    }

    /// When a path is asked next. The same for the timer and for the deed.
    pub(super) fn probe_due(&self, link: &Link) -> Instant {
        let soon = link.probe_due(true);
        if self.is_busy(soon) { soon } else { link.probe_due(false) }
    }

    /// When a path lets the next packet go that waits.
    pub(super) fn send_at(&self) -> Option<Instant> {
        let own = self
            .links
            .iter()
            .flatten()
            .filter(|link| link.is_usable() && link.has_own() && link.sender.window_left_bytes() > 0);
        let urgent = self
            .urgent
            .front()
            .filter(|_| !self.is_flooded())
            .and_then(|(_, frame)| schedule::next_urgent(self.usable_for(datagram_bytes(frame))));
        let own = own.map(|link| link.sender.paced_until()).chain(urgent);
        let next = self.again.front().or(self.head.as_ref().map(|(_, frame)| &**frame)).map(datagram_bytes);
        if next.is_none() && self.waiting.is_empty() {
            return own.min();
        }
        let fitting = self.usable_for(next.unwrap_or(0));
        own.chain(schedule::next_chance(fitting, self.waiting_bytes() as u64)).min()
    }

    /// A stock peer wants a sign of life after data that asked for none (WireGuard §6.5).
    fn keepalive_at(&self) -> Option<Instant> {
        let received = self.plain_received_at?;
        self.plain_sent_at.is_none_or(|sent| sent < received).then(|| received + Duration::from_secs(10))
    }

    /// When a stock peer that was sent data, and says nothing, may have lost its keys (WireGuard §6.5).
    fn answer_wanted_at(&self) -> Option<Instant> {
        self.plain_unanswered_since.map(|since| since + MOST_PLAIN_SILENCE)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, deliver: &mut dyn FnMut(&[u8])) -> Vec<Index> {
        self.told.drain(..).for_each(|answer| deliver(&answer));
        if let Some(split) = &mut self.split {
            split.handle_timeout(now);
            self.deliver_split(now, deliver);
            self.forget_split(now);
        }
        {
            let (resequencer, mut leave) = self.leaving(now, deliver);
            resequencer.handle_timeout(now, &mut leave);
        }
        for link in self.links.iter_mut().flatten() {
            if link.sender.silent_at().is_some_and(|at| at <= now) {
                let contents = link.handle_silence(now);
                self.counts.sent_again += contents.len() as u64;
                self.counts.dropped += link.drop_own();
                self.again.extend(contents);
            }
        }
        for at in 0..PATHS {
            if self.links[at].as_deref().is_some_and(|link| link.is_forgotten(now)) {
                self.links[at] = None;
            }
        }
        self.look_for_life(now);
        if self.keepalive_at().is_some_and(|at| at <= now) {
            self.plain.push_back(Box::default());
            self.plain_received_at = None;
        }
        if self.answer_wanted_at().is_some_and(|at| at <= now) {
            self.plain_unanswered_since = None;
            self.sessions.want_handshake(now);
        }
        let is_active = self.is_busy(now) || self.has_links();
        self.sessions.handle_timeout(now, is_active)
    }

    /// This end has paths of its own: it keeps the session alive.
    pub(crate) fn has_links(&self) -> bool {
        self.links.iter().flatten().any(|link| link.is_ours() && link.is_up())
    }

    /// With all paths silent for long, the peer may have begun anew and know nothing of our keys.
    pub(super) fn look_for_life(&mut self, now: Instant) {
        let is_alive = self.links.iter().flatten().any(|link| link.is_alive());
        // Keys that are new are given time: to begin anew at once would take them away from a peer that has just answered.
        let has_new_keys = self.sessions.since().is_some_and(|since| now.since(since) < MOST_SILENCE);
        if self.instance.is_none() || !self.has_links() || is_alive || has_new_keys {
            self.asked_since = None;
            return;
        }
        let since = *self.asked_since.get_or_insert(now);
        if now.since(since) >= MOST_SILENCE {
            self.sessions.want_handshake(now);
        }
    }

    pub(crate) fn counts(&self) -> PeerCounts {
        PeerCounts {
            dropped: self.counts.dropped + self.waiting.dropped(),
            handshakes: self.sessions.handshakes(),
            ..self.counts
        }
    }

    /// Length of the longest datagram.
    pub(crate) fn long_bytes(&self) -> usize {
        self.shared.long_bytes()
    }

    pub(crate) fn resequencer(&self) -> &Resequencer {
        &self.resequencer
    }

    /// The peer speaks of paths.
    pub(crate) fn knows_paths(&self) -> bool {
        self.instance.is_some()
    }

    /// Bytes that wait for a path.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let head = self.head.as_ref().map_or(0, |(_, frame)| frame.len());
        self.waiting.bytes() + self.again.bytes() + head
    }

    pub(super) fn transmit(ends: PathEnds, len_bytes: usize) -> Transmit {
        let (local, remote) = (ends.local, ends.remote);
        Transmit { local, remote, len_bytes, segment_bytes: None, may_fragment: false }
    }
}

/// The next number of a flow.
pub(super) fn take_number(numbers: &mut Vec<Sequence>, flow: u8) -> Sequence {
    if numbers.is_empty() {
        numbers.resize(256, Sequence::default());
    }
    let number = &mut numbers[usize::from(flow)];
    let taken = *number;
    *number = taken.next();
    taken
}
