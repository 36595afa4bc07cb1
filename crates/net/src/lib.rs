//! Where the stack meets the clock. So far: sans-IO state machines run against the wall clock.
//!
//! Drivers for TUN devices and UDP sockets, link emulation between real interfaces, and async sockets follow.

mod real_time;

pub use real_time::{Timed, WallClock, run_in_real_time};
