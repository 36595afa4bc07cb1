//! What the two handovers share: which subflow or pair of addresses is preferred.

use core::net::IpAddr;

use super::PathView;

/// The smaller, the better: regular endpoints before backups, then by priority, then in the order of their list. An address
/// without endpoint, which is that of the initial subflow, comes as one of priority 0.
pub(super) type Rank = (bool, u8);

pub(super) fn rank(view: &PathView<'_>, addr: IpAddr) -> Rank {
    view.endpoint(addr).map_or((false, 0), |endpoint| (endpoint.backup, endpoint.priority))
}
