//! The figures that the page shows: of now, and of the last minutes.

use std::collections::VecDeque;
use std::time::Instant;

use polypath_fetch::manifest::{Presentation, Quality};
use polypath_fetch::stream::State;
use polypath_fetch::streaming::Now;
use serde::Serialize;
use serde_json::Value;

use super::events::word;

/// So many seconds are shown.
const REMEMBERED: usize = 120;

/// What is known of the stream.
pub(super) struct Figures {
    began: Instant,
    title: String,
    is_live: bool,
    is_complete: bool,
    qualities: Vec<QualityFigures>,
    quality: Option<usize>,
    now: Option<(Now, Instant)>,
    began_after_s: Option<f64>,
    paths: Vec<PathFigures>,
    history: VecDeque<Second>,
    last_second: Instant,
}

#[derive(Clone, Debug, Serialize)]
struct QualityFigures {
    label: String,
    bit_rate_bps: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct PathFigures {
    name: String,
    is_connected: bool,
    bytes: u64,
    rate_bps: f64,
    #[serde(skip)]
    bytes_before: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Second {
    at_s: f64,
    /// None of one that is not connected.
    paths_bps: Vec<Option<f64>>,
    quality_bps: u64,
    lead_s: f64,
}

/// What a quality is called: its picture's size, or its rate.
pub(super) fn label(quality: &Quality) -> String {
    match quality.resolution() {
        Some(resolution) => resolution.to_string(),
        None => format!("{:.1} Mbit/s", quality.bit_rate().as_mbps_f64()),
    }
}

impl Figures {
    pub(super) fn new(title: String) -> Self {
        let now = Instant::now();
        Self {
            began: now,
            title,
            is_live: false,
            is_complete: false,
            qualities: Vec::new(),
            quality: None,
            now: None,
            began_after_s: None,
            paths: Vec::new(),
            history: VecDeque::new(),
            last_second: now,
        }
    }

    pub(super) fn begin(&mut self, presentation: &Presentation) {
        self.is_live = presentation.is_live();
        let qualities = presentation.main().qualities().iter();
        self.qualities = qualities
            .map(|quality| QualityFigures {
                label: label(quality),
                bit_rate_bps: quality.bit_rate().as_bps(),
            })
            .collect();
    }

    pub(super) fn label(&self, quality: usize) -> &str {
        self.qualities.get(quality).map_or("", |quality| &quality.label)
    }

    pub(super) fn note_quality(&mut self, quality: usize) {
        self.quality = Some(quality);
    }

    pub(super) fn note_now(&mut self, now: Now) {
        if now.state != State::Starting {
            self.began_after_s.get_or_insert(self.began.elapsed().as_secs_f64());
        }
        self.now = Some((now, Instant::now()));
    }

    pub(super) fn note_complete(&mut self) {
        self.is_complete = true;
    }

    /// A path by its number, which may be new.
    fn path(&mut self, number: usize, name: impl Fn(usize) -> String) -> &mut PathFigures {
        while self.paths.len() <= number {
            let name = name(self.paths.len());
            self.paths.push(PathFigures { name, ..PathFigures::default() });
        }
        &mut self.paths[number]
    }

    pub(super) fn note_connected(&mut self, path: usize, is_connected: bool, name: impl Fn(usize) -> String) {
        self.path(path, name).is_connected = is_connected;
    }

    pub(super) fn note_bytes(&mut self, path: usize, bytes: u64, name: impl Fn(usize) -> String) {
        self.path(path, name).bytes += bytes;
    }

    pub(super) fn connected(&self) -> usize {
        self.paths.iter().filter(|path| path.is_connected).count()
    }

    /// By interface, of those that brought something.
    pub(super) fn bytes(&self) -> Vec<(String, u64)> {
        let used = self.paths.iter().filter(|path| path.bytes > 0);
        used.map(|path| (path.name.clone(), path.bytes)).collect()
    }

    /// What is there to play now, and how much was played.
    fn lead_and_played(&self) -> (f64, f64) {
        let Some((now, at)) = &self.now else { return (0.0, 0.0) };
        let (lead, played) = (now.lead.as_secs_f64(), now.played.as_secs_f64());
        let passed = if now.state == State::Playing { at.elapsed().as_secs_f64().min(lead) } else { 0.0 };
        (lead - passed, played + passed)
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What is there to play now.
    pub(super) fn lead_s(&self) -> f64 {
        self.lead_and_played().0
    }

    /// How it goes, and what each interface has brought, as an event has it.
    pub(super) fn now_json(&self) -> Value {
        let Some((now, _)) = &self.now else { return Value::Null };
        let path = |path: &PathFigures| {
            serde_json::json!({
                "interface": path.name, "is_connected": path.is_connected, "bytes": path.bytes
            })
        };
        serde_json::json!({
            "state": word(now.state),
            "lead_s": round(now.lead.as_secs_f64()),
            "played_s": round(now.played.as_secs_f64()),
            "stalls": now.stalls,
            "stalled_s": round(now.stalled_for.as_secs_f64()),
            "throughput_bps": now.throughput.map(|rate| rate.as_bps()),
            "behind_live_s": now.behind_live.map(|behind| round(behind.as_secs_f64())),
            "interfaces": self.paths.iter().map(path).collect::<Vec<_>>(),
        })
    }

    /// A second has passed. Gives what the page reads.
    pub(super) fn second(&mut self) -> Value {
        let span = self.last_second.elapsed().as_secs_f64().max(1e-3);
        self.last_second = Instant::now();
        for path in &mut self.paths {
            path.rate_bps = ((path.bytes - path.bytes_before) as f64 * 8.0 / span).round();
            path.bytes_before = path.bytes;
        }
        let quality_bps = self.quality.and_then(|quality| self.qualities.get(quality));
        let (lead_s, played_s) = self.lead_and_played();
        self.history.push_back(Second {
            at_s: round(self.began.elapsed().as_secs_f64()),
            paths_bps: self.paths.iter().map(|path| path.is_connected.then_some(path.rate_bps)).collect(),
            quality_bps: quality_bps.map_or(0, |quality| quality.bit_rate_bps),
            lead_s: round(lead_s),
        });
        if self.history.len() > REMEMBERED {
            self.history.pop_front();
        }
        let now = self.now.map(|(now, _)| now);
        let has_ended = self.is_complete && now.is_some() && lead_s <= 0.0;
        serde_json::json!({
            "title": self.title,
            "is_live": self.is_live,
            "state": if has_ended { "ended" } else { now.map_or("starting", |now| word(now.state)) },
            "is_complete": self.is_complete,
            "lead_s": round(lead_s),
            "played_s": round(played_s),
            "stalls": now.map_or(0, |now| now.stalls),
            "stalled_s": now.map_or(0.0, |now| round(now.stalled_for.as_secs_f64())),
            "startup_s": self.began_after_s.map(round),
            "quality": self.quality,
            "qualities": self.qualities,
            "throughput_bps": now.and_then(|now| now.throughput).map(|rate| rate.as_bps()),
            "paths": self.paths,
            "history": self.history,
        })
    }
}

fn round(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}
