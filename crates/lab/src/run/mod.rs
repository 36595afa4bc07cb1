//! Running experiments.

mod backend;
mod execute;
mod ring;
mod set;
mod timeline;
mod variant;

pub use backend::{Backend, BackendError, Simulator};
pub use execute::{ExecuteError, Progress, check, execute};
pub use ring::run_ring;
pub use set::{BlockDelays, Outcome, PathOutcome, PathSet, PathSpec, Workload, run_set};
pub use timeline::{Flow, PathEvent, Series, Timeline, run_timeline};
pub use variant::{Buffer, InitialPath, Variant, VariantKind};
