//! Many files at the same time, in ranges where they are large.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use polypath_fetch::download::{
    DownloadError, FileEnded, ManyEvent, Options, Progress, Wanted, download_many,
};
use polypath_system::console;

use super::network::Interruption;
use super::range_job::{Job, sha256};
use super::range_ways::{Offer, Ways, is_here};
use super::ranges_shown::Shown;
use super::transfer::{Place, bytes_in_time, file_name, place_of};
use super::transfer_report::{Transfer, TransferReport};
use super::{Failure, complain};

/// Files, and where they go.
pub(super) struct Many {
    files: Vec<Wanted>,
    most_at_once: usize,
    is_quiet: bool,
}

/// What became of them.
#[derive(Default)]
struct Outcome {
    /// Numbers, and what failed.
    failures: Vec<(usize, String)>,
    done: usize,
    bytes: u64,
    is_interrupted: bool,
}

impl Many {
    /// Each gets the last name of its URL.
    pub(super) fn new(job: &Job<'_>, most_at_once: u16) -> Result<Self, Failure> {
        let mut names = HashSet::new();
        let mut files = Vec::new();
        for url in job.urls {
            let name = file_name(url).unwrap_or_else(|| "index.html".into());
            let wrong = |problem: String| Failure::Input(format!("{name}: {problem}"));
            let place = match place_of(PathBuf::from(&name)) {
                Ok(Place::File(place)) => place,
                Ok(Place::Stream(_)) => return Err(wrong("is no file; expected one, or none yet".into())),
                Err(error) => return Err(wrong(format!("can't be written: {error}"))),
            };
            if !names.insert(place.clone()) {
                return Err(wrong("two URLs have this name; expected one for each file".into()));
            }
            files.push(Wanted { url: url.clone(), place, resume: job.resume });
        }
        Ok(Self { files, most_at_once: most_at_once.into(), is_quiet: job.is_quiet })
    }

    pub(super) async fn get(
        self,
        options: &Options,
        offer: &Offer,
        interruption: &Interruption,
        report: &TransferReport,
    ) -> Result<(), Failure> {
        let (started, count, is_quiet, most_at_once) =
            (Instant::now(), self.files.len(), self.is_quiet, self.most_at_once);
        self.files.iter().try_for_each(|file| report.refuse_place(&file.place))?;
        let mut outcome = Outcome::default();
        // No interface leads to this host itself.
        let (here, elsewhere): (Vec<_>, Vec<_>) = self.files.into_iter().partition(|file| is_here(&file.url));
        let groups = [elsewhere, here].into_iter().filter(|files| !files.is_empty());
        let mut shares = None;
        for files in groups {
            let (ways, coming) = Ways::to(&files[0].url, offer).await;
            let name = format!("{count} files");
            let mut shown = Shown::new(&name, is_quiet, is_quiet, ways, report);
            shown.show(Progress::Begun { present_bytes: outcome.bytes, total_bytes: None });
            let told = files.clone();
            let outcome = &mut outcome;
            let fetched = interruption.hold(async |signal| {
                let tell = |event| match event {
                    ManyEvent::Progress(progress) => shown.show(progress),
                    ManyEvent::Ended(ended) => {
                        outcome.note(&told[ended.number], ended, report);
                        shown.rename(format!("{} of {count} files", outcome.done));
                    }
                };
                download_many(files, most_at_once, options.clone(), coming, signal.wait(), tell).await;
            });
            fetched.await;
            shares = shares.or_else(|| shown.shares());
            if outcome.is_interrupted {
                break;
            }
        }
        if let Some(shares) = &shares {
            report.note_range_shares(shares.clone());
        }
        outcome.failures.sort();
        outcome.failures.iter().for_each(|(_, message)| complain(message));
        if outcome.is_interrupted {
            complain(&format!("interrupted; {} of {count} files are there", outcome.done));
            return Err(interruption.exit());
        }
        let name = if outcome.done == count {
            format!("{count} files")
        } else {
            format!("{} of {count} files", outcome.done)
        };
        if !is_quiet {
            console::tell(bytes_in_time(&name, outcome.bytes, started));
            shares.iter().for_each(console::tell);
        }
        match count - outcome.done {
            0 => Ok(()),
            failed => Err(Failure::Run(format!("{failed} of {count} files could not be fetched"))),
        }
    }
}

impl Outcome {
    fn note(&mut self, file: &Wanted, ended: FileEnded, report: &TransferReport) {
        let FileEnded { number, bytes, took, history, result } = ended;
        self.bytes += bytes;
        let name = file.place.file_name().map_or(file.place.as_path(), Path::new).display();
        let result = result.map_err(|error| match error {
            DownloadError::Interrupted { kept } => {
                self.is_interrupted = true;
                self.failures.extend(kept.map(|kept| (number, format!("{name}: {kept}"))));
                Failure::Exit(1)
            }
            error => {
                let message = format!("{name}: {error}");
                self.failures.push((number, message.clone()));
                Failure::Run(message)
            }
        });
        self.done += usize::from(result.is_ok());
        let transfer = Transfer::download(&file.url, &file.place).that_took(took).with_history(history);
        report.note(transfer, bytes, result.as_ref().map(|compared| sha256(compared)));
    }
}
