//! The view as lines, where there is no terminal.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::view::{Path, Report};
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
