//! What was found, as a page.

use super::live::Found;
use super::words::{
    CAME, COLUMNS, HANDED_ON, WITHOUT_NUMBER, lines, number, path_title, percent, rows, title, whence,
};
use crate::command::harmless;
use crate::reorder::{FlowFigures, Outcome};
use crate::report::{Axis, Chart, Report, Series, Table, render};

/// So many flows have a row.
const MOST_ROWS: usize = 64;

/// What the words of the page mean.
const TERMS: [(&str, &str); 8] = [
    ("Reordered", "A packet that came after one that was sent later (RFC 4737 §4.1)."),
    (
        "Extent",
        "How many packets came between a reordered packet and the first one that overtook it, that one counted (RFC 4737 §4.2).",
    ),
    ("Late time", "How long after the first packet that overtook it a reordered one came (RFC 4737 §4.3)."),
    (
        "n-reordering",
        "A packet that came right behind n packets that were sent later. A TCP that waits for three duplicate acknowledgments takes those with n = 3 for lost (RFC 4737 §5).",
    ),
    ("Free runs", "Packets in order between two reordered ones (RFC 4737 §4.6)."),
    (
        "Displacement",
        "How many places a packet came too late, or too early if it is negative. Losses and copies displace nothing (RFC 5236 §3.3).",
    ),
    (
        "Entropy",
        "The disorder in one number: zero if all packets are displaced alike, and greater the more displacements there are.",
    ),
    (
        "Buffer",
        "Packets that wait until all before them have come, counted at each arrival. For what never comes they wait until there are more than the window (RFC 5236 §3.11).",
    ),
];

pub(super) fn page(outcome: &Outcome) -> String {
    let report = Report {
        title: "How far out of order packets came".into(),
        summary: summary(outcome),
        headlines: headlines(outcome),
        tables: tables(outcome),
        charts: vec![displacements(outcome, ""), waiting(outcome, "")],
        terms: TERMS.map(|(term, meaning)| (term.to_string(), meaning.to_string())).into(),
        ..Report::default()
    };
    render(&report)
}

/// Of a tunnel that runs.
pub(super) fn live_page(found: &Found) -> String {
    let stages = [(CAME, &found.came), (HANDED_ON, &found.handed_on)];
    let left_out = match found.without_number {
        0 => String::new(),
        packets => format!(" Left out: {packets} {WITHOUT_NUMBER}."),
    };
    let shown = |packets: u64, what: &str| format!("reordered {what}, {packets} packets");
    let mut tables = Vec::new();
    for (what, outcome) in stages {
        tables.push(figures(what, title(outcome), &outcome.total, &outcome.notes));
        tables.extend(flows(&format!("Flows {}", lower(what)), outcome));
    }
    let paths = found.paths.iter();
    tables.extend(paths.map(|path| figures(&path_title(path), "datagrams".into(), &path.figures, &[])));
    let report = Report {
        title: "How far out of order packets of a tunnel come".into(),
        summary: format!("{}.{left_out}", whence(found)),
        headlines: stages
            .map(|(what, outcome)| {
                let figures = &outcome.total.figures;
                (percent(figures.reordered_ratio()), shown(figures.reordered, &lower(what)))
            })
            .into(),
        tables,
        charts: stages
            .iter()
            .flat_map(|(what, outcome)| [displacements(outcome, what), waiting(outcome, what)])
            .collect(),
        terms: TERMS.map(|(term, meaning)| (term.to_string(), meaning.to_string())).into(),
        ..Report::default()
    };
    render(&report)
}

fn lower(what: &str) -> String {
    what.to_lowercase()
}

fn summary(outcome: &Outcome) -> String {
    let mut parts = Vec::new();
    for capture in &outcome.captures {
        let broken = capture.broken.as_ref().map_or(String::new(), |broken| format!(", {broken}"));
        parts.push(format!("{}: {} packets{broken}.", harmless(&capture.file), capture.packets));
    }
    parts.push(format!("The figures are of {}.", title(outcome)));
    parts.join(" ")
}

fn headlines(outcome: &Outcome) -> Vec<(String, String)> {
    let figures = &outcome.total.figures;
    let mut all = vec![
        (
            percent(figures.reordered_ratio()),
            format!("reordered, {} of {} packets", figures.reordered, figures.received),
        ),
        (format!("{:.3}", figures.reorder_entropy()), "reorder entropy".into()),
    ];
    if let Some(waiting) = figures.buffer_packets() {
        all.push((number(waiting.p99), "packets wait at most, at 99 % of arrivals".into()));
    }
    if let Some(lost) = figures.lost {
        all.push((lost.to_string(), format!("lost; {} copies", figures.duplicates)));
    }
    all
}

fn tables(outcome: &Outcome) -> Vec<Table> {
    let mut tables = vec![figures("Figures", title(outcome), &outcome.total, &outcome.notes)];
    tables.extend(flows("Flows", outcome));
    let left_out = outcome.captures.iter().flat_map(|capture| {
        capture.left_out.iter().map(|(cause, packets)| {
            vec![format!("{}: {cause}", harmless(&capture.file)), packets.to_string()]
        })
    });
    let rows: Vec<_> = left_out.collect();
    if !rows.is_empty() {
        tables.push(Table {
            title: "Left out".into(),
            columns: vec![String::new(), "Packets".into()],
            rows,
            note: String::new(),
        });
    }
    tables
}

fn figures(title: &str, column: String, figures: &FlowFigures, notes: &[String]) -> Table {
    Table {
        title: title.into(),
        columns: vec![String::new(), column],
        rows: lines(figures).into_iter().map(|(name, value)| vec![name.into(), value]).collect(),
        note: harmless(&notes.join(" ")),
    }
}

fn flows(title: &str, outcome: &Outcome) -> Option<Table> {
    let more = outcome.more_flows + outcome.flows.len().saturating_sub(MOST_ROWS) as u64;
    (outcome.flows.len() > 1).then(|| Table {
        title: title.into(),
        columns: COLUMNS.map(str::to_string).into(),
        rows: rows(outcome, MOST_ROWS),
        note: if more > 0 { format!("{more} more flows have no row.") } else { String::new() },
    })
}

fn displacements(outcome: &Outcome, what: &str) -> Chart {
    let density = outcome.total.figures.reorder_density();
    let points = density.into_iter().map(|(by, share)| (by as f64, share)).collect();
    bars(
        &chart_title("Reorder density", what),
        "share of packets",
        "displacement, in places: early < 0 < late",
        points,
    )
}

fn waiting(outcome: &Outcome, what: &str) -> Chart {
    let density = outcome.total.figures.buffer_density();
    let points = density.into_iter().map(|(many, share)| (many as f64, share)).collect();
    bars(
        &chart_title("Buffer-occupancy density", what),
        "share of arrivals",
        "packets that wait for others",
        points,
    )
}

fn chart_title(title: &str, what: &str) -> String {
    if what.is_empty() { title.into() } else { format!("{title}, {}", lower(what)) }
}

fn bars(title: &str, unit: &str, axis: &str, points: Vec<(f64, f64)>) -> Chart {
    let series = Series { name: unit.into(), colour: 0, points };
    Chart {
        title: title.into(),
        unit: String::new(),
        series: vec![series],
        axis: Some(Axis { name: axis.into() }),
        note: "Each line stands for ten times the share of the one below.".into(),
        ..Chart::default()
    }
}
