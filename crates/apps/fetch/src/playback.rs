//! What a transfer would have been for somebody who plays the file while it comes (K §6.2.1).
//!
//! A player reads the file from its beginning at a constant rate. A byte is ready when it and all before it are there; what came
//! behind a gap is blocked. From the times at which bytes came follows how long the player has to wait before it begins, and
//! how much has to be held meanwhile.

use std::ops::Range;

use polypath_units::{Duration, Instant};

use crate::schedule::Ranges;

/// What came at more moments is put together to fewer, so that a history takes no more memory than this many of [`Cell`].
const MOST_CELLS: usize = 4096;

/// When bytes came.
///
/// Rates, and what was blocked, are exact. The other figures are as long as fewer than 4096 moments were noted. Behind that, what came
/// within one [step](History::step) counts as at its last moment: a startup latency is never too short, and too long by no more than a
/// step; a required buffer never too small, and too large by no more than what is played in a step. A step is less than a thousandth
/// of the time.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    begun: Instant,
    /// That were there before anything came.
    present_bytes: u64,
    there: Ranges,
    end: Option<Instant>,
    cells: Vec<Cell>,
    /// How long a cell is; none of them has a length yet if it is zero.
    step: Duration,
    most_blocked_bytes: u64,
    /// Bytes behind a gap, times the seconds for which they were.
    blocked_byte_seconds: f64,
}

/// Moments within a step at which bytes came.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    last: Instant,
    /// Ready before the first of them.
    ready_bytes: u64,
    /// There before the first of them.
    there_bytes: u64,
    /// Just before each of them, what was there less twice what was ready: the most of it.
    most_surplus: i64,
}

/// How much was there at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since the first request.
    pub after: Duration,
    /// From the first byte on, without a gap.
    pub in_order_bytes: u64,
    /// In all.
    pub total_bytes: u64,
}

/// How a file could have been played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playback {
    /// The rate at which it is played, in bytes per second.
    pub bytes_per_second: f64,
    /// The least time from the first request until the player begins, for which it never waits again (K eq. 6.3).
    pub startup_latency: Duration,
    /// The most bytes that are held at a time: blocked ones, and those that have to be there in advance (K eq. 6.4).
    pub required_buffer_bytes: u64,
    /// The most bytes behind a gap at a time.
    pub most_blocked_bytes: u64,
    /// Bytes behind a gap, in the mean over the time of the transfer.
    pub mean_blocked_bytes: f64,
}

impl History {
    /// Nothing came yet. The first request is sent at `begun`.
    #[must_use]
    pub const fn new(begun: Instant) -> Self {
        Self::resumed(begun, Ranges::new())
    }

    /// As [`History::new`], of a file of which a part is there already.
    #[must_use]
    pub const fn resumed(begun: Instant, there: Ranges) -> Self {
        Self {
            begun,
            present_bytes: there.len_bytes(),
            there,
            end: None,
            cells: Vec::new(),
            step: Duration::ZERO,
            most_blocked_bytes: 0,
            blocked_byte_seconds: 0.0,
        }
    }

    /// With what was there before: it came at once, `after` an earlier request, just before this one began.
    #[must_use]
    pub fn preceded(mut self, after: Duration) -> Self {
        self.cells.iter_mut().for_each(|cell| cell.last += after);
        let first = Cell { last: self.begun + after, ready_bytes: 0, there_bytes: 0, most_surplus: 0 };
        self.cells.insert(0, first);
        self.end = Some(self.end.map_or(first.last, |end| end + after));
        self.present_bytes = 0;
        self
    }

    /// Bytes of the file came. Times never go back.
    pub fn note(&mut self, now: Instant, range: Range<u64>) {
        let (there_bytes, ready_bytes) = (self.there.len_bytes(), self.there.prefix_bytes());
        let blocked = there_bytes - ready_bytes;
        let blocked_for = now.since(self.end.unwrap_or(self.begun));
        self.blocked_byte_seconds += blocked as f64 * blocked_for.as_secs_f64();
        self.end = Some(now);
        // The moment before it comes is the worst.
        let surplus = i64::try_from(blocked).unwrap_or(i64::MAX).saturating_sub_unsigned(ready_bytes);
        self.add(Cell { last: now, ready_bytes, there_bytes, most_surplus: surplus });
        self.there.insert(range);
        let blocked = self.there.len_bytes() - self.there.prefix_bytes();
        self.most_blocked_bytes = self.most_blocked_bytes.max(blocked);
    }

    /// Bytes that came proved to be wrong, and are not there any more.
    pub fn take_back(&mut self, range: Range<u64>) {
        self.there.remove(range);
        self.present_bytes = self.present_bytes.min(self.there.len_bytes());
    }

    fn add(&mut self, cell: Cell) {
        let number = self.number(cell.last);
        if let Some(last) = self.cells.last_mut()
            && (last.last == cell.last
                || number.is_some_and(|number| Some(number) == step_number(self.begun, self.step, last.last)))
        {
            last.join(cell);
            return;
        }
        self.cells.push(cell);
        if self.cells.len() >= MOST_CELLS {
            self.thin_out(cell.last);
        }
    }

    /// Which step a moment is in, once there are steps.
    fn number(&self, at: Instant) -> Option<u64> {
        step_number(self.begun, self.step, at)
    }

    /// Half as many cells fit then, or fewer.
    fn thin_out(&mut self, now: Instant) {
        self.step = match self.step {
            Duration::ZERO => {
                Duration::from_nanos(now.since(self.begun).as_nanos() / (MOST_CELLS as u64 / 2) + 1)
            }
            // Each of the new ones has two of the old.
            step => Duration::from_nanos(step.as_nanos() * 2),
        };
        let cells = std::mem::take(&mut self.cells);
        for cell in cells {
            self.add(cell);
        }
    }

    /// What came within it counts as one; zero, if nothing was put together.
    #[must_use]
    pub const fn step(&self) -> Duration {
        self.step
    }

    /// When the last byte came.
    #[must_use]
    pub const fn end(&self) -> Option<Instant> {
        self.end
    }

    /// The rate at which the transfer could be played for ever, in bytes per second: all bytes that came over the whole time (K eq.
    /// 6.1).
    #[must_use]
    pub fn sustainable_rate(&self) -> Option<f64> {
        let took = self.end?.since(self.begun).as_secs_f64();
        (took > 0.0).then(|| (self.there.len_bytes() - self.present_bytes) as f64 / took)
    }

    /// How much was there from the begin on, at each moment that is known.
    pub fn course(&self) -> impl Iterator<Item = Moment> + '_ {
        let begin =
            self.cells.first().map(|first| self.moment(self.begun, first.ready_bytes, first.there_bytes));
        let between = self
            .cells
            .windows(2)
            .map(|pair| self.moment(pair[0].last, pair[1].ready_bytes, pair[1].there_bytes));
        let end = self.end.map(|at| self.moment(at, self.there.prefix_bytes(), self.there.len_bytes()));
        begin.into_iter().chain(between).chain(end)
    }

    fn moment(&self, at: Instant, in_order_bytes: u64, total_bytes: u64) -> Moment {
        Moment { after: at.since(self.begun), in_order_bytes, total_bytes }
    }

    /// How the file could have been played at a rate, or at the one that could be sustained. `None` if nothing came.
    #[must_use]
    pub fn playback(&self, bytes_per_second: Option<f64>) -> Option<Playback> {
        let rate = bytes_per_second.or_else(|| self.sustainable_rate()).filter(|rate| *rate > 0.0)?;
        let (mut most_needed, mut most_held) = (0.0_f64, self.most_blocked_bytes as f64);
        for cell in &self.cells {
            let played = rate * cell.last.since(self.begun).as_secs_f64();
            most_needed = most_needed.max(played - cell.ready_bytes as f64);
            most_held = most_held.max(played + cell.most_surplus as f64);
        }
        let took = self.end.map_or(0.0, |end| end.since(self.begun).as_secs_f64());
        Some(Playback {
            bytes_per_second: rate,
            startup_latency: Duration::from_secs_f64(most_needed / rate),
            required_buffer_bytes: most_held as u64,
            most_blocked_bytes: self.most_blocked_bytes,
            mean_blocked_bytes: if took > 0.0 { self.blocked_byte_seconds / took } else { 0.0 },
        })
    }

    /// Whether a player that begins after `startup` and reads `bytes_per_second` never waits (K Fig. 6.11).
    #[must_use]
    pub fn is_smooth(&self, bytes_per_second: f64, startup: Duration) -> bool {
        self.playback(Some(bytes_per_second)).is_some_and(|playback| playback.startup_latency <= startup)
    }
}

impl Cell {
    /// What followed in the same step.
    fn join(&mut self, next: Self) {
        self.last = next.last;
        // Something may have been taken back.
        self.ready_bytes = self.ready_bytes.min(next.ready_bytes);
        self.most_surplus = self.most_surplus.max(next.most_surplus);
    }
}

fn step_number(begun: Instant, step: Duration, at: Instant) -> Option<u64> {
    at.since(begun).as_nanos().checked_div(step.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_secs(9) + Duration::from_millis(millis)
    }

    #[test]
    fn what_is_behind_a_gap_is_blocked() {
        // 1000 bytes a second in all; the second quarter comes last of the first three.
        let mut history = History::new(at(0));
        for (millis, range) in [(250, 0..250), (500, 500..750), (750, 250..500), (1000, 750..1000)] {
            history.note(at(millis), range);
        }
        assert_eq!(history.sustainable_rate(), Some(1000.0));
        let playback = history.playback(None).expect("something came");
        // Just before 0.75 s, 250 bytes are ready of 750.
        assert_eq!(playback.startup_latency, Duration::from_millis(500));
        assert_eq!(playback.most_blocked_bytes, 250);
        assert_eq!(playback.required_buffer_bytes, 750);
        assert_eq!(playback.mean_blocked_bytes, 62.5);
        assert!(history.is_smooth(1000.0, Duration::from_millis(500)));
        assert!(!history.is_smooth(1000.0, Duration::from_millis(499)));
        assert!(history.is_smooth(500.0, Duration::from_millis(250)));
    }

    #[test]
    fn what_was_there_before_is_ready_and_did_not_come() {
        let mut there = Ranges::new();
        there.insert(0..500);
        let mut history = History::resumed(at(0), there);
        history.note(at(1000), 750..1000);
        history.note(at(2000), 500..750);
        assert_eq!(history.sustainable_rate(), Some(250.0));
        let playback = history.playback(None).expect("something came");
        // Just before two seconds, the first 500 bytes have been played.
        assert_eq!((playback.startup_latency, playback.most_blocked_bytes), (Duration::ZERO, 250));
        let course: Vec<_> =
            history.course().map(|it| (it.after.as_millis(), it.in_order_bytes, it.total_bytes)).collect();
        assert_eq!(course, [(0, 500, 500), (1000, 500, 750), (2000, 1000, 1000)]);
        // If the first half came at once after an earlier request, two seconds before.
        let history = history.preceded(Duration::from_secs(2));
        assert_eq!(history.sustainable_rate(), Some(250.0));
        let startup = history.playback(None).expect("something came").startup_latency;
        assert_eq!(startup, Duration::from_secs(2));
    }

    /// All moments of a history, as they would be without steps.
    fn exact(came: &[(Instant, Range<u64>)], rate: f64) -> (f64, f64) {
        let mut there = Ranges::new();
        let (mut most_needed, mut most_held) = (0.0_f64, 0.0_f64);
        for (now, range) in came {
            let blocked = (there.len_bytes() - there.prefix_bytes()) as f64;
            let needed = rate * now.since(at(0)).as_secs_f64() - there.prefix_bytes() as f64;
            (most_needed, most_held) = (most_needed.max(needed), most_held.max(blocked + needed.max(0.0)));
            there.insert(range.clone());
        }
        (most_needed / rate, most_held)
    }

    #[test]
    fn a_long_history_is_thinned_out_and_off_by_a_step_at_most() {
        // Two paths: one begins in the middle and is three times as fast for a while, and the other pauses now and then.
        let (mut came, mut history) = (Vec::new(), History::new(at(0)));
        let (mut low, mut high, mut now) = (0_u64, 1_000_000_000_u64, at(0));
        for count in 0_u64..60_000 {
            now +=
                Duration::from_micros(if count % 5000 == 4999 { 700_000 } else { 150 + count * 7919 % 900 });
            let range = if count % 4 == 0 { &mut low } else { &mut high };
            came.push((now, *range..*range + 10_000));
            *range += 10_000;
        }
        while low < 1_000_000_000 {
            now += Duration::from_millis(1);
            came.push((now, low..low + 50_000));
            low += 50_000;
        }
        for (at, range) in &came {
            history.note(*at, range.clone());
            assert!(history.cells.len() < MOST_CELLS);
        }
        let (took, step) = (now.since(at(0)).as_secs_f64(), history.step().as_secs_f64());
        assert!(step > 0.0 && step < took / 1000.0, "{step} of {took}");
        for rate in [None, Some(3e6), Some(4e7)] {
            let playback = history.playback(rate).expect("something came");
            let rate = playback.bytes_per_second;
            let (latency, held) = exact(&came, rate);
            let (latency_off, held_off) = (
                playback.startup_latency.as_secs_f64() - latency,
                playback.required_buffer_bytes as f64 - held,
            );
            assert!((-1e-6..step).contains(&latency_off), "{latency_off} at {rate}");
            assert!((-1.0..step * rate).contains(&held_off), "{held_off} at {rate}");
            assert_eq!(playback.most_blocked_bytes, 450_000_000);
        }
        assert_eq!(history.course().last().map(|end| end.total_bytes), Some(1_450_000_000));
    }

    #[test]
    fn what_proves_to_be_wrong_is_waited_for_again() {
        let mut history = History::new(at(0));
        history.note(at(1000), 0..1000);
        history.take_back(0..500);
        history.note(at(2000), 0..500);
        let playback = history.playback(None).expect("something came");
        assert_eq!((playback.bytes_per_second, playback.most_blocked_bytes), (500.0, 0));
        assert_eq!(playback.startup_latency, Duration::from_secs(2));
    }

    #[test]
    fn in_order_at_a_constant_rate_only_the_first_bytes_are_waited_for() {
        let mut history = History::new(at(0));
        for step in 0..100 {
            history.note(at((step + 1) * 10), step * 10..(step + 1) * 10);
        }
        let playback = history.playback(None).expect("something came");
        assert_eq!((playback.startup_latency, playback.most_blocked_bytes), (Duration::from_millis(10), 0));
        assert_eq!(History::new(at(0)).playback(None), None);
    }
}
