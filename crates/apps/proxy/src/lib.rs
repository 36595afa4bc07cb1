//! Multipath TCP for clients and servers that lack it.
//!
//! A proxy ends a client's connection and opens one of its own to the server, so that each side has the transport that it knows. What a client's
//! first bytes say is read by a [`Negotiation`], one for each protocol, without sockets and clocks: bytes in, [`Step`]s out.

pub mod access;
pub mod convert;
mod failure;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
mod negotiation;
#[cfg(feature = "net")]
pub mod net;
pub mod proxy_protocol;
pub mod race;
pub mod socks;
mod target;
pub mod throttle;

pub use failure::{ConnectFailure, Distrust, UpstreamFailure};
pub use negotiation::{Authority, Command, Negotiation, Refusal, Request, Step};
pub use target::{Host, Name, NameError, Target, TargetError};
