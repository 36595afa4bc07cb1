//! What came of it, in a sentence.

use super::Shown;

/// From here on, a pause is what people call frozen.
const FROZEN_S: f64 = 1.0;

/// The answer to what a person asks: what happened, and what would TCP have done?
#[must_use]
pub(crate) fn sentence(shown: &Shown<'_>) -> String {
    let names = shown.names();
    let (outcome, beside) = (shown.outcome, shown.beside);
    let tcp = format!("TCP over {}", shown.best());
    match shown.cut() {
        Some(cut) if cut.path == beside.path => format!(
            "{} was cut for {}: the download over {} {}, {tcp} {}.",
            names[cut.path],
            seconds((cut.to - cut.from).as_secs_f64()),
            list(&names),
            pause(outcome.longest_gap_s),
            pause(beside.outcome.longest_gap_s)
        ),
        Some(cut) => format!(
            "{} was cut for {}: the download over {} {} and took {}, {tcp}, which was not cut, {}.",
            names[cut.path],
            seconds((cut.to - cut.from).as_secs_f64()),
            list(&names),
            pause(outcome.longest_gap_s),
            seconds(outcome.duration_s),
            seconds(beside.outcome.duration_s)
        ),
        None => format!(
            "{:.1} MB over {} in {}: {} {tcp} alone.",
            shown.demo.content.len() as f64 / 1e6,
            list(&names),
            seconds(outcome.duration_s),
            faster(outcome.goodput_bps, beside.outcome.goodput_bps)
        ),
    }
}

/// How one rate compares with another, as in "47 % faster than".
pub(crate) fn faster(bps: f64, than_bps: f64) -> String {
    let percent = ((bps / than_bps.max(1e-9) - 1.0) * 100.0).round();
    match percent {
        percent if percent >= 1.0 => format!("{percent:.0} % faster than"),
        percent if percent <= -1.0 => format!("{:.0} % slower than", -percent),
        _ => "as fast as".into(),
    }
}

/// "froze for 3.6 s", and less is a pause.
pub(super) fn pause(gap_s: f64) -> String {
    let (long, span) = (gap_s >= FROZEN_S, seconds(gap_s));
    if long { format!("froze for {span}") } else { format!("paused for {span} at most") }
}

/// A span of time with two digits that count.
pub(crate) fn seconds(span_s: f64) -> String {
    if span_s < 1.0 {
        format!("{span_s:.2} s")
    } else if (span_s - span_s.round()).abs() < 0.005 {
        format!("{span_s:.0} s")
    } else {
        format!("{span_s:.1} s")
    }
}

/// "a", "a and b", "a, b and c".
pub(crate) fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_string(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_compared_in_words() {
        for (bps, words) in [
            (147.0, "47 % faster than"),
            (97.0, "3 % slower than"),
            (100.4, "as fast as"),
            (99.6, "as fast as"),
        ] {
            assert_eq!(faster(bps, 100.0), words);
        }
    }

    #[test]
    fn spans_and_names_are_read_aloud() {
        assert_eq!([seconds(0.2124), seconds(3.0), seconds(3.58)], ["0.21 s", "3 s", "3.6 s"]);
        assert_eq!([pause(0.4), pause(3.58)], ["paused for 0.40 s at most", "froze for 3.6 s"]);
        assert_eq!([list(&["a"]), list(&["a", "b"]), list(&["a", "b", "c"])], ["a", "a and b", "a, b and c"]);
    }
}
