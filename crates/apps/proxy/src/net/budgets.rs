//! What was used of budgets, for who keeps it from one process to the next.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use polypath_units::{Duration as Span, Instant};

use crate::throttle::Used;

/// What was used of a budget, in the period that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedBudget {
    /// The limit that has the budget.
    pub limit: Arc<str>,
    /// Whose it is, if each client has one: an address of it.
    pub client: Option<IpAddr>,
    /// So much of it.
    pub octets: u64,
    /// How long the period goes on.
    pub left: Duration,
}

impl UsedBudget {
    pub(super) fn of(used: Used, now: Instant) -> Self {
        let Used { limit, client, octets, ends } = used;
        Self { limit, client, octets, left: Duration::from_nanos(ends.since(now).as_nanos()) }
    }

    pub(super) fn at(&self, now: Instant) -> Used {
        let left = Span::from_nanos(u64::try_from(self.left.as_nanos()).unwrap_or(u64::MAX));
        let (limit, client) = (self.limit.clone(), self.client);
        Used { limit, client, octets: self.octets, ends: now + left }
    }
}
