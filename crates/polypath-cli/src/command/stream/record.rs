//! What was seen of a stream, for its report. It takes the same memory however long the stream is.

use std::time::Instant;

use polypath_fetch::manifest::{Presentation, Quality};
use polypath_fetch::stream::State;
use polypath_fetch::streaming::{Fetched, Told};

use super::super::rates::Rates;
use super::state::label;

/// The first bins are so long: figures come once a second, and segments may come one after the other.
const FIGURES_BIN_S: f64 = 1.0;
const SEGMENTS_BIN_S: f64 = 0.1;
/// When there are more, neighbours become one.
const MOST_BINS: usize = 1024;
/// So many stalls are kept.
const MOST_STALLS: usize = 500;

/// What was seen of a stream.
pub(super) struct Record {
    pub(super) begun: Instant,
    pub(super) is_live: bool,
    pub(super) qualities: Vec<QualityRecord>,
    pub(super) rates: Rates,
    /// What was there to play, in seconds.
    pub(super) lead: Course,
    /// Of segments when they came, in Mbit/s.
    pub(super) quality: Course,
    /// In seconds.
    pub(super) behind_live: Course,
    pub(super) startup_s: Option<f64>,
    pub(super) stalls: Vec<Stall>,
    /// All of those that are over, kept or not, in seconds.
    stalled_s: f64,
    stalled_from_s: Option<f64>,
    pub(super) stall_count: usize,
    pub(super) left_out: u64,
    pub(super) bytes: u64,
}

/// A quality of the main track, and how much of the stream came in it.
pub(super) struct QualityRecord {
    pub(super) label: String,
    bit_rate_bps: u64,
    pub(super) seconds: f64,
}

/// A time in which a player had to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stall {
    pub(super) from_s: f64,
    /// None if it was not over.
    pub(super) to_s: Option<f64>,
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            is_live: false,
            qualities: Vec::new(),
            rates: Rates::new(),
            lead: Course::new(FIGURES_BIN_S),
            quality: Course::new(SEGMENTS_BIN_S),
            behind_live: Course::new(FIGURES_BIN_S),
            startup_s: None,
            stalls: Vec::new(),
            stalled_s: 0.0,
            stalled_from_s: None,
            stall_count: 0,
            left_out: 0,
            bytes: 0,
        }
    }

    pub(super) fn now_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Something happened. Paths have their interfaces' names.
    pub(super) fn note(&mut self, told: &Told, name: impl Fn(usize) -> String) {
        match told {
            Told::Begun(presentation) => self.begin(presentation),
            Told::Bytes { path, bytes } => {
                self.bytes += bytes;
                self.rates.note(&name(*path), *bytes);
            }
            Told::Segment(segment) => self.note_segment(segment),
            Told::LeftOut { .. } => self.left_out += 1,
            Told::Player(state) => self.note_state(self.now_s(), *state),
            Told::Now(now) => {
                let at_s = self.now_s();
                if let Some(behind) = now.behind_live {
                    self.behind_live.note(at_s, behind.as_secs_f64());
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, presentation: &Presentation) {
        self.is_live = presentation.is_live();
        let record = |quality: &Quality| QualityRecord {
            label: label(quality),
            bit_rate_bps: quality.bit_rate().as_bps(),
            seconds: 0.0,
        };
        self.qualities = presentation.main().qualities().iter().map(record).collect();
    }

    fn note_segment(&mut self, fetched: &Fetched) {
        let (bit_rate_bps, label) = (fetched.quality.bit_rate().as_bps(), label(&fetched.quality));
        let is_it = |known: &&mut QualityRecord| known.bit_rate_bps == bit_rate_bps && known.label == label;
        let span_s = fetched.segment.duration().as_secs_f64();
        // Others are of the sound beside it.
        if let Some(known) = self.qualities.iter_mut().find(is_it) {
            known.seconds += span_s;
            // The manifest may not say.
            let told = bit_rate_bps as f64 / 1e6;
            let own = fetched.bytes.len() as f64 * 8.0 / 1e6 / span_s.max(1e-3);
            self.quality.note(self.now_s(), if bit_rate_bps > 0 { told } else { own });
        }
    }

    pub(super) fn note_state(&mut self, at_s: f64, state: State) {
        if state == State::Playing {
            self.startup_s.get_or_insert(at_s);
        }
        if let Some(last) = self.stalls.last_mut()
            && last.to_s.is_none()
        {
            last.to_s = Some(at_s);
        }
        self.stalled_s += self.stalled_from_s.take().map_or(0.0, |from_s| at_s - from_s);
        if state == State::Stalled {
            self.stall_count += 1;
            self.stalled_from_s = Some(at_s);
            if self.stalls.len() < MOST_STALLS {
                self.stalls.push(Stall { from_s: at_s, to_s: None });
            }
        }
    }

    /// How long all stalls have lasted until then, in seconds.
    pub(super) fn stalled_s(&self, end_s: f64) -> f64 {
        self.stalled_s + self.stalled_from_s.map_or(0.0, |from_s| end_s - from_s)
    }

    /// What is there to play now.
    pub(super) fn note_lead(&mut self, lead_s: f64) {
        self.lead.note(self.now_s(), lead_s);
    }
}

/// A value over time.
#[derive(Clone, Debug)]
pub(super) struct Course {
    bin_s: f64,
    /// Sums and counts.
    bins: Vec<(f64, u32)>,
}

impl Course {
    pub(super) const fn new(bin_s: f64) -> Self {
        Self { bin_s, bins: Vec::new() }
    }

    pub(super) fn note(&mut self, at_s: f64, value: f64) {
        while (at_s / self.bin_s) as usize >= MOST_BINS {
            self.bin_s *= 2.0;
            let both =
                |pair: &[(f64, u32)]| pair.iter().fold((0.0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            self.bins = self.bins.chunks(2).map(both).collect();
        }
        let number = (at_s / self.bin_s) as usize;
        if self.bins.len() <= number {
            self.bins.resize(number + 1, (0.0, 0));
        }
        let bin = &mut self.bins[number];
        *bin = (bin.0 + value, bin.1 + 1);
    }

    /// Times and means. Where nothing was noted, the value before goes on, until `end_s`.
    pub(super) fn points(&self, end_s: f64) -> Vec<(f64, f64)> {
        let mut value = f64::NAN;
        let mut points = Vec::new();
        for number in 0..(end_s / self.bin_s).ceil().max(1.0) as usize {
            if let Some((sum, count)) = self.bins.get(number).filter(|(_, count)| *count > 0) {
                value = sum / f64::from(*count);
            }
            points.push((number as f64 * self.bin_s, value));
        }
        points
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_have_their_begin_and_end() {
        let mut record = Record::new();
        for (at_s, state) in
            [(1.0, State::Playing), (4.0, State::Stalled), (6.5, State::Playing), (9.0, State::Stalled)]
        {
            record.note_state(at_s, state);
        }
        assert_eq!((record.startup_s, record.stall_count), (Some(1.0), 2));
        let ended = Stall { from_s: 4.0, to_s: Some(6.5) };
        assert_eq!(record.stalls, [ended, Stall { from_s: 9.0, to_s: None }]);
        for _ in 0..1000 {
            record.note_state(10.0, State::Stalled);
        }
        assert_eq!((record.stalls.len(), record.stall_count), (MOST_STALLS, 1002));
    }

    #[test]
    fn a_long_course_takes_no_more_memory_and_keeps_its_means() {
        let mut course = Course::new(FIGURES_BIN_S);
        for second in 0..100_000 {
            course.note(f64::from(second), if second < 50_000 { 2.0 } else { 6.0 });
        }
        let points = course.points(100_000.0);
        assert!(course.bins.len() <= MOST_BINS && points.len() <= MOST_BINS);
        assert_eq!((points[10].1, points[points.len() - 10].1), (2.0, 6.0));
        // What is not noted goes on.
        let mut course = Course::new(FIGURES_BIN_S);
        course.note(1.5, 3.0);
        let points = course.points(4.0);
        assert!(points.len() == 4 && points[0].1.is_nan() && points[3] == (3.0, 3.0), "{points:?}");
    }
}
