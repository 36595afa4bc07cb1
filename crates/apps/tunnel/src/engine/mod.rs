//! One end of a tunnel: its peers, what comes from the network, what comes from inside.
//!
//! No socket, no clock, no thread: `handle_*` takes what comes, with the time; `poll_*` says what leaves, and when to call again.

mod config;
mod counts;
mod flood;
mod handshakes;
mod peers;
mod recording;
mod state;
mod status;
#[cfg(any(test, feature = "fuzzing"))]
mod weighed;

pub use config::{EngineConfig, PeerConfig, PeerId};
pub use counts::EngineCounts;
pub use peers::PeerChanges;
pub use state::{Engine, PACKET_ROOM_BYTES, Random};
pub use status::{PathStatus, PeerStatus};
