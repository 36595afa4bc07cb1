//! What the libraries log, as the command says it: a line on standard error for each event.

use std::env;
use std::ffi::OsString;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;

use super::complain;

/// The variable that says how much is logged, of everything or of one target each.
const VARIABLE: &str = "RUST_LOG";

/// The library of HTTP/2 warns of what peers do wrong, so that strangers decide how many lines there are. They come only if
/// somebody asks for lines.
const TOLD_BY_STRANGERS: &str = "h2";

/// More of them say no more.
const MOST: u8 = 3;

/// Helper processes say as much: so often is `-v` given to them.
static VERBOSITY: AtomicU8 = AtomicU8::new(0);

/// The options by which a helper process says as much as this one.
pub(super) fn options_for_helpers() -> Vec<OsString> {
    vec!["-v".into(); VERBOSITY.load(Ordering::Relaxed).min(MOST).into()]
}

/// What a helper process that gets no options of its own is to say, if it is to say anything.
pub(super) fn wish_for_helpers() -> Option<String> {
    let verbosity = VERBOSITY.load(Ordering::Relaxed).min(MOST);
    let is_asked = env::var_os(VARIABLE).is_some_and(|asked| !asked.is_empty());
    (verbosity > 0 || is_asked).then(|| verbosity.to_string())
}

/// Shows from now on what the libraries log: warnings and errors, more with each `-v`, and what the environment asks for.
pub(super) fn start(verbosity: u8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    let asked = env::var_os(VARIABLE).unwrap_or_default();
    let (targets, not_read) = targets(&asked.to_string_lossy(), verbosity);
    // Somebody's own command may have a subscriber already, which then has the events.
    let _ = tracing::subscriber::set_global_default(Lines { targets, say: complain });
    // It is other programs' variable, too, which know more words; nothing ends because of them.
    for directive in not_read {
        let expected = "expected LEVEL or TARGET=LEVEL, such as polypath_netsetup=debug";
        complain(&format!("{VARIABLE}: \"{directive}\" is left out; {expected}"));
    }
}

/// What is shown, and which of the words were not understood. The options raise what the variable says of everything.
fn targets(text: &str, verbosity: u8) -> (Targets, Vec<String>) {
    let from_options = match verbosity {
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut targets = Targets::new().with_default(LevelFilter::WARN);
    if verbosity == 0 && text.trim().is_empty() {
        targets = targets.with_target(TOLD_BY_STRANGERS, LevelFilter::OFF);
    }
    let mut not_read = Vec::new();
    for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        match directive.parse::<Targets>() {
            Ok(read) => match read.default_level() {
                Some(level) => targets = targets.with_default(level),
                None => targets = targets.with_targets(read),
            },
            Err(_) => not_read.push(directive.to_string()),
        }
    }
    if targets.default_level() < Some(from_options) {
        targets = targets.with_default(from_options);
    }
    (targets, not_read)
}

/// Says each event that is asked for. Our libraries open no spans, and those of others are not shown.
struct Lines {
    targets: Targets,
    say: fn(&str),
}

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.targets.would_enable(metadata.target(), metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let of_targets = self.targets.iter().map(|(_, level)| level).max();
        of_targets.max(self.targets.default_level())
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
    fn said(variable: &str, verbosity: u8) -> Vec<String> {
        let (targets, _) = targets(variable, verbosity);
        let lines = Lines { targets, say: |line| SAID.with_borrow_mut(|said| said.push(line.to_owned())) };
        tracing::subscriber::with_default(lines, || {
            let error = std::io::Error::other("no room");
            tracing::error!(%error, "the network is not as it was");
            tracing::warn!(action = %"ip rule add", %error, "can't be undone");
            tracing::info!(slot = 3, pid = 17, "removing what is left");
            tracing::debug!("no IPv6");
            tracing::trace!(target: "polypath_stack::tun", "a packet");
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
            "a packet",
        ];
        for (variable, verbosity, count) in [
            ("off", 0, 0),
            ("error", 0, 1),
            ("", 0, 2),
            ("INFO", 0, 3),
            ("", 1, 3),
            ("debug", 0, 4),
            ("off", 2, 4),
            ("trace", 1, 5),
            ("", 9, 5),
        ] {
            assert_eq!(said(variable, verbosity), lines[..count], "{variable} {verbosity}");
        }
    }

    #[test]
    fn a_target_has_a_level_of_its_own() {
        assert_eq!(said("off,polypath_stack=trace", 0), ["a packet"]);
        assert_eq!(said("polypath_stack::tun", 0).len(), 3);
        assert_eq!(said("polypath_stack=off", 3).len(), 4);
    }

    #[test]
    fn what_strangers_do_wrong_by_http2_is_no_line_unless_asked_for() {
        for (variable, verbosity, is_shown) in
            [("", 0, false), ("warn", 0, true), ("h2=warn", 0, true), ("", 1, true)]
        {
            let (targets, _) = targets(variable, verbosity);
            assert_eq!(
                targets.would_enable("h2::proto", &tracing::Level::WARN),
                is_shown,
                "{variable} {verbosity}"
            );
        }
    }

    #[test]
    fn words_that_are_not_understood_are_left_out_and_told() {
        let (read, not_read) = targets("polypath_stack=loud, info,", 0);
        assert_eq!(not_read, ["polypath_stack=loud"]);
        assert_eq!(read.default_level(), Some(LevelFilter::INFO));
    }
}
