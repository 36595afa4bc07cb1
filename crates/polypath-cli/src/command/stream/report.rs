//! `--report` of `polypath stream`: how the stream came, as a page.

use std::time::SystemTime;

use super::super::harmless;
use super::super::words::amount;
use super::record::{Course, Record};
use crate::report::{Bar, BarPart, Chart, Mark, Report, Series, Table, render};

/// So many stalls have a row.
const MOST_ROWS: usize = 50;
/// Colours that the first interfaces have not.
const HELD: usize = 2;
const QUALITY: usize = 3;
const BEHIND: usize = 4;

/// What the words of the page mean.
const TERMS: [(&str, &str); 4] = [
    (
        "Startup",
        "From the command's begin until a player that takes the stream as it comes has two seconds and can begin.",
    ),
    (
        "Stall",
        "This player has played all that came, and waits. It goes on when there are two seconds again.",
    ),
    ("Held", "Seconds of the stream that came and are not played yet."),
    (
        "Behind the live edge",
        "Of a live stream: from what is played to the end of the last segment that the manifest had.",
    ),
];

/// The page. A stream that did not end has a cause.
pub(super) fn page(url: &str, name: &str, record: &Record, cause: Option<&str>) -> String {
    let end_s = record.now_s();
    let mut rows: Vec<Vec<String>> = record
        .stalls
        .iter()
        .take(MOST_ROWS)
        .map(|stall| {
            let until = stall.to_s.map_or("not over".into(), |to_s| format!("{:.2}", to_s - stall.from_s));
            vec![format!("{:.1}", stall.from_s), until]
        })
        .collect();
    if rows.is_empty() {
        rows.push(vec!["None".into(), String::new()]);
    }
    let stalls = Table {
        title: "Stalls".into(),
        columns: ["At, s", "For, s"].map(str::to_string).into(),
        note: match record.stall_count.saturating_sub(MOST_ROWS) {
            0 => String::new(),
            more => format!("{more} more have no row."),
        },
        rows,
    };
    let report = Report {
        title: format!("Stream {}", harmless(name)),
        summary: summary(url, record, cause),
        headlines: headlines(record, end_s),
        bars: [qualities(record)].into_iter().flatten().collect(),
        tables: vec![stalls],
        charts: charts(record, end_s),
        marks: record
            .stalls
            .iter()
            .map(|stall| Mark {
                from_s: stall.from_s,
                to_s: stall.to_s.unwrap_or(end_s),
                label: "stall".into(),
            })
            .collect(),
        terms: TERMS.map(|(term, meaning)| (term.to_string(), meaning.to_string())).into(),
        ..Report::default()
    };
    render(&report)
}

fn summary(url: &str, record: &Record, cause: Option<&str>) -> String {
    let kind = match record.is_live {
        // It was not found out.
        _ if record.qualities.is_empty() => "",
        true => ", a live stream",
        false => ", a stream on demand",
    };
    let end = match cause {
        Some("interrupted") => "It was ended before all of it came.".to_string(),
        Some(cause) => format!("It failed: {}.", harmless(cause)),
        None => "All of it came.".to_string(),
    };
    let left_out = match record.left_out {
        0 => String::new(),
        1 => " One segment was left out.".into(),
        count => format!(" {count} segments were left out."),
    };
    let now = httpdate::fmt_http_date(SystemTime::now());
    format!("From {}{kind}. {end}{left_out} Written {now}.", harmless(url))
}

fn headlines(record: &Record, end_s: f64) -> Vec<(String, String)> {
    let stalled_s = record.stalled_s(end_s);
    let startup = record.startup_s.map_or("–".into(), |startup_s| format!("{startup_s:.1} s"));
    let stalls = match record.stall_count {
        0 => "no stall".to_string(),
        1 => format!("stall, of {stalled_s:.1} s"),
        _ => format!("stalls, {stalled_s:.1} s in all"),
    };
    let behind = record.behind_live.points(end_s).last().map_or(f64::NAN, |point| point.1);
    let mut all = vec![
        (startup, "startup".into()),
        (record.stall_count.to_string(), stalls),
        (amount(record.bytes), format!("of segments, in {end_s:.1} s")),
    ];
    if behind.is_finite() {
        all.push((format!("{behind:.1} s"), "behind the live edge at the end".into()));
    }
    all
}

fn qualities(record: &Record) -> Option<Bar> {
    let all: f64 = record.qualities.iter().map(|quality| quality.seconds).sum();
    let parts = record.qualities.iter().enumerate().filter(|(_, quality)| quality.seconds > 0.0);
    let parts = parts.map(|(colour, quality)| BarPart {
        name: format!("{} {:.0} %, {:.0} s", quality.label, quality.seconds * 100.0 / all, quality.seconds),
        colour,
        share: quality.seconds / all,
    });
    (all > 0.0).then(|| Bar {
        title: "Qualities of what came".into(),
        parts: parts.collect(),
        note: String::new(),
    })
}

fn charts(record: &Record, end_s: f64) -> Vec<Chart> {
    let line = |title: &str, unit: &str, (name, colour): (&str, usize), course: &Course, note: &str| {
        (!course.is_empty()).then(|| Chart {
            title: title.into(),
            unit: unit.into(),
            series: vec![Series { name: name.into(), colour, points: course.points(end_s) }],
            note: note.into(),
            ..Chart::default()
        })
    };
    let rates = record.rates.clone().most_first().chart(record.begun, end_s);
    let quality = line(
        "Quality of each segment",
        "Mbit/s",
        ("rate of the quality", QUALITY),
        &record.quality,
        "At the time at which the segment came.",
    );
    let lead = line("What was held to play", "s", ("held", HELD), &record.lead, "");
    let live = line("Behind the live edge", "s", ("behind", BEHIND), &record.behind_live, "");
    [quality, lead, live, rates].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use polypath_fetch::stream::State;

    use super::*;

    #[test]
    fn a_page_tells_of_stalls_and_of_an_interruption_and_text_stays_text() {
        let mut record = Record::new();
        record.note_state(0.5, State::Playing);
        record.note_state(3.0, State::Stalled);
        record.note_state(4.25, State::Playing);
        record.note_lead(2.0);
        let page = page("http://192.0.2.1/<b>.mpd", "<b>.mpd", &record, Some("interrupted"));
        for part in
            ["&lt;b&gt;.mpd", "It was ended before all", "<td>3.0</td><td>1.25</td>", "What was held to play"]
        {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<b>.mpd") && !page.contains("<script") && !page.contains("live edge at"));
    }
}
