//! What there is to show.

use super::{Baselines, Beside, Cut, Demo, Outcome};

/// The transfer, and what it is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    /// What was asked for.
    pub(crate) demo: &'a Demo,
    /// What came of it.
    pub(crate) outcome: &'a Outcome,
    /// TCP on the best path, under the same cut.
    pub(crate) beside: &'a Beside,
    /// The same without trouble.
    pub(crate) baselines: &'a Baselines,
}

impl<'a> Shown<'a> {
    pub(super) fn names(&self) -> Vec<&'a str> {
        self.demo.paths.iter().map(|path| path.name.as_str()).collect()
    }

    /// The path that TCP does best on.
    pub(super) fn best(&self) -> &'a str {
        &self.demo.paths[self.beside.path].name
    }

    /// The cut, if it came before the file had arrived.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.demo.cut.filter(|cut| cut.from.as_secs_f64() < self.outcome.duration_s)
    }
}
