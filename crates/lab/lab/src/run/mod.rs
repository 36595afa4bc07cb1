//! Running experiments.

mod backend;
mod execute;
mod observe;
mod ring;
mod set;
mod timeline;
mod variant;

pub use backend::{Backend, BackendError, Simulator};
pub use execute::{ExecuteError, Progress, check, execute};
pub use observe::Observation;
pub use ring::run_ring;
pub use set::{
    BlockDelays, Outcome, PathOutcome, PathSet, PathSpec, RateChange, Workload, observe_set, run_set,
};
pub use timeline::{Flow, PathEvent, Quantity, Series, Timeline, run_timeline};
pub use variant::{Buffer, InitialPath, Variant, VariantKind};
