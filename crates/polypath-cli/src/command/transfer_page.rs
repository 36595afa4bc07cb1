//! `--report` of `polypath get` and `polypath cp`: what became of each file, as a page.

use std::path::Path;
use std::time::{Instant, SystemTime};

use polypath_fetch::playback::{History, Moment};

use super::harmless;
use super::rates::Rates;
use super::shares::Shares;
use super::transfer_outcome::{FileOutcome, Outcome};
use super::words::amount;
use crate::report::{Bar, BarPart, Chart, Report, Series, Table, render};

/// Of so many files it is shown when what came.
pub(super) const MOST_DRAWN: usize = 8;
/// Of so many files it is said why they failed.
const MOST_CAUSES: usize = 20;
/// So many files have a row.
const MOST_ROWS: usize = 200;
/// Points of a line.
const POINTS: usize = 240;

/// What the words of the page mean.
const TERMS: [(&str, &str); 5] = [
    (
        "Mean rate",
        "The bytes that went over the network, over the time from the file's begin to its end. Looking for interfaces, and comparing sums, are in it.",
    ),
    (
        "Long-term sustainable rate",
        "All bytes that came, over the time from the first request to the last byte. No player that reads the file while it comes can be faster for ever.",
    ),
    (
        "Startup latency",
        "A player reads the file from its first byte on, at the sustainable rate, while the file comes. So long it has to wait before it begins; then it never waits again.",
    ),
    (
        "Required buffer",
        "The most bytes that this player holds at one time: what came before its turn, and what waits behind a gap.",
    ),
    (
        "Blocked",
        "Bytes that are there, while an earlier one is still missing. Nobody can use them in order yet: this is head-of-line blocking.",
    ),
];

/// The page.
pub(super) fn page(outcome: &Outcome) -> String {
    let zero = outcome.files.iter().map(|file| file.started).min().unwrap_or(outcome.begun);
    let end_s = outcome.files.iter().map(|file| since(file.started, zero) + file.seconds).fold(0.0, f64::max);
    let rates = outcome.rates.clone().most_first();
    let mut charts: Vec<Chart> = rates.chart(zero, end_s).into_iter().collect();
    let drawn = outcome.files.iter().filter_map(|file| Some((file, file.history.as_deref()?)));
    charts
        .extend(drawn.map(|(file, history)| {
            course(file, history, since(file.started, zero), outcome.files.len() > 1)
        }));
    let report = Report {
        title: title(&outcome.files),
        summary: summary(outcome),
        headlines: headlines(outcome, end_s),
        tables: vec![table(outcome)],
        bars: shares(outcome, &rates).into_iter().collect(),
        charts,
        terms: TERMS.map(|(term, meaning)| (term.to_string(), meaning.to_string())).into(),
        ..Report::default()
    };
    render(&report)
}

fn since(at: Instant, zero: Instant) -> f64 {
    at.saturating_duration_since(zero).as_secs_f64()
}

/// The last name of a place.
fn name(file: &FileOutcome) -> String {
    harmless(Path::new(&file.to).file_name().and_then(|name| name.to_str()).unwrap_or(&file.to))
}

fn title(files: &[FileOutcome]) -> String {
    match files {
        [] => "Nothing was transferred".into(),
        [file] if file.to == "-" => "A transfer to standard output".into(),
        [file] => format!("Transfer of {}", name(file)),
        files => format!("Transfer of {} files", files.len()),
    }
}

fn summary(outcome: &Outcome) -> String {
    let now = httpdate::fmt_http_date(SystemTime::now());
    let engine = outcome.engine.map_or(String::new(), |engine| match engine {
        "ranges" => ", in ranges over the system's TCP".into(),
        engine => format!(", by engine {engine}"),
    });
    let what = match &outcome.files[..] {
        [file] => {
            let to = if file.to == "-" { "standard output" } else { &file.to };
            format!("From {} to {}", harmless(&file.from), harmless(to))
        }
        files => {
            let failed = files.iter().filter(|file| file.error.is_some()).count();
            format!("{} of {} files are whole", files.len() - failed, files.len())
        }
    };
    let end = match &outcome.error {
        Some(error) if error == "interrupted" => "It was interrupted".to_string(),
        Some(error) => format!("It failed: {}", harmless(error)),
        None if outcome.files.len() != 1 => String::new(),
        None if outcome.files.iter().all(|file| file.sha256_verified) => {
            "It is whole, and has the SHA-256 that it was to have".into()
        }
        None => "It is whole".into(),
    };
    let fallback = outcome.fallback.as_ref().map_or(String::new(), |cause| format!(" Plain TCP: {cause}."));
    let end = if end.is_empty() { end } else { format!(" {end}.") };
    format!("{what}{engine}.{end}{fallback} Written {now}.")
}

fn headlines(outcome: &Outcome, end_s: f64) -> Vec<(String, String)> {
    let bytes: u64 = outcome.files.iter().map(|file| file.bytes).sum();
    let mean = format!("{} Mbit/s", rate(bytes as f64 * 8.0 / end_s.max(1e-6)));
    let times = outcome.shares.as_ref().and_then(Shares::times_the_faster_alone);
    let times = times.map_or(String::new(), |times| format!(", {times:.1} times the faster interface alone"));
    let mut all = vec![
        (amount(bytes), format!("over the network, in {}", time(end_s))),
        (mean, format!("mean rate{times}")),
    ];
    if let [FileOutcome { playback: Some(playback), .. }] = &outcome.files[..] {
        all.push((time(playback.startup_latency_seconds), "startup latency".into()));
        all.push((amount(playback.required_buffer_bytes), "required buffer".into()));
    }
    all
}

fn table(outcome: &Outcome) -> Table {
    let columns = [
        "File",
        "Bytes",
        "Seconds",
        "Mean rate, Mbit/s",
        "Sustainable rate, Mbit/s",
        "Startup latency, s",
        "Required buffer",
        "Most blocked",
        "End",
    ];
    let mut notes = Vec::new();
    if outcome.engine.is_some_and(|engine| engine != "ranges") {
        notes.push("Bytes come in order from one connection here. What waits behind a gap waits in the engine or in the kernel, and is in no figure.".to_string());
    }
    if outcome.files.len() > 1 {
        let failed = outcome.files.iter().filter_map(|file| Some((file, file.error.as_ref()?)));
        let cause = |(file, cause): (&FileOutcome, &String)| format!("{}: {}.", name(file), harmless(cause));
        notes.extend(failed.take(MOST_CAUSES).map(cause));
    }
    if let Some(more) = outcome.files.len().checked_sub(MOST_ROWS).filter(|more| *more > 0) {
        notes.push(format!("{more} more files have no row; --json-file has them all."));
    }
    Table {
        title: "Files".into(),
        columns: columns.map(str::to_string).into(),
        rows: outcome.files.iter().take(MOST_ROWS).map(row).collect(),
        note: notes.join(" "),
    }
}

fn row(file: &FileOutcome) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let playback = file.playback.as_ref();
    let end = match &file.error {
        Some(error) if error == "interrupted" => "interrupted",
        Some(_) => "failed",
        None if file.sha256_verified => "whole, compared",
        None => "whole",
    };
    vec![
        name(file),
        file.bytes.to_string(),
        format!("{:.2}", file.seconds),
        rate(file.bytes as f64 * 8.0 / file.seconds.max(1e-6)),
        or_none(playback.map(|it| rate(it.sustainable_bps))),
        or_none(playback.map(|it| format!("{:.2}", it.startup_latency_seconds))),
        or_none(playback.map(|it| amount(it.required_buffer_bytes))),
        or_none(playback.map(|it| amount(it.most_blocked_bytes))),
        end.into(),
    ]
}

/// What part of all went over each interface, in the colours of the rates.
fn shares(outcome: &Outcome, rates: &Rates) -> Option<Bar> {
    let shares = outcome.shares.as_ref()?;
    let names: Vec<&str> = rates.names().collect();
    let all: u64 = shares.interfaces().map(|(_, bytes)| bytes).sum();
    let parts = shares.interfaces().enumerate().map(|(number, (name, bytes))| BarPart {
        name: format!("{name} {:.0} %, {}", bytes as f64 * 100.0 / all.max(1) as f64, amount(bytes)),
        colour: names.iter().position(|known| *known == name).unwrap_or(names.len() + number),
        share: bytes as f64 / all.max(1) as f64,
    });
    Some(Bar {
        title: "Shares of the interfaces".into(),
        parts: parts.collect(),
        note: shares.one_path_only().map_or(String::new(), |cause| format!("One path only: {cause}.")),
    })
}

/// Bytes in order and in all over time.
fn course(file: &FileOutcome, history: &History, offset_s: f64, has_others: bool) -> Chart {
    let moments: Vec<Moment> = history.course().collect();
    let end = moments.last().copied();
    let end_s = end.map_or(0.0, |end| end.after.as_secs_f64());
    let (size, unit) = match end.map_or(0, |end| end.total_bytes) {
        3_000_000_000.. => (1e9, "GB"),
        3_000_000.. => (1e6, "MB"),
        _ => (1e3, "kB"),
    };
    let (mut ready, mut blocked) = (Vec::new(), Vec::new());
    let mut later = moments.iter().peekable();
    let mut now = Moment { after: polypath_units::Duration::ZERO, in_order_bytes: 0, total_bytes: 0 };
    for point in 0..=POINTS {
        let at_s = end_s * point as f64 / POINTS as f64;
        while let Some(next) = later.next_if(|next| point == POINTS || next.after.as_secs_f64() <= at_s) {
            now = *next;
        }
        ready.push((offset_s + at_s, now.in_order_bytes as f64 / size));
        blocked.push((offset_s + at_s, (now.total_bytes - now.in_order_bytes) as f64 / size));
    }
    let has_blocked = blocked.iter().any(|(_, bytes)| *bytes > 0.0);
    let mut series = vec![Series { name: "in order".into(), colour: READY, points: ready }];
    if has_blocked {
        series.push(Series { name: "blocked: behind a gap".into(), colour: BLOCKED, points: blocked });
    }
    let of = if has_others { format!(" of {}", name(file)) } else { String::new() };
    Chart {
        title: format!("What was there{of}"),
        unit: unit.into(),
        stacked: true,
        series,
        note: if has_blocked { "The upper edge is all that had come.".into() } else { String::new() },
        ..Chart::default()
    }
}

/// Colours that the first interfaces have not.
const READY: usize = 2;
const BLOCKED: usize = 3;

/// Three digits, or all before the point.
fn rate(bps: f64) -> String {
    let mbps = bps / 1e6;
    let digits = if mbps >= 99.95 {
        0
    } else if mbps >= 9.995 {
        1
    } else {
        2
    };
    format!("{mbps:.digits$}")
}

fn time(seconds: f64) -> String {
    match seconds {
        0.0..0.9995 => format!("{:.0} ms", seconds * 1e3),
        600.0.. => format!("{:.0} min", seconds / 60.0),
        _ => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_tell() {
        let rates = [940_400_000.0, 25_420_000.0, 1_204_000.0, 0.0].map(rate);
        assert_eq!(rates, ["940", "25.4", "1.20", "0.00"]);
        assert_eq!([0.0, 0.0421, 8.24, 720.0].map(time), ["0 ms", "42 ms", "8.2 s", "12 min"]);
    }
}
