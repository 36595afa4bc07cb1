//! Differentiated services code points, by number or name.

use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A code point: 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Dscp(u8);

/// The names of IANA's registry that are in common use.
const NAMES: [(&str, u8); 23] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

impl Dscp {
    fn new(number: impl TryInto<u8>) -> Option<Self> {
        number.try_into().ok().filter(|number| *number < 64).map(Self)
    }

    pub(super) const fn number(self) -> u8 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrName)
    }
}

// By hand, since what is derived names the type of the number, and not its bounds.
struct NumberOrName;

impl Visitor<'_> for NumberOrName {
    type Value = Dscp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a DSCP: 0 to 63, or \"ef\", \"va\", \"le\", \"cs0\" to \"cs7\", or \"af11\" to \"af43\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Dscp, E> {
        Dscp::new(number).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Dscp, E> {
        Dscp::new(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Dscp, E> {
        let found = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|&(_, number)| Dscp(number)).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Line {
        dscp: Dscp,
    }

    fn read(value: &str) -> Result<u8, String> {
        let line: Result<Line, _> = toml::from_str(&format!("dscp = {value}"));
        line.map(|line| line.dscp.number()).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn numbers_and_names_are_taken() {
        for (value, number) in [("0", 0), ("63", 63), ("\"ef\"", 46), ("\"CS6\"", 48), ("\"af43\"", 38)] {
            assert_eq!(read(value), Ok(number));
        }
    }

    #[test]
    fn names_are_what_they_are_made_of() {
        for (name, number) in NAMES {
            let digits: Vec<u8> = name.bytes().filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect();
            match digits[..] {
                [class] => assert_eq!(number, 8 * class, "{name}"),
                [class, drop] => assert_eq!(number, 8 * class + 2 * drop, "{name}"),
                _ => {}
            }
        }
    }

    #[test]
    fn what_is_none_is_told_with_what_was_expected() {
        for value in ["64", "-1", "300", "99999999999999999999", "\"fast\"", "\"46\"", "1.5", "true"] {
            let message = read(value).unwrap_err();
            assert!(message.contains("0 to 63, or \"ef\""), "{value}: {message}");
        }
    }
}
