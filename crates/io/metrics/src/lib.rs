//! Figures of running stacks and proxies, without sockets and clocks. [`StackSample`]s and [`ProxySample`]s go in; [`Totals`] keeps sums that never go back, and [`expose`]
//! makes the text that Prometheus reads. [`history`] keeps what interfaces have carried, in a file.

mod exposition;
pub mod history;
mod links;
mod names;
mod proxies;
mod registry;
mod sample;
mod totals;

pub use exposition::Format;
pub use links::LinkSample;
pub use proxies::{LimitSample, MemorySample, ProxySample};
pub use registry::{expose, metric_names};
pub use sample::{Counted, PathNow, PathSample, StackSample};
pub use totals::Totals;
