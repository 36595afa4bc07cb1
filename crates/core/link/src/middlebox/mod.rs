//! Middleboxes: what networks do to connections besides carrying them. One file per box.
//!
//! A box is a sans-IO state machine that sees both directions; [`Chain`] puts several behind each other. Each
//! is built from its own configuration and a seed, or by name with settings that show its behavior: see
//! [`Policy`].

mod ack_proxy;
mod chain;
mod coalesce;
mod drop_unknown_syn;
mod duplicate;
mod duplicate_options;
mod flows;
mod mirror_synack;
mod nat;
mod options;
mod randomize_isn;
mod registry;
mod reorder;
mod rewrite_length;
mod rewrite_payload;
mod shrink_window;
mod split;
mod stream_edit;
mod strip_mptcp;
#[cfg(test)]
mod testing;

use alloc::collections::VecDeque;
use core::fmt;

use polypath_units::Instant;
use polypath_wire::Packet;

pub use ack_proxy::{AckProxy, AckProxyConfig};
pub use chain::Chain;
pub use coalesce::{Coalesce, CoalesceConfig};
pub use drop_unknown_syn::DropUnknownSyn;
pub use duplicate::{Duplicate, DuplicateConfig};
pub use duplicate_options::DuplicateOptions;
pub use flows::Flows;
pub use mirror_synack::MirrorSynAck;
pub use nat::{Nat, NatConfig};
pub use randomize_isn::RandomizeIsn;
pub use registry::{Middleboxes, Policy, UnknownPolicy};
pub use reorder::{Reorder, ReorderConfig};
pub use rewrite_length::{RewriteLength, RewriteLengthConfig};
pub use rewrite_payload::{RewritePayload, RewritePayloadConfig};
pub use shrink_window::{ShrinkWindow, ShrinkWindowConfig};
pub use split::{Split, SplitConfig};
pub use stream_edit::{EditTarget, Retransmissions, Rewrite};
pub use strip_mptcp::{StripFrom, StripMptcp};

/// Where a packet is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the side of the client (the private side of a NAT) to that of the server.
    Forward,
    /// From the side of the server to that of the client.
    Backward,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }

    /// 0 for forward, 1 for backward.
    const fn index(self) -> usize {
        self as usize
    }
}

/// What comes out of a box or chain, in order.
#[derive(Debug, Default)]
pub struct Outputs {
    packets: VecDeque<(Direction, Packet)>,
}

impl Outputs {
    /// Nothing.
    pub const fn new() -> Self {
        Self { packets: VecDeque::new() }
    }

    /// Adds a packet that leaves in this direction.
    pub fn push(&mut self, direction: Direction, packet: Packet) {
        self.packets.push_back((direction, packet));
    }

    /// Takes out the first packet.
    pub fn pop(&mut self) -> Option<(Direction, Packet)> {
        self.packets.pop_front()
    }

    /// True if there is nothing to take out.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// A box in the middle of the way.
///
/// Segments may come in as aggregates ([`Segment::segment_size`](polypath_wire::Segment::segment_size)); [`Chain`] cuts them first,
/// so that a box behind it sees what the wire would carry.
///
/// ```
/// # mod polypath { pub use {polypath_link as link, polypath_units as units, polypath_wire as wire}; }
/// use polypath::link::middlebox::{Chain, Direction, Middlebox, Outputs};
/// use polypath::units::Instant;
/// use polypath::wire::{Endpoint, FourTuple, Packet, Segment};
///
/// /// Lets nothing in.
/// #[derive(Debug)]
/// struct OneWay;
///
/// impl Middlebox for OneWay {
///     fn name(&self) -> &'static str {
///         "one-way"
///     }
///
///     fn handle_packet(&mut self, _: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
///         if direction == Direction::Forward {
///             out.push(direction, packet);
///         }
///     }
/// }
///
/// let mut chain = Chain::new();
/// chain.push(Box::new(OneWay));
/// let (local, remote) = (Endpoint::new([10, 0, 0, 1].into(), 5001), Endpoint::new([10, 0, 0, 2].into(), 80));
/// let packet = Packet::tcp(FourTuple { local, remote }, Segment::default());
/// let mut out = Outputs::new();
/// chain.handle_packet(Instant::ZERO, Direction::Backward, packet.clone(), &mut out);
/// assert!(out.is_empty());
/// chain.handle_packet(Instant::ZERO, Direction::Forward, packet, &mut out);
/// assert!(out.pop().is_some());
/// ```
pub trait Middlebox: fmt::Debug + Send {
    /// The name by which users choose it.
    fn name(&self) -> &'static str;

    /// A packet comes from one side. What leaves, to either side, goes into `out`.
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: Packet, out: &mut Outputs);

    /// When [`Middlebox::handle_timeout`] has something to do. O(1), or nearly.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does what is due by now; too early, nothing.
    fn handle_timeout(&mut self, now: Instant, out: &mut Outputs) {
        let _ = (now, out);
    }

    /// What a box that changes data has changed so far, in the order of the changes.
    fn rewrites(&self) -> &[Rewrite] {
        &[]
    }
}
