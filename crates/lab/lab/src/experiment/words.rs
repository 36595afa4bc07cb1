//! Parts of an experiment, as people read them.

use std::fmt::{self, Write};

use polypath_units::Duration;

use super::{NamedSet, Pace, Traffic};
use crate::run::{DatagramTraffic, Player, RateChange, StreamTraffic};

impl NamedSet {
    /// `10 Mbit/s, 20 ms, queue 50 ms, loss 1 %`, path by path.
    #[must_use]
    pub fn words(&self) -> String {
        let mut text = String::new();
        for path in &self.set.paths {
            let separator = if text.is_empty() { "" } else { "; " };
            let (rate, rtt_ms, queue_ms) =
                (path.rate.as_mbps_f64(), path.rtt.as_millis_f64(), path.queue.as_millis_f64());
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{rate:.2} Mbit/s, {rtt_ms:.0} ms, queue {queue_ms:.0} ms");
            if path.loss > 0.0 {
                let _ = write!(text, ", loss {:.2} %", path.loss * 100.0);
            }
            if let Some(RateChange { after, rate }) = path.change {
                let _ = write!(text, ", after {} s {:.2} Mbit/s", after.as_secs_f64(), rate.as_mbps_f64());
            }
        }
        for level in &self.levels {
            let _ = write!(text, "; {} {}", level.parameter, level.text);
        }
        text
    }

    /// Its levels of these parameters; none if it lacks one.
    pub(crate) fn level_of(&self, parameters: &[&str]) -> Option<String> {
        let level = |name: &&str| {
            let level = self.levels.iter().find(|level| level.parameter == *name)?;
            Some(level.text.as_str())
        };
        Some(parameters.iter().map(level).collect::<Option<Vec<_>>>()?.join(", "))
    }
}

impl Traffic {
    /// For how long it is sent; none of what ends with its last byte.
    #[must_use]
    pub const fn duration(&self) -> Option<Duration> {
        match *self {
            Self::Bulk { duration }
            | Self::Blocks { duration, .. }
            | Self::Datagrams(DatagramTraffic { duration, .. }) => Some(duration),
            Self::Transfer { .. } | Self::Requests { .. } | Self::Download { .. } | Self::Stream(_) => None,
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |span: Duration| span.as_secs_f64();
        match *self {
            Self::Bulk { duration } => write!(f, "bulk for {} s", seconds(duration)),
            Self::Transfer { bytes, timeout } => {
                write!(f, "transfer of {}, given up after {} s", size(bytes), seconds(timeout))
            }
            Self::Download { bytes, timeout, player } => {
                write!(f, "download of {}, ", size(bytes))?;
                if let Some(Player { rate, startup }) = player {
                    let kilobytes = rate.as_bps() as f64 / 8e3;
                    write!(f, "played at {kilobytes} kB/s after {} s, ", seconds(startup))?;
                }
                write!(f, "given up after {} s", seconds(timeout))
            }
            Self::Stream(StreamTraffic { duration, buffer, timeout }) => write!(
                f,
                "adaptive stream of {} s, of which {} s are held in advance, given up after {} s",
                seconds(duration),
                seconds(buffer),
                seconds(timeout)
            ),
            Self::Datagrams(DatagramTraffic { rate, packet_bytes, duration, redrawn, .. }) => {
                let rate = rate.as_mbps_f64();
                write!(
                    f,
                    "datagrams of {} at {rate} Mbit/s for {} s",
                    size(packet_bytes),
                    seconds(duration)
                )?;
                match redrawn {
                    Some(interval) => write!(f, ", over paths that change each {} s", seconds(interval)),
                    None => Ok(()),
                }
            }
            Self::Blocks { block_bytes, pace, duration } => {
                write!(f, "blocks of {} {pace} for {} s", size(block_bytes), seconds(duration))
            }
            Self::Requests { request_bytes, response_bytes, count, timeout } => write!(
                f,
                "{count} requests of {} and responses of {}, given up after {} s",
                size(request_bytes),
                size(response_bytes),
                seconds(timeout)
            ),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Rate(rate) => write!(f, "at {} Mbit/s", rate.as_mbps_f64()),
            Self::Load(load) => write!(f, "at {} % of what the paths carry", (load * 1e4).round() / 1e2),
            Self::Unlimited => write!(f, "as fast as they are taken"),
        }
    }
}

/// In powers of ten, as files have it.
fn size(bytes: u64) -> String {
    match bytes {
        1_000_000.. => format!("{} MB", bytes as f64 / 1e6),
        1_000.. => format!("{} kB", bytes as f64 / 1e3),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::BitRate;

    use super::*;

    #[test]
    fn traffic_is_told_with_its_duration() {
        let (duration, timeout) = (Duration::from_secs(60), Duration::from_secs(600));
        let blocks = |pace| Traffic::Blocks { block_bytes: 8000, pace, duration };
        for (traffic, words, seconds) in [
            (Traffic::Bulk { duration }, "bulk for 60 s", Some(60.0)),
            (
                Traffic::Transfer { bytes: 32_000_000, timeout },
                "transfer of 32 MB, given up after 600 s",
                None,
            ),
            (
                Traffic::Download {
                    bytes: 50_000_000,
                    timeout,
                    player: Some(Player {
                        rate: BitRate::from_bps(6_400_000),
                        startup: Duration::from_secs(3),
                    }),
                },
                "download of 50 MB, played at 800 kB/s after 3 s, given up after 600 s",
                None,
            ),
            (blocks(Pace::Load(0.2)), "blocks of 8 kB at 20 % of what the paths carry for 60 s", Some(60.0)),
            (blocks(Pace::Rate(BitRate::from_mbps(2))), "blocks of 8 kB at 2 Mbit/s for 60 s", Some(60.0)),
            (blocks(Pace::Unlimited), "blocks of 8 kB as fast as they are taken for 60 s", Some(60.0)),
            (
                Traffic::Requests { request_bytes: 100, response_bytes: 2000, count: 5, timeout },
                "5 requests of 100 bytes and responses of 2 kB, given up after 600 s",
                None,
            ),
        ] {
            assert_eq!(traffic.to_string(), words);
            assert_eq!(traffic.duration().map(Duration::as_secs_f64), seconds);
        }
    }
}
