use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::Instant;
use polypath_wire::Endpoint;

use super::{Limits, LocalEndpoint, PathView, RemoteAddress, SubflowSummary};
use crate::identifiers::{AddressId, SubflowId};

/// A connection made up for a test of a path manager, in this crate or outside.
///
/// ```
/// # mod polypath { pub use {polypath_mptcp as mptcp, polypath_wire as wire}; }
/// use polypath::mptcp::path_manager::{LocalEndpoint, PathAction, PathEvent, PathView, Policy};
/// use polypath::wire::Endpoint;
///
/// let (wifi, lte) = ([10, 0, 0, 1].into(), [10, 1, 0, 1].into());
/// let made_up = PathView::builder(wifi, Endpoint::new([192, 0, 2, 1].into(), 80)).endpoint(LocalEndpoint::subflow(lte, 2));
/// let (mut manager, mut actions) = (Policy::by_name("fullmesh").unwrap().build(), Vec::new());
/// manager.handle_event(&PathEvent::Established, &made_up.view(), &mut actions);
/// assert!(matches!(actions[..], [PathAction::Open { local, .. }] if local == lte));
/// ```
#[derive(Clone, Debug)]
pub struct PathViewBuilder {
    now: Instant,
    is_client: bool,
    may_join: bool,
    initial_local: IpAddr,
    initial_remote: Endpoint,
    no_join_initial: bool,
    endpoints: Vec<LocalEndpoint>,
    limits: Limits,
    subflows: Vec<SubflowSummary>,
    announced: Vec<RemoteAddress>,
}

impl PathViewBuilder {
    pub(super) fn new(local: IpAddr, remote: Endpoint) -> Self {
        Self {
            now: Instant::ZERO,
            is_client: true,
            may_join: true,
            initial_local: local,
            initial_remote: remote,
            no_join_initial: false,
            endpoints: Vec::new(),
            limits: Limits::default(),
            subflows: vec![SubflowSummary::new(SubflowId::INITIAL, local, AddressId::INITIAL, remote)],
            announced: Vec::new(),
        }
    }

    /// The time; zero unless it is said.
    #[must_use]
    pub const fn now(mut self, now: Instant) -> Self {
        self.now = now;
        self
    }

    /// This end was connected to.
    #[must_use]
    pub const fn server(mut self) -> Self {
        self.is_client = false;
        self
    }

    /// No more subflows may be opened.
    #[must_use]
    pub const fn may_not_join(mut self) -> Self {
        self.may_join = false;
        self
    }

    /// The peer does not accept subflows to the initial address.
    #[must_use]
    pub const fn no_join_initial(mut self) -> Self {
        self.no_join_initial = true;
        self
    }

    /// One more endpoint of the host.
    #[must_use]
    pub fn endpoint(mut self, endpoint: LocalEndpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// The host's limits.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// One more subflow, or another state of the one with its identifier; the initial one is there and established.
    #[must_use]
    pub fn subflow(mut self, subflow: SubflowSummary) -> Self {
        self.subflows.retain(|other| other.id != subflow.id);
        self.subflows.push(subflow);
        self
    }

    /// One more address that the peer announced.
    #[must_use]
    pub fn announced(mut self, address: RemoteAddress) -> Self {
        self.announced.push(address);
        self
    }

    /// The connection as a path manager sees it.
    #[must_use]
    pub fn view(&self) -> PathView<'_> {
        PathView {
            now: self.now,
            is_client: self.is_client,
            may_join: self.may_join,
            initial_local: self.initial_local,
            initial_remote: self.initial_remote,
            no_join_initial: self.no_join_initial,
            endpoints: &self.endpoints,
            limits: self.limits,
            subflows: &self.subflows,
            announced: &self.announced,
        }
    }
}
