//! What the command `polypath` is made of, apart from its options: the demonstration, benchmarks, transfers and their measurement, charts.

// Where they can't write they panic; `console` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod bench;
pub mod demo;
pub mod perf;
pub mod report;
pub mod web;
