//! Limits of paths: each is a line with a rate and a short queue, through which the packets of all subflows pass that it is of. Congestion
//! control of the sender, be it this end or the other, meets it as it would on the way, and moves its load elsewhere.
//!
//! Where no limit is set, a packet costs the look whether there is one.

mod descent;
mod limit;
mod lines;
mod members;

use polypath_mptcp::{Attachment, ConnectionId, Host};
use polypath_units::Instant;
use polypath_wire::{FourTuple, Packet};

pub use self::limit::{LimitFigures, LimitedWays, PathLimit, PathLimitState, SeenSubflow, TooManyLimits};
use self::limit::{LimitId, Way};
pub(super) use self::limit::{MOST_LIMITS, SetId};
use self::lines::Lines;
use self::members::{Hops, Members};

#[derive(Debug)]
struct Set {
    id: LimitId,
    of: SetId,
    name: String,
    limit: PathLimit,
}

/// A subflow of which it is to be found out which limits are of it.
pub(super) struct Unsorted {
    pub(super) tuple: FourTuple,
    pub(super) connection: ConnectionId,
    pub(super) is_client: bool,
    pub(super) owner: Option<Attachment>,
}

/// The limits as they were when somebody went to find that out.
#[derive(Clone)]
pub(super) struct Question {
    /// Grows with each change.
    round: u64,
    limits: Vec<(LimitId, PathLimit)>,
}

/// The limits that are of a subflow, each way.
pub(super) struct Sorted([Hops; 2]);

/// All limits of a stack, and what is inside.
#[derive(Debug, Default)]
pub(super) struct PathLimits {
    set: Vec<Set>,
    next: u64,
    next_set: u64,
    round: u64,
    lines: Lines,
    members: Members,
}

impl PathLimits {
    /// Whether there are limits, or something that has passed one.
    pub(super) fn is_active(&self) -> bool {
        !self.set.is_empty() || self.lines.has_passed()
    }

    /// Something is to be sent. It comes back if no limit is of it.
    pub(super) fn handle_sent(&mut self, now: Instant, packet: Packet) -> Option<Packet> {
        let flow = packet.receiver_tuple().map(FourTuple::reversed);
        self.handle(now, Way::Sent, flow, packet)
    }

    /// Something was received. It comes back if no limit is of it.
    pub(super) fn handle_received(&mut self, now: Instant, packet: Packet) -> Option<Packet> {
        let flow = packet.receiver_tuple();
        self.handle(now, Way::Received, flow, packet)
    }

    fn handle(&mut self, now: Instant, way: Way, flow: Option<FourTuple>, packet: Packet) -> Option<Packet> {
        let hops = flow.and_then(|flow| self.members.hops(now, flow, way));
        let Some(hops) = hops else { return Some(packet) };
        self.lines.handle_packet(now, way, hops, packet);
        None
    }

    /// What is to be sent and has passed.
    pub(super) fn poll_sent(&mut self, now: Instant) -> Option<Packet> {
        if self.is_active() { self.lines.poll_transmit(now, Way::Sent) } else { None }
    }

    /// What was received and has passed.
    pub(super) fn poll_received(&mut self, now: Instant) -> Option<Packet> {
        if self.is_active() { self.lines.poll_transmit(now, Way::Received) } else { None }
    }

    /// When something passes.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.lines.poll_timeout()
    }

    /// Subflows that came up, or were looked at long ago.
    pub(super) fn take_unsorted(&mut self, host: &mut Host) -> Vec<Unsorted> {
        if self.members.is_overgrown() {
            self.members.retain(&host.subflow_tuples().collect());
        }
        let of_host = |tuple| {
            // What is nobody's is not kept in mind.
            let (connection, is_client) = host.connection_of(&tuple)?;
            let owner = host.attached(connection).cloned();
            Some(Unsorted { tuple, connection, is_client, owner })
        };
        self.members.take_unsorted().into_iter().filter_map(of_host).collect()
    }

    pub(super) fn question(&self) -> Question {
        let limits = self.set.iter().map(|set| (set.id, set.limit.clone()));
        Question { round: self.round, limits: limits.collect() }
    }

    /// What a question has found out.
    pub(super) fn sort(&mut self, now: Instant, question: &Question, sorted: Vec<(FourTuple, Sorted)>) {
        // Else it is asked anew.
        if question.round == self.round {
            sorted.into_iter().for_each(|(tuple, Sorted(hops))| self.members.sort(now, tuple, hops));
        }
    }

    /// Names for somebody who sets limits.
    pub(super) fn begin_set(&mut self) -> SetId {
        self.next_set += 1;
        SetId(self.next_set)
    }

    /// What it was before is returned, for who drops it while nothing is locked.
    pub(super) fn set(
        &mut self,
        now: Instant,
        (of, name): (SetId, &str),
        limit: PathLimit,
        host: &Host,
    ) -> Result<Option<PathLimit>, TooManyLimits> {
        let rate = limit.rate;
        let mut before = None;
        let id = if let Some(set) = self.set.iter_mut().find(|set| set.of == of && set.name == name) {
            before = Some(std::mem::replace(&mut set.limit, limit));
            set.id
        } else if self.set.len() >= MOST_LIMITS {
            return Err(TooManyLimits);
        } else {
            let id = LimitId(self.next);
            self.next += 1;
            self.set.push(Set { id, of, name: name.into(), limit });
            id
        };
        self.lines.set(now, id, rate);
        self.change(host);
        Ok(before)
    }

    /// Those of somebody, or one of them; returned for who drops them while nothing is locked.
    pub(super) fn remove(
        &mut self,
        now: Instant,
        of: SetId,
        name: Option<&str>,
        host: &Host,
    ) -> Vec<PathLimit> {
        let is_meant = |set: &mut Set| set.of == of && name.is_none_or(|name| set.name == name);
        let gone: Vec<Set> = self.set.extract_if(.., is_meant).collect();
        gone.iter().for_each(|set| self.lines.remove(now, set.id));
        if self.set.is_empty() {
            self.round += 1;
            self.members = Members::default();
        } else if !gone.is_empty() {
            self.change(host);
        }
        gone.into_iter().map(|set| set.limit).collect()
    }

    /// All pass at once, from now on.
    pub(super) fn clear(&mut self, now: Instant) {
        std::mem::take(&mut self.set).iter().for_each(|set| self.lines.remove(now, set.id));
        self.round += 1;
        self.members = Members::default();
    }

    /// These are looked at again.
    pub(super) fn look_again(&mut self, subflows: impl Iterator<Item = FourTuple>) {
        self.members.look_again(subflows);
    }

    /// Each subflow is looked at again.
    fn change(&mut self, host: &Host) {
        self.round += 1;
        self.members.look_again(host.subflow_tuples());
    }

    /// Those of somebody, in the order in which they were set.
    pub(super) fn states(&mut self, of: SetId, host: &Host) -> Vec<PathLimitState> {
        self.members.retain(&host.subflow_tuples().collect());
        let state = |set: &Set| {
            let [sent, received] = self.lines.figures(set.id);
            let subflows = self.members.count(set.id);
            PathLimitState { name: set.name.clone(), rate: set.limit.rate, subflows, sent, received }
        };
        self.set.iter().filter(|set| set.of == of).map(state).collect()
    }
}

impl Question {
    /// The limits that are of a subflow.
    pub(super) fn sort(&self, seen: &SeenSubflow) -> Sorted {
        let answers: Vec<_> = self.limits.iter().map(|(id, limit)| (*id, (limit.is_of)(seen))).collect();
        let hops = |is_meant: fn(&LimitedWays) -> bool| {
            let hops: Vec<_> = answers.iter().filter(|(_, ways)| is_meant(ways)).map(|(id, _)| *id).collect();
            (!hops.is_empty()).then(|| hops.into())
        };
        Sorted([hops(|ways| ways.sent), hops(|ways| ways.received)])
    }
}

#[cfg(test)]
mod owner_tests;
