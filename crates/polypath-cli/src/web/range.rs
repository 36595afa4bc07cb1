//! The `Range` and `Content-Range` fields (RFC 9110 §14).

/// What a `Range` field asks for, of a file of a known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Everything: there is no range, or none that can be answered with one part.
    All,
    /// These bytes: first, and how many.
    Part(u64, u64),
    /// Bytes that the file does not have.
    Unsatisfiable,
}

pub(super) fn wanted(field: Option<&str>, length: u64) -> Wanted {
    let Some(set) = field.and_then(|field| field.trim().strip_prefix("bytes=")) else { return Wanted::All };
    let Some((first, last)) = set.split_once('-').filter(|_| !set.contains(',')) else { return Wanted::All };
    let (first, last) = (first.trim(), last.trim());
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return Wanted::All;
    }
    match (first.parse::<u64>().ok(), last.parse::<u64>().ok()) {
        (None, None) => Wanted::All,
        (None, Some(0)) => Wanted::Unsatisfiable,
        (None, Some(_)) if length == 0 => Wanted::Unsatisfiable,
        (None, Some(suffix)) => {
            let count = suffix.min(length);
            Wanted::Part(length - count, count)
        }
        (Some(first), Some(last)) if last < first => Wanted::All,
        (Some(first), _) if first >= length => Wanted::Unsatisfiable,
        // A last byte beyond all numbers is beyond the end, too.
        (Some(first), last) => Wanted::Part(first, last.unwrap_or(u64::MAX).min(length - 1) - first + 1),
    }
}

/// First byte, last byte and length of the whole from `bytes 5-9/20`.
pub(super) fn content_range(field: &str) -> Option<(u64, u64, u64)> {
    let (range, total) = field.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total) = (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
    (first <= last && last < total).then_some((first, last, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        for (field, length, expected) in [
            ("bytes=0-0", 10, Wanted::Part(0, 1)),
            ("bytes=2-", 10, Wanted::Part(2, 8)),
            ("bytes=2-100", 10, Wanted::Part(2, 8)),
            ("bytes=2-99999999999999999999999", 10, Wanted::Part(2, 8)),
            ("bytes=-3", 10, Wanted::Part(7, 3)),
            ("bytes=-30", 10, Wanted::Part(0, 10)),
            ("bytes=-0", 10, Wanted::Unsatisfiable),
            ("bytes=10-", 10, Wanted::Unsatisfiable),
            ("bytes=0-", 0, Wanted::Unsatisfiable),
            ("bytes=5-2", 10, Wanted::All),
            ("bytes=0-1,3-4", 10, Wanted::All),
            ("bytes=-", 10, Wanted::All),
            ("bytes=+1-2", 10, Wanted::All),
            ("lines=1-2", 10, Wanted::All),
        ] {
            assert_eq!(wanted(Some(field), length), expected, "{field} of {length}");
        }
        assert_eq!(wanted(None, 10), Wanted::All);
    }

    #[test]
    fn content_ranges_make_sense_or_are_none() {
        assert_eq!(content_range("bytes 5-9/20"), Some((5, 9, 20)));
        for wrong in ["bytes 9-5/20", "bytes 5-20/20", "bytes */20", "bytes 1-2/*", "5-9/20", ""] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
    }
}
