//! What was found, as text.

use std::fmt::Write;

use super::live::{Found, PathFound};
use crate::command::harmless;
use crate::reorder::{Figures, FlowFigures, Outcome, Spread};

/// So many flows have a row.
const MOST_ROWS: usize = 20;
/// Up to this *n* it is said how many packets are *n*-reordered.
const MOST_N: usize = 5;

pub(super) fn words(outcome: &Outcome) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_words(&mut text, outcome);
    text
}

fn write_words(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    for capture in &outcome.captures {
        writeln!(text, "{}: {} packets ({})", harmless(&capture.file), capture.packets, capture.format)?;
        for (cause, packets) in &capture.left_out {
            writeln!(text, "  left out: {packets} {cause}")?;
        }
    }
    writeln!(text)?;
    write_figures(text, outcome)
}

/// Of a tunnel that runs.
pub(super) fn live_words(found: &Found) -> String {
    let mut text = String::new();
    let _ = write_live(&mut text, found);
    text
}

fn write_live(text: &mut String, found: &Found) -> std::fmt::Result {
    writeln!(text, "{}", whence(found))?;
    if found.without_number > 0 {
        writeln!(text, "  left out: {} {WITHOUT_NUMBER}", found.without_number)?;
    }
    for (what, outcome) in [(CAME, &found.came), (HANDED_ON, &found.handed_on)] {
        write!(text, "\n{what}: ")?;
        write_figures(text, outcome)?;
    }
    for path in &found.paths {
        writeln!(text, "\n{}", path_title(path))?;
        // Most keep the order, and there is no more to say.
        let most = if path.figures.figures.reordered == 0 { 2 } else { usize::MAX };
        for (name, value) in lines(&path.figures).into_iter().take(most) {
            writeln!(text, "  {name:<15}{value}")?;
        }
    }
    Ok(())
}

pub(super) const CAME: &str = "As they came over the paths";
pub(super) const HANDED_ON: &str = "As they were handed on";
pub(super) const WITHOUT_NUMBER: &str = "packets without a number: urgent, or pinned to a path by a rule";

/// Whose packets they are.
pub(super) fn whence(found: &Found) -> String {
    format!("{}, from {}, {:.1} s", found.tunnel, harmless(&found.peer), found.seconds)
}

/// What a path is called.
pub(super) fn path_title(path: &PathFound) -> String {
    let interface = path.interface.as_ref().map_or(String::new(), |name| format!(" {}", harmless(name)));
    let remote = path.remote.as_ref().map_or(String::new(), |remote| format!(" from {}", harmless(remote)));
    format!("Path {}{interface}{remote}, datagrams", path.number)
}

fn write_figures(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    writeln!(text, "{}", title(outcome))?;
    for (name, value) in lines(&outcome.total) {
        writeln!(text, "  {name:<15}{value}")?;
    }
    if outcome.flows.len() > 1 || outcome.more_flows > 0 {
        writeln!(text)?;
        write_table(text, &rows(outcome, MOST_ROWS))?;
        let more = outcome.more_flows + outcome.flows.len().saturating_sub(MOST_ROWS) as u64;
        if more > 0 {
            writeln!(text, "and {more} more flows, which are in the figures above")?;
        }
    }
    for note in &outcome.notes {
        writeln!(text, "\n{}", harmless(note))?;
    }
    Ok(())
}

/// What the figures are of.
pub(super) fn title(outcome: &Outcome) -> String {
    let flows = outcome.flows.len() as u64 + outcome.more_flows;
    match (&outcome.flows[..], outcome.total_is_one_stream) {
        ([FlowFigures { flow: Some(flow), .. }], _) if flows == 1 => flow.to_string(),
        (_, true) => format!("{flows} flows as one stream, in the order of sending"),
        (_, false) => format!("{flows} flows, each a stream of its own, by {}", outcome.order),
    }
}

/// The figures, name by name.
pub(super) fn lines(flow: &FlowFigures) -> Vec<(&'static str, String)> {
    let figures = &flow.figures;
    let mut lines = vec![("packets", counts(flow))];
    let (ratio, received) = (percent(figures.reordered_ratio()), figures.received);
    lines.push(("reordered", format!("{} of {received}, {ratio}", figures.reordered)));
    if let Some(extent) = figures.extent() {
        lines.push(("extent", format!("{} packets", spread(&extent, number))));
    }
    if let Some(late) = figures.late_time() {
        lines.push(("late time", spread(&late, time)));
    }
    if !figures.n_reordered.is_empty() {
        lines.push(("n-reordering", n_reordering(figures)));
    }
    if let Some(mean) = figures.mean_free_run() {
        let variation = figures.free_run_variation().map_or("-".into(), |it| format!("{it:.2}"));
        lines.push(("free runs", format!("mean {} packets in order, variation {variation}", number(mean))));
    }
    lines.push(("displacement", displacement(figures)));
    if let Some(waiting) = figures.buffer_packets() {
        lines.push(("buffer", format!("{} packets wait", spread(&waiting, number))));
    }
    lines
}

fn counts(flow: &FlowFigures) -> String {
    let figures = &flow.figures;
    let mut parts = vec![format!("{} came", figures.received)];
    parts.extend(figures.lost.map(|lost| format!("{lost} lost")));
    parts.push(format!("{} copies", figures.duplicates));
    parts.extend(flow.retransmitted.map(|packets| format!("{packets} sent again")));
    parts.extend(flow.undecided.filter(|it| *it > 0).map(|packets| format!("{packets} undecided")));
    if figures.too_late > 0 {
        parts.push(format!("{} too late", figures.too_late));
    }
    parts.join(", ")
}

fn n_reordering(figures: &Figures) -> String {
    let share = |n| percent(figures.n_reordered(n) as f64 / figures.received.max(1) as f64);
    let shown: Vec<String> =
        (1..=MOST_N.min(figures.n_reordered.len())).map(|n| format!("n = {n}: {}", share(n))).collect();
    let most = figures.n_reordered.len();
    let more = if most > MOST_N { format!(", up to n = {most}: {}", share(most)) } else { String::new() };
    shown.join(", ") + &more
}

fn displacement(figures: &Figures) -> String {
    let density = figures.reorder_density();
    let in_place = density.iter().find(|(by, _)| *by == 0).map_or(0.0, |(_, share)| *share);
    let (Some((earliest, _)), Some((latest, _))) = (density.first(), density.last()) else {
        return "none".into();
    };
    let beyond = match figures.displaced_beyond {
        0 => String::new(),
        packets => format!(", {packets} beyond the window"),
    };
    format!(
        "{earliest} to {latest} places, {} in place, entropy {:.3}{beyond}",
        percent(in_place),
        figures.reorder_entropy()
    )
}

pub(super) const COLUMNS: [&str; 9] =
    ["flow", "packets", "lost", "copies", "reordered", "extent 95 %", "late 95 %", "entropy", "buffer 99 %"];

/// A row for each flow, with the most packets first.
pub(super) fn rows(outcome: &Outcome, most: usize) -> Vec<Vec<String>> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let row = |flow: &FlowFigures| {
        let figures = &flow.figures;
        vec![
            flow.flow.map_or("all".into(), |flow| flow.to_string()),
            figures.received.to_string(),
            or_none(figures.lost.map(|lost| lost.to_string())),
            figures.duplicates.to_string(),
            percent(figures.reordered_ratio()),
            or_none(figures.extent().map(|extent| number(extent.p95))),
            or_none(figures.late_time().map(|late| time(late.p95))),
            format!("{:.3}", figures.reorder_entropy()),
            or_none(figures.buffer_packets().map(|waiting| number(waiting.p99))),
        ]
    };
    outcome.flows.iter().take(most).map(row).collect()
}

fn write_table(text: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    let header: Vec<String> = COLUMNS.iter().map(ToString::to_string).collect();
    let all = || std::iter::once(&header).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    for row in all() {
        write!(text, "{:<1$}", row[0], widths[0])?;
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            write!(text, "  {cell:>width$}")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn spread(spread: &Spread, shown: impl Fn(f64) -> String) -> String {
    let Spread { mean, median, p95, p99, greatest } = *spread;
    let [mean, median, p95, p99, greatest] = [mean, median, p95, p99, greatest].map(shown);
    format!("mean {mean}, median {median}, 95 % {p95}, 99 % {p99}, most {greatest}")
}

/// Whole ones as they are.
pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".into(),
        ..0.01 => format!("{percent:.4} %"),
        _ => format!("{percent:.2} %"),
    }
}

pub(super) fn time(seconds: f64) -> String {
    match seconds {
        0.0 => "0 ms".into(),
        ..1e-4 => format!("{:.1} us", seconds * 1e6),
        ..1.0 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_tell() {
        assert_eq!([0.0, 3.0, 2.125].map(number), ["0", "3", "2.12"]);
        assert_eq!([0.0, 0.000_012, 0.125, 1.0].map(percent), ["0 %", "0.0012 %", "12.50 %", "100.00 %"]);
        assert_eq!([0.0, 4.2e-5, 0.0421, 2.5].map(time), ["0 ms", "42.0 us", "42.10 ms", "2.50 s"]);
    }
}
