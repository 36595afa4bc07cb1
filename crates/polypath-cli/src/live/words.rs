//! Numbers as the view writes them.

/// What is shown of figures that no host has: a stack of somebody else says what it likes, and columns stay as they are.
const MOST_BITS_PER_SECOND: f64 = 999e12;
const MOST_MILLISECONDS: f64 = 9_999e3;
const MOST_PERCENT: f64 = 999.0;
const MOST_PACKETS: u64 = 99_999;

/// Bits per second in three digits: `0`, `12.3 Mbit/s`.
pub(crate) fn rate(bits_per_second: f64) -> String {
    if bits_per_second.is_nan() || bits_per_second < 0.5 {
        return "0".into();
    }
    let (mut value, mut unit) = (bits_per_second.min(MOST_BITS_PER_SECOND), "bit/s");
    for larger in ["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    format!("{} {unit}", three_digits(value))
}

/// Milliseconds: `0.31 ms`, `23.4 ms`; nothing before the first measurement.
pub(crate) fn round_trip(milliseconds: f64) -> String {
    match milliseconds {
        time if time.is_nan() || time <= 0.0 => "-".into(),
        time if time < 9999.5 => format!("{} ms", three_digits(time)),
        time => format!("{} s", three_digits(time.min(MOST_MILLISECONDS) / 1000.0)),
    }
}

/// A share of one, in percent.
pub(crate) fn share(part: Option<f64>) -> String {
    match part {
        None => "-".into(),
        Some(0.0) => "0 %".into(),
        Some(part) => format!("{} %", three_digits((part * 100.0).min(MOST_PERCENT))),
    }
}

/// Packets of a congestion window.
pub(crate) fn packets(count: u64) -> String {
    count.min(MOST_PACKETS).to_string()
}

fn three_digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let rates = [0.0, 1.0, 999.4, 999.6, 12_345_678.0, 99_960_000.0, 2.5e9];
        let words =
            ["0", "1.00 bit/s", "999 bit/s", "1.00 kbit/s", "12.3 Mbit/s", "100 Mbit/s", "2.50 Gbit/s"];
        assert_eq!(rates.map(rate), words);
        assert_eq!([0.0, 0.314, 23.44, 12_345.0].map(round_trip), ["-", "0.31 ms", "23.4 ms", "12.3 s"]);
        assert_eq!(
            [1e300, f64::INFINITY, f64::NAN, -1e300].map(rate),
            ["999 Tbit/s", "999 Tbit/s", "0", "0"]
        );
        assert_eq!([1e300, f64::NAN, -1.0].map(round_trip), ["9999 s", "-", "-"]);
        assert_eq!([share(Some(1e300)), packets(u64::MAX)], ["999 %", "99999"]);
        assert_eq!([None, Some(0.0), Some(0.0123), Some(1.0)].map(share), ["-", "0 %", "1.23 %", "100 %"]);
    }
}
