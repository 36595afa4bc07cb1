//! The command `polypath`, as a library: [`run`] is all of it, so that a crate of somebody else builds a command of ours with policies of
//! its own, which files and options then know by their names.
//!
//! ```no_run
//! use polypath_config::Policies;
//! # use polypath_mptcp::scheduler::Policy;
//! # const LARGEST: Policy = Policy::new("largest", |_| unimplemented!());
//!
//! fn main() -> std::process::ExitCode {
//!     polypath_cli::run(&Policies::default().with(LARGEST))
//! }
//! ```

// Where they can't write they panic; `console` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

#[cfg(feature = "full")]
mod bench;
mod command;
mod demo;
#[cfg(feature = "full")]
mod live;
#[cfg(all(test, feature = "full"))]
mod over_stack;
#[cfg(feature = "full")]
mod perf;
#[cfg(feature = "full")]
mod places;
#[cfg(feature = "full")]
mod reorder;
mod report;
#[cfg(feature = "full")]
mod web;

pub use command::run;

/// What the fuzz target of HTTP requests calls.
#[cfg(all(feature = "full", feature = "fuzzing"))]
#[doc(hidden)]
pub use web::fuzzing::request as fuzz_request;

/// What the fuzz target of a tunnel's file calls.
#[cfg(all(feature = "full", feature = "fuzzing"))]
#[doc(hidden)]
pub use command::fuzz_tunnel_file;
