//! `polypath history`.

mod excerpt;
mod proxies;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use polypath_metrics::history::{HistoryError, Resolution, Row, Usage, read};
use serde::Serialize;

use self::excerpt::{Excerpt, Points, bytes, chart};
use super::{Failure, harmless, print_json, print_line, write_file};
use crate::report::{Chart, Report, Table, render};

#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Arguments {
    /// How far back, such as 30min, 24h or 7d; up to two days in steps of ten seconds, else of five minutes
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_since)]
    since: Duration,
    /// Only this interface
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Only this proxy, by its name
    #[arg(long, value_name = "NAME", conflicts_with = "interface")]
    proxy: Option<String>,
    /// Where it is recorded [default: /var/lib/polypath for root, else polypath in XDG_STATE_HOME]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values, a line for each interface and step; with --proxy, for each step of it
    #[arg(long)]
    csv: bool,
    /// Write a page with pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
What interfaces have carried over stacks of this host, and proxies for their clients, as `polypath metrics` has recorded it. \
Bytes are payload.\n\n\
Examples:\n  \
polypath history --since 7d\n  \
polypath history --since 24h --interface wifi --html wifi.html";

const DAY_S: u64 = 86_400;

/// Hours and days, too.
fn parse_since(text: &str) -> Result<Duration, String> {
    let at = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "s" => 1,
        "min" => 60,
        "h" => 3600,
        "d" => DAY_S,
        _ => 0,
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    seconds.filter(|seconds| (1..=10 * 366 * DAY_S).contains(seconds)).map(Duration::from_secs).ok_or_else(
        || format!("\"{text}\" is no time; expected a number and a unit (s, min, h, d), such as 24h"),
    )
}

/// Where history and what else outlives processes is, if nobody says.
pub(super) fn default_directory() -> Result<PathBuf, Failure> {
    if let Some(chosen) = std::env::var_os("POLYPATH_STATE_DIR") {
        return Ok(chosen.into());
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/polypath".into());
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("polypath")).ok_or_else(|| {
        Failure::input("neither XDG_STATE_HOME nor HOME is set; expected a directory for the history")
    })
}

/// What the user can set right is an input.
pub(super) fn failure(error: HistoryError) -> Failure {
    match error {
        HistoryError::Busy(_) | HistoryError::Nothing(_) => Failure::input(error),
        _ => Failure::run(error),
    }
}

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let directory = arguments.directory.clone().map_or_else(default_directory, Ok)?;
    let excerpt = excerpt(arguments, &directory)?;
    if let Some(path) = &arguments.html {
        write_file(path, page(&excerpt))?;
    }
    if arguments.json {
        return print_json(&in_json(&excerpt));
    }
    let text = match (arguments.csv, &arguments.proxy) {
        (true, Some(_)) => proxies::csv(&excerpt.proxies),
        (true, None) => csv(&excerpt),
        _ => table(&excerpt),
    };
    print_line(text.trim_end())
}

fn excerpt(arguments: &Arguments, directory: &Path) -> Result<Excerpt, Failure> {
    let (to_s, since_s) = (now_s(), arguments.since.as_secs());
    let resolution = Resolution::for_span(since_s);
    let from_s = to_s.saturating_sub(since_s);
    let from_s = from_s - from_s % resolution.step_s();
    let rows = read(directory, from_s, resolution).map_err(failure)?;
    let (mut proxies, mut rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.proxy().is_some());
    for row in &mut proxies {
        row.interface = row.proxy().unwrap_or_default().to_owned();
    }
    let is_meant = |wanted: &Option<String>, other: &Option<String>, row: &Row| match wanted {
        Some(wanted) => row.interface == *wanted,
        None => other.is_none(),
    };
    for (kind, wanted, there) in
        [("proxy", &arguments.proxy, &proxies), ("interface", &arguments.interface, &rows)]
    {
        if let Some(wanted) = wanted {
            check_name(kind, wanted, &there.iter().map(|row| row.interface.as_str()).collect())?;
        }
    }
    rows.retain(|row| is_meant(&arguments.interface, &arguments.proxy, row));
    proxies.retain(|row| is_meant(&arguments.proxy, &arguments.interface, row));
    Ok(Excerpt { from_s, to_s, resolution, rows, proxies })
}

/// Whether one of that name is among those of this time, if any are.
fn check_name(kind: &str, wanted: &str, there: &BTreeSet<&str>) -> Result<(), Failure> {
    if there.is_empty() || there.contains(wanted) {
        return Ok(());
    }
    let there: Vec<String> = there.iter().map(|name| harmless(name)).collect();
    Err(Failure::Input(format!(
        "--{kind}: nothing of {} is known in this time: expected {}",
        harmless(wanted),
        there.join(" or ")
    )))
}

const COLUMNS: [&str; 7] =
    ["interface", "received", "sent", "sent again", "round trip", "subflows", "busiest step"];

/// Of these, as many are on a page.
const ON_PAGE: usize = 5;

fn cells(excerpt: &Excerpt) -> Vec<Vec<String>> {
    let interfaces = excerpt.interfaces();
    let row = |(name, (usage, most)): (&str, (Usage, u64))| {
        let again = usage.retransmitted_bytes as f64 * 100.0 / usage.sent_bytes.max(1) as f64;
        let round_trip = usage.round_trip.mean_ms().map_or("-".into(), |mean| {
            let (min, max) = (usage.round_trip.min_us as f64 / 1e3, usage.round_trip.max_us as f64 / 1e3);
            format!("{mean:.1} ms ({min:.1} to {max:.1})")
        });
        vec![
            harmless(name),
            bytes(usage.received_bytes),
            bytes(usage.sent_bytes),
            format!("{again:.2} %"),
            round_trip,
            usage.subflows.to_string(),
            format!("{:.1} Mbit/s", excerpt.mbps(most)),
        ]
    };
    let mut cells: Vec<_> = interfaces.iter().map(|(name, of)| row((name, *of))).collect();
    if cells.len() > 1 {
        let all = interfaces.values().fold(Usage::default(), |sum, (usage, _)| sum.and(*usage));
        let mut last = row(("together", (all, 0)));
        last.truncate(4);
        last.resize(COLUMNS.len(), String::new());
        cells.push(last);
    }
    cells
}

fn table(excerpt: &Excerpt) -> String {
    let (interfaces, proxies) = (cells(excerpt), proxies::cells(excerpt));
    if interfaces.is_empty() && proxies.is_empty() {
        return format!("nothing was carried since {}", date(excerpt.from_s));
    }
    let mut text = format!("since {}\n", date(excerpt.from_s));
    if !interfaces.is_empty() {
        text += &aligned(&COLUMNS, &interfaces);
    }
    if !proxies.is_empty() {
        let gap = if interfaces.is_empty() { "" } else { "\n" };
        text += &format!("{gap}{}", aligned(&proxies::COLUMNS, &proxies));
    }
    text
}

/// Columns as wide as what is in them, the first on the left and the others on the right.
fn aligned(columns: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = columns.iter().map(ToString::to_string).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&header).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = format!("{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(row, "  {cell:>width$}");
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

fn date(at_s: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at_s))
}

fn csv(excerpt: &Excerpt) -> String {
    let mut text = String::from(
        "time_s,interface,received_bytes,sent_bytes,retransmitted_bytes,subflows,round_trip_ms\n",
    );
    for Row { at_s, interface, usage } in &excerpt.rows {
        let round_trip = usage.round_trip.mean_ms().map_or(String::new(), |mean| format!("{mean:.3}"));
        let name = if interface.contains([',', '"']) {
            format!("\"{}\"", interface.replace('"', "\"\""))
        } else {
            interface.clone()
        };
        let _ = writeln!(
            text,
            "{at_s},{},{},{},{},{},{round_trip}",
            harmless(&name),
            usage.received_bytes,
            usage.sent_bytes,
            usage.retransmitted_bytes,
            usage.subflows
        );
    }
    text
}

#[derive(Serialize)]
struct Json<'a> {
    from_s: u64,
    to_s: u64,
    step_s: u64,
    rows: Vec<JsonRow<'a>>,
    proxies: Vec<proxies::JsonRow<'a>>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    time_s: u64,
    interface: &'a str,
    received_bytes: u64,
    sent_bytes: u64,
    retransmitted_bytes: u64,
    subflows: u64,
    round_trip_ms: Option<f64>,
}

fn in_json(excerpt: &Excerpt) -> Json<'_> {
    let row = |row| {
        let Row { at_s, interface, usage }: &Row = row;
        JsonRow {
            time_s: *at_s,
            interface,
            received_bytes: usage.received_bytes,
            sent_bytes: usage.sent_bytes,
            retransmitted_bytes: usage.retransmitted_bytes,
            subflows: usage.subflows,
            round_trip_ms: usage.round_trip.mean_ms(),
        }
    };
    Json {
        from_s: excerpt.from_s,
        to_s: excerpt.to_s,
        step_s: excerpt.resolution.step_s(),
        rows: excerpt.rows.iter().map(row).collect(),
        proxies: excerpt.proxies.iter().map(proxies::JsonRow::from).collect(),
    }
}

fn page(excerpt: &Excerpt) -> String {
    let interfaces = excerpt.interfaces();
    let total = interfaces.values().fold(Usage::default(), |sum, (usage, _)| sum.and(*usage));
    let interface_table = Table {
        title: "Interfaces".into(),
        columns: COLUMNS[..ON_PAGE].iter().map(ToString::to_string).collect(),
        rows: cells(excerpt).into_iter().map(on_page).collect(),
        ..Table::default()
    };
    let interface_names: Vec<&str> = interfaces.keys().copied().collect();
    let report = Report {
        title: "What interfaces have carried".into(),
        summary: format!(
            "From {} to {}. Bytes are payload of Multipath TCP, over all stacks of the host.",
            date(excerpt.from_s),
            date(excerpt.to_s)
        ),
        headlines: vec![
            (bytes(total.received_bytes), "received".into()),
            (bytes(total.sent_bytes), "sent".into()),
        ],
        tables: std::iter::once(interface_table).chain(proxies::table(excerpt)).collect(),
        charts: charts(excerpt, &interface_names).into_iter().chain(proxies::charts(excerpt)).collect(),
        ..Report::default()
    };
    // The axis of a report is in seconds; that of a history is not.
    render(&report).replace("\nseconds\n", &format!("\nhours since {}\n", date(excerpt.from_s)))
}

/// What a narrow page has room for: the first columns, and of round trips the mean.
fn on_page(mut row: Vec<String>) -> Vec<String> {
    row.truncate(ON_PAGE);
    for cell in &mut row {
        if let Some((mean, _)) = cell.split_once(" (") {
            *cell = mean.into();
        }
    }
    row
}

fn charts(excerpt: &Excerpt, interfaces: &[&str]) -> Vec<Chart> {
    let series = Points::of(excerpt, &excerpt.rows, interfaces);
    let rate = |bytes: u64| series.mbps(bytes);
    vec![
        chart(
            ("Received", "Mbit/s", true),
            series.lines(&|it| Some(rate(it.map_or(0, |it| it.received_bytes)))),
        ),
        chart(("Sent", "Mbit/s", true), series.lines(&|it| Some(rate(it.map_or(0, |it| it.sent_bytes))))),
        chart(("Round-trip time", "ms", false), series.lines(&|it| it?.round_trip.mean_ms())),
    ]
}

#[cfg(test)]
mod tests {
    use polypath_metrics::history::RoundTrip;

    use super::*;

    fn excerpt() -> Excerpt {
        let row = |at_s, interface: &str, received_bytes| Row {
            at_s,
            interface: interface.into(),
            usage: Usage {
                received_bytes,
                sent_bytes: 2000,
                retransmitted_bytes: 20,
                subflows: 1,
                round_trip: RoundTrip::once(0.0235),
            },
        };
        let rows = vec![row(1000, "lte", 5_000_000), row(1000, "wifi", 10_000_000), row(1010, "wifi", 1)];
        let usage = Usage { received_bytes: 3_000_000, sent_bytes: 4000, subflows: 7, ..Usage::default() };
        let proxies = vec![Row { at_s: 1000, interface: "gateway".into(), usage }];
        Excerpt { from_s: 1000, to_s: 4600, resolution: Resolution::Fine, rows, proxies }
    }

    #[test]
    fn times_have_units() {
        for (text, seconds) in [("30s", 30), ("30min", 1800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(parse_since(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "24", "h", "-1h", "1y", "1.5h", "0s", "99999999999999999999d", "9999999d"] {
            assert!(parse_since(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_is_not_there_is_told_who_is() {
        let there = BTreeSet::from(["eth0", "wwan0"]);
        assert!(check_name("interface", "eth0", &there).is_ok());
        assert!(check_name("interface", "eth1", &BTreeSet::new()).is_ok(), "nothing was recorded");
        let said = check_name("interface", "eth1", &there).expect_err("none of them").message();
        assert_eq!(said, "--interface: nothing of eth1 is known in this time: expected eth0 or wwan0");
    }

    #[test]
    fn a_line_says_what_each_interface_did() {
        let text = table(&excerpt());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "since Thu, 01 Jan 1970 00:16:40 GMT");
        let words = |line: &str| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).count();
        assert_eq!(words(lines[1]), COLUMNS.len(), "{text}");
        assert!(lines[2].starts_with("lte ") && lines[2].contains("5.0 MB  2.0 kB      1.00 %"), "{text}");
        assert!(lines[3].contains("23.5 ms (23.5 to 23.5)") && lines[3].ends_with("8.0 Mbit/s"), "{text}");
        assert!(lines[4].starts_with("together ") && lines[4].contains("15.0 MB  6.0 kB"), "{text}");
        let of_proxies = "
proxy    to clients  to servers  clients at once  busiest step
gateway      3.0 MB      4.0 kB                7    2.4 Mbit/s
";
        assert!(text.ends_with(of_proxies), "{text}");
        assert!(table(&Excerpt { rows: Vec::new(), ..excerpt() }).ends_with(of_proxies.trim_start()));
    }

    #[test]
    fn rows_come_as_values_and_as_a_page() {
        let excerpt = excerpt();
        assert!(csv(&excerpt).ends_with("\n1010,wifi,1,2000,20,1,23.500\n"), "{}", csv(&excerpt));
        let json = serde_json::to_value(in_json(&excerpt)).expect("JSON");
        assert_eq!(json["rows"][1]["received_bytes"], 10_000_000);
        assert_eq!((&json["rows"][3], &json["proxies"][0]["clients"]), (&serde_json::Value::Null, &7.into()));
        assert!(proxies::csv(&excerpt.proxies).ends_with("\n1000,gateway,3000000,4000,7\n"));
        let page = page(&excerpt);
        assert!(page.contains("hours since") && !page.contains("\nseconds\n") && page.contains("wifi"));
        assert!(page.contains("Carried to clients") && page.contains("gateway"));
    }
}
