//! Text as Prometheus reads it.

use std::fmt::{Display, Write};

/// Which of the two texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// What a request's `Accept` asks for: OpenMetrics where it is named, else Prometheus' own.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The `Content-Type` of the text.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows; its name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It is 1, and its labels say something; its name ends in `_info`.
    Info,
}

/// A metric: what is said of it before its numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    /// Its name, as it is looked up.
    pub(crate) name: &'static str,
    /// What kind of number it is.
    pub(crate) kind: Kind,
    /// Its unit, which the name has too, if it has one.
    pub(crate) unit: Option<&'static str>,
    /// What it says.
    pub(crate) help: &'static str,
}

/// A text that grows by a metric at a time.
#[derive(Debug)]
pub(crate) struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    /// An empty one.
    #[must_use]
    pub(crate) fn new(format: Format) -> Self {
        Self { format, text: String::new() }
    }

    /// A metric with its numbers, each with its labels. One without numbers is left out.
    pub(crate) fn add<V: Display>(
        &mut self,
        metric: &Metric,
        numbers: impl IntoIterator<Item = (Vec<(&'static str, String)>, V)>,
    ) {
        let mut numbers = numbers.into_iter().peekable();
        if numbers.peek().is_none() {
            return;
        }
        self.head(metric);
        for (labels, value) in numbers {
            self.text.push_str(metric.name);
            for (index, (name, value)) in labels.iter().enumerate() {
                let before = if index == 0 { '{' } else { ',' };
                // Writing to a string cannot fail.
                let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
            }
            self.text.push_str(if labels.is_empty() { "" } else { "}" });
            let _ = writeln!(self.text, " {value}");
        }
    }

    fn head(&mut self, metric: &Metric) {
        let Metric { name, kind, unit, help } = *metric;
        // In OpenMetrics a metric's name lacks what its kind adds.
        let (name, kind) = match (self.format, kind) {
            (Format::Prometheus, Kind::Counter) => (name, "counter"),
            (Format::Prometheus, Kind::Gauge | Kind::Info) => (name, "gauge"),
            (Format::OpenMetrics, Kind::Counter) => (name.trim_end_matches("_total"), "counter"),
            (Format::OpenMetrics, Kind::Gauge) => (name, "gauge"),
            (Format::OpenMetrics, Kind::Info) => (name.trim_end_matches("_info"), "info"),
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        if let (Format::OpenMetrics, Some(unit)) = (self.format, unit) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    /// The whole.
    #[must_use]
    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Metric =
        Metric { name: "a_sent_bytes_total", kind: Kind::Counter, unit: Some("bytes"), help: "Sent." };

    fn text(format: Format) -> String {
        let mut text = Exposition::new(format);
        let named = |name: &str| vec![("interface", name.to_string()), ("path", "0".into())];
        text.add(&SENT, [(named("wi\"fi\n\\"), 7), (named("lte"), 8)]);
        text.add(&Metric { name: "a_gauge", kind: Kind::Gauge, unit: None, help: "G." }, [(vec![], 0.25)]);
        text.add(
            &Metric { name: "a_none", kind: Kind::Gauge, unit: None, help: "N." },
            None::<(Vec<_>, u64)>,
        );
        text.finish()
    }

    #[test]
    fn both_texts_are_as_their_formats_have_them() {
        let numbers = "a_sent_bytes_total{interface=\"wi\\\"fi\\n\\\\\",path=\"0\"} 7\n\
                       a_sent_bytes_total{interface=\"lte\",path=\"0\"} 8\n";
        let gauge = "# HELP a_gauge G.\n# TYPE a_gauge gauge\na_gauge 0.25\n";
        let own = "# HELP a_sent_bytes_total Sent.\n# TYPE a_sent_bytes_total counter\n";
        assert_eq!(text(Format::Prometheus), format!("{own}{numbers}{gauge}"));
        let open = "# HELP a_sent_bytes Sent.\n# TYPE a_sent_bytes counter\n# UNIT a_sent_bytes bytes\n";
        assert_eq!(text(Format::OpenMetrics), format!("{open}{numbers}{gauge}# EOF\n"));
    }

    #[test]
    fn the_request_says_which() {
        let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2";
        assert_eq!(Format::accepted(accept), Format::OpenMetrics);
        assert_eq!(Format::accepted("*/*"), Format::Prometheus);
    }
}
