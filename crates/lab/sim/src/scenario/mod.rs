//! Scenarios: runs described in a TOML file.
//!
//! ```toml
//! duration = "30s"
//! seed = 7
//!
//! [[hosts]]
//! name = "phone"
//!
//! [[hosts]]
//! name = "server"
//!
//! [[links]]
//! name = "wifi"
//! between = ["phone", "server"]
//! rate = "40mbit"
//! delay = "10ms"          # one way, as in netem
//! limit = "80ms"
//! loss = "0.1%"
//! reverse = { rate = "10mbit" }
//!
//! [[links.change]]
//! at = "5s"
//! down = true
//!
//! [[links.change]]
//! at = "12s"
//! down = false
//!
//! [[links]]
//! name = "lte"
//! between = ["phone", "server"]
//! rate = "20mbit"
//! delay = "30ms"
//! limit = "200ms"
//!
//! [[connections]]
//! from = "phone"
//! to = "server"
//! direction = "download"
//! bytes = "20MB"
//! scheduler = "lowest-rtt"
//! congestion = "lia"
//! ```
//!
//! A mistake gives a [`FileError`], which is one line that names the file, the key and what was expected.

mod alone;
mod check;
pub mod defaults;
mod file;
mod interfaces;
mod links;
mod outputs;
mod plan;
mod recording;
mod result;
mod run;
mod schema;

use std::io::Read;
use std::path::{Path, PathBuf};

use polypath_config::{FileError, FileErrorKind, Policies, Source, read};
use polypath_units::{Duration, Instant};

use file::File;
pub use interfaces::{InterfaceLink, InterfaceLinks};
pub use outputs::Outputs;
use plan::Plan;
pub use recording::{Recorded, Recording};
pub use result::{
    ChannelResult, ConnectionResult, LinkResult, RunResult, Series, StreamResult, SubflowResult,
    SubflowSeries,
};

pub use schema::{interfaces_schema, schema};

/// A scenario that was read and found to make sense.
#[derive(Clone, Debug)]
pub struct Scenario {
    path: PathBuf,
    plan: Plan,
}

/// What a run tells while it goes on.
pub trait Progress {
    /// The run is at `now` of at most `end`, and `received_bytes` have arrived in all connections.
    fn at(&mut self, now: Instant, end: Instant, received_bytes: u64);
}

/// Tells nobody.
impl Progress for () {
    fn at(&mut self, _now: Instant, _end: Instant, _received_bytes: u64) {}
}

impl Scenario {
    /// Reads and checks a scenario file, which may name these policies.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn load(path: impl AsRef<Path>, policies: &Policies) -> Result<Self, FileError> {
        let path = path.as_ref();
        let text = read_text(path, "a scenario")?;
        Self::parse(path, &text, policies)
    }

    /// Checks a scenario that was already read; `path` is for messages.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(path: impl AsRef<Path>, text: &str, policies: &Policies) -> Result<Self, FileError> {
        let path = path.as_ref();
        let source = Source { file: &path.display().to_string(), text };
        let file: File = read(source)?;
        let plan = Plan::new(source, &file, policies)?;
        Ok(Self { path: path.to_path_buf(), plan })
    }

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the run is called.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// How long the run lasts at most.
    pub fn duration(&self) -> Duration {
        self.plan.duration
    }

    /// The seed of everything random in it.
    pub fn seed(&self) -> u64 {
        self.plan.seed
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.plan.seed = seed;
        self
    }

    /// Where its results are to go.
    pub fn outputs(&self) -> &Outputs {
        &self.plan.outputs
    }

    /// Changes where its results go.
    pub fn outputs_mut(&mut self) -> &mut Outputs {
        &mut self.plan.outputs
    }

    /// Runs it.
    ///
    /// # Errors
    /// A trace that can't be written.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<RunResult, FileError> {
        run::run(self, progress)
    }
}

/// Larger files are not what they are taken for.
const MAX_FILE_BYTES: u64 = 64 << 20;

fn read_at_most(path: &Path, most_bytes: u64) -> std::io::Result<String> {
    let mut text = String::new();
    let length = std::fs::File::open(path)?.take(most_bytes + 1).read_to_string(&mut text)?;
    if length as u64 > most_bytes { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// The text of a file with `what` in it.
///
/// # Errors
/// That there is none, or why it can't be read.
pub fn read_text(path: &Path, what: &str) -> Result<String, FileError> {
    read_at_most(path, MAX_FILE_BYTES).map_err(|error| {
        let message = match error.kind() {
            std::io::ErrorKind::NotFound => format!("no such file; expected {what} in TOML"),
            std::io::ErrorKind::InvalidData => format!("no text; expected {what} in TOML"),
            std::io::ErrorKind::FileTooLarge => {
                format!("more than {} MiB; expected {what} in TOML", MAX_FILE_BYTES >> 20)
            }
            _ => format!("can't be read ({error}); expected {what} in TOML"),
        };
        FileError {
            file: path.display().to_string(),
            line: None,
            key: String::new(),
            kind: FileErrorKind::Unreadable,
            message,
        }
    })
}

#[cfg(test)]
mod tests;
