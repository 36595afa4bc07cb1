//! A path to a peer with both directions, and whether it is believed.

use std::collections::VecDeque;
use std::net::SocketAddr;

use polypath_congestion::Policy;
use polypath_units::{Duration, Instant};

use crate::path::{LossRate, OneWayDelay, PathMtu, PathReceiver, PathSender, PathSettings};
use crate::transmit::LocalId;

/// A path that carries something is asked at least so often.
const PROBE_BUSY: Duration = Duration::from_secs(1);
/// Translators of addresses forget after half a minute (RFC 4787 REQ-5 says two minutes, many are below).
const PROBE_IDLE: Duration = Duration::from_secs(20);
/// The same where each question costs, for as long as most mobile networks remember. Who made a backup asks: the other end does only after
/// that.
const PROBE_METERED: Duration = Duration::from_secs(120);
const PROBE_OTHERS_BACKUP: Duration = Duration::from_secs(150);
/// A probe without an answer is sent again after so long, then twice as long each time.
const PROBE_AGAIN: Duration = Duration::from_millis(250);
const MOST_PROBE_AGAIN: Duration = Duration::from_secs(4);
/// After so many probes without an answer an address that showed up is forgotten.
const MOST_STRANGE_PROBES: u32 = 6;
/// Packets that only this path may carry, and that wait.
const MOST_OWN: usize = 256;
/// A path of the peer's is gone after so long.
const FORGOTTEN: Duration = Duration::from_secs(180);
/// Most probes in a second: two addresses that both answer, and take turns, must not keep the ends busy.
const MOST_PROBES: u32 = 16;
const SECOND: Duration = Duration::from_secs(1);
/// Packets that count as lost by chance when a path falls silent.
const MOST_TAIL_LOSSES: u64 = 2;
/// A time is sent at most so often.
const TIME_AGAIN: Duration = Duration::from_millis(4);

/// Where a path's datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathEnds {
    pub(crate) local: LocalId,
    pub(crate) remote: SocketAddr,
}

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// A question that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Challenge {
    token: u64,
    to: PathEnds,
    /// Its length, where that is what is asked.
    len_bytes: Option<usize>,
    /// A short one, right behind one of a length.
    is_behind_length: bool,
    rank: u8,
}

/// A probe to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeToSend {
    pub(crate) to: PathEnds,
    /// Padded to this length.
    pub(crate) len_bytes: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Link {
    ends: PathEnds,
    /// Another address from which authentic packets came.
    strange: Option<PathEnds>,
    pub(crate) settings: PathSettings,
    /// The rank that the peer knows of.
    told_rank: Option<u8>,
    /// This end made it.
    is_ours: bool,
    is_up: bool,
    /// The peer answers there.
    is_believed: bool,
    mtu: PathMtu,
    challenges: VecDeque<Challenge>,
    unanswered: u32,
    probe_at: Instant,
    /// Since when probes are counted, and how many left since.
    probes_of: (Instant, u32),
    pub(crate) sender: PathSender,
    pub(crate) loss: LossRate,
    pub(crate) receiver: PathReceiver,
    pub(crate) delay: OneWayDelay,
    /// Frames for this path alone.
    own: VecDeque<Box<[u8]>>,
    last_received_at: Option<Instant>,
    time_at: Option<Instant>,
    /// Datagrams and bytes in WireGuard's own form, sent and received.
    plain_sent: (u64, u64),
    plain_received: (u64, u64),
}

impl Link {
    pub(crate) fn new(
        now: Instant,
        ends: PathEnds,
        settings: PathSettings,
        is_ours: bool,
        policy: &Policy,
        mss_bytes: u32,
    ) -> Self {
        Self {
            ends,
            strange: None,
            settings,
            told_rank: None,
            is_ours,
            is_up: true,
            is_believed: false,
            mtu: PathMtu::new(now, mss_bytes as usize),
            challenges: VecDeque::new(),
            unanswered: 0,
            probe_at: now,
            probes_of: (now, 0),
            sender: PathSender::new(now, policy, mss_bytes),
            loss: LossRate::default(),
            receiver: PathReceiver::default(),
            delay: OneWayDelay::default(),
            own: VecDeque::new(),
            last_received_at: None,
            time_at: None,
            plain_sent: (0, 0),
            plain_received: (0, 0),
        }
    }

    pub(crate) fn ends(&self) -> PathEnds {
        self.ends
    }

    /// The driver says whether its interface works.
    pub(crate) fn set_up(&mut self, now: Instant, is_up: bool) {
        if is_up && !self.is_up {
            self.probe_at = now;
            self.unanswered = 0;
        }
        self.is_up = is_up;
    }

    /// The driver has another socket for it, or the peer another address: it has to be believed again.
    pub(crate) fn move_to(&mut self, now: Instant, ends: PathEnds) {
        if self.ends != ends {
            self.ends = ends;
            self.is_believed = false;
            self.mtu.reset(now);
            self.unanswered = 0;
            self.probe_at = now;
            self.strange = None;
        }
    }

    /// Another rank, of which the peer is told at once.
    pub(crate) fn set_settings(&mut self, now: Instant, settings: PathSettings) {
        if self.settings.rank() != settings.rank() {
            self.probe_at = now;
            self.unanswered = 0;
        }
        self.settings = settings;
    }

    /// It fell silent: it is asked at once. What was under way is for others.
    pub(crate) fn handle_silence(&mut self, now: Instant) -> Vec<Box<[u8]>> {
        let (_, _, before) = self.sender.counts();
        let contents = self.sender.give_up(now);
        let (_, _, after) = self.sender.counts();
        // The last ones before a pause are found so. A path that ends loses more, which says nothing of it once it is back.
        self.loss.handle(0, after.saturating_sub(before).min(MOST_TAIL_LOSSES), 0);
        self.probe_at = now;
        contents
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Datagrams up to this length may go over it.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.mtu.limit_bytes()
    }

    /// The longest datagram that came through.
    pub(crate) fn confirmed_bytes(&self) -> usize {
        self.mtu.confirmed_bytes()
    }

    /// The peer made it, and has not been heard there for long.
    pub(crate) fn is_forgotten(&self, now: Instant) -> bool {
        !self.is_ours && self.last_received_at.is_none_or(|at| now.since(at) >= FORGOTTEN)
    }

    /// Frames for this path alone that it can't carry now. How many they were.
    pub(crate) fn drop_own(&mut self) -> u64 {
        let count = self.own.len() as u64;
        self.own.clear();
        count
    }

    pub(crate) fn is_believed(&self) -> bool {
        self.is_believed
    }

    /// The peer answers there.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_up && self.is_believed && self.sender.silences() == 0
    }

    /// Whether data may go over it.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_alive() && !self.settings.closed
    }

    /// Something authentic came from there.
    pub(crate) fn handle_received(&mut self, now: Instant, from: PathEnds) {
        self.last_received_at = Some(now);
        // Of a path of ours the driver says which socket it has: what still comes to the one before is no news.
        let may_move = !self.is_ours || from.local == self.ends.local;
        if may_move && from != self.ends && self.strange != Some(from) {
            // Only an answer from there makes it the path's address.
            self.strange = Some(from);
            self.unanswered = 0;
            self.probe_at = now;
        }
    }

    /// The probe that is due now.
    pub(crate) fn poll_probe(&mut self, now: Instant, due: Instant) -> Option<ProbeToSend> {
        if !self.is_up || now < due {
            return None;
        }
        if let Some(probe) = self.poll_length(now) {
            self.count_probe(now);
            return Some(probe);
        }
        if self.strange.is_some() && self.unanswered >= MOST_STRANGE_PROBES {
            self.strange = None;
            self.unanswered = 0;
        }
        // By turns: the address that is known may answer again, too.
        let to = self.strange.filter(|_| self.unanswered.is_multiple_of(2)).unwrap_or(self.ends);
        self.unanswered += 1;
        let again = (PROBE_AGAIN * (1 << self.unanswered.min(5) >> 1)).min(MOST_PROBE_AGAIN);
        self.probe_at = now + again.max(self.sender.silence_patience().min(MOST_PROBE_AGAIN));
        self.count_probe(now);
        Some(ProbeToSend { to, len_bytes: None })
    }

    /// A probe of a length, which a short one follows: if that is answered alone, it was the length.
    fn poll_length(&mut self, now: Instant) -> Option<ProbeToSend> {
        if !self.asks_lengths() {
            return None;
        }
        let patience = PROBE_AGAIN.max(self.sender.silence_patience());
        let len_bytes = self.mtu.poll(now, self.sender.long_lost(), patience)?;
        self.unanswered = self.unanswered.max(1);
        self.probe_at = now;
        Some(ProbeToSend { to: self.ends, len_bytes: Some(len_bytes) })
    }

    /// Lengths are asked of a path that works.
    fn asks_lengths(&self) -> bool {
        self.is_believed && self.strange.is_none() && self.sender.silences() == 0
    }

    fn count_probe(&mut self, now: Instant) {
        if now.since(self.probes_of.0) >= SECOND {
            self.probes_of = (now, 0);
        }
        self.probes_of.1 += 1;
    }

    /// When the next probe is due.
    pub(crate) fn probe_due(&self, is_busy: bool) -> Instant {
        let due = self.probe_wanted_at(is_busy);
        let (since, count) = self.probes_of;
        if count < MOST_PROBES { due } else { due.max(since + SECOND) }
    }

    fn probe_wanted_at(&self, is_busy: bool) -> Instant {
        let needs_one = !self.is_believed
            || self.strange.is_some()
            || (self.is_ours && self.told_rank != Some(self.settings.rank()))
            || self.sender.silences() > 0;
        if needs_one || self.unanswered > 0 {
            return self.probe_at;
        }
        let usual = self.probe_at.max(self.sender.last_sent_at() + self.probe_period(is_busy));
        let length = self.mtu.due_at(self.sender.long_lost()).filter(|_| self.asks_lengths());
        length.map_or(usual, |at| at.min(usual))
    }

    /// How long nothing leaves over a path that works before it is asked.
    fn probe_period(&self, is_busy: bool) -> Duration {
        let PathSettings { backup, closed, metered, keepalive, .. } = self.settings;
        if backup && !self.is_ours {
            PROBE_OTHERS_BACKUP
        } else if metered {
            keepalive.unwrap_or(PROBE_METERED)
        } else if is_busy && !closed {
            PROBE_BUSY
        } else {
            keepalive.unwrap_or(PROBE_IDLE)
        }
    }

    pub(crate) fn handle_probe_sent(&mut self, token: u64, probe: ProbeToSend) {
        let rank = self.settings.rank();
        let ProbeToSend { to, len_bytes } = probe;
        if len_bytes.is_some() {
            // What is answered late says nothing of the length that is asked now.
            self.challenges.iter_mut().for_each(|challenge| challenge.is_behind_length = false);
        }
        let is_after_length = self.challenges.back().is_some_and(|before| before.len_bytes.is_some());
        let is_behind_length = is_after_length && len_bytes.is_none() && to == self.ends;
        self.challenges.push_back(Challenge { token, to, len_bytes, is_behind_length, rank });
        if self.challenges.len() > 8 {
            self.challenges.pop_front();
        }
    }

    /// An answer; true if it was one to a question of ours.
    pub(crate) fn handle_probe_reply(&mut self, now: Instant, token: u64, from: PathEnds) -> bool {
        let Some(at) = self.challenges.iter().position(|challenge| challenge.token == token) else {
            return false;
        };
        let Some(challenge) = self.challenges.remove(at) else { return false };
        let is_from_there = challenge.to.remote == from.remote || challenge.to == self.ends;
        // An answer from elsewhere leaves the question open.
        if is_from_there {
            self.unanswered = 0;
            self.probe_at = now;
        }
        self.told_rank = Some(challenge.rank);
        if challenge.is_behind_length {
            self.mtu.handle_overtaken();
        }
        if let Some(len_bytes) = challenge.len_bytes
            && challenge.to == self.ends
        {
            self.mtu.handle_answered(now, len_bytes);
            self.sender.forget_long_lost();
        }
        if is_from_there && challenge.to != self.ends {
            self.ends = challenge.to;
            self.mtu.reset(now);
        }
        if self.strange == Some(self.ends) {
            self.strange = None;
        }
        if is_from_there {
            self.is_believed = true;
        }
        true
    }

    /// Whether a packet takes the sender's time along.
    pub(crate) fn takes_time(&mut self, now: Instant) -> bool {
        let takes = self.time_at.is_none_or(|at| now.since(at) >= TIME_AGAIN);
        if takes {
            self.time_at = Some(now);
        }
        takes
    }

    /// A frame that only this path may carry. False if too many wait.
    pub(crate) fn push_own(&mut self, frame: Box<[u8]>) -> bool {
        let has_room = self.own.len() < MOST_OWN;
        if has_room {
            self.own.push_back(frame);
        }
        has_room
    }

    pub(crate) fn pop_own(&mut self) -> Option<Box<[u8]>> {
        self.own.pop_front()
    }

    pub(crate) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Packets and questions that it holds.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn held_items(&self) -> usize {
        self.own.len() + self.challenges.len() + self.sender.held_packets()
    }

    /// A datagram in WireGuard's own form left, or came.
    pub(super) fn count_plain(&mut self, direction: Direction, len_bytes: usize) {
        let (datagrams, bytes) = match direction {
            Direction::Sent => &mut self.plain_sent,
            Direction::Received => &mut self.plain_received,
        };
        *datagrams += 1;
        *bytes += len_bytes as u64;
    }

    /// Datagrams and bytes sent, of whatever form, and datagrams that were lost.
    pub(crate) fn sent(&self) -> (u64, u64, u64) {
        let (datagrams, bytes, lost) = self.sender.counts();
        (datagrams + self.plain_sent.0, bytes + self.plain_sent.1, lost)
    }

    /// Datagrams and bytes that came, of whatever form.
    pub(crate) fn received(&self) -> (u64, u64) {
        let (datagrams, bytes) = self.receiver.received();
        (datagrams + self.plain_received.0, bytes + self.plain_received.1)
    }

    pub(crate) fn last_received_at(&self) -> Option<Instant> {
        self.last_received_at
    }
}
