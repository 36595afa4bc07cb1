//! Multipath TCP (RFC 8684, and RFC 6824 as version 0) as a sans-IO state machine.
//!
//! A [`Host`] holds connections; each has subflows, which are [`Connection`](polypath_tcp::Connection)s. Policies are files:
//! [`scheduler`] and [`path_manager`]; congestion control is a [crate of its own](polypath_congestion).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod carried;
mod config;
mod connection;
mod counters;
mod crypto;
mod event;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod host;
#[cfg(any(test, feature = "attacks"))]
#[doc(hidden)]
pub mod hostile_work;
mod identifiers;
mod mapping;
mod misbehaviour;
mod ordered;
pub mod path_manager;
mod rare_list;
mod reassembly;
mod receive_window;
mod reception;
pub mod scheduler;
mod send_buffer;
mod sent_chunk;
mod subflow;
#[cfg(test)]
mod tests;

pub use carried::Carried;
pub use config::{ConnectionConfig, HostConfig, LiaOnSharedAccess};
pub use connection::{ConnectionInfo, MultipathInfo, SubflowInfo};
pub use counters::Counters;
pub use crypto::Key;
pub use event::{CloseReason, Event, FallbackReason, SubflowError};
pub use host::{Attachment, ConnectError, Host};
pub use identifiers::{AddressId, SubflowId};
pub use polypath_tcp::{ConnectionId, ConnectionOption, SendError};
pub use reception::JudgePaths;
