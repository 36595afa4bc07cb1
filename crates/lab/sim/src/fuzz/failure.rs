//! What a run can find.

use std::fmt;

use polypath_units::Instant;

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// The stack panicked.
    Panic,
    /// What was read is not what was written.
    WrongByte,
    /// A stream ended cleanly, and bytes are missing, or the other end had not ended it.
    FalseEnd,
    /// A connection that nobody and nothing disturbs any more ended with an error.
    Broken,
    /// A connection that nobody and nothing disturbs any more does not come to its end.
    Stall,
    /// Data waits, nothing is in flight, and no timer is set.
    NoTimer,
    /// More is held than the settings allow.
    Memory,
    /// A host sends too many packets for what it got.
    Storm,
    /// A deadline does not move however often it is handled.
    BusyLoop,
    /// A host still holds something after everything was over.
    Leak,
    /// Two runs of the same bytes differ.
    NotDeterministic,
}

/// What was found, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which invariant.
    pub kind: FindingKind,
    /// What does not hold.
    pub(crate) details: String,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, details: impl Into<String>) -> Self {
        Self { kind, details: details.into() }
    }
}

/// A run that found something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What.
    pub finding: Finding,
    /// When.
    pub(crate) at: Instant,
    /// After how many operations.
    pub(crate) operations: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { finding, at, operations } = self;
        write!(f, "{:?} at {at}, after {operations} operations: {}", finding.kind, finding.details)
    }
}

impl std::error::Error for Failure {}
