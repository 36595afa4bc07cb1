use core::fmt;
use core::str::FromStr;

use polypath_units::Duration;

const MOST: usize = 4;

/// What follows the name of a [`Policy`](super::Policy): one to four numbers with commas between them. Shares may be written with a percent sign and
/// times with a unit: `1%` is 0.01, `5ms` is 0.005.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    values: [f64; MOST],
    len: usize,
}

/// A text that is no list of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNumbers;

impl fmt::Display for NoNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected one to four numbers such as 3, 1% or 5ms, with commas between them")
    }
}

impl core::error::Error for NoNumbers {}

impl Numbers {
    /// These; of more than four the first four.
    #[must_use]
    pub const fn new<const N: usize>(given: [f64; N]) -> Self {
        let mut values = [0.0; MOST];
        let len = if N < MOST { N } else { MOST };
        let mut at = 0;
        while at < len {
            values[at] = given[at];
            at += 1;
        }
        Self { values, len }
    }

    /// The number at a place, from 0; `default` if there are fewer.
    #[must_use]
    pub fn get(&self, at: usize, default: f64) -> f64 {
        self.as_slice().get(at).copied().unwrap_or(default)
    }

    /// The number at a place, from 0, as a time in seconds; `default` if there are fewer.
    #[must_use]
    pub fn duration(&self, at: usize, default: Duration) -> Duration {
        let given = self.as_slice().get(at);
        given.map_or(default, |seconds| Duration::from_secs(1).mul_f64(*seconds))
    }

    /// They are shares, of 0 to 1, and no more of them than this.
    #[must_use]
    pub fn are_shares(&self, most: usize) -> bool {
        self.len <= most && self.as_slice().iter().all(|share| is_share(*share))
    }

    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[f64] {
        &self.values[..self.len]
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, value) in self.as_slice().iter().enumerate() {
            write!(f, "{}{value}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Numbers {
    type Err = NoNumbers;

    fn from_str(text: &str) -> Result<Self, NoNumbers> {
        let mut numbers = Self::default();
        for word in text.split(',') {
            let place = numbers.values.get_mut(numbers.len).ok_or(NoNumbers)?;
            *place = number(word.trim()).ok_or(NoNumbers)?;
            numbers.len += 1;
        }
        Ok(numbers)
    }
}

pub(super) fn is_share(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

fn number(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 4] = [("%", 1e-2), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let with_unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (digits, factor) = with_unit.unwrap_or((text, 1.0));
    let value = digits.parse::<f64>().ok()? * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn numbers_are_read_with_their_units() {
        let numbers: Numbers = "3, 1%,5ms,2s".parse().unwrap();
        assert_eq!(numbers.as_slice(), [3.0, 0.01, 0.005, 2.0]);
        assert_eq!(numbers.to_string(), "3,0.01,0.005,2");
        assert_eq!(numbers.duration(2, Duration::ZERO), Duration::from_millis(5));
        assert_eq!((numbers.get(0, 9.0), Numbers::new([1.0]).get(1, 9.0)), (3.0, 9.0));
        for text in ["", "1,2,3,4,5", "-1", "one", "1,,2", "inf", "5min"] {
            assert_eq!(text.parse::<Numbers>(), Err(NoNumbers), "{text}");
        }
    }
}
