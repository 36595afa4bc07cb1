//! What happens to a packet between two hosts: links, queues, loss, middleboxes.
//!
//! A [`Link`] is one direction of a line: a queue, a transmitter with a rate, and a propagation delay, with
//! loss, jitter, duplication, reordering and other [impairments](impairment) where wanted, and a schedule of changes. A [`middlebox::Chain`]
//! stands anywhere on the way and sees both directions.
//!
//! Both are sans-IO. Time comes in as an argument and packets come out of `poll_*`, so that the simulator
//! (virtual time) and the emulator between real interfaces run the same code. Everything random follows from
//! a seed.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
pub mod impairment;
mod link;
pub mod middlebox;
pub mod queue;
mod random;
mod segmentation;
#[cfg(test)]
mod testing;

pub use config::{Change, LinkConfig, Loss, OnDown};
pub use impairment::{Jitter, JitterKind, Reordering};
pub use link::{Link, LinkStats, PacketLike};
pub use queue::QueueLimit;
