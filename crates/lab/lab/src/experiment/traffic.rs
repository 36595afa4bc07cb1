//! What an experiment sends, and that the file says nothing of what it does not send.

use polypath_config::quantity::Size;
use polypath_config::{FileError, Source};
use polypath_units::{BitRate, Duration};

use super::file::{BlockRate, TrafficFile, TrafficWord};
use super::{Pace, Traffic, defaults};
use crate::aggregate::LEAST_BYTES;
use crate::run::{DatagramTraffic, Player, StreamTraffic};

/// An Ethernet's; what is larger would not cross a path whole.
const MOST_PACKET_BYTES: u64 = 1500;

impl TrafficWord {
    /// As the file has it, and the keys beside it that it looks at.
    const fn keys(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Bulk => ("bulk", &["duration"]),
            Self::Transfer => ("transfer", &["bytes", "timeout"]),
            Self::Blocks => ("blocks", &["block", "rate", "load", "duration"]),
            Self::Requests => ("requests", &["request", "response", "count", "timeout"]),
            Self::Download => ("download", &["bytes", "timeout", "playback", "startup"]),
            Self::Stream => ("stream", &["duration", "held", "timeout"]),
            Self::Datagrams => ("datagrams", &["rate", "packet", "duration", "burst", "redrawn"]),
        }
    }
}

/// A key that the kind of traffic has not would be taken for something that it does.
fn no_other_keys(source: Source<'_>, file: &TrafficFile) -> Result<(), FileError> {
    let TrafficFile { kind, duration, bytes, timeout, block, rate, load, request, response, .. } = file;
    let TrafficFile { count, playback, startup, held, packet, burst, redrawn, .. } = file;
    let (name, known) = kind.keys();
    let given = [
        ("duration", duration.is_some()),
        ("bytes", bytes.is_some()),
        ("timeout", timeout.is_some()),
        ("block", block.is_some()),
        ("rate", rate.is_some()),
        ("load", load.is_some()),
        ("request", request.is_some()),
        ("response", response.is_some()),
        ("count", count.is_some()),
        ("playback", playback.is_some()),
        ("startup", startup.is_some()),
        ("held", held.is_some()),
        ("packet", packet.is_some()),
        ("burst", burst.is_some()),
        ("redrawn", redrawn.is_some()),
    ];
    match given.iter().find(|(key, is_given)| *is_given && !known.contains(key)) {
        None => Ok(()),
        Some((key, _)) => {
            let message = format!("is nothing of kind \"{name}\"; expected none, or {}", known.join(", "));
            Err(source.wrong(format!("traffic.{key}"), message))
        }
    }
}

pub(super) fn traffic(source: Source<'_>, file: &TrafficFile) -> Result<Traffic, FileError> {
    no_other_keys(source, file)?;
    let missing = |key: &str, example: &str| {
        source.wrong("traffic", format!("no {key}; expected {key} = \"{example}\""))
    };
    let above_zero = |span: Duration, key: &str| match span.is_zero() {
        true => {
            Err(source.wrong(format!("traffic.{key}"), "no time to send; expected a time such as \"60s\""))
        }
        false => Ok(span),
    };
    let timeout = above_zero(file.timeout.map_or(defaults::TIMEOUT, |span| span.0), "timeout")?;
    // A movie takes as long as it plays at least.
    let stream_timeout = || match file.timeout {
        Some(_) => Ok(timeout),
        None => Ok(file.duration.map_or(timeout, |span| span.0 * 2 + timeout)),
    };
    let duration = || {
        let span = file.duration.ok_or_else(|| missing("duration", "60s"))?;
        above_zero(span.0, "duration")
    };
    let size = |size: Option<Size>, key: &str| match size {
        None => Err(missing(key, "64KB")),
        Some(Size(0)) => {
            Err(source.wrong(format!("traffic.{key}"), "nothing to send; expected a size above zero"))
        }
        Some(Size(bytes)) => Ok(bytes),
    };
    Ok(match file.kind {
        TrafficWord::Bulk => Traffic::Bulk { duration: duration()? },
        TrafficWord::Transfer => Traffic::Transfer { bytes: size(file.bytes, "bytes")?, timeout },
        TrafficWord::Download => {
            let player = match (file.playback, file.startup) {
                (Some(rate), Some(startup)) => Some(Player { rate: rate.0, startup: startup.0 }),
                (None, None) => None,
                (Some(_), None) => return Err(missing("startup", "3s")),
                (None, Some(_)) => return Err(missing("playback", "6.4mbit")),
            };
            Traffic::Download { bytes: size(file.bytes, "bytes")?, timeout, player }
        }
        TrafficWord::Stream => {
            let held = file.held.ok_or_else(|| missing("held", "4s"))?;
            let buffer = above_zero(held.0, "held")?;
            Traffic::Stream(StreamTraffic { duration: duration()?, buffer, timeout: stream_timeout()? })
        }
        TrafficWord::Datagrams => {
            let rate = match file.rate {
                Some(BlockRate::At(rate)) if rate.0 > BitRate::ZERO => rate.0,
                Some(_) => {
                    let message = "sends nothing, or everything; expected a rate such as \"6mbit\"";
                    return Err(source.wrong("traffic.rate", message));
                }
                None => return Err(missing("rate", "6mbit")),
            };
            let packet_bytes = size(file.packet, "packet")?;
            if !(LEAST_BYTES as u64..=MOST_PACKET_BYTES).contains(&packet_bytes) {
                let message = format!(
                    "does not fit a packet; expected {LEAST_BYTES}B to {MOST_PACKET_BYTES}B, headers included"
                );
                return Err(source.wrong("traffic.packet", message));
            }
            let burst_bytes = file.burst.map(|_| size(file.burst, "burst")).transpose()?;
            let redrawn = file.redrawn.map(|span| above_zero(span.0, "redrawn")).transpose()?;
            let duration = duration()?;
            Traffic::Datagrams(DatagramTraffic { rate, packet_bytes, duration, burst_bytes, redrawn })
        }
        TrafficWord::Blocks => {
            let pace = match (file.rate, file.load) {
                (Some(BlockRate::At(rate)), None) => Pace::Rate(rate.0),
                (Some(BlockRate::Unlimited), None) => Pace::Unlimited,
                (None, Some(load)) => Pace::Load(load.0),
                _ => {
                    return Err(
                        source.wrong("traffic", "how often blocks are made; expected either rate or load")
                    );
                }
            };
            Traffic::Blocks { block_bytes: size(file.block, "block")?, pace, duration: duration()? }
        }
        TrafficWord::Requests => Traffic::Requests {
            request_bytes: size(file.request, "request")?,
            response_bytes: size(file.response, "response")?,
            count: file
                .count
                .filter(|count| *count > 0)
                .ok_or_else(|| source.wrong("traffic", "how many requests; expected count = 100"))?,
            timeout,
        },
    })
}
