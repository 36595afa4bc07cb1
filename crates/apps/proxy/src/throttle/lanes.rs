//! A limit's lanes: one for all flows that it is of, or one for each client.

use std::collections::{BTreeMap, VecDeque};

use polypath_units::Instant;

use super::lane::Lane;
use super::limit::Limit;
use super::turns::FlowId;
use crate::access::ClientKey;

/// Clients of which a limit remembers what they had. Of more than these, those are forgotten that have had no connection for the longest time.
const MOST_CLIENTS: usize = 1 << 16;

/// Whose lane it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    All,
    Client(ClientKey),
}

#[derive(Debug)]
struct Kept {
    lane: Lane,
    /// Whether it is among those that rest.
    rests: bool,
}

#[derive(Debug)]
pub(super) struct Lanes {
    limit: Limit,
    lanes: BTreeMap<Whose, Kept>,
    /// Those that had no flow when they were put here, the longest ago first.
    resting: VecDeque<Whose>,
}

impl Lanes {
    pub(super) fn new(now: Instant, limit: Limit) -> Self {
        let mut lanes = Self { limit, lanes: BTreeMap::new(), resting: VecDeque::new() };
        lanes.begin(now);
        lanes
    }

    pub(super) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The limit is another one now. What was used of the budget stays used, unless clients share it and did not before, or the other way round.
    pub(super) fn set_limit(&mut self, now: Instant, limit: Limit) {
        if limit.is_of_each_client != self.limit.is_of_each_client {
            *self = Self::new(now, limit);
            return;
        }
        for kept in self.lanes.values_mut() {
            kept.lane.set_limit(now, limit.clone());
        }
        self.limit = limit;
    }

    /// All flows of the limit share one; there is one from the beginning, so that what was used before can be told.
    fn begin(&mut self, now: Instant) {
        if !self.limit.is_of_each_client {
            let lane = Lane::new(now, self.limit.clone());
            self.lanes.insert(Whose::All, Kept { lane, rests: false });
        }
    }

    fn whose(&self, client: ClientKey) -> Whose {
        if self.limit.is_of_each_client { Whose::Client(client) } else { Whose::All }
    }

    /// That of a client's flows, if it has any.
    pub(super) fn of(&mut self, client: ClientKey) -> Option<&mut Lane> {
        let whose = self.whose(client);
        self.lanes.get_mut(&whose).map(|kept| &mut kept.lane)
    }

    /// That of a client, or of all, who may have no flow yet; none if the limit is not of each client, or not of all.
    pub(super) fn begin_for(&mut self, client: Option<ClientKey>) -> Option<&mut Lane> {
        let whose = match (client, self.limit.is_of_each_client) {
            (None, false) => Whose::All,
            (Some(client), true) => Whose::Client(client),
            _ => return None,
        };
        if !self.lanes.contains_key(&whose) {
            self.make_room();
            let lane = Lane::new(Instant::ZERO, self.limit.clone());
            self.lanes.insert(whose, Kept { lane, rests: true });
            self.resting.push_back(whose);
        }
        self.lanes.get_mut(&whose).map(|kept| &mut kept.lane)
    }

    /// All of them, with the client if each has one.
    pub(super) fn by_client(&self) -> impl Iterator<Item = (Option<ClientKey>, &Lane)> {
        self.lanes.iter().map(|(whose, kept)| match whose {
            Whose::All => (None, &kept.lane),
            Whose::Client(client) => (Some(*client), &kept.lane),
        })
    }

    /// Whether the limit is of this flow from now on.
    pub(super) fn set_member(&mut self, flow: FlowId, client: ClientKey, is_member: bool) {
        let whose = self.whose(client);
        if is_member && !self.lanes.contains_key(&whose) {
            self.make_room();
            // Full, as one is that has rested since the beginning of time.
            let lane = Lane::new(Instant::ZERO, self.limit.clone());
            self.lanes.insert(whose, Kept { lane, rests: false });
        }
        let Some(kept) = self.lanes.get_mut(&whose) else { return };
        kept.lane.set_member(flow, is_member);
        if kept.lane.flows() == 0 && whose != Whose::All && !std::mem::replace(&mut kept.rests, true) {
            self.resting.push_back(whose);
        }
    }

    fn make_room(&mut self) {
        while self.lanes.len() >= MOST_CLIENTS
            && let Some(whose) = self.resting.pop_front()
        {
            match self.lanes.get_mut(&whose) {
                // Flows have come since.
                Some(kept) if kept.lane.flows() > 0 => kept.rests = false,
                _ => _ = self.lanes.remove(&whose),
            }
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.values().map(|kept| &kept.lane)
    }
}
