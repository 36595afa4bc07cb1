//! `--json` and `--report` of `polypath get` and `polypath cp`: what became of each file, in one object at the end.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use polypath_fetch::playback::History;
use polypath_stack::Engine;

use super::shares::{Begun, Shares};
use super::transfer_outcome::{FileOutcome, Outcome, PlaybackOutcome};
use super::transfer_page;
use super::{Failure, check_writable, complain, harmless_json, print_json, write_file};
use crate::web::Digest;

/// Where the object goes.
#[derive(Clone, Debug, Args)]
pub(super) struct ReportArguments {
    /// Print one JSON object at the end: what became of each file, the engine, and the bytes of each interface
    #[arg(long)]
    json: bool,
    /// Write that object to FILE
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Write a page to FILE: rates, what came in order, and how soon somebody could have used it; also when something fails
    #[arg(long = "report", value_name = "FILE")]
    page: Option<PathBuf>,
}

/// What has happened so far. It outlives the work, which a signal may end anywhere.
#[derive(Debug, Default)]
pub(super) struct TransferReport {
    outcome: RefCell<Outcome>,
    /// The files that reports go to, and by which option.
    files: Vec<(&'static str, PathBuf)>,
}

impl ReportArguments {
    /// Does a transfer and says what became of it, whatever that is. `has_output` says that standard output gets a file.
    pub(super) fn report(
        &self,
        has_output: bool,
        work: impl FnOnce(&TransferReport) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.json && has_output {
            return Err(Failure::input(
                "--json: standard output gets the file already; expected --json-file FILE, or another --output",
            ));
        }
        let named = [("--json-file", &self.json_file), ("--report", &self.page)];
        let named = named.into_iter().filter_map(|(option, file)| Some((option, file.as_deref()?)));
        let report = TransferReport {
            files: named.map(|(option, file)| (option, resolved(file))).collect(),
            ..TransferReport::default()
        };
        if let [(_, one), (_, other)] = &*report.files
            && one == other
        {
            return Err(Failure::input("--report and --json-file name one file; expected two"));
        }
        [&self.json_file, &self.page].into_iter().flatten().try_for_each(|file| check_writable(file))?;
        let outcome = work(&report);
        // With --dry-run there is nothing to tell.
        if matches!(outcome, Err(Failure::Exit(0))) {
            return outcome;
        }
        let mut report = report.outcome.into_inner();
        report.error = outcome.as_ref().err().map(in_words);
        match (self.write(&report), outcome) {
            (written, Ok(())) => written,
            (Ok(()), failed) => failed,
            (Err(Failure::Input(message) | Failure::Run(message)), failed) => {
                complain(&message);
                failed
            }
            (Err(Failure::Exit(_)), failed) => failed,
        }
    }

    fn write(&self, report: &Outcome) -> Result<(), Failure> {
        // Where one can't be written, the others can.
        let page = self.page.as_ref().map_or(Ok(()), |file| write_file(file, transfer_page::page(report)));
        let object = self.json_file.as_ref().map_or(Ok(()), |file| {
            let text = serde_json::to_string_pretty(report).map_err(Failure::run)?;
            write_file(file, harmless_json(&text) + "\n")
        });
        let printed = if self.json { print_json(report) } else { Ok(()) };
        page.and(object).and(printed)
    }
}

fn in_words(failure: &Failure) -> String {
    match failure {
        Failure::Input(message) | Failure::Run(message) => message.clone(),
        Failure::Exit(_) => "interrupted".into(),
    }
}

/// A file under way.
#[derive(Debug)]
pub(super) struct Transfer {
    from: String,
    to: String,
    started: Instant,
    history: Option<Box<History>>,
}

impl Transfer {
    pub(super) fn download(url: &url::Url, place: &Path) -> Self {
        Self { from: shown(url), to: place.display().to_string(), started: Instant::now(), history: None }
    }

    /// One that began so long ago.
    pub(super) fn that_took(self, took: Duration) -> Self {
        Self { started: self.started.checked_sub(took).unwrap_or(self.started), ..self }
    }

    /// From another place than the one that was asked first, where there are several.
    pub(super) fn that_came_from(self, url: &url::Url) -> Self {
        Self { from: shown(url), ..self }
    }

    /// With when which bytes came.
    pub(super) fn with_history(self, history: Option<Box<History>>) -> Self {
        Self { history, ..self }
    }

    pub(super) fn upload(place: &Path, url: &url::Url) -> Self {
        Self { from: place.display().to_string(), to: shown(url), started: Instant::now(), history: None }
    }
}

/// A password is nobody's business.
fn shown(url: &url::Url) -> String {
    let mut url = url.clone();
    // Fails where there can't be any.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.to_string()
}

/// The same for one name in one folder, however it is written.
fn resolved(place: &Path) -> PathBuf {
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), place.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => place.into(),
    }
}

impl TransferReport {
    /// No report goes where a file does that is to come: one would replace the other.
    pub(super) fn refuse_place(&self, place: &Path) -> Result<(), Failure> {
        match self.files.iter().find(|(_, file)| *file == resolved(place)) {
            Some((option, _)) => {
                let place = place.display();
                Err(Failure::Input(format!(
                    "{place} is the file of {option}, too; expected another name for one"
                )))
            }
            None => Ok(()),
        }
    }

    /// Takes note of what carries the connections.
    pub(super) fn note_engine(&self, name: &'static str) {
        self.outcome.borrow_mut().engine = Some(name);
    }

    /// Takes note of a file: `bytes` went over the network. A sum is that of both ends; none was compared if it is none.
    pub(super) fn note(&self, file: Transfer, bytes: u64, result: Result<Option<Digest>, &Failure>) {
        let (digest, error) = match result {
            Ok(digest) => (digest, None),
            Err(failure) => (None, Some(in_words(failure))),
        };
        let mut outcome = self.outcome.borrow_mut();
        let playback = file.history.as_ref().and_then(|history| history.playback(None));
        let is_drawn = outcome.files.len() < transfer_page::MOST_DRAWN;
        outcome.files.push(FileOutcome {
            from: file.from,
            to: file.to,
            bytes,
            seconds: file.started.elapsed().as_secs_f64(),
            sha256_verified: digest.is_some(),
            sha256: digest.map(Digest::to_hex),
            playback: playback.map(PlaybackOutcome::from),
            error,
            started: file.started,
            history: file.history.filter(|history| is_drawn && history.end().is_some()),
        });
    }

    /// Takes note of bytes that came over an interface now, and that no engine carried.
    pub(super) fn note_bytes(&self, interface: &str, bytes: u64) {
        self.outcome.borrow_mut().rates.note(interface, bytes);
    }

    /// Takes note of what went over each interface, of bytes that no engine carried.
    pub(super) fn note_range_shares(&self, shares: Shares) {
        self.outcome.borrow_mut().shares = Some(shares);
    }

    /// Takes note of what went over each interface.
    pub(super) fn note_shares(&self, begun: &Begun, engine: &Engine) {
        let mut report = self.outcome.borrow_mut();
        report.shares = begun.shares(engine);
        report.fallback = begun.fallback(engine);
        if let Some(rates) = begun.rates(engine) {
            report.rates = rates;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written of some work.
    fn written(work: impl FnOnce(&TransferReport) -> Result<(), Failure>) -> (Option<u8>, serde_json::Value) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("report.json");
        let arguments = ReportArguments { json: false, json_file: Some(file.clone()), page: None };
        let code = match arguments.report(true, work) {
            Ok(()) => Some(0),
            Err(Failure::Exit(code)) => Some(code),
            Err(_) => None,
        };
        let text = std::fs::read_to_string(file).expect("a report");
        (code, serde_json::from_str(&text).expect("JSON"))
    }

    #[test]
    fn an_end_by_a_signal_is_told_too() {
        let (code, report) = written(|report| {
            report.note_engine("udp");
            let url = url::Url::parse("http://192.0.2.1/a").expect("a URL");
            let file = Transfer::download(&url, Path::new("a"));
            report.note(file, 7, Err(&Failure::Exit(130)));
            Err(Failure::Exit(130))
        });
        assert_eq!(
            (code, &report["error"], &report["engine"]),
            (Some(130), &"interrupted".into(), &"udp".into())
        );
        let file = &report["files"][0];
        assert_eq!((&file["bytes"], &file["error"]), (&7.into(), &"interrupted".into()));
    }

    #[test]
    fn a_page_tells_of_an_end_by_a_signal_and_of_what_came_until_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("report.html");
        let arguments = ReportArguments { json: false, json_file: None, page: Some(file.clone()) };
        let ended = arguments.report(false, |report| {
            report.note_engine("ranges");
            report.note_bytes("wifi <5 GHz>", 1500);
            let at = |millis| polypath_units::Instant::ZERO + polypath_units::Duration::from_millis(millis);
            let mut history = History::new(at(0));
            history.note(at(1000), 1000..2000);
            history.note(at(2000), 0..500);
            let url = url::Url::parse("http://me:secret@192.0.2.1/a").expect("a URL");
            let transfer = Transfer::download(&url, Path::new("a")).that_took(Duration::from_secs(2));
            report.note(transfer.with_history(Some(Box::new(history))), 1500, Err(&Failure::Exit(130)));
            Err(Failure::Exit(130))
        });
        assert!(matches!(ended, Err(Failure::Exit(130))));
        let page = std::fs::read_to_string(file).expect("a page");
        // At 750 bytes a second: the first byte after two seconds; 1500 bytes are played then, and 1000 wait.
        for part in [
            "It was interrupted",
            "<td>2.00</td>",
            "<td>2.5 kB</td>",
            "<td>1.0 kB</td>",
            "wifi &lt;5 GHz&gt;",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("secret"), "{page}");
    }

    #[test]
    fn standard_output_has_room_for_one_thing() {
        let arguments = ReportArguments { json: true, json_file: None, page: None };
        let refused = arguments.report(true, |_| panic!("it does not begin"));
        assert!(matches!(refused, Err(Failure::Input(message)) if message.contains("--json-file")));
    }
}
