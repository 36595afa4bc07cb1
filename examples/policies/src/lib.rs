//! One policy of each kind, in a crate of its own: a file each, and nothing of Polypath changed.

mod every_tenth;
mod largest;
mod latecomer;
mod rescue;
mod steady;

pub use every_tenth::EVERY_TENTH;
pub use largest::LARGEST;
pub use latecomer::Latecomer;
pub use rescue::RESCUE;
pub use steady::STEADY;
