//! What one path brings to a receiver, and what it holds up.

use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::{DataSeq, Endpoint};

use crate::identifiers::SubflowId;

/// Both addresses of a subflow: what a path is known by when its subflow is closed and another one opened.
pub(crate) type Pair = (IpAddr, Endpoint);

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
pub(super) struct Path {
    pub(super) id: SubflowId,
    pub(super) pair: Pair,
    pub(super) role: Role,
    /// It may hold data: it was not set aside all the time.
    pub(super) was_used: bool,
    /// Round-trip time with what stands in queues now.
    pub(super) rtt: Duration,
    pub(super) min_rtt: Duration,
    /// The least of this tick: what was sent after a wait shows more.
    tick_rtt: Option<Duration>,
    /// After the newest data that it brought.
    pub(super) newest: DataSeq,
    pub(super) last_arrival: Instant,
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
    pub(super) peak: f64,
    /// What it brings on average when nothing holds it up, in bytes a second.
    pub(super) usual: f64,
    /// What it brought, less what the best path did not bring while it waited for this one, in bytes.
    pub(super) balance: f64,
    pub(super) brought_bytes: u64,
    pub(super) held: Held,
    pub(super) train: Train,
}

/// What waited for data of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Held {
    /// How long something did.
    pub(super) time: Duration,
    /// How much did, times how long, in byte seconds.
    pub(super) byte_seconds: f64,
}

/// What a path is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The peer may send over it as it likes.
    InUse,
    /// So it may, to find out what that brings.
    OnTrial { since: Instant },
    /// The peer was asked to send over it only if no other works.
    Aside,
    /// The user made it a backup: none of our business.
    Backup,
}

impl Path {
    pub(super) fn new(
        now: Instant,
        id: SubflowId,
        pair: Pair,
        role: Role,
        rtt: Duration,
        next: DataSeq,
    ) -> Self {
        Self {
            id,
            pair,
            role,
            was_used: role == Role::InUse,
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
            brought_bytes: 0,
            held: Held::default(),
            train: Train::default(),
        }
    }

    /// What it brings from now on counts.
    pub(super) fn begin(&mut self, role: Role, next: DataSeq) {
        self.role = role;
        self.was_used = true;
        self.balance = 0.0;
        self.newest = next;
        self.train = Train::default();
        self.average = Average::default();
    }

    /// Data is expected from it.
    pub(super) fn brings(&self) -> bool {
        matches!(self.role, Role::InUse | Role::OnTrial { .. })
    }

    /// Returns whether that was the end of its first flight: from now on its rate is known.
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        rtt: Option<Duration>,
        bytes: u64,
        newest: DataSeq,
    ) -> bool {
        self.brought_bytes += bytes;
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
pub(super) struct Train {
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
    pub(super) fn rate(&self) -> Option<f64> {
        let (first, last) = self.first.filter(|_| self.is_over)?;
        Some(self.bytes_after_first as f64 / last.since(first).max(LEAST_TRAIN).as_secs_f64())
    }
}
