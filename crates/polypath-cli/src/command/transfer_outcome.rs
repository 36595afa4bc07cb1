//! What became of a transfer, as reports have it.

use std::time::Instant;

use polypath_fetch::playback::{History, Playback};
use serde::Serialize;

use super::rates::Rates;
use super::shares::Shares;

/// What became of all of it.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// Tun, udp, kernel, tcp, or ranges; none if none was started.
    pub(super) engine: Option<&'static str>,
    pub(super) files: Vec<FileOutcome>,
    /// None if nothing left this machine.
    pub(super) shares: Option<Shares>,
    /// Why connections were plain TCP.
    pub(super) fallback: Option<String>,
    /// Why the command failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip)]
    pub(super) begun: Instant,
    #[serde(skip)]
    pub(super) rates: Rates,
}

/// What became of a file.
#[derive(Debug, Serialize)]
pub(super) struct FileOutcome {
    pub(super) from: String,
    pub(super) to: String,
    /// That went over the network this time.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Both ends have the same sum.
    pub(super) sha256_verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    /// None of what was sent, or if nothing came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) playback: Option<PlaybackOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip)]
    pub(super) started: Instant,
    /// Of the first files only.
    #[serde(skip)]
    pub(super) history: Option<Box<History>>,
}

/// What the file was for somebody who reads it while it comes.
#[derive(Debug, Serialize)]
pub(super) struct PlaybackOutcome {
    /// The long-term sustainable rate, at which the other figures are.
    pub(super) sustainable_bps: f64,
    pub(super) startup_latency_seconds: f64,
    pub(super) required_buffer_bytes: u64,
    pub(super) most_blocked_bytes: u64,
    pub(super) mean_blocked_bytes: f64,
}

impl From<Playback> for PlaybackOutcome {
    fn from(playback: Playback) -> Self {
        Self {
            sustainable_bps: playback.bytes_per_second * 8.0,
            startup_latency_seconds: playback.startup_latency.as_secs_f64(),
            required_buffer_bytes: playback.required_buffer_bytes,
            most_blocked_bytes: playback.most_blocked_bytes,
            mean_blocked_bytes: playback.mean_blocked_bytes,
        }
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            engine: None,
            files: Vec::new(),
            shares: None,
            fallback: None,
            error: None,
            begun: Instant::now(),
            rates: Rates::new(),
        }
    }
}
