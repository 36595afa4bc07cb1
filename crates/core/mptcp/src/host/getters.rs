//! What can be asked of a host.

use polypath_units::Instant;
use polypath_wire::FourTuple;

use super::{ConnectionId, Host};
use crate::config::HostConfig;
use crate::connection::ConnectionInfo;
use crate::mib::Mib;

impl Host {
    /// The host's settings.
    #[must_use]
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// All counters as of now. O(connections).
    #[must_use]
    pub fn mib(&self) -> Mib {
        let established = self.connections.iter().filter(|(_, entry)| entry.connection.is_established());
        let mut mib = Mib { curr_estab: established.count() as u64, ..self.mib };
        mib.add_strangers(self.strangers.counts());
        mib
    }

    /// Connections that are present, those that nobody has released included.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Flows that lead somewhere: subflows and TIME-WAITs.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Both ends of every subflow.
    pub fn subflow_tuples(&self) -> impl Iterator<Item = FourTuple> {
        self.connections.iter().flat_map(|(_, entry)| entry.connection.tuples())
    }

    /// Tokens by which peers can join.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.tokens.len()
    }

    /// Memory that the receive windows of connections have promised to peers beyond 256 KiB for each.
    #[must_use]
    pub fn promised_receive_bytes(&self) -> u64 {
        self.memory.promised_bytes()
    }

    /// Flows in TIME-WAIT.
    #[must_use]
    pub fn time_wait_count(&self) -> usize {
        self.strangers.time_wait_count()
    }

    /// State of a connection.
    #[must_use]
    pub fn info(&self, id: ConnectionId) -> Option<ConnectionInfo> {
        Some(self.connections.get(id.0)?.connection.info())
    }

    /// The key by which the peer believes an MP_FASTCLOSE (RFC 8684 §3.5): a secret of both ends. None without Multipath TCP.
    #[must_use]
    pub fn fastclose_key(&self, id: ConnectionId) -> Option<u64> {
        self.connections.get(id.0)?.connection.fastclose_key()
    }

    /// When a connection does something of its own accord: retransmits, probes, gives up.
    #[must_use]
    pub fn connection_timeout(&self, id: ConnectionId) -> Option<Instant> {
        self.connections.get(id.0)?.connection.poll_timeout()
    }

    /// Bytes that [`Host::send`] would take.
    #[must_use]
    pub fn send_room_bytes(&self, id: ConnectionId) -> u64 {
        self.connections.get(id.0).map_or(0, |entry| entry.connection.send_room_bytes())
    }
}
