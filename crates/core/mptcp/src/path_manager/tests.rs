//! What the tests of path managers share: a client at 10.0.0.1 whose initial subflow goes to port 80 of 10.0.0.100.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use polypath_units::Instant;
use polypath_wire::Endpoint;

use super::{Limits, LocalEndpoint, PathAction, PathEvent, PathManager, PathView, SubflowSummary};
use crate::identifiers::{AddressId, SubflowId};

pub(super) fn addr(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

pub(super) fn remote(last: u8, port: u16) -> Endpoint {
    Endpoint::new(addr(last), port)
}

pub(super) fn initial_subflow() -> SubflowSummary {
    SubflowSummary::new(0, addr(1), 0, remote(100, 80))
}

/// The subflow `id` from address `last`, whose identifier is `last` as well.
pub(super) fn joined(id: u8, last: u8) -> SubflowSummary {
    SubflowSummary { id: SubflowId(id), local: addr(last), local_id: AddressId(last), ..initial_subflow() }
}

pub(super) fn view<'a>(endpoints: &'a [LocalEndpoint], subflows: &'a [SubflowSummary]) -> PathView<'a> {
    PathView {
        now: Instant::ZERO,
        is_client: true,
        may_join: true,
        initial_local: addr(1),
        initial_remote: remote(100, 80),
        no_join_initial: false,
        endpoints,
        limits: Limits::default(),
        subflows,
        announced: &[],
    }
}

pub(super) fn after(manager: &mut dyn PathManager, event: PathEvent, view: &PathView<'_>) -> Vec<PathAction> {
    let mut actions = Vec::new();
    manager.handle_event(&event, view, &mut actions);
    actions
}

/// The pairs that `actions` open, in order.
pub(super) fn opened(actions: &[PathAction]) -> Vec<(IpAddr, Endpoint)> {
    let pair = |action: &PathAction| match action {
        PathAction::Open { local, remote, .. } => Some((*local, *remote)),
        _ => None,
    };
    actions.iter().filter_map(pair).collect()
}
