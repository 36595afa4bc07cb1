//! Dates as cookies have them (RFC 6265 §5.1.1): in many ways, of which all are read alike.

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Seconds since 1970; 0 before that, and none if it is no date.
pub(super) fn parse(text: &str) -> Option<u64> {
    let is_delimiter = |letter: char| !letter.is_ascii_alphanumeric() && letter != ':';
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(is_delimiter).filter(|token| !token.is_empty()) {
        let digits = token.bytes().take_while(u8::is_ascii_digit).count();
        let number = || token.get(..digits)?.parse::<u64>().ok();
        if time.is_none() && token.contains(':') {
            time = Some(parse_time(token)?);
        } else if day.is_none() && (1..=2).contains(&digits) {
            day = number();
        } else if month.is_none() && digits == 0 {
            let beginning = token.get(..3).map(str::to_ascii_lowercase);
            let found = MONTHS.iter().position(|name| Some(*name) == beginning.as_deref());
            month = found.map(|at| at as u64 + 1);
        } else if year.is_none() && (2..=4).contains(&digits) {
            year = number().map(|year| match year {
                70..=99 => year + 1900,
                0..=69 => year + 2000,
                _ => year,
            });
        }
    }
    let (time, day, month, year) = (time?, day?, month?, year?);
    if !(1..=31).contains(&day) || year < 1601 {
        return None;
    }
    Some(days_since_1970(year, month, day).map_or(0, |days| days * 86_400 + time))
}

/// Seconds of a day.
fn parse_time(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':').map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part.get(..digits).filter(|_| digits <= 2)?.parse::<u64>().ok()
    });
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    (hour < 24 && minute < 60 && second < 60).then_some((hour * 60 + minute) * 60 + second)
}

/// Of the Gregorian calendar; none before 1970. A year is counted from March, so that a leap day is its last.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_all_the_ways_in_which_they_are_written() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "6 november 1994 8:49:37",
        ] {
            assert_eq!(parse(text), Some(784_111_777), "{text}");
        }
        assert_eq!(parse("Tue, 29 Feb 2028 23:59:59 GMT"), Some(1_835_481_599));
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse("Wed, 31 Dec 1969 23:59:59 GMT"), Some(0));
        for text in
            ["", "tomorrow", "06 Nov 1994", "06 Nov 1994 24:00:00", "32 Nov 1994 08:49:37", "06 Nov 94é 1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
