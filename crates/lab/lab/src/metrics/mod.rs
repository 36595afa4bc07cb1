//! Numbers that a run or a set of runs is judged by.

mod aggregation;
mod distribution;

pub use aggregation::aggregation_benefit;
pub use distribution::{Distribution, percentile, sensitivity};
