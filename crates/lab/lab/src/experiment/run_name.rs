//! What runs are called, so that people can ask for one.

use super::{Experiment, RunKey};

/// A name that no run of the experiment has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no run \"{given}\"; expected {shape}, such as \"{example}\"")]
pub struct UnknownRun {
    given: String,
    shape: &'static str,
    example: String,
}

impl Experiment {
    /// The name of a run: set, value of the sweep if there is one, variant, and number of the repeat.
    #[must_use]
    pub fn run_name(&self, key: RunKey) -> String {
        let (set, variant) = (&self.sets[key.set].name, &self.variants[key.variant].name);
        let repeat = key.repeat + 1;
        match self.points[key.point].label.as_str() {
            "" => format!("{set}/{variant}/{repeat}"),
            label => format!("{set}/{label}/{variant}/{repeat}"),
        }
    }

    /// The run of this name; without a number of the repeat, the first.
    ///
    /// # Errors
    /// That there is none, and what names look like.
    pub fn run_named(&self, name: &str) -> Result<RunKey, UnknownRun> {
        let keys = || (0..self.run_count()).map(|index| self.key(index));
        let first = format!("{name}/1");
        let found = keys().find(|key| self.run_name(*key) == name);
        let found = found.or_else(|| keys().find(|key| self.run_name(*key) == first));
        found.ok_or_else(|| UnknownRun {
            given: name.to_string(),
            shape: match self.points.len() {
                1 => "set/variant/repeat",
                _ => "set/value of the sweep/variant/repeat",
            },
            example: keys().next().map(|key| self.run_name(key)).unwrap_or_default(),
        })
    }
}
