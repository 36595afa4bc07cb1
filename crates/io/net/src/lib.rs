//! Where the stack meets the clock and the network: drivers, network set-up, link emulation in real time and async sockets.

// Where they can't write they panic; `console` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod console;
pub mod control;
mod cpu_time;
pub mod doctor;
pub mod emulate;
pub mod enclosure;
pub mod engine;
mod namespace;
mod netlink;
mod peer_list;
mod process;
mod real_time;
pub mod relay;
pub mod setup;
pub mod stack;
pub mod testbed;
pub mod tun;
pub mod udp;
pub mod uplinks;

pub use cpu_time::CpuTime;
pub use engine::Engine;
pub use namespace::Namespace;
pub use netlink::Netlink;
pub use real_time::{Timed, WallClock, run_in_real_time};
pub use stack::{Stack, WeakStack};
pub use tun::{Tun, TunConfig};
