//! Joins that are half-open, and those that were held nowhere until their third ACK.

use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_tcp::source_prefix;
use polypath_units::Instant;

use super::{Connection, Context, Request};
use crate::crypto::{Hmac160, join_hmac, truncated, verify_join_hmac};
use crate::host::STATELESS_JOIN_LIFE;
use crate::path_manager::Limits;
use crate::subflow::Stage;

/// Stateless joins that a connection remembers; while it remembers so many, it takes no further one.
const MOST_REMEMBERED: usize = 64;

/// Our nonces that third ACKs have used: the same third ACK, sent again by somebody who heard it, opens no second subflow.
#[derive(Debug, Default)]
pub(super) struct StatelessJoins {
    used: Vec<(Instant, u32)>,
}

impl StatelessJoins {
    /// True if the nonce was not used yet, and can be remembered for as long as it holds.
    fn note(&mut self, now: Instant, nonce: u32) -> bool {
        self.used.retain(|(at, _)| now.since(*at) < STATELESS_JOIN_LIFE);
        if self.used.len() >= MOST_REMEMBERED || self.used.iter().any(|(_, used)| *used == nonce) {
            return false;
        }
        self.used.push((now, nonce));
        true
    }
}

impl Connection {
    /// Incoming MP_JOINs that are not complete.
    pub(crate) fn half_open_joins(&self) -> usize {
        self.subflows.iter().filter(|subflow| subflow.meta.stage == Stage::JoinSynAck).count()
    }

    /// There is room for another subflow. Half-open joins take none: anybody who knows the token can begin them.
    pub(crate) fn may_take_join(&self, limits: Limits) -> bool {
        self.may_join() && self.subflows.len() - self.half_open_joins() <= usize::from(limits.subflows)
    }

    /// A join was completed, perhaps after others that began before it.
    pub(super) fn has_room_for_join(&self, cx: &Context<'_>) -> bool {
        // It is half-open itself until it is established.
        self.subflows.len() - self.half_open_joins() <= usize::from(cx.limits.subflows)
    }

    /// Forgets the oldest half-open join of the source that has most of them; false if there is none.
    pub(crate) fn evict_half_open_join(&mut self) -> bool {
        let half_open = || self.subflows.iter().filter(|subflow| subflow.meta.stage == Stage::JoinSynAck);
        let of_source = |addr: IpAddr| {
            let source = source_prefix(addr);
            half_open().filter(|subflow| source_prefix(subflow.tcp.tuple().remote.addr) == source).count()
        };
        // Subflows are in the order of their arrival, and `max_by_key` takes the last of equals.
        let Some(id) = half_open()
            .rev()
            .max_by_key(|subflow| of_source(subflow.tcp.tuple().remote.addr))
            .map(|subflow| subflow.meta.id)
        else {
            return false;
        };
        self.forget_join(id);
        true
    }

    /// Forgets a join without a word to whoever began it.
    pub(crate) fn forget_join(&mut self, id: u8) {
        let Some(position) = self.position(id) else { return };
        let subflow = self.subflows.remove(position);
        if position < self.shared.views.len() {
            self.shared.views.remove(position);
        }
        self.requests.push(Request::RemoveFlow { tuple: subflow.tcp.tuple() });
    }

    /// The subflow's third ACK has not come.
    pub(crate) fn is_half_open_join(&self, id: u8) -> bool {
        self.position(id)
            .and_then(|position| self.subflows.get(position))
            .is_some_and(|subflow| subflow.tcp.is_half_open())
    }

    /// See [`StatelessJoins`].
    pub(crate) fn note_stateless_join(&mut self, now: Instant, local_nonce: u32) -> bool {
        self.stateless_joins.note(now, local_nonce)
    }

    /// The HMAC of the SYN/ACK that answers an MP_JOIN.
    pub(crate) fn join_syn_ack_hmac(&self, local_nonce: u32, remote_nonce: u32) -> Option<u64> {
        let shared = &self.shared;
        let (own, peer) = (shared.local_key, shared.remote_key?);
        Some(truncated(&join_hmac(shared.version, own, peer, local_nonce, remote_nonce)))
    }

    /// The peer made `hmac` for the third ACK of a join with these nonces.
    pub(crate) fn is_join_signed(&self, local_nonce: u32, remote_nonce: u32, hmac: &Hmac160) -> bool {
        let shared = &self.shared;
        let Some(peer) = shared.remote_key.filter(|_| self.may_join()) else { return false };
        verify_join_hmac(shared.version, peer, shared.local_key, remote_nonce, local_nonce, hmac)
    }
}
