//! The keys that are in use with a peer: when they begin, and when they end (WireGuard §6).

use polypath_units::{Duration, Instant};

use crate::noise::{Handshake, Index, Transport};

/// A new handshake begins when keys are so old (§6.1).
const REKEY_AFTER: Duration = Duration::from_secs(120);
/// Keys are not used any more (§6.2).
const REJECT_AFTER: Duration = Duration::from_secs(180);
/// A handshake without an answer is begun again (§6.4).
const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// The first ones wait less: a path that has just come up often loses what it is given first.
const FIRST_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// REKEY-ATTEMPT-TIME is 90 s (§6.4).
const MOST_ATTEMPTS: u32 = 18;
/// With numbers of 32 bits on each path, keys end long before.
const MOST_PACKETS: u64 = 1 << 31;
/// A hello is said again after so long.
const HELLO_AGAIN: Duration = Duration::from_millis(250);
/// Then the peer is taken for a stock WireGuard.
const MOST_HELLOS: u32 = 8;
/// It is still asked now and then, as all of them may have been lost: after so long, and twice as long each time, but for a peer that has
/// said hello before.
const HELLO_LATER: Duration = Duration::from_secs(4);

/// Keys, and what is known of who has them.
pub(crate) struct Session {
    pub(crate) local: Index,
    pub(crate) transport: Transport,
    since: Instant,
    began_here: bool,
    /// The peer has said that it is a Polypath.
    knows_paths: bool,
    hellos: u32,
    hello_at: Option<Instant>,
}

impl Session {
    pub(crate) fn new(now: Instant, local: Index, transport: Transport, began_here: bool) -> Self {
        let hello_at = began_here.then_some(now);
        Self { local, transport, since: now, began_here, knows_paths: false, hellos: 0, hello_at }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now.since(self.since) >= REJECT_AFTER
    }

    /// When a new handshake is due. The one who did not begin waits longer, so that not both begin.
    fn old_at(&self) -> Instant {
        self.since + if self.began_here { REKEY_AFTER } else { REKEY_AFTER + REKEY_TIMEOUT * 2 }
    }

    fn is_old(&self, now: Instant) -> bool {
        now >= self.old_at() || self.transport.most_sent() >= MOST_PACKETS
    }

    /// The peer said hello. True if we owe it one.
    pub(crate) fn handle_hello(&mut self) -> bool {
        self.knows_paths = true;
        let owes = !self.began_here;
        if self.began_here {
            self.hello_at = None;
        }
        owes
    }

    /// The peer may yet say hello.
    pub(crate) fn is_asking(&self) -> bool {
        !self.knows_paths && self.hello_at.is_some() && self.hellos < MOST_HELLOS
    }

    /// If a hello is to be sent now: how many were not answered. `is_known`: the peer has said hello before, with other keys.
    pub(crate) fn take_hello(&mut self, now: Instant, is_known: bool) -> Option<u32> {
        self.hello_at.filter(|&at| at <= now)?;
        let unanswered = self.hellos;
        self.hellos += 1;
        let later = self.hellos.checked_sub(MOST_HELLOS).map(|times| if is_known { 0 } else { times.min(8) });
        let wait = later.map_or(HELLO_AGAIN, |times| HELLO_LATER * (1 << times));
        self.hello_at = (!self.knows_paths).then(|| now + wait);
        Some(unanswered)
    }

    /// We answer a hello, now.
    pub(crate) fn owe_hello(&mut self, now: Instant) {
        self.hello_at = Some(now);
    }
}

/// All sessions with a peer.
#[derive(Default)]
pub(crate) struct Sessions {
    current: Option<Session>,
    /// Of late, for what is still under way.
    previous: Option<Session>,
    /// Answered; the peer has not shown yet that it has the keys (§5.1).
    next: Option<Session>,
    handshake: Option<Handshake>,
    /// When the next handshake begins.
    begin_at: Option<Instant>,
    /// Handshakes without an answer.
    attempts: u32,
    handshakes: u64,
}

impl Sessions {
    /// A handshake is wanted, now if none is under way.
    pub(crate) fn want_handshake(&mut self, now: Instant) {
        if self.begin_at.is_none() {
            self.begin_at = Some(now);
            self.attempts = 0;
        }
    }

    /// Whether one is to begin now.
    pub(crate) fn takes_handshake(&self, now: Instant) -> bool {
        self.begin_at.is_some_and(|at| at <= now)
    }

    /// One began. `jitter` keeps two ends from beginning at the same time for ever. An end that does not persist gives up after 90 s.
    pub(crate) fn handle_begun(
        &mut self,
        now: Instant,
        handshake: Handshake,
        jitter: Duration,
        persists: bool,
    ) -> Option<Index> {
        let timeout = FIRST_TIMEOUTS.get(self.attempts as usize).copied().unwrap_or(REKEY_TIMEOUT);
        self.attempts += 1;
        self.begin_at = (persists || self.attempts < MOST_ATTEMPTS).then(|| now + timeout + jitter);
        self.handshake.replace(handshake).map(|before| before.local())
    }

    /// Handshakes in a row that were not answered.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(crate) fn handshake_mut(&mut self) -> Option<&mut Handshake> {
        self.handshake.as_mut()
    }

    /// Ours was answered. Returns what is not used any more.
    pub(crate) fn handle_answered(&mut self, session: Session) -> Option<Index> {
        self.handshake = None;
        self.begin_at = None;
        self.handshakes += 1;
        self.rotate(session)
    }

    fn rotate(&mut self, session: Session) -> Option<Index> {
        let forgotten = self.previous.take().map(|session| session.local);
        self.previous = self.current.replace(session);
        forgotten
    }

    /// We answered one of the peer's. Returns what is not used any more.
    pub(crate) fn handle_answering(&mut self, session: Session) -> Option<Index> {
        self.next.replace(session).map(|session| session.local)
    }

    /// The session with this number of ours.
    pub(crate) fn by_local(&mut self, local: Index) -> Option<&mut Session> {
        [&mut self.current, &mut self.next, &mut self.previous]
            .into_iter()
            .flatten()
            .find(|session| session.local == local)
    }

    /// Authentic data came in a session: if it waited for that, it is the current one from now on. Returns what is not used any more.
    pub(crate) fn handle_authentic(&mut self, local: Index) -> Option<Index> {
        let session = self.next.take_if(|session| session.local == local)?;
        self.begin_at = None;
        self.handshakes += 1;
        self.rotate(session)
    }

    /// The session to send paths' packets in: the newest whose peer has said hello.
    pub(crate) fn for_paths(&mut self, now: Instant) -> Option<&mut Session> {
        [&mut self.current, &mut self.previous]
            .into_iter()
            .flatten()
            .find(|session| session.knows_paths && !session.is_over(now))
    }

    pub(crate) fn current(&mut self, now: Instant) -> Option<&mut Session> {
        self.current.as_mut().filter(|session| !session.is_over(now))
    }

    /// Looks at the ages. Returns what is not used any more.
    pub(crate) fn handle_timeout(&mut self, now: Instant, is_active: bool) -> Vec<Index> {
        let mut forgotten = Vec::new();
        for session in [&mut self.current, &mut self.previous, &mut self.next] {
            if session.as_ref().is_some_and(|session| session.is_over(now)) {
                forgotten.extend(session.take().map(|session| session.local));
            }
        }
        let is_old = self.current.as_ref().is_none_or(|session| session.is_old(now));
        if is_old && is_active {
            self.want_handshake(now);
        }
        forgotten
    }

    /// Whether this is the newest session that is in use.
    pub(crate) fn is_current(&self, local: Index) -> bool {
        self.current.as_ref().is_some_and(|session| session.local == local)
    }

    /// Whether there are keys whose peer has said hello.
    pub(crate) fn has_paths(&self) -> bool {
        [&self.current, &self.previous].into_iter().flatten().any(|session| session.knows_paths)
    }

    /// Whether the current keys are due for new ones; a peer without paths of its own asks when it sends.
    pub(crate) fn is_old(&self, now: Instant) -> bool {
        self.current.as_ref().is_some_and(|session| session.is_old(now))
    }

    /// `persists`: this end keeps the session alive without data, too.
    pub(crate) fn next_timeout(&self, persists: bool) -> Option<Instant> {
        let current = self.current.as_ref();
        let rekey = current.filter(|_| persists && self.begin_at.is_none()).map(Session::old_at);
        let ends = [&self.current, &self.previous, &self.next]
            .into_iter()
            .flatten()
            .map(|session| session.since + REJECT_AFTER);
        let hello = current.and_then(|session| session.hello_at);
        ends.chain(self.begin_at).chain(hello).chain(rekey).min()
    }

    pub(crate) fn handshakes(&self) -> u64 {
        self.handshakes
    }

    /// When the current keys were agreed on.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.current.as_ref().map(|session| session.since)
    }
}
