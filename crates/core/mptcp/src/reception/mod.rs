//! What a receiver does about a sender that gives paths more than is good for it.
//!
//! The sender decides which path carries what. One that fills each path as far as its buffer goes, as Linux does, gives a thin or
//! slow path data that the rest then waits for: the buffers fill with what can't be delivered, and the whole is slower than the best
//! path alone. A receiver sees that. It measures for each path what it brings and what it holds up, and asks the peer not to use
//! (MP_PRIO, RFC 8684 §3.3.8) what does more harm than good.
//!
//! # What a path is worth
//! The first flight over a path shows what it carries: its packets leave together, and arrive as far apart as the bottleneck sends them.
//! Linux hands 64 KB to a path at once. A path *s* that takes long for them beside the best path *b* costs that time at the end of the
//! transfer, when the whole waits for its last burst, and on the way whenever it is longer than the sender's buffer lets *b* go on. What
//! it gains is its part of the rate, for as long as the transfer lasts: as long again as it has lasted, as far as anybody knows. A path
//! that is not worth it is set aside as soon as its rate is known, before it has done harm.
//!
//! # What it does
//! The rest is seen only afterwards. While data waits for *s*, *b* brings less than it usually does: that is the harm that *s* does; what
//! *s* brings is the good. Its balance is the sum of good less harm. If that falls too low, it is set aside.
//!
//! # Trials
//! A path that joins is set aside from the start, and tried as soon as a trial costs little: a share of all that was received
//! ([`TRIAL_SHARE`]), and at least [`LEAST_TRIAL_BYTES`], in all. That is at once where the path in use shows to be thin, or the sender has
//! room while the other's first burst comes; later where it would keep a fast path waiting. After each failure it counts twice. When
//! nothing else brings data, a path is used at once.

mod judged_path;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

pub(crate) use judged_path::PathKey;
use judged_path::{JudgedPath, Usage};

use crate::identifiers::SubflowId;

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
    Use(SubflowId),
    /// Ask the peer not to use the subflow while another works.
    SetAside(SubflowId),
    /// Close the subflow: what it holds is to come over the others at once.
    Close(SubflowId),
}

/// Data that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathArrival {
    pub(crate) now: Instant,
    pub(crate) subflow: SubflowId,
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
const LEAST_TRIAL_BYTES: f64 = 24_000.0;
/// and at least what the best path brings in so many seconds.
const LEAST_TRIAL_S: f64 = 0.005;
/// A path in use is set aside when it has done so much less good than harm: as a share of what trials may cost,
const OVERDRAFT: f64 = 1.0 / 3.0;
/// and at least so many bytes.
const LEAST_OVERDRAFT_BYTES: f64 = 64_000.0;
/// A path is thin beside another if each burst over it costs so many times what it brings.
const THIN: f64 = 2.0;
/// Linux hands so much to a path at once.
const BURST_BYTES: f64 = 65_536.0;
/// Round trips in which a path that begins to send takes that much.
const BURST_RTTS: f64 = 2.5;
/// What a sender has room for at least: twice the first window, with the bookkeeping of Linux.
const LEAST_ROOM_BYTES: f64 = 46_000.0;
/// What it has room for, in what the best path brings in a round trip: Linux has twice the window, counted with its bookkeeping.
const ROOM_RTTS: f64 = 3.5;
/// Closing a subflow costs so many round trips of the best path: what its sender has made ready there comes first.
const CLOSING_RTTS: f64 = 2.0;
/// What a path is assumed to carry of which nothing is known, in bytes a second.
const ASSUMED_RATE: f64 = 1.25e6;
/// And at least.
const ASSUMED_LEAST_RATE: f64 = 5e5;
/// A transfer is assumed to last as long again as it has lasted, and at least so many seconds.
const LEAST_REST_S: f64 = 0.5;
/// Between two looks, at least; and the round-trip time of the best path, and the time in which it brings
const LEAST_TICK: Duration = Duration::from_millis(20);
/// so many bytes, lest single packets count.
const TICK_BYTES: f64 = 30_000.0;
const LONGEST_TICK: Duration = Duration::from_millis(250);
/// What a path showed to bring is believed for so long.
const FRESH: Duration = Duration::from_secs(30);
/// What is remembered of paths whose subflows ended.
const MOST_RECORDS: usize = 16;

/// The paths of a connection as a receiver judges them.
#[derive(Debug)]
pub(crate) struct Reception {
    paths: Vec<JudgedPath>,
    records: Vec<Record>,
    verdicts: VecDeque<Verdict>,
    tick_since: Instant,
    /// When the state below was true.
    looked: Instant,
    next: DataSeq,
    waiting_bytes: u64,
    /// The most that ever waited: so much the sender has room for.
    most_waiting_bytes: u64,
    since: Instant,
    received_bytes: u64,
    /// Lost to paths so far.
    spent_bytes: f64,
}

/// What is known of a path, whatever subflow it has.
#[derive(Clone, Copy, Debug)]
struct Record {
    path: PathKey,
    failures: u32,
    /// What the last trial cost.
    cost_bytes: f64,
    /// What it showed to bring, in bytes a second.
    rate: Option<f64>,
    since: Instant,
}

impl Reception {
    pub(crate) fn new(now: Instant, next: DataSeq) -> Self {
        Self {
            paths: Vec::new(),
            records: Vec::new(),
            verdicts: VecDeque::new(),
            tick_since: now,
            looked: now,
            next,
            waiting_bytes: 0,
            most_waiting_bytes: 0,
            since: now,
            received_bytes: 0,
            spent_bytes: 0.0,
        }
    }

    // ---- what happens

    /// A subflow is ready for data, or about to be.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        id: SubflowId,
        key: PathKey,
        rtt: Duration,
        joins_as: JoinsAs,
    ) {
        let usage = match joins_as {
            JoinsAs::Regular => Usage::InUse,
            JoinsAs::Aside => Usage::Aside,
            JoinsAs::Backup => Usage::Backup,
        };
        if self.paths.iter().any(|path| path.id() == id) {
            return;
        }
        self.paths.push(JudgedPath::new(now, id, key, usage, rtt, self.next));
        self.look_for_trial(now);
    }

    /// A subflow ended.
    pub(crate) fn remove(&mut self, now: Instant, id: SubflowId) {
        self.paths.retain(|path| path.id() != id);
        self.look_for_trial(now);
    }

    /// Data came.
    pub(crate) fn on_arrival(&mut self, arrival: PathArrival) {
        let PathArrival { now, subflow, rtt, bytes, next, newest, waiting_bytes } = arrival;
        self.blame(now);
        self.received_bytes += bytes;
        self.next = next;
        self.waiting_bytes = waiting_bytes;
        self.most_waiting_bytes = self.most_waiting_bytes.max(waiting_bytes);
        let path = self.paths.iter_mut().find(|path| path.id() == subflow);
        if path.is_some_and(|path| path.arrive(now, rtt, bytes, newest)) {
            self.set_thin_aside(now);
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
    pub(crate) fn held_up(&self, id: SubflowId) -> (Duration, f64) {
        let path = self.paths.iter().find(|path| path.id() == id);
        path.map_or((Duration::ZERO, 0.0), JudgedPath::held_up)
    }

    /// What to do.
    pub(crate) fn poll(&mut self) -> Option<Verdict> {
        self.verdicts.pop_front()
    }

    // ---- measuring

    fn tick(&self) -> Duration {
        self.best().map_or(LEAST_TICK, |at| {
            let for_bytes = Duration::from_secs_f64(TICK_BYTES / self.rate(at).max(1.0)).min(LONGEST_TICK);
            self.paths[at].min_rtt().max(for_bytes).max(LEAST_TICK)
        })
    }

    /// The path in use that showed the best rate.
    fn best(&self) -> Option<usize> {
        let in_use = (0..self.paths.len()).filter(|at| self.paths[*at].brings());
        in_use.max_by(|one, other| self.rate(*one).total_cmp(&self.rate(*other)))
    }

    fn rate(&self, at: usize) -> f64 {
        self.paths[at].rate()
    }

    /// Data has waited since the last look: for the path that has come least far.
    fn blame(&mut self, now: Instant) {
        let time = now.since(self.looked);
        self.looked = now;
        if self.waiting_bytes == 0 {
            return;
        }
        let waiting_bytes = self.waiting_bytes;
        let late = self.paths.iter_mut().filter(|path| path.may_hold_data());
        if let Some(path) =
            late.reduce(|one, other| if other.newest().before(one.newest()) { other } else { one })
        {
            path.hold_up(time, waiting_bytes);
        }
    }

    fn end_tick(&mut self, now: Instant) {
        let tick = now.since(self.tick_since);
        self.tick_since = now;
        let best = self.best();
        let overdraft_bytes = self.overdraft_bytes();
        if let Some(best) = best {
            let usual = self.paths[best].usual_rate() * tick.as_secs_f64();
            let missed = usual - self.paths[best].tick_bytes() as f64;
            for (at, path) in self.paths.iter_mut().enumerate() {
                if at != best && !path.is_backup() {
                    let good = path.tick_bytes() as f64 - missed * path.blame(tick);
                    path.settle(good, overdraft_bytes);
                }
            }
        }
        let blames: Vec<f64> = self.paths.iter().map(|path| path.blame(tick)).collect();
        let all: f64 = blames.iter().sum();
        for (path, own) in self.paths.iter_mut().zip(blames) {
            path.end_tick(tick, all - own < 0.01);
        }
        let before = self.verdicts.len();
        if let Some(best) = best {
            self.judge(now, best);
        }
        self.set_thin_aside(now);
        // What has just been set aside is not tried again in the same breath.
        if self.verdicts.len() == before {
            self.look_for_trial(now);
        }
    }

    /// What may still be lost.
    fn credit_bytes(&self) -> f64 {
        let rate = self.best().map_or(0.0, |at| self.rate(at));
        let least = LEAST_TRIAL_BYTES.max(LEAST_TRIAL_S * rate);
        ((self.received_bytes as f64 * TRIAL_SHARE).max(least) - self.spent_bytes).max(0.0)
    }

    fn overdraft_bytes(&self) -> f64 {
        (self.credit_bytes() * OVERDRAFT).max(LEAST_OVERDRAFT_BYTES)
    }

    /// How long the best path goes on while data waits, in seconds: until the sender has no room.
    fn room_s(&self, best: usize) -> f64 {
        let rtt_s = self.paths[best].rtt().as_secs_f64();
        let least_bytes = LEAST_ROOM_BYTES.max(self.most_waiting_bytes as f64);
        (ROOM_RTTS * rtt_s).max(least_bytes / self.rate(best).max(1.0))
    }

    /// How long the best path would wait for each burst over one of such a rate, once that is under way, in seconds.
    fn wait_s(&self, rate: f64, best: usize) -> f64 {
        BURST_BYTES / rate.max(1.0) - BURST_BYTES / self.rate(best).max(1.0) - self.room_s(best)
    }

    // ---- deciding

    /// Sets aside what does more harm than good.
    fn judge(&mut self, now: Instant, best: usize) {
        let overdraft_bytes = self.overdraft_bytes();
        for at in 0..self.paths.len() {
            let path = &self.paths[at];
            if at == best || !path.brings() {
                continue;
            }
            if path.balance_bytes() < -overdraft_bytes {
                self.set_aside(now, at, best, 1);
            } else if path.is_trial_over(now) && path.balance_bytes() > 0.0 {
                self.paths[at].accept_trial();
                let key = self.paths[at].key();
                self.records.retain(|record| record.path != key);
            }
        }
    }

    /// Whether a path of such a rate is worth its use beside the best one in a transfer that lasts so long from now on. At the end, the
    /// whole waits for its last burst; and if that lasts longer than the sender has room, so it does for every burst.
    fn is_worth(&self, at: usize, rate: f64, best: usize, rest_s: f64) -> bool {
        let rtt_s = |at: usize| self.paths[at].min_rtt().as_secs_f64();
        let best_rate = self.rate(best).max(1.0);
        let end_s = BURST_BYTES / rate.max(1.0) - BURST_BYTES / best_rate + rtt_s(at) - rtt_s(best);
        let gain_s = rate / best_rate * rest_s.max(LEAST_REST_S);
        gain_s > end_s && self.wait_s(rate, best) * best_rate < THIN * BURST_BYTES
    }

    /// Sets aside what is so thin beside the best path that each burst would hold that up: before it does.
    fn set_thin_aside(&mut self, now: Instant) {
        let Some(best) = self.best().filter(|best| !self.paths[*best].is_silent(now)) else { return };
        for at in 0..self.paths.len() {
            let path = &self.paths[at];
            let rest_s = now.since(self.since).as_secs_f64();
            if at != best
                && path.brings()
                && path.known_rate().is_some_and(|rate| !self.is_worth(at, rate, best, rest_s))
            {
                self.set_aside(now, at, best, 0);
            }
        }
    }

    fn set_aside(&mut self, now: Instant, at: usize, best: usize, failures: u32) {
        let closes = self.is_better_closed(now, at, best);
        let path = &mut self.paths[at];
        let cost_bytes = path.set_aside();
        self.spent_bytes += cost_bytes;
        let (id, key, rate) = (path.id(), path.key(), path.known_rate());
        self.verdicts.push_back(if closes { Verdict::Close(id) } else { Verdict::SetAside(id) });
        let failures = self.record(key).map_or(0, |record| record.failures) + failures;
        self.records.retain(|record| record.path != key);
        if self.records.len() >= MOST_RECORDS {
            self.records.remove(0);
        }
        self.records.push(Record { path: key, failures, cost_bytes, rate, since: now });
    }

    /// What a path still holds comes late, and the rest waits for it once the sender has no room. If the subflow is closed it comes over
    /// the best path, but behind everything that the sender has made ready there.
    fn is_better_closed(&self, now: Instant, at: usize, best: usize) -> bool {
        let best_path = &self.paths[best];
        let best_rtt_s = best_path.rtt().as_secs_f64();
        let is_waiting = self.waiting_bytes > 0 && now.since(best_path.last_arrival()) > best_path.rtt();
        let room_s = if is_waiting { 0.0 } else { self.room_s(best) };
        BURST_BYTES / self.rate(at).max(1.0) - room_s > CLOSING_RTTS * best_rtt_s
    }

    fn record(&self, key: PathKey) -> Option<&Record> {
        self.records.iter().find(|record| record.path == key)
    }

    /// Uses a path that is set aside, if that costs little or nothing else works.
    fn look_for_trial(&mut self, now: Instant) {
        let Some(best) = self.best() else {
            // Nothing else: whatever there is.
            let aside = self.paths.iter().position(JudgedPath::is_aside);
            return aside.into_iter().for_each(|at| self.start(at, Usage::InUse));
        };
        if self.is_silent(now)
            && let Some(at) = self
                .paths
                .iter()
                .position(|path| path.is_aside() && path.last_arrival() > self.paths[best].last_arrival())
        {
            return self.start(at, Usage::InUse);
        }
        if self.paths.iter().any(JudgedPath::is_on_trial) {
            return;
        }
        // A path thinner than usual is hardly the best one: what another brings more is missed meanwhile, unless it has failed.
        let lack = (1.0 - self.rate(best) / ASSUMED_RATE).max(0.0);
        let missed_bytes = lack * lack * ASSUMED_RATE * now.since(self.since).as_secs_f64();
        let cost_bytes = |at: usize| {
            let failed = self.record(self.paths[at].key()).is_some_and(|record| record.failures > 0);
            self.cost_bytes(now, at, best) - if failed { 0.0 } else { missed_bytes }
        };
        let aside = (0..self.paths.len()).filter(|at| self.paths[*at].is_aside());
        let cheapest = aside.map(|at| (at, cost_bytes(at)));
        let cheapest = cheapest.min_by(|(_, one), (_, other)| one.total_cmp(other));
        if let Some((at, cost_bytes)) = cheapest
            && cost_bytes <= self.credit_bytes()
        {
            self.start(at, Usage::OnTrial { since: now });
        }
    }

    /// The paths in use bring nothing.
    fn is_silent(&self, now: Instant) -> bool {
        self.paths.iter().filter(|path| path.brings()).all(|path| path.is_silent(now))
    }

    fn start(&mut self, at: usize, usage: Usage) {
        let next = self.next;
        let path = &mut self.paths[at];
        path.begin(usage, next);
        self.verdicts.push_back(Verdict::Use(path.id()));
    }

    /// What a trial may cost: what the best path would bring while the rest waits for the other.
    fn cost_bytes(&self, now: Instant, at: usize, best: usize) -> f64 {
        let (rtt_s, best_rtt_s) = (self.paths[at].rtt().as_secs_f64(), self.paths[best].rtt().as_secs_f64());
        let record = self.record(self.paths[at].key());
        let rest_s = now.since(self.since).as_secs_f64();
        let wait_s =
            match record.filter(|record| now.since(record.since) < FRESH).and_then(|record| record.rate) {
                Some(rate) if !self.is_worth(at, rate, best, rest_s / 2.0) => f64::INFINITY,
                Some(rate) => self.wait_s(rate, best) + BURST_RTTS * rtt_s,
                None => {
                    let failures = self.rate(best) / (self.rate(best) + ASSUMED_RATE);
                    let burst_s = BURST_RTTS * rtt_s + BURST_BYTES / ASSUMED_LEAST_RATE;
                    // Its first flight shows what it is, and if that is little, it is closed.
                    let until_known_s = 1.5 * rtt_s + judged_path::TRAIN_BYTES as f64 / ASSUMED_RATE;
                    let if_closed_s =
                        (until_known_s - self.room_s(best)).max(0.0) + CLOSING_RTTS * best_rtt_s;
                    failures * if_closed_s.min(burst_s - self.room_s(best))
                }
            };
        let estimated = wait_s.max(0.0) * self.rate(best);
        match record {
            Some(Record { failures: 1.., cost_bytes, .. }) => {
                let failures = record.map_or(0, |record| record.failures);
                estimated.max(*cost_bytes).max(LEAST_ROOM_BYTES) * f64::from(1u32 << failures.min(16))
            }
            _ => estimated,
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
