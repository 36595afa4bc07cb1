//! Connections to a proxy on the way.

use std::time::Duration;

use super::super::connect::{Connector, ServerSide};
use super::super::leg::Leg;
use super::super::own_places::OwnPlaces;
use super::tls::UpstreamTls;
use crate::failure::{ConnectFailure, UpstreamFailure};
use crate::target::Target;

/// Opens them.
#[derive(Debug)]
pub(super) struct Dialer<'a> {
    connector: Connector,
    at: &'a Target,
    tls: Option<&'a UpstreamTls>,
    limit: Duration,
    own: OwnPlaces,
}

impl<'a> Dialer<'a> {
    pub(super) fn new(
        connector: Connector,
        at: &'a Target,
        tls: Option<&'a UpstreamTls>,
        limit: Duration,
        own: OwnPlaces,
    ) -> Self {
        Self { connector, at, tls, limit, own }
    }

    /// Whether [`Dialer::dial_fast`] is possible.
    pub(super) fn is_fast(&self) -> bool {
        self.tls.is_none() && self.connector.asks_fast(self.at)
    }

    /// The rules are of servers: whoever set the proxy up wants it.
    pub(super) async fn dial(&self) -> Result<Leg, ConnectFailure> {
        // Who forwards connects before anybody could see where it came.
        if self.at.address().is_some_and(|place| self.own.are_at(place)) {
            return Err(ConnectFailure::Upstream(UpstreamFailure::Itself));
        }
        let leg = self.leg_of(self.connector.connect(self.at, self.limit, |_| true).await)?;
        match (self.tls, leg) {
            (Some(tls), Leg::Plain(stream)) => Box::pin(tls.secure(stream, &self.at.host)).await,
            (_, leg) => Ok(leg),
        }
    }

    /// As [`Connector::connect_fast`].
    pub(super) async fn dial_fast(&self) -> Result<Leg, ConnectFailure> {
        self.leg_of(self.connector.connect_fast(self.at, self.limit).await)
    }

    fn leg_of(&self, reached: Result<ServerSide, ConnectFailure>) -> Result<Leg, ConnectFailure> {
        let leg = reached.map_err(as_of_proxy)?.stream;
        if self.own.leads_back(&leg) {
            leg.abort();
            return Err(ConnectFailure::Upstream(UpstreamFailure::Itself));
        }
        Ok(leg)
    }
}

fn as_of_proxy(failure: ConnectFailure) -> ConnectFailure {
    match failure {
        // Another way would not help, and it is not the proxy's fault.
        ConnectFailure::Local => failure,
        ConnectFailure::NameUnknown => ConnectFailure::Upstream(UpstreamFailure::NameUnknown),
        ConnectFailure::NameLookupFailed => ConnectFailure::Upstream(UpstreamFailure::NameLookupFailed),
        _ => ConnectFailure::Upstream(UpstreamFailure::Unreachable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_exist_is_another_failure_than_a_host_that_does_not_answer() {
        for (failure, says) in [
            (ConnectFailure::NameUnknown, "the proxy on the way has a name that no host has"),
            (ConnectFailure::NameLookupFailed, "the proxy on the way has a name that could not be looked up"),
            (ConnectFailure::Refused, "the proxy on the way can't be reached"),
            (ConnectFailure::TimedOut, "the proxy on the way can't be reached"),
            (ConnectFailure::Local, "this proxy can't open a connection now"),
        ] {
            let said = as_of_proxy(failure).to_string();
            assert_eq!(said, says, "{failure:?}");
        }
    }
}
