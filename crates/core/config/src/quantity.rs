//! Quantities as people write them: `"40mbit"`, `"20ms"`, `"1%"`, `"100KB"`. The words are
//! netem's and tc's, except that `KB` is 1000 bytes and `KiB` 1024, and that `mbps`, which tc reads as
//! megabytes, is refused.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use polypath_units::{BitRate, Duration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Reads a rate such as `40mbit`.
///
/// # Errors
/// What is wrong with it, and what was expected.
pub fn parse_rate(text: &str) -> Result<BitRate, String> {
    read(text).map(|Rate(rate)| rate)
}

/// Reads a time such as `20ms`.
///
/// # Errors
/// What is wrong with it, and what was expected.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    read(text).map(|Span(span)| span)
}

/// Reads any quantity.
///
/// # Errors
/// One sentence: the text, what is wrong with it, and what was expected.
pub fn read<Q: Quantity>(text: &str) -> Result<Q, String> {
    Q::parse(text).map_err(|reason| format!("\"{text}\" {reason}; expected {}", Q::EXPECTED))
}

/// A quantity that can be read from text.
pub trait Quantity: Sized {
    /// What is expected, with an example; completes the sentence "expected …".
    const EXPECTED: &'static str;
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it, to follow the text: "has no unit".
    fn parse(text: &str) -> Result<Self, String>;
}

struct QuantityVisitor<Q>(PhantomData<Q>);

impl<Q: Quantity> Visitor<'_> for QuantityVisitor<Q> {
    type Value = Q;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Q::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Q, E> {
        read(text).map_err(E::custom)
    }
}

macro_rules! deserialize_quantity {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(QuantityVisitor(PhantomData))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let description = format!("Expected is {}.", <$name>::EXPECTED);
                json_schema!({ "type": "string", "description": description })
            }
        }
    )*};
}

/// Splits `"40.5mbit"` into its number and its unit.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+' | '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let value: f64 = number.replace('_', "").parse().map_err(|_| "has no number".to_string())?;
    if value < 0.0 {
        return Err("is negative".to_string());
    }
    Ok((value, unit.trim()))
}

/// A value scaled to whole units, refusing what does not fit 64 bits.
fn scale(value: f64, factor: f64) -> Result<u64, String> {
    let scaled = libm::round(value * factor);
    if scaled < u64::MAX as f64 { Ok(scaled as u64) } else { Err("is too large".to_string()) }
}

/// A data rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub BitRate);

impl Quantity for Rate {
    const EXPECTED: &'static str = "a rate such as \"40mbit\" (units bit, kbit, mbit, gbit)";

    fn parse(text: &str) -> Result<Self, String> {
        let (value, unit) = split(text)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            "" => return Err("has no unit".to_string()),
            "bps" | "kbps" | "mbps" | "gbps" => {
                return Err("is ambiguous (tc reads bps as bytes per second)".to_string());
            }
            _ => return Err(format!("has the unknown unit \"{unit}\"")),
        };
        match scale(value, factor)? {
            0 => Err("is zero (to cut a link, set down = true)".to_string()),
            bps => Ok(Self(BitRate::from_bps(bps))),
        }
    }
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Nanoseconds of a unit of time.
fn span_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3_600e9,
        "d" => 86_400e9,
        _ => return None,
    })
}

impl Quantity for Span {
    const EXPECTED: &'static str = "a time such as \"20ms\" (units us, ms, s, min, h, d)";

    fn parse(text: &str) -> Result<Self, String> {
        let (value, unit) = split(text)?;
        let factor = match span_factor(unit) {
            Some(factor) => factor,
            None if unit.is_empty() && value == 0.0 => 0.0,
            None if unit.is_empty() => return Err("has no unit".to_string()),
            None => return Err(format!("has the unknown unit \"{unit}\"")),
        };
        scale(value, factor).map(|nanos| Self(Duration::from_nanos(nanos)))
    }
}

/// A probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl Quantity for Percent {
    const EXPECTED: &'static str = "a percentage such as \"1%\"";

    fn parse(text: &str) -> Result<Self, String> {
        let (value, unit) = split(text)?;
        match unit {
            "%" if value <= 100.0 => Ok(Self(value / 100.0)),
            "%" => Err("is more than 100%".to_string()),
            "" => Err("has no unit".to_string()),
            _ => Err(format!("has the unknown unit \"{unit}\"")),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

fn size_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "KB" | "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    })
}

impl Quantity for Size {
    const EXPECTED: &'static str = "a size such as \"20MB\" (units B, KB, MB, GB, KiB, MiB, GiB)";

    fn parse(text: &str) -> Result<Self, String> {
        let (value, unit) = split(text)?;
        if unit.is_empty() {
            return if value == 0.0 { Ok(Self(0)) } else { Err("has no unit".to_string()) };
        }
        let factor = size_factor(unit).ok_or_else(|| format!("has the unknown unit \"{unit}\""))?;
        scale(value, factor).map(Self)
    }
}

/// How much a transfer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes, then the connection closes.
    Bytes(u64),
    /// As much as fits the run.
    Unlimited,
}

impl Quantity for Amount {
    const EXPECTED: &'static str = "a size such as \"20MB\", or \"unlimited\"";

    fn parse(text: &str) -> Result<Self, String> {
        if text.trim() == "unlimited" {
            return Ok(Self::Unlimited);
        }
        Size::parse(text).map(|size| Self::Bytes(size.0))
    }
}

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many bytes.
    Bytes(u64),
    /// So many packets.
    Packets(u64),
    /// As many bytes as leave in this time at the link's rate.
    Time(Duration),
}

impl Quantity for Limit {
    const EXPECTED: &'static str = "a queue limit such as \"80ms\", \"100KB\" or \"100p\"";

    fn parse(text: &str) -> Result<Self, String> {
        let (value, unit) = split(text)?;
        match (unit, span_factor(unit), size_factor(unit)) {
            ("p", ..) => scale(value, 1.0).map(Self::Packets),
            (_, Some(_), _) => Span::parse(text).map(|span| Self::Time(span.0)),
            (_, _, Some(factor)) => scale(value, factor).map(Self::Bytes),
            ("", ..) => Err("has no unit".to_string()),
            _ => Err(format!("has the unknown unit \"{unit}\"")),
        }
    }
}

/// How packets get lost: `"1%"`, or `"gemodel P [R [1-H [1-K]]]"` as in netem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each packet on its own.
    Random(f64),
    /// Gilbert-Elliott: a good and a bad state.
    GilbertElliott {
        /// Probability of going from good to bad, at each packet.
        p: f64,
        /// Probability of going from bad to good.
        r: f64,
        /// Loss in the bad state (netem's 1-h).
        bad_loss: f64,
        /// Loss in the good state (netem's 1-k).
        good_loss: f64,
    },
}

impl Quantity for Loss {
    const EXPECTED: &'static str = "a loss such as \"1%\" or \"gemodel 1% 10% 70% 0.1%\"";

    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        match words.next() {
            Some("gemodel") => {
                let values = words.map(|w| Percent::parse(w).map(|p| p.0)).collect::<Result<Vec<_>, _>>()?;
                let at = |index: usize| values.get(index).copied();
                let Some(p) = at(0).filter(|_| values.len() <= 4) else {
                    return Err("does not have 1 to 4 percentages".to_string());
                };
                // netem's defaults: r = 1 - p, everything is lost in the bad state, nothing in the good one.
                Ok(Self::GilbertElliott {
                    p,
                    r: at(1).unwrap_or(1.0 - p),
                    bad_loss: at(2).unwrap_or(1.0),
                    good_loss: at(3).unwrap_or(0.0),
                })
            }
            Some("random") => match (words.next(), words.next()) {
                (Some(percent), None) => Percent::parse(percent).map(|p| Self::Random(p.0)),
                _ => Err("does not have one percentage after random".to_string()),
            },
            _ => Percent::parse(text).map(|p| Self::Random(p.0)),
        }
    }
}

deserialize_quantity!(Rate, Span, Percent, Size, Amount, Limit, Loss);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_tc_reads() {
        assert_eq!(Rate::parse("40mbit"), Ok(Rate(BitRate::from_mbps(40))));
        assert_eq!(Rate::parse("1.5 Mbit"), Ok(Rate(BitRate::from_kbps(1500))));
        assert_eq!(Span::parse("20ms"), Ok(Span(Duration::from_millis(20))));
        assert_eq!(Span::parse("0"), Ok(Span(Duration::ZERO)));
        assert_eq!(Percent::parse("0.5%"), Ok(Percent(0.005)));
        assert_eq!(Limit::parse("80ms"), Ok(Limit::Time(Duration::from_millis(80))));
        assert_eq!(Limit::parse("100KB"), Ok(Limit::Bytes(100_000)));
        assert_eq!(Limit::parse("100p"), Ok(Limit::Packets(100)));
        assert_eq!(Amount::parse("4MiB"), Ok(Amount::Bytes(4 << 20)));
        assert_eq!(Amount::parse("unlimited"), Ok(Amount::Unlimited));
        assert_eq!(
            Loss::parse("gemodel 1% 10%"),
            Ok(Loss::GilbertElliott { p: 0.01, r: 0.1, bad_loss: 1.0, good_loss: 0.0 })
        );
    }

    #[test]
    fn a_limit_takes_every_unit_of_time_and_of_size() {
        for unit in ["ns", "us", "µs", "ms", "s", "min", "h", "d"] {
            let text = format!("1.5{unit}");
            let time = Span::parse(&text).map(|span| Limit::Time(span.0));
            assert!(time.is_ok());
            assert_eq!(Limit::parse(&text), time, "{text}");
        }
        for unit in ["B", "KB", "kB", "MB", "GB", "KiB", "MiB", "GiB"] {
            let text = format!("1.5{unit}");
            let size = Size::parse(&text).map(|size| Limit::Bytes(size.0));
            assert!(size.is_ok());
            assert_eq!(Limit::parse(&text), size, "{text}");
        }
        assert_eq!(Limit::parse("100").err().as_deref(), Some("has no unit"));
        assert_eq!(Limit::parse("1w").err().as_deref(), Some("has the unknown unit \"w\""));
    }

    #[test]
    fn says_what_is_wrong() {
        for (result, reason) in [
            (Rate::parse("-3mbit").err(), "is negative"),
            (Rate::parse("40").err(), "has no unit"),
            (Rate::parse("40ms").err(), "has the unknown unit \"ms\""),
            (Rate::parse("40mbps").err(), "is ambiguous (tc reads bps as bytes per second)"),
            (Rate::parse("0mbit").err(), "is zero (to cut a link, set down = true)"),
            (Rate::parse("fast").err(), "has no number"),
        ] {
            assert_eq!(result.as_deref(), Some(reason));
        }
        assert!(Percent::parse("101%").is_err());
        assert!(Span::parse("20mbit").is_err());
        assert!(Size::parse("1e400MB").is_err());
        assert!(Loss::parse("gemodel").is_err());
    }
}
