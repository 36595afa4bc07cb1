//! Sockets for tokio over an engine: our own stack behind a TUN device or in UDP datagrams, or the kernel's Multipath TCP.

#![warn(clippy::print_stderr, clippy::print_stdout)]

mod connect_options;
pub mod engine;
mod keepalive;
// For the process that outlives a stack, in a crate of ours.
#[doc(hidden)]
pub mod peer_list;
mod preference;
pub mod stack;
mod tally;
#[cfg(feature = "tun")]
pub mod tun;
#[cfg(feature = "udp")]
pub mod udp;

pub use engine::Engine;
pub use preference::UplinkPreference;
pub use stack::{Stack, StackEnded, WeakStack};
pub use tally::{Fallback, PathTally, Tally};
