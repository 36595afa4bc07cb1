//! From points of the unit cube to paths.

use polypath_config::quantity::{Percent, Rate, Span};
use polypath_units::{BitRate, Duration};

use super::file::{Factor, FactorsFile, ProductsFile, ScaleWord};
use crate::run::PathSpec;

const PACKET_BYTES: u64 = 1500;
/// Besides bandwidth-delay products, lest a short path drops packets that come in pairs (Kaspar 2011, §3.3).
const MARGIN_PACKETS: u64 = 5;

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
            self.queue.as_ref().is_some_and(Factor::is_range),
            self.loss.as_ref().is_some_and(Factor::is_range),
        ]
        .into_iter()
        .filter(|is_range| *is_range)
        .count()
    }

    /// Dimensions of the design that all paths of a set have in common.
    pub(super) fn common_ranges(&self) -> usize {
        usize::from(self.queue_products.is_some())
    }

    /// How large queues are is said once.
    pub(super) fn has_one_queue(&self) -> bool {
        let given = [self.queue.is_some(), self.queue_packets.is_some(), self.queue_products.is_some()];
        given.into_iter().filter(|is_given| *is_given).count() == 1
    }

    fn queue_words(&self) -> String {
        match (self.queue, self.queue_packets, self.queue_products) {
            (Some(queue), ..) => queue.words(),
            (_, Some(packets), _) => format!("{packets} packets"),
            (.., Some(ProductsFile { from, to })) => {
                format!("{from} to {to} bandwidth-delay products and {MARGIN_PACKETS} packets")
            }
            (None, None, None) => String::new(),
        }
    }

    /// Name and range of each, as people read them.
    pub(super) fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = vec![
            ("Rate", self.rate.words()),
            ("Round-trip time", self.rtt.words()),
            ("Queue", self.queue_words()),
        ];
        words.extend(self.loss.map(|loss| ("Loss", loss.words())));
        words
    }

    /// The key of a range that ends before it begins, and both ends.
    pub(super) fn reversed(&self) -> Option<(&'static str, String, String)> {
        let factors = [
            ("factors.rate", self.rate.reversed()),
            ("factors.rtt", self.rtt.reversed()),
            ("factors.queue", self.queue.and_then(Factor::reversed)),
            ("factors.loss", self.loss.and_then(Factor::reversed)),
        ];
        factors.into_iter().find_map(|(key, ends)| ends.map(|(from, to)| (key, from, to)))
    }

    /// What a queue holds that is not given as a time, and a byte for what rounding takes.
    fn queue_bytes(&self, rate: BitRate, rtt: Duration, place: f64) -> u64 {
        match (self.queue_packets, self.queue_products) {
            (Some(packets), _) => u64::from(packets) * PACKET_BYTES + 1,
            (None, Some(ProductsFile { from, to })) => {
                let products = from + (to - from) * place;
                (products * rate.bytes_in(rtt) as f64) as u64 + MARGIN_PACKETS * PACKET_BYTES + 1
            }
            (None, None) => 0,
        }
    }

    /// The paths of a point: all factors of the first path, then those of the second, then what they have in common.
    pub(super) fn paths(&self, paths: usize, point: &[f64]) -> Vec<PathSpec> {
        let mut places = point.iter().copied();
        let common = point.last().copied().unwrap_or(0.5);
        let paths = (0..paths).map(|_| {
            let (rate, rtt) = (self.rate.take(&mut places).0, self.rtt.take(&mut places).0);
            let queue = match self.queue {
                Some(queue) => queue.take(&mut places).0,
                None => rate.time_to_send(self.queue_bytes(rate, rtt, common)),
            };
            let loss = self.loss.as_ref().map_or(0.0, |loss| loss.take(&mut places).0);
            PathSpec { rate, rtt, queue, loss, change: None }
        });
        paths.collect()
    }
}
