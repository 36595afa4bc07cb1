//! IP packets over several paths, without sockets and clocks: which path takes which packet, and how far out of order they arrive.
//!
//! - [`Engine`] is one end of the tunnel: WireGuard's handshake and encryption over several paths, congestion control for each, short and
//!   fair queues, and flows whose packets leave in the order in which they came. A stock WireGuard may be at the other end.
//! - [`split`] gives packets to paths.
//! - Packets that take paths of different delay overtake each other. [`reordering`] says by how much, in the terms of RFC 4737 and RFC 5236.
//! - [`heterogeneity`] foretells it from the delays.
//! - [`nama`] follows what arrives over each path, and holds packets of faster paths, so that all arrive in order.
//! - An [`aggregator`] is what carries packets to the other end; [`aggregators`] has them by name.
//! - [`offload`] cuts what a device with offloads hands over into packets, and joins them again.
//!
//! ```
//! # mod polypath { pub use polypath_tunnel as tunnel; }
//! use polypath::tunnel::reordering::{Arrival, ArrivalOrder, Extents, ReorderDensity, ReorderedRatio};
//!
//! // A slow path has the odd numbers, a fast one the even ones: each pair comes the wrong way round.
//! let mut order = ArrivalOrder::default();
//! let (mut ratio, mut extents, mut density) = (ReorderedRatio::default(), Extents::default(), ReorderDensity::new(8));
//! for sequence in [2, 1, 4, 3, 6, 5] {
//!     let evaluated = order.handle_arrival(Arrival::of(sequence));
//!     ratio.handle_arrival(&evaluated);
//!     extents.handle_arrival(&evaluated);
//!     density.handle_arrival(sequence);
//! }
//! density.finish();
//!
//! assert_eq!(ratio.ratio(), 0.5);
//! assert_eq!(extents.distribution().percentile(0.99), Some(1));
//! assert_eq!((density.density(-1), density.density(1)), (0.5, 0.5));
//! assert!((density.entropy() - 2.0_f64.ln()).abs() < 1e-12);
//! ```

pub mod aggregator;
pub mod aggregators;
mod allowed_ips;
#[cfg(feature = "net")]
pub mod driver;
mod engine;
mod fec;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod heterogeneity;
mod inner_packet;
pub mod key;
pub mod nama;
mod noise;
pub mod offload;
mod path;
mod peer;
mod queue;
mod recording;
pub mod reordering;
mod resequencer;
mod rules;
pub mod split;
mod tcp_split;
mod too_big;
mod transmit;
mod united;

pub use allowed_ips::{Network, NetworkError};
pub use engine::{
    Engine, EngineConfig, EngineCounts, PACKET_ROOM_BYTES, PathStatus, PeerChanges, PeerConfig, PeerId,
    PeerStatus, Random,
};
pub use inner_packet::InnerPacket;
pub use noise::PathId;
pub use path::PathSettings;
pub use peer::PeerCounts;
pub use recording::{Record, Recorded, RecordedFlow, RecordedStream};
pub use resequencer::ResequencerCounts;
pub use rules::{FlowPolicy, Rule, Rules};
pub use tcp_split::TcpSplitConfig;
pub use transmit::{LocalId, Transmit};
