use chrono::{DateTime, NaiveDateTime};
use polypath_units::Duration;

/// What xs:duration looks like in an error.
pub(super) const EXPECTED_DURATION: &str = "a duration such as PT1M30.5S";
/// What xs:dateTime looks like in an error.
pub(super) const EXPECTED_TIME: &str = "a time such as 2026-01-31T12:00:00Z";

/// xs:duration (XML Schema part 2, section 3.2.6) without years and months, whose length isn't known.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (days, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((days, time)) => (days, time),
        None => (text.strip_prefix('P')?, ""),
    };
    let mut total = Duration::ZERO;
    let days = match days {
        "" => "0",
        days => {
            // ffmpeg and others write years and months that are zero.
            let days = days.strip_prefix("0Y").unwrap_or(days);
            let days = days.strip_prefix("0M").unwrap_or(days);
            if days.is_empty() { "0" } else { days.strip_suffix('D')? }
        }
    };
    total += Duration::from_secs(86_400) * days.parse().ok()?;
    let mut rest = time;
    for (unit, secs) in [('H', 3600), ('M', 60)] {
        if let Some((count, after)) = rest.split_once(unit) {
            total += Duration::from_secs(secs) * count.parse().ok()?;
            rest = after;
        }
    }
    if !rest.is_empty() {
        let (whole, fraction) =
            rest.strip_suffix('S')?.split_once('.').unwrap_or((rest.strip_suffix('S')?, ""));
        if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let nanos = (fraction.bytes().chain(std::iter::repeat(b'0')).take(9))
            .fold(0, |nanos, digit| nanos * 10 + u64::from(digit - b'0'));
        total += Duration::from_secs(whole.parse().ok()?) + Duration::from_nanos(nanos);
    }
    Some(total)
}

/// xs:dateTime, in nanoseconds since 1970; without a time zone it is UTC (ISO/IEC 23009-1, section 5.3.1.2).
pub(super) fn time(text: &str) -> Option<i128> {
    let utc = match DateTime::parse_from_rfc3339(text) {
        Ok(time) => time.to_utc(),
        Err(_) => text.parse::<NaiveDateTime>().ok()?.and_utc(),
    };
    Some(i128::from(utc.timestamp()) * 1_000_000_000 + i128::from(utc.timestamp_subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_times_are_those_of_xml_schema() {
        for (text, millis) in [
            ("PT0H3M1.63S", 181_630),
            ("PT2S", 2000),
            ("P1DT1H", 90_000_000),
            ("P0Y0M0DT0H3M30.000S", 210_000),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "P", "2S", "-PT2S", "PT-2S", "P1M", "P1Y", "PT1.xS", "PT", "PT5"] {
            assert!(duration(text).is_none_or(|duration| duration.is_zero() && text.len() <= 2), "{text}");
        }
        assert_eq!(duration("PT99999999999999999999H"), None);
        assert_eq!(time("1970-01-02T01:00:00+01:00"), Some(86_400_000_000_000));
        assert_eq!(time("1970-01-01T00:00:01.5"), Some(1_500_000_000));
        assert_eq!(time("yesterday"), None);
    }
}
