//! Reports for people, in iperf3's columns.

use std::fmt::Write;

use super::report::{Interval, Report, Start, StreamEnd, StreamInterval, StreamTotal, Sum};

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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    unit: Unit,
    is_client: bool,
    is_both: bool,
    /// Some stream sends here, and its engine tells of retransmissions.
    has_retransmits: bool,
}

const RULE: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -";

impl Writer {
    /// For a measurement that has just begun.
    #[must_use]
    pub(crate) fn new(start: &Start, unit: Unit) -> Self {
        let is_client = start.connecting_to.is_some();
        let is_both = start.test_start.bidir == 1;
        let sends = is_both || (start.test_start.reverse == 0) == is_client;
        Self { unit, is_client, is_both, has_retransmits: sends }
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
        text + &self.head(self.has_retransmits)
    }

    fn head(&self, with_cwnd: bool) -> String {
        let role = if self.is_both { "[Role]" } else { "" };
        let retransmits = if self.has_retransmits { "        Retr" } else { "" };
        let cwnd = if with_cwnd { "  Cwnd" } else { "" };
        format!("[ ID]{role} Interval           Transfer     Bitrate{retransmits}{cwnd}")
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

    fn row(&self, id: &str, sender: bool, span: (f64, f64), amount: u64, bits_per_second: f64) -> String {
        format!(
            "[{id:>3}]{} {:6.2}-{:<6.2} sec  {}  {}/sec",
            self.role(sender),
            span.0,
            span.1,
            bytes(amount),
            self.unit.rate(bits_per_second)
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
        let span = (stream.start, stream.end);
        let id = stream.socket.to_string();
        let mut line = self.row(&id, stream.sender, span, stream.bytes, stream.bits_per_second);
        if let Some(count) = stream.retransmits {
            let _ = write!(line, "  {count:3}");
        }
        if let Some(cwnd) = stream.snd_cwnd {
            let _ = write!(line, "   {}", bytes(cwnd));
        }
        line + if stream.omitted { "       (omitted)" } else { "" }
    }

    fn sum(&self, sum: &Sum) -> String {
        let mut line = self.row("SUM", sum.sender, (sum.start, sum.end), sum.bytes, sum.bits_per_second);
        if let Some(count) = sum.retransmits {
            let _ = write!(line, "  {count:3}");
        }
        line + if sum.omitted == Some(true) { "       (omitted)" } else { "" }
    }

    /// The totals, and which subflows carried them.
    #[must_use]
    pub(crate) fn end(&self, report: &Report) -> String {
        let end = &report.end;
        let mut lines = vec![RULE.to_string(), self.head(false)];
        if report.intervals.last().is_some_and(|last| self.has_sums(last.streams.len())) {
            // The last interval ended with a rule.
            lines.remove(0);
        }
        for stream in &end.streams {
            lines.push(self.total(&stream.sender, "sender"));
            lines.push(self.total(&stream.receiver, "receiver"));
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
        lines.push(RULE.into());
        lines.push("[ ID] Path".into());
        lines.extend(end.streams.iter().flat_map(subflows));
        lines.join("\n")
    }

    fn total(&self, total: &StreamTotal, what: &str) -> String {
        let id = total.socket.to_string();
        let span = (total.start, total.end);
        let mut line = self.row(&id, total.sender, span, total.bytes, total.bits_per_second);
        if let Some(count) = total.retransmits {
            let _ = write!(line, "  {count:3}");
        }
        self.pad(line, total.retransmits, what)
    }

    /// The column of retransmissions stays where it is when there are none.
    fn pad(&self, line: String, retransmits: Option<u64>, what: &str) -> String {
        let gap = if retransmits.is_some() { "           " } else { "                " };
        format!("{line}{gap}  {what}")
    }
}

/// One line for each subflow of a stream.
fn subflows(stream: &StreamEnd) -> Vec<String> {
    let kind = if stream.is_multipath { "MPTCP" } else { "TCP" };
    let line = |subflow: &super::report::Subflow| {
        let mut line = format!("[{:3}] {kind} {} -> {}", stream.sender.socket, subflow.local, subflow.remote);
        let carried = if stream.sender.sender { subflow.bytes_acked } else { subflow.bytes_received };
        if let Some(carried) = carried {
            let _ = write!(line, "  {}", bytes(carried));
        }
        if let Some(count) = subflow.retransmits.filter(|_| stream.sender.sender) {
            let _ = write!(line, "  Retr {count}");
        }
        if let Some(rtt) = subflow.rtt {
            let _ = write!(line, "  RTT {:.2} ms", rtt as f64 / 1000.0);
        }
        line + if subflow.backup { "  backup" } else { "" }
    };
    stream.subflows.iter().map(line).collect()
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
