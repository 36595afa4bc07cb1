//! What a limit of paths is, and what it says of itself.

use std::fmt;
use std::sync::Arc;

use polypath_mptcp::{Attachment, ConnectionId};
use polypath_units::BitRate;
use polypath_wire::FourTuple;

/// Most limits of a stack: each packet under limits looks whether something has passed them all.
pub(in crate::stack) const MOST_LIMITS: usize = 64;

/// How fast the packets of some subflows may be, IP headers included: all of them together, each way for itself.
#[derive(Clone)]
pub struct PathLimit {
    pub(super) rate: BitRate,
    pub(super) is_of: Arc<dyn Fn(&SeenSubflow) -> LimitedWays + Send + Sync>,
}

/// A subflow that a limit may be of.
#[derive(Clone, Debug)]
pub struct SeenSubflow {
    /// Its connection.
    pub connection: ConnectionId,
    /// This end opened the connection.
    pub is_client: bool,
    /// Both ends, as the network knows them now.
    pub ends: FourTuple,
    /// What people call the path: its interface.
    pub path_name: Option<String>,
    /// What was said last of whose the connection is, by [`Stack::set_owner`](crate::stack::Stack::set_owner).
    pub owner: Option<Attachment>,
}

/// Which packets of a subflow a limit is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitedWays {
    /// Those that this end sends.
    pub sent: bool,
    /// Those that it receives.
    pub received: bool,
}

/// What a limit is and does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLimitState {
    /// What it is called.
    pub name: String,
    /// How fast packets may be.
    pub rate: BitRate,
    /// Subflows that it is of.
    pub subflows: usize,
    /// What this end sent.
    pub sent: LimitFigures,
    /// What it received.
    pub received: LimitFigures,
}

/// What a limit has done with packets of one way since it was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitFigures {
    /// Octets that passed, IP headers included.
    pub passed_bytes: u64,
    /// Packets that passed.
    pub passed_packets: u64,
    /// Packets that found its queue full.
    pub dropped_packets: u64,
    /// Packets that wait now.
    pub waiting_packets: u64,
    /// Their octets.
    pub waiting_bytes: u64,
}

/// A stack has as many limits of paths as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {MOST_LIMITS} limits of paths already: expected no more")]
pub struct TooManyLimits;

impl PathLimit {
    /// One of the ways of subflows that `is_of` names. It is asked of each subflow when that comes up, and again each second, since paths
    /// may get other addresses: it must not block, and must not call the stack.
    pub fn new(rate: BitRate, is_of: impl Fn(&SeenSubflow) -> LimitedWays + Send + Sync + 'static) -> Self {
        Self { rate, is_of: Arc::new(is_of) }
    }
}

impl fmt::Debug for PathLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathLimit").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// Who has set a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::stack) struct SetId(pub(super) u64);

/// The number of a limit, which it keeps when it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LimitId(pub(super) u64);

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Sent,
    Received,
}
