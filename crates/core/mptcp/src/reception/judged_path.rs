//! What one path brings to a receiver, and what it holds up.

use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::{DataSeq, Endpoint};

use crate::identifiers::SubflowId;

/// Both addresses of a subflow: what a path is known by when its subflow is closed and another one opened.
pub(crate) type PathKey = (IpAddr, Endpoint);

/// A rate is that of so many ticks, so that the turns that processes take do not count.
const RATE_TICKS: usize = 4;
/// Of the best rate, this share is forgotten with each tick in which nothing held the path up, and it was used.
const FORGET: f64 = 1.0 / 16.0;

/// Of the average rate, this share is that of the last tick.
const USUAL_SHARE: f64 = 0.25;

/// A path that brings nothing for so long, or for four round trips, is not the measure of others.
const SILENCE: Duration = Duration::from_secs(1);

/// A subflow that may bring data.
#[derive(Debug)]
pub(super) struct JudgedPath {
    id: SubflowId,
    key: PathKey,
    usage: Usage,
    /// It may hold data: it was not set aside all the time.
    was_used: bool,
    /// Round-trip time with what stands in queues now.
    rtt: Duration,
    min_rtt: Duration,
    /// The least of this tick: what was sent after a wait shows more.
    tick_rtt: Option<Duration>,
    /// After the newest data that it brought.
    newest: DataSeq,
    last_arrival: Instant,
    /// Brought in this tick.
    tick_bytes: u64,
    /// Time of this tick in which others' data waited for its own.
    tick_blamed: Duration,
    /// Rates of the last ticks, in bytes a second.
    recent: [f64; RATE_TICKS],
    ticks: usize,
    /// Since it was last tried.
    average: Average,
    /// The best rate that it showed, in bytes a second.
    peak: f64,
    /// What it brings on average when nothing holds it up, in bytes a second.
    usual: f64,
    /// What it brought, less what the best path did not bring while it waited for this one, in bytes.
    balance: f64,
    held: Held,
    train: Train,
}

/// What waited for data of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Held {
    /// How long something did.
    time: Duration,
    /// How much did, times how long, in byte seconds.
    byte_seconds: f64,
}

/// What a path is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// The peer may send over it as it likes.
    InUse,
    /// So it may, to find out what that brings.
    OnTrial { since: Instant },
    /// The peer was asked to send over it only if no other works.
    Aside,
    /// The user made it a backup: none of our business.
    Backup,
}

impl JudgedPath {
    pub(super) fn new(
        now: Instant,
        id: SubflowId,
        key: PathKey,
        usage: Usage,
        rtt: Duration,
        next: DataSeq,
    ) -> Self {
        Self {
            id,
            key,
            usage,
            was_used: usage == Usage::InUse,
            rtt,
            min_rtt: rtt,
            tick_rtt: None,
            newest: next,
            last_arrival: now,
            tick_bytes: 0,
            tick_blamed: Duration::ZERO,
            recent: [0.0; RATE_TICKS],
            ticks: 0,
            average: Average::default(),
            peak: 0.0,
            usual: 0.0,
            balance: 0.0,
            held: Held::default(),
            train: Train::default(),
        }
    }

    /// What it brings from now on counts.
    pub(super) fn begin(&mut self, usage: Usage, next: DataSeq) {
        self.usage = usage;
        self.was_used = true;
        self.balance = 0.0;
        self.newest = next;
        self.train = Train::default();
        self.average = Average::default();
    }

    // ---- what becomes of it

    /// It brought so much more than it cost, or less; the sum is no more than `most_bytes`.
    pub(super) fn settle(&mut self, good_bytes: f64, most_bytes: f64) {
        self.balance = (self.balance + good_bytes).min(most_bytes);
    }

    /// The trial has shown that it is of use.
    pub(super) fn accept_trial(&mut self) {
        self.usage = Usage::InUse;
    }

    /// The peer is asked to send over the others; returns what the path has cost, in bytes.
    pub(super) fn set_aside(&mut self) -> f64 {
        self.usage = Usage::Aside;
        (-core::mem::take(&mut self.balance)).max(0.0)
    }

    // ---- what holds

    pub(super) fn id(&self) -> SubflowId {
        self.id
    }

    pub(super) fn key(&self) -> PathKey {
        self.key
    }

    pub(super) fn is_aside(&self) -> bool {
        self.usage == Usage::Aside
    }

    pub(super) fn is_backup(&self) -> bool {
        self.usage == Usage::Backup
    }

    pub(super) fn is_on_trial(&self) -> bool {
        matches!(self.usage, Usage::OnTrial { .. })
    }

    /// It has been tried for long enough.
    pub(super) fn is_trial_over(&self, now: Instant) -> bool {
        matches!(self.usage, Usage::OnTrial { since } if now.since(since) > self.rtt * 8)
    }

    /// Data that is missing may be on its way over it.
    pub(super) fn may_hold_data(&self) -> bool {
        match self.usage {
            Usage::Backup => false,
            Usage::Aside => self.was_used,
            Usage::InUse | Usage::OnTrial { .. } => true,
        }
    }

    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt
    }

    pub(super) fn newest(&self) -> DataSeq {
        self.newest
    }

    pub(super) fn last_arrival(&self) -> Instant {
        self.last_arrival
    }

    /// The best rate that it showed, in bytes a second.
    pub(super) fn rate(&self) -> f64 {
        self.peak
    }

    /// What it brings on average when nothing holds it up, in bytes a second.
    pub(super) fn usual_rate(&self) -> f64 {
        self.usual
    }

    /// What it brought, less what it cost, in bytes.
    pub(super) fn balance_bytes(&self) -> f64 {
        self.balance
    }

    /// How long something waited for it, and how much did, times how long, in byte seconds.
    pub(super) fn held_up(&self) -> (Duration, f64) {
        (self.held.time, self.held.byte_seconds)
    }

    /// What its first flight showed to be the bottleneck's rate, in bytes a second.
    #[cfg(test)]
    pub(super) fn first_flight_rate(&self) -> Option<f64> {
        self.train.rate()
    }

    /// Data is expected from it.
    pub(super) fn brings(&self) -> bool {
        matches!(self.usage, Usage::InUse | Usage::OnTrial { .. })
    }

    /// Returns whether that was the end of its first flight: from now on its rate is known.
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        rtt: Option<Duration>,
        bytes: u64,
        newest: DataSeq,
    ) -> bool {
        self.tick_bytes += bytes;
        self.newest = self.newest.max(newest);
        self.last_arrival = now;
        self.average.note(now, bytes);
        if let Some(rtt) = rtt {
            self.tick_rtt = Some(self.tick_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        let was_known = self.train.rate().is_some();
        self.train.note(now, bytes, self.rtt);
        let by_train = self.train.rate().filter(|_| !was_known);
        self.peak = by_train.map_or(self.peak, |rate| rate.max(self.peak));
        by_train.is_some()
    }

    /// What it can bring, in bytes a second, once a first flight has shown it, or some round trips.
    pub(super) fn known_rate(&self) -> Option<f64> {
        match (self.train.rate(), self.average.rate(self.min_rtt * 2)) {
            (Some(_), _) if self.train.is_exact() => Some(self.peak),
            (_, average) => average.map(|rate| rate.max(self.peak)),
        }
    }

    /// It has brought nothing for long.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now.since(self.last_arrival) > SILENCE.max(self.rtt * 4)
    }

    /// So many bytes waited for its data for so long.
    pub(super) fn hold_up(&mut self, time: Duration, waiting_bytes: u64) {
        self.tick_blamed += time;
        self.held.time += time;
        self.held.byte_seconds += waiting_bytes as f64 * time.as_secs_f64();
    }

    /// Share of a tick in which it held others up.
    pub(super) fn blame(&self, tick: Duration) -> f64 {
        (self.tick_blamed.as_secs_f64() / tick.as_secs_f64()).min(1.0)
    }

    pub(super) fn tick_bytes(&self) -> u64 {
        self.tick_bytes
    }

    /// Rate over the last ticks, in bytes a second.
    fn recent_rate(&self) -> f64 {
        let count = self.ticks.clamp(1, RATE_TICKS);
        self.recent.iter().take(count).sum::<f64>() / count as f64
    }

    /// A tick is over; `is_free` if nothing held the path up in it.
    pub(super) fn end_tick(&mut self, tick: Duration, is_free: bool) {
        if let Some(slot) = self.recent.get_mut(self.ticks % RATE_TICKS) {
            *slot = self.tick_bytes as f64 / tick.as_secs_f64();
        }
        self.ticks += 1;
        let rate = self.recent_rate();
        let remembered = if is_free && self.tick_bytes > 0 { self.peak * (1.0 - FORGET) } else { self.peak };
        self.peak = rate.max(remembered);
        if is_free {
            let tick_rate = self.tick_bytes as f64 / tick.as_secs_f64();
            self.usual += (tick_rate - self.usual) * USUAL_SHARE;
        }
        if let Some(rtt) = self.tick_rtt.take() {
            self.min_rtt = self.min_rtt.min(rtt);
            if is_free || rtt < self.rtt {
                self.rtt = (self.rtt + rtt) / 2;
            }
        }
        self.tick_bytes = 0;
        self.tick_blamed = Duration::ZERO;
    }
}

/// All that came over a path, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Average {
    first: Option<(Instant, Instant)>,
    bytes_after_first: u64,
}

impl Average {
    fn note(&mut self, now: Instant, bytes: u64) {
        match &mut self.first {
            None => self.first = Some((now, now)),
            Some((_, last)) => {
                *last = now;
                self.bytes_after_first += bytes;
            }
        }
    }

    /// In bytes a second, once it is that of so long a time.
    fn rate(&self, least: Duration) -> Option<f64> {
        let (first, last) = self.first.filter(|_| self.bytes_after_first >= LEAST_TRAIN_BYTES)?;
        let span = last.since(first);
        (span >= least && span >= LEAST_TRAIN).then(|| self.bytes_after_first as f64 / span.as_secs_f64())
    }
}

/// The first flight of a path: its packets leave together and arrive as far apart as the bottleneck sends them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Train {
    first: Option<(Instant, Instant)>,
    bytes_after_first: u64,
    is_over: bool,
}

/// A first flight is no longer (RFC 6928).
pub(super) const TRAIN_BYTES: u64 = 14_600;
/// With less behind its first packet, a flight tells nothing.
const LEAST_TRAIN_BYTES: u64 = 4_000;
/// A shorter first flight says no more than one that took so long.
const LEAST_TRAIN: Duration = Duration::from_millis(4);

impl Train {
    fn note(&mut self, now: Instant, bytes: u64, rtt: Duration) {
        match &mut self.first {
            None => self.first = Some((now, now)),
            // A gap of half a round trip lies between two flights.
            Some((_, last)) if now.since(*last) * 2 > rtt => {
                if self.bytes_after_first >= LEAST_TRAIN_BYTES {
                    self.is_over = true;
                } else if !self.is_over {
                    (self.first, self.bytes_after_first) = (Some((now, now)), 0);
                }
            }
            Some((_, last)) if !self.is_over => {
                *last = now;
                self.bytes_after_first += bytes;
            }
            Some(_) => {}
        }
        self.is_over |= self.bytes_after_first >= TRAIN_BYTES * 3 / 4;
    }

    /// Whether its rate is the bottleneck's, and not only the least that it may be.
    fn is_exact(&self) -> bool {
        self.first.is_some_and(|(first, last)| last.since(first) >= LEAST_TRAIN)
    }

    /// The rate of the bottleneck by what has arrived, in bytes a second; what came within [`LEAST_TRAIN`] may as well have waited for this
    /// process, and is counted as if it had taken that.
    fn rate(&self) -> Option<f64> {
        let (first, last) = self.first.filter(|_| self.is_over)?;
        Some(self.bytes_after_first as f64 / last.since(first).max(LEAST_TRAIN).as_secs_f64())
    }
}
