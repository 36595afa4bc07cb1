//! Running experiments.

mod set;
mod variant;

pub use set::{BlockDelays, Outcome, PathOutcome, PathSet, PathSpec, Workload, run_set};
pub use variant::{Buffer, InitialPath, Variant, VariantKind};
