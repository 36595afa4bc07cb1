//! What proxies have carried.

use std::fmt::Write;

use polypath_metrics::history::Row;
use serde::Serialize;

use super::super::harmless;
use super::excerpt::{Excerpt, Points, bytes, chart, sums};
use crate::report::{Chart, Table};

pub(super) const COLUMNS: [&str; 5] =
    ["proxy", "to clients", "to servers", "clients at once", "busiest step"];

/// A row for each.
pub(super) fn cells(excerpt: &Excerpt) -> Vec<Vec<String>> {
    let proxies = sums(&excerpt.proxies);
    let row = proxies.into_iter().map(|(name, (usage, most))| {
        vec![
            harmless(name),
            bytes(usage.received_bytes),
            bytes(usage.sent_bytes),
            usage.subflows.to_string(),
            format!("{:.1} Mbit/s", excerpt.mbps(most)),
        ]
    });
    row.collect()
}

pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = String::from("time_s,proxy,to_client_bytes,to_server_bytes,clients\n");
    for Row { at_s, interface, usage } in rows {
        let (down, up, clients) = (usage.received_bytes, usage.sent_bytes, usage.subflows);
        // Proxies have names without commas and quotes.
        let name = harmless(interface).replace([',', '"'], "_");
        let _ = writeln!(text, "{at_s},{name},{down},{up},{clients}");
    }
    text
}

#[derive(Serialize)]
pub(super) struct JsonRow<'a> {
    time_s: u64,
    proxy: &'a str,
    to_client_bytes: u64,
    to_server_bytes: u64,
    /// Most of them at once.
    clients: u64,
}

impl<'a> From<&'a Row> for JsonRow<'a> {
    fn from(Row { at_s, interface, usage }: &'a Row) -> Self {
        Self {
            time_s: *at_s,
            proxy: interface,
            to_client_bytes: usage.received_bytes,
            to_server_bytes: usage.sent_bytes,
            clients: usage.subflows,
        }
    }
}

/// For the page, if there were any.
pub(super) fn table(excerpt: &Excerpt) -> Option<Table> {
    let rows = cells(excerpt);
    let columns = COLUMNS.iter().map(ToString::to_string).collect();
    (!rows.is_empty()).then(|| Table { title: "Proxies".into(), columns, rows, ..Table::default() })
}

pub(super) fn charts(excerpt: &Excerpt) -> Vec<Chart> {
    let names: Vec<&str> = sums(&excerpt.proxies).into_keys().collect();
    if names.is_empty() {
        return Vec::new();
    }
    let series = Points::of(excerpt, &excerpt.proxies, &names);
    let down = series.lines(&|it| Some(series.mbps(it.map_or(0, |it| it.received_bytes))));
    let up = series.lines(&|it| Some(series.mbps(it.map_or(0, |it| it.sent_bytes))));
    vec![
        chart(("Carried to clients by proxies", "Mbit/s", true), down),
        chart(("Carried to servers by proxies", "Mbit/s", true), up),
    ]
}
