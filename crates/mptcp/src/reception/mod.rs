//! What a receiver does about a sender that gives paths more than is good for it.
//!
//! The sender decides which path carries what. One that fills each path as far as its buffer goes, as Linux does, gives a thin or
//! slow path data that the rest then waits for: the buffers fill with what can't be delivered, and the whole is slower than the best
//! path alone. A receiver sees that. It measures for each path what it brings and what it holds up, and asks the peer not to use
//! (MP_PRIO, RFC 8684 §3.3.8) what does more harm than good.
//!
//! # The rule
//! While data waits for a path *s*, the best path *b* brings less than it could. What it does not bring is the harm that *s* does;
//! what *s* brings is the good. A path's balance is the sum of good less harm. If it falls too low, the path is set aside:
//! without it, the others would have brought more. What may be lost to finding out is a share of all that was received
//! ([`TRIAL_SHARE`]), and at least [`LEAST_TRIAL_BYTES`], in all, however often a path is tried.
//!
//! A path that joins is set aside from the start, and tried as soon as the credit covers what a trial may cost: the time that the first
//! burst takes over it, less that for which the sender has room meanwhile. So a path that is about as quick as the others is tried at once,
//! and a slow one when the transfer has lasted. After each failure the cost counts twice. When nothing else brings data, a path is used
//! at once.

mod path;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

pub(crate) use path::Pair;
use path::{Path, Role};

/// Whose data paths are judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JudgePaths {
    /// Nobody's: the sender is left alone.
    #[default]
    Never,
    /// That of a peer that is not of our kind. One of our kind chooses paths well; it is known by data sequence numbers of 4 bytes in
    /// its first mapping, where Linux has 8.
    Foreign,
    /// Everybody's.
    Always,
}

impl JudgePaths {
    /// All, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("never", Self::Never), ("foreign", Self::Foreign), ("always", Self::Always)];

    /// As on command lines.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, judge)| *judge)
    }
}

/// What a connection is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ask the peer to use the subflow.
    Use(u8),
    /// Ask the peer not to use the subflow while another works.
    SetAside(u8),
    /// Close the subflow: what it holds is to come over the others at once.
    Close(u8),
}

/// Data that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) now: Instant,
    pub(crate) subflow: u8,
    /// Round-trip time as the data shows it.
    pub(crate) rtt: Option<Duration>,
    pub(crate) bytes: u64,
    /// The next byte that the application gets.
    pub(crate) next: DataSeq,
    /// After the newest byte that the subflow brought.
    pub(crate) newest: DataSeq,
    /// What waits for others before it.
    pub(crate) waiting_bytes: u64,
}

/// What may be lost to trials of paths that turn out to be useless: this part of what was received,
const TRIAL_SHARE: f64 = 1.0 / 32.0;
/// at least so many bytes,
const LEAST_TRIAL_BYTES: f64 = 196_608.0;
/// and at least what the best path brings in so many seconds.
const LEAST_TRIAL_S: f64 = 0.06;
/// A path in use is set aside when it has done so much less good than harm: a third of what trials may cost.
const OVERDRAFT: f64 = 1.0 / 3.0;
/// What the best path brings on the whole, of the best rate that it showed.
const USUAL: f64 = 0.95;
/// Linux hands so much to a path at once.
const BURST_BYTES: f64 = 65_536.0;
/// What a sender has room for at least: twice the first window, with the bookkeeping of Linux.
const LEAST_ROOM_BYTES: f64 = 46_000.0;
/// What it has room for, in what the best path brings in a round trip: Linux has twice the largest window, with its bookkeeping, and that
/// of slow start's end was twice as large as necessary.
const ROOM_RTTS: f64 = 6.0;
/// Share of the best path's rate that one is assumed to have of which nothing is known.
const ASSUMED_SHARE: f64 = 0.25;
/// Between two looks, at least; and the round-trip time of the best path.
const LEAST_TICK: Duration = Duration::from_millis(50);
/// A path whose rate grew by this much in so many round trips is in slow start.
const GROWTH: f64 = 1.25;
const GROWTH_RTTS: u64 = 4;
/// A rate while none is known, in bytes a second.
const UNKNOWN_RATE: f64 = 1e6;
/// Paths in use that bring nothing for so long are given up, where one that is set aside brings something.
const SILENCE: Duration = Duration::from_secs(1);
/// What is remembered of paths whose subflows ended.
const MOST_RECORDS: usize = 16;

/// The paths of a connection as a receiver judges them.
#[derive(Debug)]
pub(crate) struct Reception {
    paths: Vec<Path>,
    records: Vec<Record>,
    verdicts: Vec<Verdict>,
    tick_since: Instant,
    /// When the state below was true.
    looked: Instant,
    next: DataSeq,
    waiting_bytes: u64,
    received_bytes: u64,
    /// Lost to paths so far.
    spent_bytes: f64,
    /// The best rate when it had last grown.
    grown_to: f64,
    grown_at: Instant,
}

/// What is known of a path, whatever subflow it has.
#[derive(Clone, Copy, Debug)]
struct Record {
    pair: Pair,
    failures: u32,
    /// What the last trial cost.
    cost_bytes: f64,
}

impl Reception {
    pub(crate) fn new(now: Instant, next: DataSeq) -> Self {
        Self {
            paths: Vec::new(),
            records: Vec::new(),
            verdicts: Vec::new(),
            tick_since: now,
            looked: now,
            next,
            waiting_bytes: 0,
            received_bytes: 0,
            spent_bytes: 0.0,
            grown_to: 0.0,
            grown_at: now,
        }
    }

    // ---- what happens

    /// A subflow is ready for data, or about to be.
    pub(crate) fn add(&mut self, now: Instant, id: u8, pair: Pair, rtt: Duration, joins_as: JoinsAs) {
        let role = match joins_as {
            JoinsAs::Regular => Role::InUse,
            JoinsAs::Aside => Role::Aside,
            JoinsAs::Backup => Role::Backup,
        };
        if self.paths.iter().any(|path| path.id == id) {
            return;
        }
        self.paths.push(Path::new(now, id, pair, role, rtt, self.next));
        self.look_for_trial(now);
    }

    /// A subflow ended.
    pub(crate) fn remove(&mut self, now: Instant, id: u8) {
        self.paths.retain(|path| path.id != id);
        self.look_for_trial(now);
    }

    /// Data came.
    pub(crate) fn on_arrival(&mut self, arrival: Arrival) {
        let Arrival { now, subflow, rtt, bytes, next, newest, waiting_bytes } = arrival;
        self.blame(now);
        self.received_bytes += bytes;
        self.next = next;
        self.waiting_bytes = waiting_bytes;
        if let Some(path) = self.paths.iter_mut().find(|path| path.id == subflow) {
            path.arrive(now, rtt, bytes, newest);
        }
        if now.since(self.tick_since) >= self.tick() {
            self.end_tick(now);
        }
    }

    /// When [`Reception::handle_timeout`] is due: while data waits, nothing else may come to say how long.
    pub(crate) fn next_timeout(&self) -> Instant {
        if self.waiting_bytes > 0 && self.paths.len() > 1 {
            self.tick_since + self.tick()
        } else {
            Instant::FAR_FUTURE
        }
    }

    /// Time passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.blame(now);
        if now.since(self.tick_since) >= self.tick() {
            self.end_tick(now);
        }
    }

    /// How long data waited for a subflow's, and how much of it, in byte seconds.
    pub(crate) fn held_up(&self, id: u8) -> (Duration, f64) {
        let held = self.paths.iter().find(|path| path.id == id).map(|path| path.held);
        held.map_or((Duration::ZERO, 0.0), |held| (held.time, held.byte_seconds))
    }

    /// What to do.
    pub(crate) fn poll(&mut self) -> Option<Verdict> {
        self.verdicts.pop()
    }

    // ---- measuring

    fn tick(&self) -> Duration {
        self.best().map_or(LEAST_TICK, |at| self.paths[at].min_rtt.max(LEAST_TICK))
    }

    /// The path in use that showed the best rate.
    fn best(&self) -> Option<usize> {
        let in_use = (0..self.paths.len()).filter(|at| self.paths[*at].brings());
        in_use.max_by(|one, other| self.paths[*one].peak.total_cmp(&self.paths[*other].peak))
    }

    /// Data has waited since the last look: for the path that has come least far.
    fn blame(&mut self, now: Instant) {
        let time = now.since(self.looked);
        self.looked = now;
        if self.waiting_bytes == 0 {
            return;
        }
        let waiting_bytes = self.waiting_bytes;
        let late = self.paths.iter_mut().filter(|path| path.role != Role::Backup);
        if let Some(path) =
            late.reduce(|one, other| if other.newest.before(one.newest) { other } else { one })
        {
            path.hold_up(time, waiting_bytes);
        }
    }

    fn end_tick(&mut self, now: Instant) {
        let tick = now.since(self.tick_since);
        self.tick_since = now;
        let best = self.best();
        let overdraft_bytes = self.credit_bytes() * OVERDRAFT;
        if let Some(best) = best {
            let usual = self.paths[best].peak * USUAL * tick.as_secs_f64();
            let missed = usual - self.paths[best].tick_bytes() as f64;
            for (at, path) in self.paths.iter_mut().enumerate() {
                if at != best && path.role != Role::Backup {
                    let good = path.tick_bytes() as f64 - missed * path.blame(tick);
                    path.balance = (path.balance + good).min(overdraft_bytes);
                }
            }
        }
        let blames: Vec<f64> = self.paths.iter().map(|path| path.blame(tick)).collect();
        let all: f64 = blames.iter().sum();
        for (path, own) in self.paths.iter_mut().zip(blames) {
            path.end_tick(tick, all - own < 0.01);
        }
        if let Some(best) = best {
            self.judge(now, best);
        }
        self.note_growth(now);
        self.look_for_trial(now);
    }

    fn note_growth(&mut self, now: Instant) {
        let rate: f64 = self.best().map_or(0.0, |at| self.paths[at].peak);
        if rate > self.grown_to * GROWTH {
            self.grown_to = rate;
            self.grown_at = now;
        }
    }

    /// What may still be lost.
    fn credit_bytes(&self) -> f64 {
        let rate = self.best().map_or(0.0, |at| self.paths[at].peak);
        let least = LEAST_TRIAL_BYTES.max(LEAST_TRIAL_S * rate);
        ((self.received_bytes as f64 * TRIAL_SHARE).max(least) - self.spent_bytes).max(0.0)
    }

    /// How long the best path goes on while data waits, in seconds: until the sender has no room.
    fn room_s(&self, best: usize, rate: f64) -> f64 {
        let path = &self.paths[best];
        (ROOM_RTTS * path.rtt.as_secs_f64()).max(LEAST_ROOM_BYTES / rate.max(1.0))
    }

    // ---- deciding

    /// Sets aside what does more harm than good.
    fn judge(&mut self, now: Instant, best: usize) {
        let overdraft_bytes = self.credit_bytes() * OVERDRAFT;
        for at in 0..self.paths.len() {
            let path = &self.paths[at];
            if at == best || !path.brings() {
                continue;
            }
            if path.balance < -overdraft_bytes {
                self.set_aside(at, best);
            } else if matches!(path.role, Role::OnTrial { since } if now.since(since) > path.rtt * 8)
                && path.balance > 0.0
            {
                self.paths[at].role = Role::InUse;
                let pair = self.paths[at].pair;
                self.records.retain(|record| record.pair != pair);
            }
        }
    }

    fn set_aside(&mut self, at: usize, best: usize) {
        let closes = self.waiting_bytes > 0 && self.is_better_closed(at, best);
        let path = &mut self.paths[at];
        let cost_bytes = (-path.balance).max(0.0);
        path.role = Role::Aside;
        path.balance = 0.0;
        self.spent_bytes += cost_bytes;
        let (id, pair) = (path.id, path.pair);
        self.verdicts.push(if closes { Verdict::Close(id) } else { Verdict::SetAside(id) });
        let failures = self.record(pair).map_or(0, |record| record.failures) + 1;
        self.records.retain(|record| record.pair != pair);
        if self.records.len() >= MOST_RECORDS {
            self.records.remove(0);
        }
        self.records.push(Record { pair, failures, cost_bytes });
    }

    /// What a path still holds comes late, and the rest waits for it, as long as the sender has room. If the subflow is closed it comes
    /// over the best path, but behind everything that the sender has made ready there, and with all of that again.
    fn is_better_closed(&self, at: usize, best: usize) -> bool {
        let (path, best_path) = (&self.paths[at], &self.paths[best]);
        let rate = path.train.rate().unwrap_or(path.peak).max(1.0);
        let rest_s = path.rtt.as_secs_f64() + BURST_BYTES / rate;
        rest_s > 2.0 * self.room_s(best, best_path.peak) + 1.5 * best_path.rtt.as_secs_f64()
    }

    fn record(&self, pair: Pair) -> Option<&Record> {
        self.records.iter().find(|record| record.pair == pair)
    }

    /// Uses a path that is set aside, if that costs little or nothing else works.
    fn look_for_trial(&mut self, now: Instant) {
        let Some(best) = self.best() else {
            // Nothing else: whatever there is.
            let aside = self.paths.iter().position(|path| path.role == Role::Aside);
            return aside.into_iter().for_each(|at| self.start(at, Role::InUse));
        };
        if self.is_silent(now)
            && let Some(at) = self.paths.iter().position(|path| {
                path.role == Role::Aside && path.last_arrival > self.paths[best].last_arrival
            })
        {
            return self.start(at, Role::InUse);
        }
        if self.paths.iter().any(|path| matches!(path.role, Role::OnTrial { .. })) {
            return;
        }
        let aside = (0..self.paths.len()).filter(|at| self.paths[*at].role == Role::Aside);
        let cheapest = aside.map(|at| (at, self.cost_bytes(now, at, best)));
        let cheapest = cheapest.min_by(|(_, one), (_, other)| one.total_cmp(other));
        if let Some((at, cost_bytes)) = cheapest
            && cost_bytes <= self.credit_bytes()
        {
            self.start(at, Role::OnTrial { since: now });
        }
    }

    /// The paths in use bring nothing.
    fn is_silent(&self, now: Instant) -> bool {
        self.paths
            .iter()
            .filter(|path| path.brings())
            .all(|path| now.since(path.last_arrival) > SILENCE.max(path.rtt * 4))
    }

    fn start(&mut self, at: usize, role: Role) {
        let next = self.next;
        let path = &mut self.paths[at];
        path.role = role;
        path.balance = 0.0;
        path.newest = next;
        path.train = path::Train::default();
        self.verdicts.push(Verdict::Use(path.id));
    }

    /// What a trial may cost: what the best path would bring while the rest waits for the other's first burst.
    fn cost_bytes(&self, now: Instant, at: usize, best: usize) -> f64 {
        let (path, best_path) = (&self.paths[at], &self.paths[best]);
        let is_growing = best_path.peak <= 0.0 || now.since(self.grown_at) < best_path.rtt * GROWTH_RTTS;
        let rate = if is_growing { best_path.peak.max(UNKNOWN_RATE) } else { best_path.peak };
        let (rtt_s, best_rtt_s) = (path.rtt.as_secs_f64(), best_path.rtt.as_secs_f64());
        let room_s = self.room_s(best, rate);
        // The first burst takes three round trips in slow start. If that is left to come, the rest waits for it;
        let if_left_s = 2.5 * rtt_s + BURST_BYTES / (ASSUMED_SHARE * rate) - room_s;
        // if the subflow is closed, all that the sender made ready comes twice.
        let if_closed_s = room_s.max(rtt_s / 2.0) + 1.5 * best_rtt_s;
        let stall_s = if_left_s.min(if_closed_s).max(0.0);
        let estimated = stall_s * rate;
        match self.record(path.pair) {
            None => estimated,
            Some(record) => {
                estimated.max(record.cost_bytes).max(LEAST_ROOM_BYTES)
                    * f64::from(1u32 << record.failures.min(16))
            }
        }
    }
}

/// How a subflow joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinsAs {
    /// In use at once.
    Regular,
    /// Set aside until it is tried.
    Aside,
    /// A backup by the user's word.
    Backup,
}
