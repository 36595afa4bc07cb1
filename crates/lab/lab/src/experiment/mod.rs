//! Experiments: TOML files that say what is varied, what is sent, what is compared and what a document found.

mod check;
mod claims;
pub mod defaults;
mod file;
mod group;
mod jitter;
mod job;
mod metric;
mod parameters;
mod reduced;
mod run_name;
mod sets;
mod sweep;
mod timeline;
mod traffic;
mod words;

use std::path::Path;
use std::sync::Arc;

pub use group::Group;
pub use job::{Job, RunKey};
pub(crate) use metric::MetricKind;
pub use metric::{Better, Metric};
pub use parameters::Level;
use polypath_config::{FileError, Policies, Source, read};
use polypath_sim::scenario::read_text;
use polypath_units::{BitRate, Duration};
pub use run_name::UnknownRun;
use serde::{Deserialize, Serialize};

use crate::run::{Buffer, DatagramTraffic, InitialPath, PathSet, Player, StreamTraffic, Timeline, Variant};

/// Which size an experiment is run in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Minutes: what its `reduced` section says.
    #[default]
    Reduced,
    /// As the document had it.
    Full,
}

/// An experiment that makes sense, in one of its forms.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it is called in paths and results.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Which figure of which document it reproduces.
    pub figure: String,
    /// That document: its letter there, author, title, year.
    pub document: String,
    /// What is asked, and how it is measured.
    pub(crate) description: String,
    /// The form.
    pub form: Form,
    /// The file's text, for the record and for the identity of results.
    pub text: String,
    /// How the paths of a set are put together.
    pub topology: Topology,
    /// The sets: all of the first design, all of the second, and so on.
    pub sets: Vec<NamedSet>,
    /// What the paths of sets are drawn from, name and range of each; empty for sets that are given one by one.
    pub factors: Vec<(&'static str, String)>,
    /// Parameters of plain TCP that differ between sets, name and levels of each.
    pub(crate) parameters: Vec<(&'static str, String)>,
    /// Those whose levels are reported together.
    pub(crate) together: Vec<&'static str>,
    /// Which metric values are swept over; one point without a name if none.
    pub points: Vec<SweepPoint>,
    /// What is compared; the baseline's variants are the last.
    pub(crate) variants: Vec<Variant>,
    /// How many of the variants are the baseline's.
    pub(crate) baseline_variants: usize,
    /// Which variant each is compared with by metrics of a difference, by number.
    pub(crate) references: Vec<Option<usize>>,
    /// Congestion windows are recorded over time.
    pub(crate) records_windows: bool,
    /// What is sent.
    pub traffic: Traffic,
    /// Runs of each set.
    pub repeats: usize,
    /// What is computed from a run; the first is what figures show.
    pub metrics: Vec<Metric>,
    /// What the document found and what is expected here.
    pub claims: Vec<Claim>,
}

/// How the paths of a set are put together.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// Side by side between two hosts.
    Parallel,
    /// Three bottlenecks in a ring, three connections with two subflows each.
    Ring,
    /// Shared by several connections.
    Shared(Arc<Timeline>),
}

/// One of the sets of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSet {
    /// Its name, or its number.
    pub name: String,
    /// The design that it belongs to; 0 for sets that are given one by one.
    pub(crate) design: usize,
    /// The paths.
    pub set: PathSet,
    /// The parameters that a plain TCP has there.
    pub(crate) levels: Vec<Level>,
}

/// A value of each sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepPoint {
    /// The values in the file's words; empty without a sweep.
    pub label: String,
    /// The first sweep's value as a number, if it has one: bytes or a share.
    pub value: Option<f64>,
    /// Each sweep's value, in the order of the file.
    pub swept: Vec<Swept>,
    settings: Vec<Setting>,
}

/// What a sweep says at one of its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Swept {
    /// The parameter, as the file has it.
    pub parameter: String,
    /// Its value in the file's words.
    pub text: String,
    /// The value as a number, if it has one: bytes or a share.
    pub number: Option<f64>,
}

/// What a sweep changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    Buffer(Buffer),
    Bytes(u64),
    Load(f64),
    Initial(InitialPath),
    Loss(f64),
    Segment(u64),
    Rate(BitRate),
}

/// What is sent, as far as it does not depend on the set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// As much as possible.
    Bulk {
        /// For so long.
        duration: Duration,
    },
    /// A fixed size.
    Transfer {
        /// How many bytes.
        bytes: u64,
        /// When to give up.
        timeout: Duration,
    },
    /// Time-stamped blocks.
    Blocks {
        /// Size of a block in bytes.
        block_bytes: u64,
        /// How often.
        pace: Pace,
        /// For so long.
        duration: Duration,
    },
    /// Requests and responses in turn.
    Requests {
        /// Size of a request in bytes.
        request_bytes: u64,
        /// Size of a response in bytes.
        response_bytes: u64,
        /// How many.
        count: u64,
        /// When to give up.
        timeout: Duration,
    },
    /// One file by HTTP, over plain TCP of each path.
    Download {
        /// How many bytes.
        bytes: u64,
        /// When to give up.
        timeout: Duration,
        /// Who plays it meanwhile.
        player: Option<Player>,
    },
    /// An adaptive stream of the document's sample movie, by HTTP over plain TCP of each path.
    Stream(StreamTraffic),
    /// Packets of one length at a constant rate, by an aggregator at the network layer.
    Datagrams(DatagramTraffic),
}

/// How often blocks are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At this rate.
    Rate(BitRate),
    /// At this share of the sum of the paths' rates.
    Load(f64),
    /// Each when the send buffer has taken the one before.
    Unlimited,
}

/// Whose claim it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A document's.
    Published {
        /// Document, year, and figure, table or section.
        source: String,
    },
    /// Ours.
    Expected {
        /// Why it is to hold.
        reason: String,
    },
}

impl Default for Origin {
    fn default() -> Self {
        Self::Expected { reason: String::new() }
    }
}

/// What a number of the results is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// Who says so.
    #[serde(flatten)]
    pub origin: Origin,
    /// Which variant is looked at, by number.
    pub variant: Option<usize>,
    /// Which metric, by number.
    pub metric: usize,
    /// Which statistic of it.
    pub(crate) statistic: Statistic,
    /// Which points of the sweep, by number; all if empty. One that the short form leaves out has none.
    pub points: Vec<Option<usize>>,
    /// Which set, by number; all if none.
    pub set: Option<usize>,
    /// Which sets, by the levels of their parameters; all if none.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub(crate) among: Option<Group>,
    /// The sets whose number is taken off that of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) against: Option<Group>,
    /// The published number.
    pub value: Option<f64>,
    /// What is to be reached here.
    pub(crate) at_least: Option<f64>,
    /// What is not to be exceeded here.
    pub(crate) at_most: Option<f64>,
    /// Why it does not hold here.
    pub(crate) remark: String,
}

/// One number of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Statistic {
    Min,
    P1,
    P5,
    P25,
    #[default]
    Median,
    P75,
    P95,
    P99,
    Max,
    Mean,
}

/// The JSON schema of experiment files.
///
/// # Errors
/// That a key's kind of policy is none.
pub fn schema(policies: &Policies) -> Result<serde_json::Value, polypath_config::NoSuchKind> {
    polypath_config::schema::<file::File>("An experiment of Polypath", policies)
}

impl Experiment {
    /// Reads and checks an experiment file, which may name these policies.
    ///
    /// # Errors
    /// The first mistake in it, by file, line and key.
    pub fn load(path: impl AsRef<Path>, form: Form, policies: &Policies) -> Result<Self, FileError> {
        let path = path.as_ref();
        let text = read_text(path, "an experiment")?;
        Self::parse(path, &text, form, policies)
    }

    /// Checks an experiment that was already read; `path` is for messages.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(
        path: impl AsRef<Path>,
        text: &str,
        form: Form,
        policies: &Policies,
    ) -> Result<Self, FileError> {
        let source = Source { file: &path.as_ref().display().to_string(), text };
        let file: file::File = read(source)?;
        check::check(source, file, form, policies)
    }

    /// How many runs it has.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.sets.len() * self.points.len() * self.variants.len() * self.repeats
    }

    /// How many designs its sets come from.
    #[must_use]
    pub(crate) fn design_count(&self) -> usize {
        self.sets.iter().map(|set| set.design + 1).max().unwrap_or(0)
    }

    /// The variants that are compared, without the baseline's.
    #[must_use]
    pub fn compared_variants(&self) -> &[Variant] {
        &self.variants[..self.variants.len() - self.baseline_variants]
    }
}

impl Form {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reduced => "reduced",
            Self::Full => "full",
        }
    }
}

impl Claim {
    /// A document says so.
    #[must_use]
    pub const fn is_published(&self) -> bool {
        matches!(self.origin, Origin::Published { .. })
    }
}

impl Statistic {
    /// This number of a distribution.
    #[must_use]
    pub fn of(self, distribution: &crate::metrics::Distribution) -> f64 {
        match self {
            Self::Min => distribution.min,
            Self::P1 => distribution.p1,
            Self::P5 => distribution.p5,
            Self::P25 => distribution.p25,
            Self::Median => distribution.median,
            Self::P75 => distribution.p75,
            Self::P95 => distribution.p95,
            Self::P99 => distribution.p99,
            Self::Max => distribution.max,
            Self::Mean => distribution.mean,
        }
    }

    const ALL: [(&'static str, Self); 10] = [
        ("min", Self::Min),
        ("p1", Self::P1),
        ("p5", Self::P5),
        ("p25", Self::P25),
        ("median", Self::Median),
        ("p75", Self::P75),
        ("p95", Self::P95),
        ("p99", Self::P99),
        ("max", Self::Max),
        ("mean", Self::Mean),
    ];

    /// The statistic of this name.
    #[must_use]
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, statistic)| *statistic)
    }

    /// The names that [`Self::by_name`] knows.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(name, _)| *name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests;
