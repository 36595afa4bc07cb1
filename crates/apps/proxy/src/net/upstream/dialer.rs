//! Connections to a proxy on the way.

use std::time::Duration;

use polypath_stack::engine::Stream;

use super::super::connect::Connector;
use crate::failure::{ConnectFailure, UpstreamFailure};
use crate::target::Target;

/// Opens them.
#[derive(Debug)]
pub(super) struct Dialer<'a> {
    connector: Connector,
    at: &'a Target,
    limit: Duration,
}

impl<'a> Dialer<'a> {
    pub(super) fn new(connector: Connector, at: &'a Target, limit: Duration) -> Self {
        Self { connector, at, limit }
    }

    /// The rules are of servers: whoever set the proxy up wants it.
    pub(super) async fn dial(&self) -> Result<Stream, ConnectFailure> {
        let reached = self.connector.connect(self.at, self.limit, |_| true).await;
        reached.map(|proxy| proxy.stream).map_err(|failure| match failure {
            // Another way would not help, and it is not the proxy's fault.
            ConnectFailure::Local => failure,
            _ => ConnectFailure::Upstream(UpstreamFailure::Unreachable),
        })
    }
}
