//! Time spans as systemd's unit files have them.

use std::time::Duration;

/// The unit of the number before it, in microseconds.
fn unit_us(name: &str) -> Option<u64> {
    Some(match name {
        "us" | "usec" | "µs" => 1,
        "ms" | "msec" => 1_000,
        "" | "s" | "sec" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000,
        "h" | "hr" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        _ => return None,
    })
}

/// A span such as `5`, `90s` or `1min 30s`; none where it has no end, or can't be understood.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total_us = 0_u64;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..end].parse().ok()?;
        rest = rest[end..].trim_start();
        let end = rest.find(|letter: char| !letter.is_alphabetic()).unwrap_or(rest.len());
        total_us = number.checked_mul(unit_us(&rest[..end])?)?.checked_add(total_us)?;
        rest = rest[end..].trim_start();
    }
    // Zero stands for no end.
    Some(Duration::from_micros(total_us)).filter(|span| !span.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_systemd_reads_them() {
        for (text, seconds) in [("5", 5), ("90s", 90), ("1min 30s", 90), ("2 h", 7200), ("1m30", 90)] {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("1500ms"), Some(Duration::from_millis(1500)));
        for text in ["0", "infinity", "", "5x", "-1", "99999999999999999999"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
