//! Time and rate newtypes shared by every Polypath crate.
//!
//! Integers throughout, so that a trace is the same on every platform, and buildable in `const` context, so that a
//! test can say `Instant::from_millis(1050)`. Nothing here reads a clock: time is an argument.
#![no_std]

mod rate;
mod time;

pub use rate::BitRate;
pub use time::{Duration, Instant};
