use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use polypath_config::Policies;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::StoreError;
use super::parquet;
use crate::experiment::{Experiment, Form, RunKey};
use crate::run::Outcome;

const MANIFEST: &str = "manifest.json";
const EXPERIMENT: &str = "experiment.toml";
const LOG: &str = "runs.jsonl";
const TABLE: &str = "runs.parquet";
const SERIES: &str = "series.parquet";

/// What a folder holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The experiment's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// In which form.
    pub form: Form,
    /// Version and build of the program.
    pub build: String,
    /// Hash of the experiment's text, its form and the build, in hexadecimal.
    pub(crate) identity: String,
    /// How many runs it has.
    pub runs: usize,
    /// All of them are done.
    pub complete: bool,
    /// Time that the runs took on the machine's clock, in seconds, interruptions left out.
    pub wall_s: f64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    key: RunKey,
    outcome: Outcome,
}

/// The folder of an experiment that is run.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    manifest: Manifest,
    runs: BTreeMap<RunKey, Outcome>,
    /// Of an experiment that is not complete.
    log: Option<File>,
}

/// An experiment and its runs, from a folder.
#[derive(Debug)]
pub struct Results {
    /// The folder.
    pub dir: PathBuf,
    /// What the folder says of itself.
    pub manifest: Manifest,
    /// The experiment as it was run.
    pub experiment: Experiment,
    /// Finished runs.
    pub runs: BTreeMap<RunKey, Outcome>,
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
    move |error| StoreError::Io { path: path.to_path_buf(), error }
}

fn content_error(path: &Path, message: impl ToString) -> StoreError {
    StoreError::Content { path: path.to_path_buf(), message: message.to_string() }
}

impl Manifest {
    /// Of an experiment that is to be run by this build.
    #[must_use]
    pub fn new(experiment: &Experiment, build: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [experiment.text.as_str(), experiment.form.name(), build] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            form: experiment.form,
            build: build.to_string(),
            identity: hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
            runs: experiment.run_count(),
            complete: false,
            wall_s: 0.0,
        }
    }

    /// The name of the folder.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("{}-{}-{}", self.name, self.form.name(), &self.identity[..8.min(self.identity.len())])
    }

    /// Reads the manifest of a folder.
    ///
    /// # Errors
    /// That there is none.
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(MANIFEST);
        let text = std::fs::read(&path).map_err(io_error(&path))?;
        serde_json::from_slice(&text)
            .map_err(|error| StoreError::Damaged { path: path.clone(), message: error.to_string() })
    }

    fn write(&self, dir: &Path) -> Result<(), StoreError> {
        let path = dir.join(MANIFEST);
        let text = serde_json::to_string_pretty(self).map_err(|error| content_error(&path, error))?;
        replace(&path, text.as_bytes())
    }
}

/// Writes a file so that a crash leaves the old one or the new one.
fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content).map_err(io_error(&beside))?;
    std::fs::rename(&beside, path).map_err(io_error(path))
}

impl Store {
    /// The folder of `experiment` in `out`: a new one, or that of an earlier run with all that it had finished.
    ///
    /// # Errors
    /// If the folder can't be made or read, or another process is at it.
    pub fn open(out: &Path, experiment: &Experiment, build: &str) -> Result<Self, StoreError> {
        let fresh = Manifest::new(experiment, build);
        let dir = out.join(fresh.folder());
        std::fs::create_dir_all(&dir).map_err(io_error(&dir))?;
        match Manifest::read(&dir) {
            Ok(manifest) if manifest.identity == fresh.identity && manifest.complete => {
                let runs = read_tables(&dir)?;
                Ok(Self { dir, manifest, runs, log: None })
            }
            Ok(manifest) if manifest.identity == fresh.identity => Self::resume(dir, manifest),
            _ => {
                let path = dir.join(EXPERIMENT);
                replace(&path, experiment.text.as_bytes())?;
                fresh.write(&dir)?;
                Self::resume(dir, fresh)
            }
        }
    }

    fn resume(dir: PathBuf, manifest: Manifest) -> Result<Self, StoreError> {
        let path = dir.join(LOG);
        let mut options = OpenOptions::new();
        let mut log = options.read(true).append(true).create(true).open(&path).map_err(io_error(&path))?;
        match log.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Busy { path: dir }),
            Err(TryLockError::Error(error)) => return Err(StoreError::Io { path, error }),
        }
        let (runs, good_bytes) = read_log(&path, &mut log)?;
        // A process that was killed may have left half a line.
        log.set_len(good_bytes).map_err(io_error(&path))?;
        log.seek(io::SeekFrom::End(0)).map_err(io_error(&path))?;
        Ok(Self { dir, manifest, runs, log: Some(log) })
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the folder says of itself.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Finished runs.
    #[must_use]
    pub fn runs(&self) -> &BTreeMap<RunKey, Outcome> {
        &self.runs
    }

    /// This run is finished.
    #[must_use]
    pub(crate) fn has(&self, key: RunKey) -> bool {
        self.runs.contains_key(&key)
    }

    /// Stores a finished run; it is in the system's hands when this returns, whatever happens to the process.
    ///
    /// # Errors
    /// If it can't be written.
    pub(crate) fn add(&mut self, key: RunKey, outcome: Outcome) -> Result<(), StoreError> {
        if let Some(log) = &mut self.log {
            let path = self.dir.join(LOG);
            let line = Line { key, outcome };
            let mut text = serde_json::to_vec(&line).map_err(|error| content_error(&path, error))?;
            text.push(b'\n');
            // One write, so that a line is whole or not there.
            log.write_all(&text).map_err(io_error(&path))?;
            self.runs.insert(key, line.outcome);
        }
        Ok(())
    }

    /// Time that went by while runs went on.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn add_wall_time(&mut self, seconds: f64) -> Result<(), StoreError> {
        self.manifest.wall_s += seconds;
        self.manifest.write(&self.dir)
    }

    /// All runs are there: stores them for good.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn complete(&mut self, experiment: &Experiment) -> Result<(), StoreError> {
        if self.log.is_none() {
            return Ok(());
        }
        let path = self.dir.join(SERIES);
        let beside = path.with_extension("new");
        if parquet::write_series(&beside, &self.runs)? {
            std::fs::rename(&beside, &path).map_err(io_error(&path))?;
        }
        let path = self.dir.join(TABLE);
        let beside = path.with_extension("new");
        parquet::write(&beside, experiment, &self.manifest.build, &self.runs)?;
        std::fs::rename(&beside, &path).map_err(io_error(&path))?;
        self.manifest.complete = true;
        self.manifest.write(&self.dir)?;
        self.log = None;
        let log = self.dir.join(LOG);
        std::fs::remove_file(&log).map_err(io_error(&log))
    }
}

impl Results {
    /// Reads a folder, complete or not. Its experiment may name these policies.
    ///
    /// # Errors
    /// If it is none of an experiment, or can't be read.
    pub fn load(dir: &Path, policies: &Policies) -> Result<Self, StoreError> {
        let manifest = Manifest::read(dir)?;
        let path = dir.join(EXPERIMENT);
        let text = std::fs::read_to_string(&path).map_err(io_error(&path))?;
        let experiment = Experiment::parse(&path, &text, manifest.form, policies)
            .map_err(|error| content_error(dir, format!("made by another version: {error}")))?;
        let runs = if manifest.complete {
            read_tables(dir)?
        } else {
            let path = dir.join(LOG);
            let mut log = File::open(&path).map_err(io_error(&path))?;
            read_log(&path, &mut log)?.0
        };
        Ok(Self { dir: dir.to_path_buf(), manifest, experiment, runs })
    }
}

impl Results {
    /// The command that runs one run alone, in the simulator; the first there is if none is named. None without a run.
    #[must_use]
    pub fn replay(&self, run: Option<&str>) -> Option<String> {
        let first = || self.runs.keys().next().map(|key| self.experiment.run_name(*key));
        let run = run.map(String::from).or_else(first)?;
        let full = if self.manifest.form == Form::Full { " --full" } else { "" };
        let out = match self.dir.parent() {
            Some(parent) if parent == Path::new("results") => String::new(),
            Some(parent) if parent.as_os_str().is_empty() => " --out .".to_string(),
            Some(parent) => format!(" --out {}", quoted(&parent.display().to_string())),
            None => String::new(),
        };
        let file = quoted(&self.dir.join(EXPERIMENT).display().to_string());
        Some(format!("polypath lab run {file}{full}{out} --only {}", quoted(&run)))
    }
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/.-_".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// All runs of a complete experiment.
fn read_tables(dir: &Path) -> Result<BTreeMap<RunKey, Outcome>, StoreError> {
    let mut runs = parquet::read(&dir.join(TABLE))?;
    let series = dir.join(SERIES);
    if series.exists() {
        parquet::read_series(&series, &mut runs)?;
    }
    Ok(runs)
}

/// The whole lines of a log, and how long they are together.
fn read_log(path: &Path, log: &mut File) -> Result<(BTreeMap<RunKey, Outcome>, u64), StoreError> {
    let mut text = Vec::new();
    log.read_to_end(&mut text).map_err(io_error(path))?;
    let mut runs = BTreeMap::new();
    let mut good_bytes = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(content) = line.strip_suffix(b"\n") else { break };
        let Ok(Line { key, outcome }) = serde_json::from_slice(content) else { break };
        runs.insert(key, outcome);
        good_bytes += line.len() as u64;
    }
    Ok((runs, good_bytes))
}

#[cfg(test)]
mod tests;
