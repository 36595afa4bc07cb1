//! The view as lines, where there is no terminal.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::view::{Path, Report};
use super::words::{packets, rate, round_trip, share};

/// A table, as `top -b` prints it once for each sample.
pub(crate) fn table(report: &Report) -> String {
    let labels = report.proxies.iter().flat_map(|proxy| &proxy.clients).flat_map(|client| &client.paths);
    let width = labels.map(|path| path.label().chars().count()).max().unwrap_or(0).max(14);
    let first = width + 2;
    let mut text = format!(
        "{:<first$} {:<7} {:>11} {:>11} {:>8} {:>6} {:>6}",
        "path", "state", "down", "up", "rtt", "resent", "cwnd"
    );
    if report.has_sums() {
        let (down, up) = (rate(report.down_bps), rate(report.up_bps));
        let _ = write!(text, "\n{:<first$} {:<7} {down:>11} {up:>11}", "total", "");
    }
    for connection in &report.connections {
        let kind = if connection.is_multipath { connection.scheduler.as_str() } else { "plain TCP" };
        let _ = write!(text, "\n{} {}[{}] {kind}", connection.peer, connection.process, connection.pid);
        for path in &connection.listed {
            let rates = (path.down_bps, path.up_bps);
            let last = (path.rtt_ms, path.retransmitted_share, path.cwnd_packets);
            row(&mut text, (&path.label, width), path.state, rates, last);
        }
    }
    for proxy in &report.proxies {
        let (down, up) = (rate(proxy.down_bps), rate(proxy.up_bps));
        let _ = write!(text, "\n{}\n  {:<width$} {:<7} {down:>11} {up:>11}", proxy.heading(), "total", "");
        proxy.limit_lines().for_each(|line| _ = write!(text, "\n  {line}"));
        for client in &proxy.clients {
            let _ = write!(text, "\n{}", client.heading());
            for path in &client.paths {
                let rates = (path.down_bps, path.up_bps);
                let last = (path.now.rtt_ms, path.now.retransmitted_share, path.now.cwnd_packets);
                row(&mut text, (&path.label(), width), path.now.state, rates, last);
            }
        }
    }
    text
}

/// A line for a path.
fn row(
    text: &mut String,
    (label, width): (&str, usize),
    state: &str,
    (down, up): (f64, f64),
    (rtt_ms, retransmitted, cwnd): (f64, Option<f64>, u64),
) {
    let (down, up, rtt) = (rate(down), rate(up), round_trip(rtt_ms));
    let (again, cwnd) = (share(retransmitted), packets(cwnd));
    let _ = write!(text, "\n  {label:<width$} {state:<7} {down:>11} {up:>11} {rtt:>8} {again:>6} {cwnd:>6}");
}

/// One line: all connections together, by interface; none while there is no connection.
pub(crate) fn line(report: &Report) -> Option<String> {
    let mut interfaces: BTreeMap<&str, Interface> = BTreeMap::new();
    for path in report.connections.iter().flat_map(|connection| &connection.listed) {
        interfaces.entry(&path.interface).or_default().add(path);
    }
    if interfaces.is_empty() {
        return None;
    }
    let mut text = format!("down {}, up {}", rate(report.down_bps), rate(report.up_bps));
    for (name, interface) in interfaces {
        let Interface { down_bps, up_bps, rtt_ms, state } = interface;
        let _ = match state {
            // What was measured before is no more.
            Some("lost") => write!(text, "; {name} lost"),
            state => {
                let words =
                    state.filter(|state| *state != "up").map_or(String::new(), |state| format!(", {state}"));
                write!(text, "; {name} {} / {}, {}{words}", rate(down_bps), rate(up_bps), round_trip(rtt_ms))
            }
        };
    }
    Some(text)
}

/// All paths over an interface.
#[derive(Default)]
struct Interface {
    down_bps: f64,
    up_bps: f64,
    rtt_ms: f64,
    /// That of the best of them.
    state: Option<&'static str>,
}

/// From the best on.
const STATES: [&str; 6] = ["up", "aside", "backup", "joining", "stale", "lost"];

impl Interface {
    fn add(&mut self, path: &Path) {
        let place = |state: &str| STATES.iter().position(|known| *known == state).unwrap_or(STATES.len());
        if self.state.is_none_or(|state| place(path.state) < place(state)) {
            self.state = Some(path.state);
        }
        if path.state != "lost" {
            self.rtt_ms = self.rtt_ms.max(path.rtt_ms);
        }
        (self.down_bps, self.up_bps) = (self.down_bps + path.down_bps, self.up_bps + path.up_bps);
    }
}
