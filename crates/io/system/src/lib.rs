//! What Linux gives to the crates above: network namespaces, netlink, TUN devices, the clock, processes, a terminal to talk to.

// Where they can't write they panic; `console` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

#[cfg(feature = "netlink")]
pub mod conntrack;
pub mod console;
mod cpu_time;
mod detached;
mod in_context;
pub mod memory;
mod namespace;
#[cfg(feature = "netlink")]
mod netlink;
pub mod process;
mod real_time;
mod runtime_directory;
mod scarce;
pub mod sysctl;
#[cfg(feature = "netlink")]
mod system_state;
pub mod tun;

pub use cpu_time::CpuTime;
pub use detached::Detached;
pub use in_context::{errno_of, in_context};
pub use namespace::Namespace;
#[cfg(feature = "netlink")]
pub use netlink::{Netlink, Rule, Selector};
pub use real_time::{Timed, WallClock, run_in_real_time};
pub use runtime_directory::{directories_of_services, runtime_directories, runtime_directory};
pub use scarce::build_runtime;
#[cfg(feature = "netlink")]
pub use system_state::{Link, MAIN_TABLE, Route, SystemState, network_contains};
