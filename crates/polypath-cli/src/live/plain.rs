//! The view as lines, where there is no terminal.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::view::Report;
use super::words::{packets, rate, round_trip, share};

/// A table, as `top -b` prints it once for each sample.
pub(crate) fn table(report: &Report) -> String {
    let mut text = format!(
        "{:<16} {:<7} {:>11} {:>11} {:>8} {:>6} {:>6}\n",
        "path", "state", "down", "up", "rtt", "resent", "cwnd"
    );
    let _ =
        write!(text, "{:<16} {:<7} {:>11} {:>11}", "total", "", rate(report.down_bps), rate(report.up_bps));
    for connection in &report.connections {
        let kind = if connection.is_multipath { connection.scheduler.as_str() } else { "plain TCP" };
        let _ = write!(text, "\n{} {}[{}] {kind}", connection.peer, connection.process, connection.pid);
        for path in &connection.listed {
            let _ = write!(
                text,
                "\n  {:<14} {:<7} {:>11} {:>11} {:>8} {:>6} {:>6}",
                path.label,
                path.state,
                rate(path.down_bps),
                rate(path.up_bps),
                round_trip(path.rtt_ms),
                share(path.retransmitted_share),
                packets(path.cwnd_packets)
            );
        }
    }
    text
}

/// One line: all connections together, by interface; none while there is no connection.
pub(crate) fn line(report: &Report) -> Option<String> {
    let mut interfaces: BTreeMap<&str, (f64, f64, f64)> = BTreeMap::new();
    for path in report.connections.iter().flat_map(|connection| &connection.listed) {
        let (down, up, rtt) = interfaces.entry(&path.interface).or_default();
        (*down, *up, *rtt) = (*down + path.down_bps, *up + path.up_bps, rtt.max(path.rtt_ms));
    }
    if interfaces.is_empty() {
        return None;
    }
    let mut text = format!("down {}, up {}", rate(report.down_bps), rate(report.up_bps));
    for (name, (down, up, rtt)) in interfaces {
        let _ = write!(text, "; {name} {} / {}, {}", rate(down), rate(up), round_trip(rtt));
    }
    Some(text)
}
