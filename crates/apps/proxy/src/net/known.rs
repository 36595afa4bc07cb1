//! What there is to tell of a session.

use std::net::SocketAddr;

use crate::target::Target;

/// What is known of a session by its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) user: Option<Box<str>>,
    pub(super) target: Option<Target>,
    pub(super) server: Option<SocketAddr>,
    pub(super) is_multipath: Option<(bool, bool)>,
}
