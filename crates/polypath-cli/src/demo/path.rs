//! The access links, as people describe them on a command line.

use std::str::FromStr;

use polypath_config::quantity::{parse_rate, parse_span};
use polypath_link::{LinkConfig, QueueLimit};
use polypath_units::{BitRate, Duration, Instant};

/// An access link: `name=wifi,rate=40mbit,rtt=20ms,queue=80ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DemoPath {
    /// What it is called.
    pub(crate) name: String,
    /// Its rate in each direction.
    pub(crate) rate: BitRate,
    /// Round-trip time without queueing.
    pub(crate) rtt: Duration,
    /// The longest that a packet may wait in its queue.
    pub(crate) queue: Duration,
}

/// A stretch of time in which a path is down: `wifi@2s..5s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Index of the path.
    pub(crate) path: usize,
    /// When it goes down.
    pub(crate) from: Duration,
    /// When it comes back.
    pub(crate) to: Duration,
}

/// A description that makes no sense, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ParsePathError(String);

impl DemoPath {
    /// WiFi-like: 40 Mbit/s, 20 ms.
    #[must_use]
    pub(crate) fn wifi() -> Self {
        Self {
            name: "wifi".into(),
            rate: BitRate::from_mbps(40),
            rtt: Duration::from_millis(20),
            queue: Duration::from_millis(80),
        }
    }

    /// LTE-like: 20 Mbit/s, 60 ms.
    #[must_use]
    pub(crate) fn lte() -> Self {
        Self {
            name: "lte".into(),
            rate: BitRate::from_mbps(20),
            rtt: Duration::from_millis(60),
            queue: Duration::from_millis(150),
        }
    }

    /// The link in one direction.
    #[must_use]
    pub(crate) fn link(&self) -> LinkConfig {
        LinkConfig::new(self.rate, self.rtt / 2, QueueLimit::Delay(self.queue))
    }
}

impl FromStr for DemoPath {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, ParsePathError> {
        let mut path = Self { name: String::new(), ..Self::wifi() };
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                ParsePathError(format!("\"{part}\" is not KEY=VALUE; expected name, rate, rtt or queue"))
            })?;
            let in_key = |message: String| ParsePathError(format!("{key}: {message}"));
            match key {
                "name" => path.name = value.to_string(),
                "rate" => path.rate = parse_rate(value).map_err(in_key)?,
                "rtt" => path.rtt = parse_span(value).map_err(in_key)?,
                "queue" => path.queue = parse_span(value).map_err(in_key)?,
                _ => {
                    return Err(ParsePathError(format!(
                        "unknown key \"{key}\"; expected name, rate, rtt or queue"
                    )));
                }
            }
        }
        if path.name.is_empty() {
            return Err(ParsePathError("name is missing; expected name=wifi,rate=40mbit,…".into()));
        }
        Ok(path)
    }
}

impl Cut {
    /// Reads `wifi@2s..5s`, where `wifi` is one of `paths`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str, paths: &[DemoPath]) -> Result<Self, ParsePathError> {
        let shape = || ParsePathError(format!("\"{text}\" is no cut; expected one such as wifi@2s..5s"));
        let (name, times) = text.split_once('@').ok_or_else(shape)?;
        let (from, to) = times.split_once("..").ok_or_else(shape)?;
        let names = || paths.iter().map(|path| path.name.as_str()).collect::<Vec<_>>().join(" or ");
        let path = paths.iter().position(|path| path.name == name);
        let path = path.ok_or_else(|| ParsePathError(format!("no path \"{name}\"; expected {}", names())))?;
        let (from, to) = (parse_span(from).map_err(ParsePathError)?, parse_span(to).map_err(ParsePathError)?);
        if from >= to {
            return Err(ParsePathError(format!("the cut ends at {to} before it begins at {from}")));
        }
        Ok(Self { path, from, to })
    }

    /// The path is down at `now`.
    #[must_use]
    pub(crate) fn contains(&self, now: Instant) -> bool {
        let at = now.since(Instant::ZERO);
        self.from <= at && at < self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_and_mistakes_named() {
        let path: DemoPath = "name=dsl,rate=16mbit,rtt=30ms,queue=1s".parse().expect("it is right");
        assert_eq!((path.name.as_str(), path.rate), ("dsl", BitRate::from_mbps(16)));
        assert_eq!((path.rtt, path.queue), (Duration::from_millis(30), Duration::from_secs(1)));
        for (text, wrong) in [
            ("rate=16mbit", "name is missing"),
            ("name=x,rate=16", "rate:"),
            ("name=x,speed=1mbit", "unknown key \"speed\""),
            ("wifi", "KEY=VALUE"),
        ] {
            let error = text.parse::<DemoPath>().expect_err(text).to_string();
            assert!(error.contains(wrong) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn cuts_are_read_and_mistakes_named() {
        let paths = [DemoPath::wifi(), DemoPath::lte()];
        let cut = Cut::parse("lte@2s..5500ms", &paths).expect("it is right");
        assert_eq!(cut, Cut { path: 1, from: Duration::from_secs(2), to: Duration::from_millis(5500) });
        assert!(cut.contains(Instant::from_secs(2)) && !cut.contains(Instant::from_millis(5500)));
        for text in ["dsl@1s..2s", "wifi@2s..1s", "wifi", "wifi@1s", "wifi@1..2"] {
            assert!(Cut::parse(text, &paths).is_err(), "{text}");
        }
    }
}
