/// A value of the field `Content-Range` (RFC 9110 §14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes 0-99/1000`, or `bytes 0-99/*`.
    Part {
        /// The first byte, counted from 0.
        first: u64,
        /// The last byte, not before the first.
        last: u64,
        /// Bytes of the whole, if they are known: more than `last`.
        total: Option<u64>,
    },
    /// `bytes */1000`: no such bytes.
    Unsatisfied {
        /// Bytes of the whole.
        total: u64,
    },
}

impl ContentRange {
    /// Reads a value, strictly; none if it is malformed, or its range lies outside of the whole.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (unit, rest) = text.split_once(' ')?;
        let (range, total) = rest.split_once('/')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        if range == "*" {
            return Some(Self::Unsatisfied { total: number(total)? });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let total = if total == "*" { None } else { Some(number(total)?) };
        let is_inside = first <= last && last < total.unwrap_or(u64::MAX);
        is_inside.then_some(Self::Part { first, last, total })
    }
}

fn number(text: &str) -> Option<u64> {
    // `parse` takes a sign, too.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_is_read() {
        let part = |first, last, total| Some(ContentRange::Part { first, last, total });
        assert_eq!(ContentRange::parse(b"bytes 0-99/1000"), part(0, 99, Some(1000)));
        assert_eq!(ContentRange::parse(b"Bytes 999-999/1000"), part(999, 999, Some(1000)));
        assert_eq!(ContentRange::parse(b"bytes 0-99/*"), part(0, 99, None));
        assert_eq!(ContentRange::parse(b"bytes */1000"), Some(ContentRange::Unsatisfied { total: 1000 }));
        assert_eq!(ContentRange::parse(b"bytes */0"), Some(ContentRange::Unsatisfied { total: 0 }));
    }

    #[test]
    fn a_malformed_content_range_is_none() {
        for value in [
            "",
            "bytes",
            "bytes ",
            "bytes 0-99",
            "bytes=0-99/1000",
            "lines 0-99/1000",
            "bytes 99-0/1000",
            "bytes 0-1000/1000",
            "bytes +0-99/1000",
            "bytes 0-/1000",
            "bytes -99/1000",
            "bytes 0-99/",
            "bytes */*",
            "bytes  0-99/1000",
            "bytes 0 - 99/1000",
            "bytes 0-99/1000 ",
            "bytes 0-99/1000/2",
            "bytes 0-99,100-199/1000",
            "bytes 0-18446744073709551616/*",
            "bytes 0-18446744073709551615/*",
        ] {
            assert_eq!(ContentRange::parse(value.as_bytes()), None, "{value}");
        }
        assert_eq!(ContentRange::parse(b"bytes 0-\xff/1"), None);
    }
}
