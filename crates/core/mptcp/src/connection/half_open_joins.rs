//! Joins that are half-open, and those that were held nowhere until their third ACK.

use core::net::IpAddr;

use polypath_tcp::source_prefix;
use polypath_units::Instant;

use super::{Connection, Context, Request};
use crate::carried::Carried;
use crate::crypto::Hmac160;
use crate::identifiers::SubflowId;
use crate::path_manager::Limits;
use crate::subflow::Stage;

impl Connection {
    /// Incoming MP_JOINs that are not complete.
    pub(crate) fn half_open_joins(&self) -> usize {
        self.subflows.count(|subflow| subflow.state.stage() == Stage::JoinSynAck)
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
        let half_open = || self.subflows.iter().filter(|subflow| subflow.state.stage() == Stage::JoinSynAck);
        let of_source = |addr: IpAddr| {
            let source = source_prefix(addr);
            half_open().filter(|subflow| source_prefix(subflow.tcp.tuple().remote.addr) == source).count()
        };
        // Subflows are in the order of their arrival, and `max_by_key` takes the last of equals.
        let Some(id) = half_open()
            .rev()
            .max_by_key(|subflow| of_source(subflow.tcp.tuple().remote.addr))
            .map(|subflow| subflow.state.id)
        else {
            return false;
        };
        self.forget_join(id);
        true
    }

    /// Forgets a join without a word to whoever began it.
    pub(crate) fn forget_join(&mut self, id: SubflowId) {
        let Some(position) = self.subflows.position(id) else { return };
        let Some(subflow) = self.subflows.remove(position) else { return };
        self.outbox.ask(Request::RemoveFlow { tuple: subflow.tcp.tuple(), carried: Carried::by(&subflow) });
    }

    /// The subflow's third ACK has not come.
    pub(crate) fn is_half_open_join(&self, id: SubflowId) -> bool {
        self.subflows.find(id).is_some_and(|subflow| subflow.tcp.is_half_open())
    }

    /// See [`StatelessJoins`](super::stateless_joins::StatelessJoins).
    pub(crate) fn note_stateless_join(&mut self, now: Instant, local_nonce: u32) -> bool {
        self.stateless_joins.note(now, local_nonce)
    }

    /// The HMAC of the SYN/ACK that answers an MP_JOIN.
    pub(crate) fn join_syn_ack_hmac(&self, local_nonce: u32, remote_nonce: u32) -> Option<u64> {
        self.stream
            .negotiation
            .knows_peer()
            .then(|| self.stream.negotiation.truncated_join_hmac(local_nonce, remote_nonce))
    }

    /// The peer made `hmac` for the third ACK of a join with these nonces.
    pub(crate) fn is_join_signed(&self, local_nonce: u32, remote_nonce: u32, hmac: &Hmac160) -> bool {
        self.may_join() && self.stream.negotiation.is_join_hmac(local_nonce, remote_nonce, hmac)
    }
}
