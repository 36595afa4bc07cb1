//! A report for people.

use std::fmt::Write;

use super::super::super::words::amount;
use super::report::TunnelReport;

pub(super) fn words(report: &TunnelReport) -> String {
    let mut text = format!("{}: public key {}", report.name, report.public_key);
    if let Some(port) = report.listen_port {
        let _ = write!(text, ", UDP port {port}");
    }
    for budget in &report.budgets {
        let (left, all) = (amount(budget.left_bytes), amount(budget.budget_bytes));
        let daily = if budget.is_daily { "/day" } else { "" };
        let _ = write!(text, "\n  {}: {left} of {all}{daily} left", budget.interface);
        text.push_str(match (budget.left_bytes, budget.is_hard) {
            (0, true) => ": it carries nothing now",
            (0, false) => ": it is a backup now",
            _ => "",
        });
    }
    for peer in &report.peers {
        let name = peer.name.as_deref().unwrap_or(&peer.public_key);
        let _ = match (&peer.kind, peer.keys_age_seconds) {
            (Some(kind), Some(age)) => write!(text, "\n\n  {name}: {kind}, keys {age:.0} s old"),
            _ => write!(text, "\n\n  {name}: no handshake yet"),
        };
        let _ = write!(
            text,
            "\n    packets: {} sent, {} received, {} dropped, {} sent again, {} late, {} missing, {} copies",
            peer.sent_packets,
            peer.received_packets,
            peer.dropped_packets,
            peer.sent_again_packets,
            peer.late_packets,
            peer.missing_packets,
            peer.copied_packets
        );
        if peer.repair_packets_sent + peer.repair_packets_received > 0 {
            let _ = write!(
                text,
                "\n    repair packets: {} sent, {} received; {} packets rebuilt, {} not",
                peer.repair_packets_sent,
                peer.repair_packets_received,
                peer.rebuilt_packets,
                peer.not_rebuilt_packets
            );
        }
        if peer.pinned_dropped_packets > 0 {
            let missing: Vec<_> = peer.missing_pinned_paths.iter().map(ToString::to_string).collect();
            let _ = write!(text, "\n    pinned packets: {} dropped", peer.pinned_dropped_packets);
            let _ = match &missing[..] {
                [] => write!(text, ", when their path did not work"),
                [one] => write!(text, "; path {one} is not there, or does not work"),
                several => write!(text, "; paths {} are not there, or do not work", several.join(", ")),
            };
        }
        for path in &peer.paths {
            let interface = path.interface.as_deref().unwrap_or("path");
            let _ = write!(text, "\n    {} {interface} to {}: {}", path.number, path.remote, path.state);
            if let Some(rtt) = path.rtt_ms {
                let _ = write!(text, ", {rtt:.1} ms, {:.1} Mbit/s", path.rate_mbps);
            }
            let _ = write!(
                text,
                ", MTU {}, {} bytes sent, {} received, {} packets lost",
                path.mtu_bytes, path.sent_bytes, path.received_bytes, path.lost_packets
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"name": "polypath-vpn", "public_key": "K", "listen_port": null,
        "budgets": [
            {"interface": "wlan0", "budget_bytes": 5000000, "is_daily": false, "is_hard": false, "used_bytes": 1000000, "left_bytes": 4000000},
            {"interface": "wwan0", "budget_bytes": 1000000, "is_daily": true, "is_hard": false, "used_bytes": 1000001, "left_bytes": 0},
            {"interface": "wwan1", "budget_bytes": 1000000, "is_daily": true, "is_hard": true, "used_bytes": 1000001, "left_bytes": 0}],
        "dropped": {"malformed": 0, "unknown_session": 0, "refused_handshakes": 0, "replayed_handshakes": 0, "unknown_peers": 0,
            "no_peer": 0, "too_long": 0},
        "lost": {"unsent_datagrams": 0, "overflowed_datagrams": 0, "unwritten_packets": 0, "overflowed_packets": 0, "malformed_frames": 0},
        "peers": []}"#;

    const PEER: &str = r#"{"name": "laptop", "public_key": "K", "kind": "polypath", "keys_age_seconds": 1.0, "endpoint": null,
        "sent_packets": 0, "received_packets": 0, "dropped_packets": 0, "pinned_dropped_packets": 0, "missing_pinned_paths": [],
        "sent_again_packets": 0, "repair_packets_sent": 0, "repair_packets_received": 0, "rebuilt_packets": 0,
        "not_rebuilt_packets": 0, "foreign_packets": 0, "replayed_packets": 0, "not_authentic_packets": 0, "late_packets": 0,
        "missing_packets": 0, "copied_packets": 0, "waiting_bytes": 0, "held_bytes": 0, "split_flows": 0, "paths": []}"#;

    #[test]
    fn a_spent_budget_is_told_with_what_follows() {
        let report = serde_json::from_str(REPORT).unwrap();
        let expected = "polypath-vpn: public key K\n  wlan0: 4.0 MB of 5.0 MB left\n  wwan0: 0 B of 1.0 MB/day left: it is a backup now\n  \
                        wwan1: 0 B of 1.0 MB/day left: it carries nothing now";
        assert_eq!(words(&report), expected);
    }

    #[test]
    fn what_rules_drop_is_told_with_their_paths() {
        let mut report: TunnelReport = serde_json::from_str(REPORT).unwrap();
        report.budgets.clear();
        report.peers.push(serde_json::from_str(PEER).unwrap());
        let mut line = |dropped, missing: &[usize]| {
            report.peers[0].pinned_dropped_packets = dropped;
            report.peers[0].missing_pinned_paths = missing.to_vec();
            words(&report).lines().find(|line| line.contains("pinned")).map(|line| line.trim().to_owned())
        };
        assert_eq!(line(0, &[9]), None);
        assert_eq!(line(3, &[]).unwrap(), "pinned packets: 3 dropped, when their path did not work");
        assert_eq!(
            line(3, &[9]).unwrap(),
            "pinned packets: 3 dropped; path 9 is not there, or does not work"
        );
        let expected = "pinned packets: 3 dropped; paths 1, 9 are not there, or do not work";
        assert_eq!(line(3, &[1, 9]).unwrap(), expected);
    }
}
