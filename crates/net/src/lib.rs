//! Where the stack meets the clock and the network: drivers, network set-up, link emulation in real time and async sockets.

pub mod enclosure;
pub mod engine;
mod namespace;
mod netlink;
mod real_time;
pub mod stack;
pub mod testbed;
pub mod tun;

pub use engine::Engine;
pub use namespace::Namespace;
pub use netlink::Netlink;
pub use real_time::{Timed, WallClock, run_in_real_time};
pub use stack::Stack;
pub use tun::{Tun, TunConfig};
