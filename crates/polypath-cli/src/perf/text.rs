//! Reports for people, in iperf3's columns.

use std::fmt::Write;

use super::report::{Carried, Datagrams, Interval, Path, Received, Start, StreamInterval, Sum};
use super::totals::{DatagramTotal, Report, StreamEnd, StreamTotal};

/// In which unit rates are written (`-f`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Whatever fits, in bits.
    #[default]
    Adaptive,
    /// A multiple of bits per second: 1000 for each step from none to tera.
    Bits(u8),
    /// A multiple of bytes per second: 1024 for each step.
    Bytes(u8),
}

impl Unit {
    /// One of the letters `k m g t K M G T`.
    #[must_use]
    pub(crate) fn from_letter(letter: char) -> Option<Self> {
        let step = "kmgt".find(letter.to_ascii_lowercase())? as u8 + 1;
        Some(if letter.is_ascii_uppercase() { Self::Bytes(step) } else { Self::Bits(step) })
    }

    fn rate(self, bits_per_second: f64) -> String {
        match self {
            Self::Adaptive => scaled(bits_per_second, 1000.0, None, "bits"),
            Self::Bits(step) => scaled(bits_per_second, 1000.0, Some(step), "bits"),
            Self::Bytes(step) => scaled(bits_per_second / 8.0, 1024.0, Some(step), "Bytes"),
        }
    }
}

/// Three digits and a unit, such as `9.42 Gbits`.
fn scaled(value: f64, base: f64, step: Option<u8>, unit: &str) -> String {
    let (mut value, mut steps) = (value, 0);
    while step.map_or(value >= base && steps < 4, |wanted| steps < wanted) {
        value /= base;
        steps += 1;
    }
    let prefixes = ["", "K", "M", "G", "T"];
    let prefix = prefixes[usize::from(steps)];
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let width = 4;
    format!("{value:width$.digits$} {prefix}{unit}")
}

fn bytes(value: u64) -> String {
    scaled(value as f64, 1024.0, None, "Bytes")
}

/// Turns results into lines.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    unit: Unit,
    is_client: bool,
    is_both: bool,
    is_udp: bool,
    /// This end sends at least on some streams.
    sends: bool,
}

const RULE: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -";

impl Writer {
    /// For a measurement that has just begun.
    #[must_use]
    pub(crate) fn new(start: &Start, unit: Unit) -> Self {
        let is_client = start.connecting_to.is_some();
        let is_both = start.test_start.bidir == 1;
        let sends = is_both || (start.test_start.reverse == 0) == is_client;
        Self { unit, is_client, is_both, is_udp: start.test_start.protocol == "UDP", sends }
    }

    /// Who talks to whom, and the head of the table.
    #[must_use]
    pub(crate) fn start(&self, start: &Start) -> String {
        let mut text = String::new();
        if let Some(server) = &start.connecting_to {
            let _ = writeln!(text, "Connecting to host {}, port {}", server.host, server.port);
            if start.test_start.reverse == 1 {
                let _ = writeln!(text, "Reverse mode, remote host {} is sending", server.host);
            }
        }
        if let Some(client) = &start.accepted_connection {
            let _ = writeln!(text, "Accepted connection from {}, port {}", client.host, client.port);
        }
        for stream in &start.connected {
            let _ = writeln!(
                text,
                "[{:3}] local {} port {} connected to {} port {}",
                stream.socket, stream.local_host, stream.local_port, stream.remote_host, stream.remote_port
            );
        }
        text + &self.head(false)
    }

    /// The head of the intervals, or of the totals.
    fn head(&self, is_end: bool) -> String {
        let role = if self.is_both { "[Role]" } else { "" };
        let more = match (self.is_udp, self.sends, is_end) {
            (true, true, false) if !self.is_both => "         Total Datagrams",
            (true, ..) => "         Jitter    Lost/Total Datagrams",
            (false, true, false) => "         Retr  Cwnd",
            (false, true, true) => "         Retr",
            (false, false, _) => "",
        };
        format!("[ ID]{role} Interval           Transfer     Bitrate{more}")
    }

    fn role(&self, sender: bool) -> &'static str {
        match (self.is_both, sender, self.is_client) {
            (false, ..) => "",
            (_, true, true) => "[TX-C]",
            (_, false, true) => "[RX-C]",
            (_, true, false) => "[TX-S]",
            (_, false, false) => "[RX-S]",
        }
    }

    fn row(&self, id: &str, sender: bool, carried: Carried) -> String {
        format!(
            "[{id:>3}]{} {:6.2}-{:<6.2} sec  {}  {}/sec",
            self.role(sender),
            carried.start,
            carried.end,
            bytes(carried.bytes),
            self.unit.rate(carried.bits_per_second)
        )
    }

    /// The lines of an interval.
    #[must_use]
    pub(crate) fn interval(&self, interval: &Interval) -> String {
        let mut lines: Vec<String> = interval.streams.iter().map(|stream| self.stream(stream)).collect();
        if self.has_sums(interval.streams.len()) {
            lines.extend(
                [Some(&interval.sum), interval.sum_bidir_reverse.as_ref()]
                    .into_iter()
                    .flatten()
                    .map(|sum| self.sum(sum)),
            );
            lines.push(RULE.into());
        }
        lines.join("\n")
    }

    /// A sum of one is none.
    fn has_sums(&self, streams: usize) -> bool {
        streams > if self.is_both { 2 } else { 1 }
    }

    fn stream(&self, stream: &StreamInterval) -> String {
        let id = stream.socket.to_string();
        let mut line = self.row(&id, stream.sender, stream.carried);
        if let Some(tcp) = &stream.tcp {
            let _ = write!(line, "  {:3}   {}", tcp.retransmits, bytes(tcp.snd_cwnd));
        }
        if let Some(datagrams) = &stream.datagrams {
            line += &columns(datagrams);
        }
        line + omitted(stream.omitted)
    }

    fn sum(&self, sum: &Sum) -> String {
        let mut line = self.row("SUM", sum.sender, sum.carried);
        if let Some(count) = sum.retransmits {
            let _ = write!(line, "  {count:3}");
        }
        if let Some(datagrams) = &sum.datagrams {
            line += &columns(datagrams);
        }
        line + omitted(sum.omitted == Some(true))
    }

    /// All of it.
    #[must_use]
    pub(crate) fn whole(&self, report: &Report) -> String {
        let intervals = report.intervals.iter().map(|interval| self.interval(interval));
        let lines: Vec<String> = [self.start(&report.start)].into_iter().chain(intervals).collect();
        format!("{}\n{}\n", lines.join("\n"), self.end(report))
    }

    /// The totals, and which subflows carried them.
    #[must_use]
    pub(crate) fn end(&self, report: &Report) -> String {
        let end = &report.end;
        let mut lines = vec![RULE.to_string(), self.head(true)];
        if report.intervals.last().is_some_and(|last| self.has_sums(last.streams.len())) {
            // The last interval ended with a rule.
            lines.remove(0);
        }
        for stream in &end.streams {
            lines.extend(stream.sender.iter().map(|total| self.total(total, "sender")));
            lines.extend(stream.receiver.iter().map(|total| self.total(total, "receiver")));
            lines.extend(stream.udp.iter().flat_map(|total| self.datagrams(total)));
        }
        if self.has_sums(end.streams.len()) {
            let sums = [
                (Some(&end.sum_sent), "sender"),
                (Some(&end.sum_received), "receiver"),
                (end.sum_sent_bidir_reverse.as_ref(), "sender"),
                (end.sum_received_bidir_reverse.as_ref(), "receiver"),
            ];
            for (sum, what) in sums {
                lines.extend(sum.map(|sum| self.pad(self.sum(sum), sum.retransmits, what)));
            }
        }
        if end.streams.iter().any(|stream| !stream.paths.is_empty()) {
            lines.push(RULE.into());
            lines.push("[ ID] Path".into());
            lines.extend(end.streams.iter().flat_map(paths));
        }
        lines.join("\n")
    }

    fn total(&self, total: &StreamTotal, what: &str) -> String {
        let id = total.socket.to_string();
        let mut line = self.row(&id, total.sender, total.carried);
        let retransmits = total.tcp.map(|tcp| tcp.retransmits);
        if let Some(count) = retransmits {
            let _ = write!(line, "  {count:3}");
        }
        self.pad(line, retransmits, what)
    }

    /// What was sent, and what was received of it.
    fn datagrams(&self, total: &DatagramTotal) -> [String; 2] {
        let id = total.socket.to_string();
        let row = |carried, datagrams: &Datagrams, what| {
            format!("{}{}  {what}", self.row(&id, total.sender, carried), columns(datagrams))
        };
        let packets = total.sent_packets;
        let sent = Datagrams { received: Some(Received::default()), packets };
        [row(total.carried, &sent, "sender"), row(total.received(), &total.datagrams, "receiver")]
    }

    /// The column of retransmissions stays where it is when there are none.
    fn pad(&self, line: String, retransmits: Option<u64>, what: &str) -> String {
        let gap = match retransmits {
            _ if self.is_udp => "",
            Some(_) => "           ",
            None => "                ",
        };
        format!("{line}{gap}  {what}")
    }
}

fn omitted(is_omitted: bool) -> &'static str {
    if is_omitted { "       (omitted)" } else { "" }
}

/// Jitter and loss at a receiver, and how many at a sender.
fn columns(datagrams: &Datagrams) -> String {
    let packets = datagrams.packets;
    match &datagrams.received {
        Some(received) => format!(
            "  {:5.3} ms  {}/{packets} ({}%)",
            received.jitter_ms,
            received.lost_packets,
            two_digits(received.lost_percent)
        ),
        None => format!("  {packets}"),
    }
}

/// As much as people read of a share.
fn two_digits(percent: f64) -> String {
    let digits = if percent == 0.0 || percent >= 9.95 { 0 } else { usize::from(percent < 0.995) + 1 };
    format!("{percent:.digits$}")
}

/// One line for each subflow of a stream.
fn paths(stream: &StreamEnd) -> Vec<String> {
    let kind = if stream.is_multipath { "MPTCP" } else { "TCP" };
    let total = stream.sender.as_ref();
    let (socket, sends) = total.map_or((0, false), |total| (total.socket, total.sender));
    let line = |path: &Path| {
        let mut line = format!("[{socket:3}] {kind} {} -> {}", path.local, path.remote);
        let _ = write!(line, "  {}", bytes(if sends { path.bytes_acked } else { path.bytes_received }));
        if sends {
            let _ = write!(line, "  Retr {}", path.retransmits);
        }
        let _ = write!(line, "  RTT {:.2} ms", path.rtt as f64 / 1000.0);
        line + if path.backup { "  backup" } else { "" }
    };
    stream.paths.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_like_those_of_iperf3() {
        for (value, wanted) in [(9.42e9, "9.42 Gbits"), (941e6, " 941 Mbits"), (99.9e3, "99.9 Kbits")] {
            assert_eq!(Unit::Adaptive.rate(value), wanted);
        }
        assert_eq!(Unit::from_letter('m').map(|unit| unit.rate(9.42e9)).as_deref(), Some("9420 Mbits"));
        assert_eq!(
            Unit::from_letter('M').map(|unit| unit.rate(8.0 * 1048576.0)).as_deref(),
            Some("1.00 MBytes")
        );
        assert_eq!(Unit::from_letter('x'), None);
        assert_eq!(bytes(128 << 10), " 128 KBytes");
        assert_eq!(bytes(0), "0.00 Bytes");
    }
}
