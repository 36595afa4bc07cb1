//! What a stack has counted by path, for whoever keeps figures.

use std::net::IpAddr;

use polypath_mptcp::Carried;

use crate::tally::Fallback;

/// Numbers that only grow.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By local address; the number of a path is its place here. At most seventeen: see [`Host::carried`](polypath_mptcp::Host::carried).
    pub paths: Vec<PathFigures>,
    /// Connections that fell back to TCP, by cause.
    pub fallbacks: Vec<(Fallback, u64)>,
}

/// What a local address has carried.
#[derive(Clone, Debug)]
pub struct PathFigures {
    /// The stack's own address.
    pub address: IpAddr,
    /// What people call it, or called it while it was there: its interface.
    pub name: Option<String>,
    /// What went over it since the start.
    pub carried: Carried,
}

/// What a stack has counted when it is gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Remains {
    pub(super) figures: Figures,
    pub(super) counters: Vec<(&'static str, u64)>,
}
