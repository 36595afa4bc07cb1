//! One policy of each kind, in a crate of its own: a file each, and nothing of Polypath changed. The binary is the command `polypath` with
//! all of them.

mod bursts;
mod every_tenth;
mod largest;
mod latecomer;
mod rescue;
mod steady;

pub use bursts::BURSTS;
pub use every_tenth::EVERY_TENTH;
pub use largest::LARGEST;
pub use latecomer::{LATECOMER, Latecomer};
pub use rescue::RESCUE;
pub use steady::STEADY;

use polypath_config::Policies;

/// Ours beside those of Polypath.
#[must_use]
pub fn policies() -> Policies {
    let schedulers_and_more = Policies::default().with(LARGEST).with(STEADY).with(RESCUE);
    schedulers_and_more.with(EVERY_TENTH).with(LATECOMER).with(BURSTS)
}
