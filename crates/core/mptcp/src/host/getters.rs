//! What can be asked of a host.

use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_tcp::{ConnectionId, Population};
use polypath_units::Instant;
use polypath_wire::FourTuple;

use super::{Attachment, Host};
use crate::carried::Carried;
use crate::config::HostConfig;
use crate::connection::{Connection, ConnectionInfo};
use crate::counters::Counters;

impl Host {
    /// The host's settings.
    #[must_use]
    pub fn config(&self) -> &HostConfig {
        &self.resources.config
    }

    /// All counters as of now. O(connections).
    #[must_use]
    pub fn counters(&self) -> Counters {
        let established = self.core.iter().filter(|(_, connection)| connection.is_established());
        let mut counters = Counters { curr_estab: established.count() as u64, ..self.resources.counters };
        counters.add_strangers(self.core.strangers().counts());
        counters
    }

    /// What each local address has carried since the start, over all connections. The first sixteen addresses that are seen have a place
    /// each; others share that of `0.0.0.0`. O(subflows).
    #[must_use]
    pub fn carried(&mut self) -> Vec<(IpAddr, Carried)> {
        let live: Vec<_> = self.core.iter().flat_map(|(_, connection)| connection.carried()).collect();
        // Whoever is seen has a place from now on.
        live.iter().for_each(|(addr, _)| self.ended.add(*addr, Carried::default()));
        let mut sums = self.ended.clone();
        live.into_iter().for_each(|(addr, carried)| sums.add(addr, carried));
        sums.into_list()
    }

    /// How much state there is.
    #[must_use]
    pub fn population(&self) -> Population {
        self.core.population()
    }

    /// Both ends of every subflow.
    pub fn subflow_tuples(&self) -> impl Iterator<Item = FourTuple> {
        self.core.iter().flat_map(|(_, connection)| connection.tuples())
    }

    /// The connection that a subflow is of, and whether this end opened it.
    #[must_use]
    pub fn connection_of(&mut self, subflow: &FourTuple) -> Option<(ConnectionId, bool)> {
        let (id, _) = self.core.find(subflow)?;
        Some((id, self.core.get(id)?.is_client()))
    }

    /// What [`Host::attach`] keeps with a connection.
    #[must_use]
    pub fn attached(&self, id: ConnectionId) -> Option<&Attachment> {
        self.attached.get(id)
    }

    /// Tokens by which peers can join.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.tokens.len()
    }

    /// Memory that the receive windows of connections have promised to peers beyond 256 KiB for each.
    #[must_use]
    pub fn promised_receive_bytes(&self) -> u64 {
        self.resources.memory.promised_bytes()
    }

    /// State of a connection.
    #[must_use]
    pub fn info(&self, id: ConnectionId) -> Option<ConnectionInfo> {
        Some(self.core.get(id)?.info())
    }

    /// The key by which the peer believes an MP_FASTCLOSE (RFC 8684 §3.5): a secret of both ends. None without Multipath TCP.
    #[must_use]
    pub fn fastclose_key(&self, id: ConnectionId) -> Option<u64> {
        self.core.get(id)?.fastclose_key()
    }

    /// When a connection does something of its own accord: retransmits, probes, gives up.
    #[must_use]
    pub fn connection_timeout(&self, id: ConnectionId) -> Option<Instant> {
        self.core.get(id)?.poll_timeout()
    }

    /// Bytes that the application has queued, and the peer has not acknowledged.
    #[must_use]
    pub fn queued_bytes(&self, id: ConnectionId) -> u64 {
        self.core.get(id).map_or(0, Connection::queued_bytes)
    }

    /// Bytes that [`Host::send`] would take.
    #[must_use]
    pub fn send_room_bytes(&self, id: ConnectionId) -> u64 {
        self.core.get(id).map_or(0, Connection::send_room_bytes)
    }
}
