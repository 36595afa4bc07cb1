//! One peer: its sessions, its paths, and what waits for it.

mod again;
mod counts;
mod departure;
mod link;
mod path_bits;
mod places;
mod protect;
mod receive;
mod schedule;
mod sessions;
mod state;
mod tcp_split;
mod transmit;
#[cfg(any(test, feature = "fuzzing"))]
mod weighed;

pub use counts::PeerCounts;
pub(crate) use link::{Direction, PathEnds};
pub(crate) use receive::Source;
pub(crate) use sessions::Session;
pub(crate) use state::{Peer, PeerSecrets, Shared};
