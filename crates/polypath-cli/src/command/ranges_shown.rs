//! What a download in ranges shows while it lasts, and what went over each interface.

use std::time::Instant;

use indicatif::ProgressBar;
use polypath_fetch::download::Progress;
use polypath_fetch::playback::History;

use super::range_ways::Ways;
use super::shares::Shares;
use super::transfer::bar;
use super::transfer_report::TransferReport;
use super::watch::Telling;

/// A download while it lasts.
pub(super) struct Shown<'a> {
    name: String,
    is_bar_hidden: bool,
    telling: Telling,
    bar: Option<ProgressBar>,
    ways: Ways,
    paths: Vec<PathSeen>,
    /// The path over which all comes, and why.
    one_path: Option<(usize, &'static str)>,
    begun: Instant,
    report: &'a TransferReport,
    history: Option<Box<History>>,
}

/// A path of it.
#[derive(Debug, Default)]
struct PathSeen {
    bytes: u64,
    is_connected: bool,
    was_connected: bool,
    was_lost: bool,
    /// That it was lost.
    was_told: bool,
    cause: Option<String>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(
        name: &str,
        is_bar_hidden: bool,
        is_quiet: bool,
        ways: Ways,
        report: &'a TransferReport,
    ) -> Self {
        let telling = if is_quiet { Telling::Silent } else { Telling::OverBar };
        Self {
            name: name.into(),
            is_bar_hidden,
            telling,
            bar: None,
            ways,
            paths: Vec::new(),
            one_path: None,
            begun: Instant::now(),
            report,
            history: None,
        }
    }

    /// Calls it something else from now on.
    pub(super) fn rename(&self, name: String) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(name);
        }
    }

    /// Bytes that came so far.
    pub(super) fn bytes(&self) -> u64 {
        self.paths.iter().map(|path| path.bytes).sum()
    }

    /// When which bytes came, once it is over.
    pub(super) fn take_history(&mut self) -> Option<Box<History>> {
        self.history.take()
    }

    fn path(&mut self, number: usize) -> &mut PathSeen {
        if self.paths.len() <= number {
            self.paths.resize_with(number + 1, PathSeen::default);
        }
        &mut self.paths[number]
    }

    pub(super) fn show(&mut self, progress: Progress) {
        match progress {
            Progress::Begun { present_bytes, total_bytes } => {
                let bar = bar(&self.name, total_bytes, present_bytes, self.is_bar_hidden);
                if let Some(before) = self.bar.replace(bar) {
                    before.finish_and_clear();
                }
            }
            Progress::Bytes { path, bytes } => {
                self.path(path).bytes += bytes;
                self.report.note_bytes(&self.ways.name(path), bytes);
                if let Some(bar) = &self.bar {
                    bar.inc(bytes);
                }
            }
            Progress::Connected { path } => {
                let seen = self.path(path);
                let is_back = std::mem::take(&mut seen.was_told);
                (seen.is_connected, seen.was_connected, seen.was_lost) = (true, true, false);
                self.note_connected();
                if is_back {
                    self.telling.tell(&format!("{} is back", self.ways.name(path)));
                }
            }
            Progress::Lost { path, cause } => self.lose(path, cause),
            Progress::OnePath { path, cause } => self.one_path = Some((path, cause)),
            Progress::Over(history) => self.history = Some(history),
            Progress::Notice(notice) => self.telling.tell(&notice),
        }
    }

    fn lose(&mut self, path: usize, cause: String) {
        let seen = self.path(path);
        // One that failed once more was told.
        let is_news = seen.was_connected && !seen.was_lost;
        seen.is_connected = false;
        seen.was_lost |= seen.was_connected;
        seen.cause = Some(cause.clone());
        self.note_connected();
        // Where nothing came at all, the failure says why.
        let backup = self.ways.backup();
        if is_news && (self.paths.len() > 1 || backup.is_some()) && self.bytes() > 0 {
            self.path(path).was_told = true;
            let others = self.paths.iter().enumerate().filter(|(_, other)| other.is_connected);
            let others: Vec<String> = others.map(|(number, _)| self.ways.name(number)).collect();
            let rest = match (others.join(" and "), backup) {
                (names, Some(backup)) if names.is_empty() && backup != self.ways.name(path) => {
                    format!("{backup} is the backup, and is asked next")
                }
                (names, _) if names.is_empty() => "no other is there for now".to_string(),
                (names, _) => format!("{names} {}", if others.len() == 1 { "goes on" } else { "go on" }),
            };
            self.telling.tell(&format!("{cause}; {rest}"));
        }
    }

    fn note_connected(&self) {
        self.ways.note_connected(self.paths.iter().filter(|path| path.is_connected).count());
    }

    /// What went over each interface; none if nothing has, or the download was from this host.
    pub(super) fn shares(&self) -> Option<Shares> {
        let named = |number: usize| self.ways.name(number);
        let used = self.paths.iter().enumerate().filter(|(_, path)| path.bytes > 0);
        let bytes: Vec<(String, u64)> = used.map(|(number, path)| (named(number), path.bytes)).collect();
        let unused: Vec<(usize, &PathSeen)> =
            self.paths.iter().enumerate().filter(|(_, path)| path.bytes == 0).collect();
        let has_bytes = |number: usize| self.paths.get(number).is_some_and(|path| path.bytes > 0);
        let one = self.one_path.filter(|(number, _)| self.paths.len() > 1 && has_bytes(*number));
        let lost = || unused.iter().find_map(|(_, path)| path.cause.clone());
        let cause = one.map(|(_, cause)| cause.to_string()).or_else(lost);
        let cause = cause.unwrap_or_else(|| match unused.first() {
            Some((number, _)) => format!("{} did not help", named(*number)),
            None => self.ways.why_no_other(bytes.first().map_or("", |(name, _)| name)),
        });
        let was_lost = |path: &PathSeen| path.cause.is_some();
        let is_whole = !self.paths.iter().any(was_lost) && self.begun.elapsed().as_millis() > 1000;
        Shares::of_interfaces(&bytes, is_whole, (bytes.len() == 1).then_some(cause))
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
