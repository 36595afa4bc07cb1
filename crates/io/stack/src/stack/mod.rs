//! Our own stack as an engine: a [`polypath_mptcp::Host`] behind a driver, with sockets for tokio.
//!
//! The host is a state machine behind one lock. Tasks read packets from the driver and hand them in; whoever changed
//! something (a task, or an application in [`StackStream::poll_write`](tokio::io::AsyncWrite::poll_write)) sends what the
//! host wants sent before it lets the lock go, so that data needs no other task to leave.

mod driver;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod ending;
mod listener;
mod pool;
mod state;
mod stream;
mod task;
#[cfg(test)]
mod tests;
mod timer;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use driver::{Receive, Transmit};
pub use listener::StackListener;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{
    ConnectionConfig, ConnectionId, ConnectionInfo, ConnectionOption, Event, HostConfig, Mib,
};
#[cfg(feature = "tun")]
use polypath_system::tun::Tun;
use polypath_units::Instant;
use polypath_wire::Endpoint;
#[cfg(feature = "udp")]
use polypath_wire::FourTuple;
pub use pool::{Buffer, BufferPool};
use state::Shared;
pub use stream::{OwnedReadHalf, OwnedWriteHalf, StackStream, Unanswered};
use tokio::sync::broadcast;

use crate::engine::{ConnectOptions, Keepalive};
use crate::peer_list::PeerList;
#[cfg(feature = "tun")]
use crate::tun;

/// What lies between a stack and the addresses that its peers see.
pub trait Surroundings: std::fmt::Debug + Send {
    /// The stack's own address for one at which somebody wants to listen.
    fn listens_at(&self, local: SocketAddr) -> SocketAddr;

    /// The address by which the stack knows a peer that is to be dialled.
    fn dials(&self, remote: SocketAddr) -> SocketAddr {
        remote
    }

    /// The stack's address from which a peer is reached, if it is reached from one only. Errors: none of them leads there.
    fn starts_at(&self, remote: SocketAddr) -> io::Result<Option<IpAddr>> {
        let _ = remote;
        Ok(None)
    }

    /// The address by which peers on the way know one of the stack's own.
    fn seen_at(&self, own: SocketAddr) -> SocketAddr {
        own
    }

    /// A peer of the stack's, with the address by which the network knows it now.
    fn peer_at(&self, peer: SocketAddr) -> SocketAddr {
        peer
    }

    /// Lets peers reach a port; with `is_held`, whoever listens there has it from the kernel already, so that it need
    /// not be kept from others.
    fn expose(&self, port: u16, is_held: bool) -> io::Result<()>;

    /// What a peer may lack that does not answer, if it has to have more than an open port.
    fn expected_of_peers(&self) -> Option<&'static str> {
        None
    }

    /// What people call the path that one of the stack's own addresses belongs to.
    fn path_name(&self, own: IpAddr) -> Option<String> {
        let _ = own;
        None
    }

    /// What was counted there, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Most that pacing lets go at once on a real network, where each packet costs a system call and segmentation is the
/// kernel's work: two of the largest packets.
const PACING_BURST_BYTES: u32 = 2 * 65_536;

/// How often it is looked whether connections have ended.
const DRAIN_STEP: Duration = Duration::from_millis(2);

/// Settings of connections over real networks: the standards' defaults, bursts that suit segmentation offload, and
/// keep-alives as of [`Keepalive::default`].
#[must_use]
pub fn default_connection() -> ConnectionConfig {
    let defaults = ConnectionConfig::default();
    let tcp = polypath_tcp::Config { pacing_burst_bytes: PACING_BURST_BYTES, ..(*defaults.tcp).clone() };
    let mut connection = ConnectionConfig { tcp: Arc::new(tcp), ..defaults };
    Keepalive::default().choose(&mut connection);
    connection
}

/// Our stack. Clones are handles to the same one; it ends when the last handle, stream and listener is gone and its
/// connections are closed.
#[derive(Debug)]
pub struct Stack {
    shared: Arc<Shared>,
}

impl Stack {
    /// A stack behind a TUN device, whose addresses and routes are the caller's business.
    ///
    /// Must be called within a tokio runtime.
    #[cfg(feature = "tun")]
    pub fn tun(tun: &Tun, config: HostConfig) -> io::Result<Self> {
        let (transmit, receive) = tun::split(tun)?;
        Self::start(config, transmit, receive)
    }

    /// A stack behind any driver.
    ///
    /// Must be called within a tokio runtime.
    pub fn start<R: Receive + 'static>(
        config: HostConfig,
        transmit: impl Transmit + 'static,
        receive: impl IntoIterator<Item = R>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(config, Box::new(transmit))?);
        // The tasks end when there is no handle, so the first one comes before them.
        let stack = Self::handle(shared);
        task::spawn(&stack.shared, receive)?;
        Ok(stack)
    }

    fn handle(shared: Arc<Shared>) -> Self {
        shared.add_handle();
        Self { shared }
    }

    /// Opens a connection, from the address that `options` name or else from the first path of the remote's family.
    pub async fn connect(&self, remote: SocketAddr, options: &ConnectOptions) -> io::Result<StackStream> {
        let dialled = self.shared.surroundings(|around| around.dials(remote)).unwrap_or(remote);
        let only = self.shared.surroundings(|around| around.starts_at(dialled)).transpose()?.flatten();
        let id = self.shared.with(|state, now| {
            let local = match (options.local, only) {
                (Some(local), _) => Endpoint::from(local),
                (None, Some(addr)) => Endpoint::new(addr, 0),
                (None, None) => Endpoint::new(state.first_path(dialled)?, 0),
            };
            let id = state
                .host
                .connect(now, local, dialled.into(), options.config.clone())
                .map_err(|error| io::Error::new(io::ErrorKind::AddrNotAvailable, error.to_string()))?;
            state.open(id);
            Ok::<_, io::Error>(id)
        })?;
        let stream = StackStream::new(self.clone(), id);
        stream.connected().await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                io::Error::new(error.kind(), format!("{remote} refused the connection"))
            }
            io::ErrorKind::TimedOut => io::Error::new(error.kind(), format!("{remote} did not answer")),
            io::ErrorKind::HostUnreachable => self.unreachable(remote),
            _ => error,
        })?;
        Ok(stream)
    }

    /// Listens at an address of the stack, or at all of them.
    pub fn listen(&self, local: SocketAddr) -> io::Result<StackListener> {
        self.listen_with(Some(local), None)
    }

    /// As [`Stack::listen`], for whoever has a socket of the kernel that listens at the same port.
    pub fn listen_beside(&self, local: SocketAddr) -> io::Result<StackListener> {
        self.listen_at(Some(local), None, true)
    }

    /// Listens at an address or, without one, at every address and port where nothing else listens; the connections
    /// get `config`, if there is one.
    pub fn listen_with(
        &self,
        local: Option<SocketAddr>,
        config: Option<Arc<ConnectionConfig>>,
    ) -> io::Result<StackListener> {
        self.listen_at(local, config, false)
    }

    fn listen_at(
        &self,
        local: Option<SocketAddr>,
        config: Option<Arc<ConnectionConfig>>,
        is_held: bool,
    ) -> io::Result<StackListener> {
        let own =
            local.map(|local| self.shared.surroundings(|around| around.listens_at(local)).unwrap_or(local));
        let (id, local) = self.shared.with(|state, _| state.listen(own, config))?;
        let listener = StackListener::new(self.clone(), id, local);
        if own.is_some() {
            self.shared.surroundings(|around| around.expose(local.port(), is_held)).transpose()?;
        }
        Ok(listener)
    }

    /// Puts the stack into surroundings, which are kept as long as the stack.
    pub fn surround(&self, surroundings: Box<dyn Surroundings>) {
        self.shared.surround(surroundings);
    }

    /// Notes in a list which subflows are open, from now on.
    pub fn keep_peers(&self, list: PeerList) {
        self.shared.peek(|state| state.keep_peers(list));
    }

    /// A path became usable: connections may have subflows from its address.
    pub fn add_path(&self, endpoint: LocalEndpoint) {
        self.shared.with(|state, now| state.host.add_endpoint(now, endpoint));
    }

    /// A path is gone: its subflows end, and what they had under way goes elsewhere.
    pub fn remove_path(&self, addr: IpAddr) {
        self.shared.with(|state, now| state.host.remove_endpoint(now, addr));
    }

    /// The paths.
    #[must_use]
    pub fn paths(&self) -> Vec<LocalEndpoint> {
        self.shared.with(|state, _| state.host.config().endpoints.clone())
    }

    /// The settings that connections get unless they bring their own.
    #[must_use]
    pub fn connection_config(&self) -> Arc<ConnectionConfig> {
        self.shared.with(|state, _| state.host.config().connection.clone())
    }

    /// State of each connection that an application holds.
    #[must_use]
    pub fn connections(&self) -> Vec<(ConnectionId, ConnectionInfo)> {
        self.shared.with(|state, _| state.connections())
    }

    /// State of one connection; none once it is over.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<ConnectionInfo> {
        self.shared.peek(|state| state.host.info(id))
    }

    /// The address by which peers know one of the stack's own, if nobody else translates it.
    #[must_use]
    pub fn seen_at(&self, own: SocketAddr) -> SocketAddr {
        self.shared.surroundings(|around| around.seen_at(own)).unwrap_or(own)
    }

    /// What a peer may lack that does not answer.
    pub fn expected_of_peers(&self) -> Option<&'static str> {
        self.shared.surroundings(|around| around.expected_of_peers()).flatten()
    }

    fn unreachable(&self, remote: SocketAddr) -> io::Error {
        let expected = self.expected_of_peers().map(|expected| format!("; expected {expected}"));
        let text = format!("nobody listens at {remote}, the network says{}", expected.unwrap_or_default());
        io::Error::new(io::ErrorKind::HostUnreachable, text)
    }

    /// Changes a setting of a connection, as `setsockopt` does.
    pub fn set_option(&self, id: ConnectionId, option: ConnectionOption) {
        self.shared.with(|state, now| state.host.set_option(now, id, option));
    }

    /// A handle that does not keep the stack running.
    #[must_use]
    pub fn downgrade(&self) -> WeakStack {
        WeakStack { shared: Arc::downgrade(&self.shared) }
    }

    /// Counters, by the kernel's names.
    #[must_use]
    pub fn mib(&self) -> Mib {
        self.shared.with(|state, _| state.host.mib())
    }

    /// The paths that peers were asked not to use, since they held up the rest or would have, by name, or address where they have none.
    #[must_use]
    pub fn paths_set_aside(&self) -> Vec<String> {
        let addresses = self.shared.peek(|state| state.set_aside.clone());
        let name = |addr: &IpAddr| {
            let named = self.shared.surroundings(|around| around.path_name(*addr)).flatten();
            named.unwrap_or_else(|| addr.to_string())
        };
        let mut names: Vec<String> = addresses.iter().map(name).collect();
        names.dedup();
        names
    }

    /// Counters of what lies between the stack and its peers, by name.
    #[must_use]
    pub fn driver_counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.surroundings(|around| around.counters()).unwrap_or_default()
    }

    /// Both ends of every subflow.
    #[cfg(feature = "udp")]
    pub(crate) fn flows(&self) -> Vec<FourTuple> {
        self.shared.peek(|state| state.host.subflow_tuples().collect())
    }

    /// Has subflows send an acknowledgment, `most` of those that are meant.
    #[cfg(feature = "udp")]
    pub(crate) fn acknowledge(&self, most: usize, is_meant: impl Fn(&FourTuple) -> bool) {
        self.shared.with(|state, now| {
            let meant: Vec<FourTuple> = state.host.subflow_tuples().filter(is_meant).take(most).collect();
            meant.into_iter().for_each(|flow| state.host.acknowledge(now, flow));
        });
    }

    /// What happens to connections and subflows from now on, `Readable` and `Writable` left out. A slow receiver
    /// misses the oldest.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<(Instant, ConnectionId, Event)> {
        self.shared.with(|state, _| state.observers.subscribe())
    }

    /// Waits until every connection that was let go is closed in order; at most `limit`.
    pub async fn drain(&self, limit: Duration) {
        let drained = async {
            while self.shared.with(|state, _| state.host.connection_count()) > 0 {
                tokio::time::sleep(DRAIN_STEP).await;
            }
        };
        // What is not closed by then is left to the peer's timers.
        let _ = tokio::time::timeout(limit, drained).await;
    }

    /// Ends every connection, all of which were let go: what was written is delivered, as far as it can be within `limit`;
    /// a peer that has it all and does not end its side within `linger` is reset, so that it waits for nobody.
    pub async fn finish(&self, limit: Duration, linger: Duration) {
        let delivered = async {
            while self.shared.with(|state, _| state.host.undelivered_count()) > 0 {
                tokio::time::sleep(DRAIN_STEP).await;
            }
        };
        let _ = tokio::time::timeout(limit, delivered).await;
        self.drain(linger).await;
        self.shared.with(|state, now| state.host.abort_all(now));
    }
}

/// A handle to a [`Stack`] that does not keep it running.
#[derive(Clone, Debug)]
pub struct WeakStack {
    shared: Weak<Shared>,
}

impl WeakStack {
    /// The stack, if it still runs.
    #[must_use]
    pub fn upgrade(&self) -> Option<Stack> {
        self.shared.upgrade().filter(|shared| !shared.is_over()).map(Stack::handle)
    }
}

impl Clone for Stack {
    fn clone(&self) -> Self {
        Self::handle(self.shared.clone())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.shared.remove_handle();
    }
}
