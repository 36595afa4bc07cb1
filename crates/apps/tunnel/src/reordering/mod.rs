//! How far out of order packets arrive: the metrics of RFC 4737 and RFC 5236, one a file.
//!
//! Packets are numbered one by one in the order in which they are sent. What arrives goes through an [`ArrivalOrder`] first, which says of each
//! packet whether it is in order; the metrics of RFC 4737 take what it says. Those of RFC 5236, [`ReorderDensity`] and
//! [`ReorderBufferDensity`], take the numbers themselves.
//!
//! All of them are kept while packets arrive, in memory that does not grow with their number.

mod arrival_order;
mod buffer_density;
mod byte_offset;
mod density;
mod distribution;
mod entropy;
mod extent;
mod free_run;
mod gap;
mod late_time;
mod n_reordering;
mod ratio;

pub use arrival_order::{Arrival, ArrivalOrder, Discontinuity, Evaluated, Order};
pub use buffer_density::ReorderBufferDensity;
pub use byte_offset::ByteOffsets;
pub use density::ReorderDensity;
pub use distribution::Distribution;
pub use entropy::entropy;
pub use extent::Extents;
pub use free_run::FreeRuns;
pub use gap::Gaps;
pub use late_time::LateTimes;
pub use n_reordering::NReordering;
pub use ratio::ReorderedRatio;

#[cfg(test)]
mod tests;
