//! One policy of each kind, in a crate of its own: a file each, and nothing of Polypath changed. Some are constants, some take a
//! parameter of their own, one carries data of the program's. The binary is the command `polypath` with all of them.

mod bursts;
mod every_tenth;
mod largest;
mod latecomer;
mod rescue;
mod steady;

pub use bursts::BURSTS;
pub use every_tenth::every_tenth;
pub use largest::LARGEST;
pub use latecomer::{Latecomer, latecomer};
pub use rescue::RESCUE;
pub use steady::steady;

use std::sync::Arc;

use polypath::Policies;

/// Ours beside those of Polypath.
#[must_use]
pub fn policies() -> Policies {
    let schedulers_and_more = Policies::default().with(LARGEST).with(steady()).with(RESCUE);
    schedulers_and_more.with(every_tenth(Arc::default())).with(latecomer()).with(BURSTS)
}
