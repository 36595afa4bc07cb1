//! How connections and subflows that we ask for come to be.

use core::net::IpAddr;

use arrayvec::ArrayVec;
use polypath_tcp::{Connection as TcpConnection, ConnectionId};
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple};
use rand_core::Rng;

use super::path_memory::{Advice, MOST_CANDIDATES};
use super::rivals::Rivals;
use super::{ConnectError, Host};
use crate::identifiers::AddressId;

/// Paths that the first handshake is tried over, beside the one asked for.
const MAX_RIVALS: usize = MOST_CANDIDATES - 1;
/// When no regular path has answered for so long, backups are asked too: a SYN is repeated after a second, and has as much again for its
/// answer as most paths need.
const BACKUPS_AFTER: Duration = Duration::from_millis(1500);

impl Host {
    /// The client side of MP_JOIN.
    pub(super) fn open_subflow(
        &mut self,
        now: Instant,
        id: ConnectionId,
        local: IpAddr,
        local_id: AddressId,
        remote: Endpoint,
        backup: bool,
    ) {
        let Ok(tuple) = self.local_tuple(Endpoint::new(local, 0), remote) else { return };
        let Some(config) = self.core.get(id).map(|connection| connection.config().clone()) else {
            return;
        };
        let nonce = self.random.next_u32();
        let setup = self.tcp_setup(now, tuple, &config, None);
        let tcp = TcpConnection::connect(now, setup);
        let Some(connection) = self.core.get_mut(id) else { return };
        let subflow = connection.open_join(now, tcp, local_id, nonce, backup);
        connection.remember_rate(subflow, self.path_memory.bottleneck_bytes_per_s(now, local, remote.addr));
        self.core.add_flow(id, tuple, subflow);
        self.settle(now, id);
    }

    /// How to open a connection, if the paths are remembered.
    pub(super) fn advice(&self, now: Instant, asked: IpAddr, remote: IpAddr) -> Option<Advice> {
        let rivals = self
            .resources
            .config
            .endpoints
            .iter()
            .filter(|endpoint| Rivals::Regular.has(endpoint, asked, remote));
        let rivals = rivals.map(|endpoint| endpoint.addr).take(MAX_RIVALS);
        let candidates: ArrayVec<IpAddr, MOST_CANDIDATES> = core::iter::once(asked).chain(rivals).collect();
        self.path_memory.advise(now, &candidates, remote)
    }

    /// Sends the first SYN of a connection over these other endpoints too, but those that are to wait.
    pub(super) fn race(
        &mut self,
        now: Instant,
        id: ConnectionId,
        initial: FourTuple,
        rivals: Rivals,
        waiting: &[IpAddr],
    ) {
        let Some(connection) = self.core.get(id) else { return };
        let config = connection.config().clone();
        if !config.race || !config.mptcp {
            return;
        }
        let (asked, remote) = (initial.local.addr, initial.remote.addr);
        let endpoints = &self.resources.config.endpoints;
        let has_backups = endpoints.iter().any(|endpoint| Rivals::Backups.has(endpoint, asked, remote));
        let endpoints = endpoints.iter().filter(|endpoint| rivals.has(endpoint, asked, remote));
        let is_due = |addr: &IpAddr| !waiting.contains(addr) && !connection.has_subflow_from(*addr);
        let others: ArrayVec<IpAddr, MAX_RIVALS> =
            endpoints.map(|endpoint| endpoint.addr).filter(is_due).take(MAX_RIVALS).collect();
        for addr in others {
            let Ok(tuple) = self.local_tuple(Endpoint::new(addr, 0), initial.remote) else { continue };
            let setup = self.tcp_setup(now, tuple, &config, None);
            let Some(connection) = self.core.get_mut(id) else { return };
            let subflow = connection.open_rival(TcpConnection::connect(now, setup));
            let remembered = self.path_memory.bottleneck_bytes_per_s(now, addr, remote);
            connection.remember_rate(subflow, remembered);
            self.core.add_flow(id, tuple, subflow);
            self.resources.counters.mp_capable_syn_tx += 1;
        }
        if has_backups
            && rivals == Rivals::Regular
            && let Some(connection) = self.core.get_mut(id)
        {
            connection.race_at(now + BACKUPS_AFTER, Rivals::Backups);
        }
        self.settle(now, id);
    }

    /// The 4-tuple of an outgoing flow; chooses the port if none was.
    pub(super) fn local_tuple(
        &mut self,
        local: Endpoint,
        remote: Endpoint,
    ) -> Result<FourTuple, ConnectError> {
        if local.addr.is_ipv4() != remote.addr.is_ipv4() {
            return Err(ConnectError::FamilyMismatch);
        }
        if local.port != 0 {
            let tuple = FourTuple { local, remote };
            return if self.core.has_flow(&tuple) { Err(ConnectError::InUse(tuple)) } else { Ok(tuple) };
        }
        let ports = &self.resources.config.ephemeral_ports;
        let flow = self.core.ephemeral_flow(local.addr, remote, ports, |_, _| true);
        flow.ok_or(ConnectError::NoPort(remote))
    }
}
