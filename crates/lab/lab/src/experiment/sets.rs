//! From points of the unit cube to paths.

use polypath_config::quantity::{Percent, Rate, Span};
use polypath_units::{BitRate, Duration};

use super::file::{Factor, FactorsFile, ScaleWord};
use crate::run::PathSpec;

/// A quantity that a factor can run over.
pub(super) trait Scaled: Copy {
    fn number(self) -> f64;
    fn of_number(number: f64) -> Self;
    /// As people read it.
    fn words(self) -> String;
}

impl Scaled for Rate {
    fn number(self) -> f64 {
        self.0.as_bps() as f64
    }

    fn of_number(number: f64) -> Self {
        Self(BitRate::from_bps(number.round() as u64))
    }

    fn words(self) -> String {
        self.0.to_string()
    }
}

impl Scaled for Span {
    fn number(self) -> f64 {
        self.0.as_nanos() as f64
    }

    fn of_number(number: f64) -> Self {
        Self(Duration::from_nanos(number.round() as u64))
    }

    fn words(self) -> String {
        match self.0.as_secs_f64() {
            seconds if seconds >= 10.0 => format!("{seconds} s"),
            _ => format!("{} ms", self.0.as_millis_f64()),
        }
    }
}

impl Scaled for Percent {
    fn number(self) -> f64 {
        self.0
    }

    fn of_number(number: f64) -> Self {
        Self(number)
    }

    fn words(self) -> String {
        format!("{} %", (self.0 * 1e6).round() / 1e4)
    }
}

impl<Q: Scaled> Factor<Q> {
    /// Both ends of a range that ends before it begins.
    fn reversed(self) -> Option<(String, String)> {
        match self {
            Self::Range { from, to, .. } if from.number() > to.number() => Some((from.words(), to.words())),
            _ => None,
        }
    }

    /// Its value, or its range.
    fn words(self) -> String {
        match self {
            Self::Fixed(value) => value.words(),
            Self::Range { from, to, scale } => {
                let by = if scale == ScaleWord::Log { ", by equal ratios" } else { "" };
                format!("{} to {}{by}", from.words(), to.words())
            }
        }
    }

    pub(super) fn is_range(&self) -> bool {
        matches!(self, Self::Range { .. })
    }

    /// The value at a place of the range; a fixed factor takes none.
    fn take(&self, places: &mut impl Iterator<Item = f64>) -> Q {
        match self {
            Self::Fixed(value) => *value,
            Self::Range { from, to, scale } => {
                let place = places.next().unwrap_or(0.5);
                let (from, to) = (from.number(), to.number());
                Q::of_number(match scale {
                    ScaleWord::Linear => from + (to - from) * place,
                    ScaleWord::Log => from * (to / from).powf(place),
                })
            }
        }
    }
}

impl FactorsFile {
    /// Dimensions of the design for each path.
    pub(super) fn ranges_per_path(&self) -> usize {
        [
            self.rate.is_range(),
            self.rtt.is_range(),
            self.queue.is_range(),
            self.loss.as_ref().is_some_and(Factor::is_range),
        ]
        .into_iter()
        .filter(|is_range| *is_range)
        .count()
    }

    /// Name and range of each, as people read them.
    pub(super) fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = vec![
            ("Rate", self.rate.words()),
            ("Round-trip time", self.rtt.words()),
            ("Queue", self.queue.words()),
        ];
        words.extend(self.loss.map(|loss| ("Loss", loss.words())));
        words
    }

    /// The key of a range that ends before it begins, and both ends.
    pub(super) fn reversed(&self) -> Option<(&'static str, String, String)> {
        let factors = [
            ("factors.rate", self.rate.reversed()),
            ("factors.rtt", self.rtt.reversed()),
            ("factors.queue", self.queue.reversed()),
            ("factors.loss", self.loss.and_then(Factor::reversed)),
        ];
        factors.into_iter().find_map(|(key, ends)| ends.map(|(from, to)| (key, from, to)))
    }

    /// The paths of a point: all factors of the first path, then those of the second.
    pub(super) fn paths(&self, paths: usize, point: &[f64]) -> Vec<PathSpec> {
        let mut places = point.iter().copied();
        let paths = (0..paths).map(|_| PathSpec {
            rate: self.rate.take(&mut places).0,
            rtt: self.rtt.take(&mut places).0,
            queue: self.queue.take(&mut places).0,
            loss: self.loss.as_ref().map_or(0.0, |loss| loss.take(&mut places).0),
            change: None,
        });
        paths.collect()
    }
}
