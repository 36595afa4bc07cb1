//! What Polypath's crates share: times, rates, and the [registry](named) of policies that are chosen by name.
//!
//! Integers throughout, so that a trace is the same on every platform, and buildable in `const` context, so that a
//! test can say `Instant::from_millis(1050)`. Nothing here reads a clock: time is an argument.
#![no_std]

extern crate alloc;

pub mod named;
mod rate;
mod time;

pub use rate::BitRate;
pub use time::{Duration, Instant};
