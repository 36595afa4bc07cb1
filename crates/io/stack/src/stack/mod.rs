//! Our own stack as an engine: a [`Host`](polypath_mptcp::Host) behind a driver, with sockets for tokio.
//!
//! The host is a state machine behind one lock. Tasks read packets from the driver and hand them in; whoever changed
//! something (a task, or an application in [`StackStream::poll_write`](tokio::io::AsyncWrite::poll_write)) sends what the
//! host wants sent before it lets the lock go, so that data needs no other task to leave.

mod accepting;
mod driver;
#[cfg(test)]
mod end_tests;
mod ended;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod ending;
mod figures;
mod handle;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod in_memory;
mod limited_paths;
mod listener;
mod opening;
mod path_limits;
mod path_names;
mod path_wishes;
mod paths;
mod pool;
mod runtime;
mod state;
mod stream;
mod task;
#[cfg(all(test, feature = "tun"))]
mod tests;
mod timer;
mod underlay;

use std::sync::Arc;

use polypath_mptcp::ConnectionConfig;

pub use driver::{Receive, Transmit};
pub use ended::StackEnded;
pub use figures::{Figures, PathFigures};
pub use handle::{Stack, WeakStack};
pub use limited_paths::PathLimitSet;
pub use listener::StackListener;
pub use path_limits::{LimitFigures, LimitedWays, PathLimit, PathLimitState, SeenSubflow, TooManyLimits};
pub use paths::KnownPath;
pub use pool::{Buffer, BufferPool};
pub use runtime::NoRuntime;
#[cfg(any(feature = "udp", feature = "kernel"))]
pub(crate) use runtime::current as current_runtime;
pub use stream::{OwnedReadHalf, OwnedWriteHalf, StackStream, Unanswered};
pub use underlay::Underlay;
#[cfg(feature = "udp")]
pub(crate) use underlay::{Look, lacks_family};

use crate::keepalive::Keepalive;

/// Most that pacing lets go at once on a real network, where each packet costs a system call and segmentation is the
/// kernel's work: two of the largest packets.
const PACING_BURST_BYTES: u32 = 2 * 65_536;

/// Settings of connections over real networks: the standards' defaults, bursts that suit segmentation offload, and
/// keep-alives as of [`Keepalive::default`].
#[must_use]
pub fn default_connection() -> ConnectionConfig {
    let defaults = ConnectionConfig::default();
    let tcp = polypath_tcp::Config { pacing_burst_bytes: PACING_BURST_BYTES, ..(*defaults.tcp).clone() };
    let mut connection = ConnectionConfig { tcp: Arc::new(tcp), ..defaults };
    Keepalive::default().choose(&mut connection);
    connection
}
