//! From points of the unit cube to paths.

use polypath_config::quantity::{Percent, Rate, Span};
use polypath_units::{BitRate, Duration};

use super::file::{Factor, FactorsFile, ScaleWord};
use crate::run::PathSpec;

/// A quantity that a factor can run over.
pub(super) trait Scaled: Copy {
    fn number(self) -> f64;
    fn of_number(number: f64) -> Self;
}

impl Scaled for Rate {
    fn number(self) -> f64 {
        self.0.as_bps() as f64
    }

    fn of_number(number: f64) -> Self {
        Self(BitRate::from_bps(number.round() as u64))
    }
}

impl Scaled for Span {
    fn number(self) -> f64 {
        self.0.as_nanos() as f64
    }

    fn of_number(number: f64) -> Self {
        Self(Duration::from_nanos(number.round() as u64))
    }
}

impl Scaled for Percent {
    fn number(self) -> f64 {
        self.0
    }

    fn of_number(number: f64) -> Self {
        Self(number)
    }
}

impl<Q: Scaled> Factor<Q> {
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
