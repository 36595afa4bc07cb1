//! What is shown and written while a stream comes.

use polypath_fetch::streaming::{Summary, Told};
use polypath_system::console;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::range_ways::Ways;
use super::super::shares::Shares;
use super::super::watch::Telling;
use super::super::words::and;
use super::super::{Failure, harmless, print_line};
use super::events::Events;
use super::folder::Folder;
use super::record::Record;
use super::state::Figures;

/// A stream as people and programs see it.
pub(super) struct Shown {
    folder: Folder,
    ways: Ways,
    events: Events,
    figures: Figures,
    record: Record,
    telling: Telling,
    /// Where it can be played, until it is known that it can.
    offer: Option<String>,
    /// By path: it was connected, and it was told that it is lost.
    paths: Vec<(bool, bool)>,
    /// What could not be written. The stream ends with it.
    failure: Option<Failure>,
}

impl Shown {
    pub(super) fn new(title: &str, folder: Folder, ways: Ways, events: Events, telling: Telling) -> Self {
        let figures = Figures::new(title.into());
        let record = Record::new();
        Self { folder, ways, events, figures, record, telling, offer: None, paths: Vec::new(), failure: None }
    }

    /// With a line that tells where it can be played.
    pub(super) fn offering(self, offer: Option<String>) -> Self {
        Self { offer, ..self }
    }

    /// Something happened. `failed` is told when it can't be written.
    pub(super) fn tell(&mut self, told: &Told, failed: &Notify) {
        if self.failure.is_some() {
            return;
        }
        if let Err(failure) = self.write(told) {
            self.failure = Some(failure);
            failed.notify_one();
        }
    }

    fn write(&mut self, told: &Told) -> Result<(), Failure> {
        let name = |path: usize| self.ways.name(path);
        // One that failed once more was told.
        let is_old = |path: &usize| {
            self.paths.get(*path).is_some_and(|(was_connected, was_lost)| !was_connected || *was_lost)
        };
        if !matches!(told, Told::Lost { path, .. } if is_old(path)) {
            self.events.tell(told, name)?;
        }
        self.record.note(told, name);
        match told {
            Told::Begun(presentation) => {
                self.figures.begin(presentation);
                self.folder.begin(presentation)?;
                if let Some(offer) = self.offer.take() {
                    print_line(&offer)?;
                }
            }
            Told::Connected { path } => self.note_connected(*path, true, None),
            Told::Lost { path, cause } => self.note_connected(*path, false, Some(cause)),
            Told::Bytes { path, bytes } => self.figures.note_bytes(*path, *bytes, name),
            Told::Chosen { quality, .. } => self.figures.note_quality(*quality),
            Told::Segment(segment) => self.folder.add(segment)?,
            Told::LeftOut { cause } => self.telling.tell(&format!("a segment is left out: {cause}")),
            Told::Notice(notice) => self.telling.tell(notice),
            Told::Now(now) => {
                self.figures.note_now(*now);
                self.events.write("now", &self.figures.now_json())?;
            }
            Told::Player(_) => {}
        }
        Ok(())
    }

    fn note_connected(&mut self, path: usize, is_connected: bool, cause: Option<&str>) {
        self.figures.note_connected(path, is_connected, |path| self.ways.name(path));
        self.ways.note_connected(self.figures.connected());
        if self.paths.len() <= path {
            self.paths.resize(path + 1, (false, false));
        }
        let (was_connected, was_lost) = &mut self.paths[path];
        match (is_connected, cause) {
            (true, _) if std::mem::take(was_lost) => {
                self.telling.tell(&format!("{} is back", self.ways.name(path)));
            }
            (true, _) => *was_connected = true,
            // One that failed once more was told.
            (false, Some(cause)) if *was_connected && !*was_lost => {
                *was_lost = true;
                self.telling.tell(cause);
            }
            (false, _) => {}
        }
    }

    /// A second has passed.
    pub(super) fn note_second(&mut self) -> Result<(), Failure> {
        self.folder.flush()?;
        let figures = self.figures.second();
        if !self.figures.is_complete() {
            self.record.note_lead(self.figures.lead_s());
        }
        self.folder.write("state.json", figures.to_string().as_bytes())
    }

    /// All is there, or nothing follows.
    pub(super) fn end(&mut self, summary: Option<&Summary>) -> Result<(), Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.folder.end()?;
        self.figures.note_complete();
        match summary {
            Some(summary) => self.events.write("summary", &self.summary_json(summary)),
            None => Ok(()),
        }
    }

    /// What was seen, for a report.
    pub(super) const fn record(&self) -> &Record {
        &self.record
    }

    fn summary_json(&self, summary: &Summary) -> Value {
        let paths = self.figures.bytes().into_iter();
        let paths: Vec<Value> =
            paths.map(|(interface, bytes)| json!({ "interface": interface, "bytes": bytes })).collect();
        json!({
            "segments_by_quality": summary.segments,
            "left_out": summary.left_out,
            "startup_s": summary.startup.map(|time| time.as_secs_f64()),
            "stalls": summary.stalls,
            "stalled_s": summary.stalled_for.as_secs_f64(),
            "interfaces": paths,
        })
    }

    /// In words: which qualities came, whether somebody had to wait, and what came over which interface.
    pub(super) fn tell_summary(&self, name: &str, summary: &Summary) {
        let all: u64 = summary.segments.iter().sum();
        let used = summary.segments.iter().enumerate().rev().filter(|(_, count)| **count > 0);
        let qualities: Vec<String> = used
            .map(|(quality, count)| {
                let label = self.figures.label(quality);
                format!("{} % in {}", (count * 100 + all / 2) / all.max(1), harmless(label))
            })
            .collect();
        let qualities: Vec<&str> = qualities.iter().map(String::as_str).collect();
        let stalls = match summary.stalls {
            0 => "no stall".into(),
            1 => format!("1 stall of {:.1} s", summary.stalled_for.as_secs_f64()),
            count => format!("{count} stalls, {:.1} s in all", summary.stalled_for.as_secs_f64()),
        };
        let began = summary.startup.map_or_else(
            || "never began".into(),
            |time| format!("could begin after {:.1} s", time.as_secs_f64()),
        );
        console::tell(format_args!("{}: {}; {began}; {stalls}", harmless(name), and(&qualities)));
        let bytes = self.figures.bytes();
        let alone = || match (summary.is_whole, self.paths.len()) {
            (true, 2..) => "the server gives no ranges".into(),
            (false, 2..) => "the others brought nothing".into(),
            _ => self.ways.why_no_other(bytes.first().map_or("", |(name, _)| name)),
        };
        let one_path_only = (bytes.len() == 1).then(alone);
        if let Some(shares) = Shares::of_interfaces(&bytes, false, one_path_only) {
            console::tell(shares);
        }
    }
}
