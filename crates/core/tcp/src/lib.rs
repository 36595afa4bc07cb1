//! A sans-IO TCP engine (RFC 9293): one connection, or one subflow of a Multipath TCP connection.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bottleneck;
mod config;
mod connection;
mod delivery;
mod extension;
#[cfg(any(test, feature = "attacks"))]
#[doc(hidden)]
pub mod flood;
mod flow_hasher;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod host;
#[cfg(any(test, feature = "attacks"))]
#[doc(hidden)]
pub mod hostile_work;
mod listener;
mod loss_recovery;
mod rate_start;
mod ready_queue;
mod reassembly;
mod rtt;
mod scoreboard;
mod send_queue;
mod slab;
mod timer_wheel;

pub use config::Config;
pub use connection::{
    CloseReason, Connection, ConnectionOption, Disposition, DropReason, Event, Info, Setup, State,
    stateless_syn_ack,
};
pub use extension::{Extension, OptionSpace, Outgoing, OutgoingKind};
pub use host::{
    Call, ConnectError, ConnectionId, Counters, Handled, Host, HostConfig, HostCore, HostEvent, HostSecrets,
    Hosted, Population, ReplyLimit, SendError, StrangerCounts, StrangerLimits, Strangers, StreamHost,
    SynCookies, SynOptions, TimeWaitNumbers, TupleHash, echo_age, reset_in_reply,
};
pub use listener::{ListenConfig, ListenError, Listener, ListenerId, Listeners, source_prefix};
pub use loss_recovery::{DuplicateThreshold, ForwardRto, LossDetection, LossRecovery};
pub use reassembly::join_tiny;
