//! The laboratory: experiments that are data.
//!
//! The unit of everything is [`run_set`]: one workload, by one [`Variant`] of the stack, over one [`PathSet`], in
//! virtual time. The same arguments give the same [`Outcome`], bit for bit.

mod aggregate;
pub mod analysis;
pub mod design;
pub mod download;
pub mod experiment;
pub mod metrics;
pub mod never_slower;
pub mod report;
pub mod result;
pub mod run;

pub use run::{Outcome, PathSet, PathSpec, Variant, Workload, run_set};
