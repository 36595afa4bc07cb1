//! What the libraries log, as the command says it: a line on standard error for each event.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::{Failure, complain};

/// The variable that says how much is logged.
const VARIABLE: &str = "POLYPATH_LOG";

/// Shows from now on what the libraries log: warnings and errors, or as much as the environment asks for.
pub(super) fn start() -> Result<(), Failure> {
    let level = match std::env::var(VARIABLE) {
        Ok(text) => parse(&text)?,
        Err(std::env::VarError::NotPresent) => LevelFilter::WARN,
        Err(error) => return Err(Failure::input(format!("{VARIABLE}: {error}"))),
    };
    // Somebody's own command may have a subscriber already, which then has the events.
    let _ = tracing::subscriber::set_global_default(Lines { level, say: complain });
    Ok(())
}

fn parse(text: &str) -> Result<LevelFilter, Failure> {
    let wrong =
        || format!("{VARIABLE}: \"{text}\" is no level; expected off, error, warn, info, debug or trace");
    // It would take numbers, too.
    let is_word = text.chars().all(|letter| letter.is_ascii_alphabetic());
    text.parse().ok().filter(|_| is_word && !text.is_empty()).ok_or_else(|| Failure::input(wrong()))
}

/// Says each event up to a level. Our libraries open no spans, and those of others are not shown.
struct Lines {
    level: LevelFilter,
    say: fn(&str),
}

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        (self.say)(&line.text());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event in the order in which it is read: what happened, to what, and why.
#[derive(Default)]
struct Line {
    message: String,
    details: String,
    error: String,
}

impl Line {
    fn text(&self) -> String {
        let Self { message, details, error } = self;
        let details = if details.is_empty() { String::new() } else { format!(" ({details})") };
        let error = if error.is_empty() { String::new() } else { format!(": {error}") };
        format!("{message}{details}{error}")
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" => write!(self.error, "{value:?}"),
            name => {
                let comma = if self.details.is_empty() { "" } else { ", " };
                write!(self.details, "{comma}{name} {value:?}")
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// What is said of some events, of each level.
    fn said_at(level: &str) -> Vec<String> {
        let level = parse(level).expect("a level");
        let lines = Lines { level, say: |line| SAID.with_borrow_mut(|said| said.push(line.to_owned())) };
        tracing::subscriber::with_default(lines, || {
            let error = std::io::Error::other("no room");
            tracing::error!(%error, "the network is not as it was");
            tracing::warn!(action = %"ip rule add", %error, "can't be undone");
            tracing::info!(slot = 3, pid = 17, "removing what is left");
            tracing::debug!("no IPv6");
        });
        SAID.take()
    }

    #[test]
    fn an_event_is_a_line_with_what_happened_to_what_and_why() {
        let lines = [
            "the network is not as it was: no room",
            "can't be undone (action ip rule add): no room",
            "removing what is left (slot 3, pid 17)",
            "no IPv6",
        ];
        for (level, count) in [("off", 0), ("error", 1), ("warn", 2), ("INFO", 3), ("debug", 4), ("trace", 4)]
        {
            assert_eq!(said_at(level), lines[..count], "{level}");
        }
    }

    #[test]
    fn a_level_is_a_word() {
        for text in ["", "3", "all", "polypath=debug"] {
            assert!(matches!(parse(text), Err(Failure::Input(_))), "{text}");
        }
    }
}
