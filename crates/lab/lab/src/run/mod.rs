//! Running experiments.

mod backend;
mod carried;
mod execute;
mod flavour;
mod in_parallel;
mod observe;
mod outcome;
mod path_set;
mod ring;
mod series;
mod set;
mod split;
mod timeline;
mod variant;
pub(crate) mod watch;
mod workload;

pub use backend::{Backend, BackendError, Simulator};
pub use execute::{ExecuteError, Progress, check, execute};
pub use flavour::{Flavour, UnknownFlavour};
pub use in_parallel::in_parallel;
pub(crate) use observe::Observation;
pub use outcome::{BlockDelays, DatagramOutcome, Outcome, PathOutcome, PlaybackOutcome, StreamOutcome};
pub use path_set::{Line, PathSet, PathSpec, RateChange};
pub(crate) use ring::run_ring;
pub(crate) use series::{Quantity, Series};
pub(crate) use set::observe_set;
pub use set::run_set;
pub(crate) use timeline::{Flow, PathEvent, Timeline, run_timeline};
pub use variant::{Buffer, InitialPath, Variant, VariantKind};
pub use watch::Watch;
pub use workload::{DatagramTraffic, Player, StreamTraffic, Workload};
