//! What happens, as lines of JSON.

use std::time::Instant;

use polypath_fetch::stream::State;
use polypath_fetch::streaming::Told;
use serde_json::{Value, json};

use super::super::{Failure, harmless_json, print_line};

/// Standard output, if somebody wants to read it there.
pub(super) struct Events {
    is_wanted: bool,
    began: Instant,
}

impl Events {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self { is_wanted, began: Instant::now() }
    }

    /// One line: what happened, when, and what belongs to it.
    pub(super) fn write(&self, event: &str, more: &Value) -> Result<(), Failure> {
        if !self.is_wanted {
            return Ok(());
        }
        let at_s = (self.began.elapsed().as_secs_f64() * 1e3).round() / 1e3;
        let mut line = json!({ "event": event, "at_s": at_s });
        if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
            line.extend(more.clone());
        }
        print_line(&harmless_json(&line.to_string()))
    }

    pub(super) fn tell(&self, told: &Told, name: impl Fn(usize) -> String) -> Result<(), Failure> {
        match told {
            Told::Begun(presentation) => {
                let qualities = presentation.main().qualities().iter();
                let qualities: Vec<Value> = qualities
                    .map(|quality| {
                        json!({
                            "bit_rate_bps": quality.bit_rate().as_bps(),
                            "resolution": quality.resolution().map(|size| format!("{}x{}", size.width(), size.height())),
                            "codecs": quality.codecs(),
                        })
                    })
                    .collect();
                self.write("begun", &json!({ "is_live": presentation.is_live(), "qualities": qualities }))
            }
            Told::Connected { path } => self.write("connected", &json!({ "interface": name(*path) })),
            Told::Lost { path, cause } => {
                self.write("lost", &json!({ "interface": name(*path), "cause": cause }))
            }
            Told::Chosen { quality, bit_rate, throughput, lead } => self.write(
                "quality",
                &json!({
                    "quality": quality,
                    "bit_rate_bps": bit_rate.as_bps(),
                    "throughput_bps": throughput.map(|rate| rate.as_bps()),
                    "lead_s": lead.as_secs_f64(),
                }),
            ),
            Told::Segment(segment) => self.write(
                "segment",
                &json!({
                    "track": super::folder::word(segment.track),
                    "start_s": segment.segment.start().as_secs_f64(),
                    "duration_s": segment.segment.duration().as_secs_f64(),
                    "bytes": segment.bytes.len(),
                    "bit_rate_bps": segment.quality.bit_rate().as_bps(),
                }),
            ),
            Told::LeftOut { cause } => self.write("left-out", &json!({ "cause": cause })),
            Told::Player(state) => self.write("player", &json!({ "state": word(*state) })),
            Told::Notice(notice) => self.write("notice", &json!({ "notice": notice })),
            Told::Bytes { .. } | Told::Now(_) => Ok(()),
        }
    }
}

/// A player's state in the words of the figures.
pub(super) const fn word(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Playing => "playing",
        State::Stalled => "stalled",
        State::Ended => "ended",
    }
}
