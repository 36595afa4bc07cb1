//! A handle to a stack, by which applications and whoever looks after its paths ask it for everything but connections.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{
    ConnectionConfig, ConnectionId, ConnectionInfo, ConnectionOption, Counters, Event, Host, HostConfig,
};
#[cfg(feature = "tun")]
use polypath_system::tun::Tun;
use polypath_units::Instant;
use polypath_wire::FourTuple;
use tokio::sync::broadcast;

use super::driver::{Receive, Transmit};
use super::figures::{Figures, Remains};
use super::state::StackShared;
use super::underlay::Underlay;
use super::{runtime, task};
use crate::peer_list::PeerList;
use crate::tally::Tally;
#[cfg(feature = "tun")]
use crate::tun;

/// How soon it is looked for the first time whether connections have ended. Each look goes over all of them, with the stack locked,
/// so waits grow with the time that has passed: by this part of it, up to the longest.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LOOKS_PER_TIME: u32 = 16;
const LONGEST_LOOK: Duration = Duration::from_millis(100);
/// However slowly peers take what was written, the end comes.
const LONGEST_FINISH: Duration = Duration::from_secs(60);

/// Our stack. Clones are handles to the same one; it ends when the last handle, stream and listener is gone and its
/// connections are closed, or with the tokio runtime in which it was made, or when a policy of the program panics. Handles,
/// streams and listeners that are held longer have errors that hold a [`StackEnded`](super::StackEnded).
///
/// Before a program ends it waits with [`Stack::drain`]: what was written and has not arrived is lost with the runtime.
#[derive(Debug)]
pub struct Stack {
    pub(super) shared: Arc<StackShared>,
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
    /// Must be called within a tokio runtime with IO and time. Errors: one that holds [`NoRuntime`](super::NoRuntime), and what the
    /// system says.
    pub fn start<R: Receive + 'static>(
        config: HostConfig,
        transmit: impl Transmit + 'static,
        receive: impl IntoIterator<Item = R>,
    ) -> io::Result<Self> {
        let runtime = runtime::current()?;
        let shared = Arc::new(StackShared::new(config, Box::new(transmit))?);
        // The tasks end when there is no handle, so the first one comes before them.
        let stack = Self::handle(shared);
        task::spawn(&runtime, &stack.shared, receive);
        Ok(stack)
    }

    fn handle(shared: Arc<StackShared>) -> Self {
        shared.add_handle();
        Self { shared }
    }

    /// Gives the stack an underlay, which is kept as long as the stack.
    pub fn set_underlay(&self, underlay: Box<dyn Underlay>) {
        self.shared.set_underlay(underlay);
    }

    /// Notes in a list which subflows are open, from now on.
    pub fn keep_peers(&self, list: PeerList) {
        self.shared.peek(|state| state.keep_peers(list));
    }

    /// A path became usable: connections may have subflows from its address.
    pub fn add_path(&self, endpoint: LocalEndpoint) {
        self.shared.tell(|state, now| {
            if let Some(endpoint) = state.wishes.handle_added(endpoint) {
                state.host.add_endpoint(now, endpoint);
            }
        });
    }

    /// A path is gone: its subflows end, and what they had under way goes elsewhere.
    ///
    /// A connection is never less connected than TCP would be: where nothing else is established, its last subflows stay, and carry on. They
    /// end as soon as one over another path is established. To have nothing more go over a path, give it a hard
    /// [`Budget`](polypath_mptcp::path_manager::Budget), or end the connections.
    pub fn remove_path(&self, addr: IpAddr) {
        self.shared.tell(|state, now| state.host.remove_endpoint(now, addr));
    }

    /// The paths.
    #[must_use]
    pub fn paths(&self) -> Vec<LocalEndpoint> {
        self.shared.peek(|state| state.host.config().endpoints.clone())
    }

    /// The settings that connections get unless they bring their own.
    #[must_use]
    pub fn connection_config(&self) -> Arc<ConnectionConfig> {
        self.shared.peek(|state| state.host.config().connection.clone())
    }

    /// State of each connection that an application holds.
    #[must_use]
    pub fn connections(&self) -> Vec<(ConnectionId, ConnectionInfo)> {
        self.shared.peek(|state| state.connections())
    }

    /// Where it listens, how many connections wait there for an application, and how many may.
    #[must_use]
    pub fn listeners(&self) -> Vec<(SocketAddr, usize, usize)> {
        self.shared.peek(|state| state.listeners())
    }

    /// State of one connection; none once it is over.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<ConnectionInfo> {
        self.shared.peek(|state| state.host.info(id))
    }

    /// The address by which peers know one of the stack's own, if nobody else translates it.
    #[must_use]
    pub fn seen_at(&self, own: SocketAddr) -> SocketAddr {
        self.shared.underlay(|underlay| underlay.seen_at(own)).unwrap_or(own)
    }

    /// The address by which the network knows a peer of the stack's now.
    #[must_use]
    pub fn peer_at(&self, peer: SocketAddr) -> SocketAddr {
        self.shared.underlay(|underlay| underlay.peer_at(peer)).unwrap_or(peer)
    }

    /// The addresses by which the network knows a subflow, if nobody else translates them.
    #[must_use]
    pub fn seen_subflow(&self, subflow: FourTuple) -> FourTuple {
        self.shared.underlay(|underlay| underlay.seen_subflow(subflow)).unwrap_or(subflow)
    }

    /// What people call the path that a subflow goes over: its interface.
    #[must_use]
    pub fn subflow_path_name(&self, subflow: FourTuple) -> Option<String> {
        self.shared.underlay(|underlay| underlay.subflow_path_name(subflow)).flatten()
    }

    /// What people call the path that one of the stack's own addresses belongs to: its interface.
    #[must_use]
    pub fn path_name(&self, own: IpAddr) -> Option<String> {
        self.shared.underlay(|underlay| underlay.path_name(own)).flatten()
    }

    /// Whether paths stay while their interface is down, so that no event tells of it.
    #[must_use]
    pub fn outlives_interfaces(&self) -> bool {
        self.shared.underlay(|underlay| underlay.outlives_interfaces()).unwrap_or(false)
    }

    /// What a peer may lack that does not answer.
    #[must_use]
    pub fn expected_of_peers(&self) -> Option<String> {
        self.shared.underlay(|underlay| underlay.expected_of_peers()).flatten()
    }

    /// Changes a setting of a connection, as `setsockopt` does.
    pub fn set_option(&self, id: ConnectionId, option: ConnectionOption) {
        self.shared.tell(|state, now| state.host.set_option(now, id, option));
    }

    /// A handle that does not keep the stack running.
    #[must_use]
    pub fn downgrade(&self) -> WeakStack {
        WeakStack { shared: Arc::downgrade(&self.shared), left: self.shared.left().clone() }
    }

    /// Counters, by the kernel's names.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.peek(|state| state.host.counters())
    }

    /// What was counted since the start, over connections that are open and those that have ended.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// The paths that peers were asked not to use, since they held up the rest or would have, by name, or address where they have none.
    #[must_use]
    pub fn paths_set_aside(&self) -> Vec<String> {
        let addresses = self.shared.peek(|state| state.set_aside.clone());
        let name = |addr: &IpAddr| self.path_name(*addr).unwrap_or_else(|| addr.to_string());
        let mut names: Vec<String> = addresses.iter().map(name).collect();
        names.dedup();
        names
    }

    /// What the connections have carried so far, by path.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = self.shared.peek(|state| state.tally.clone());
        tally.paths.iter_mut().for_each(|path| path.name = self.path_name(path.own));
        tally
    }

    /// Counters of what lies between the stack and its peers, by name.
    #[must_use]
    pub fn driver_counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.underlay(|underlay| underlay.counters()).unwrap_or_default()
    }

    /// Both ends of every subflow.
    #[cfg(feature = "udp")]
    pub(crate) fn flows(&self) -> Vec<FourTuple> {
        self.shared.peek(|state| state.host.subflow_tuples().collect())
    }

    /// Has subflows send an acknowledgment, `most` of those that are meant.
    #[cfg(feature = "udp")]
    pub(crate) fn acknowledge(&self, most: usize, is_meant: impl Fn(&FourTuple) -> bool) {
        self.shared.tell(|state, now| {
            let meant: Vec<FourTuple> = state.host.subflow_tuples().filter(is_meant).take(most).collect();
            meant.into_iter().for_each(|flow| state.host.acknowledge(now, flow));
        });
    }

    /// What happens to connections and subflows from now on, `Readable` and `Writable` left out. A slow receiver
    /// misses the oldest.
    ///
    /// Each comes with the time since the stack was made, plus a second: only differences mean something. When the stack [has
    /// ended](super::StackEnded), an [`Event::Closed`] tells of each connection that is still held, and then the channel is closed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<(Instant, ConnectionId, Event)> {
        self.shared.peek(|state| state.subscribe())
    }

    /// Waits until every connection has ended at both ends, so that all that was written has arrived; at most `limit`. Returns
    /// whether it has: false if something is still under way then, if a connection ended before its peer had everything since the
    /// last call, whoever ended it, or if the stack [has ended](super::StackEnded).
    ///
    /// For the end of a program, since the stack ends with the runtime. Streams are dropped before: one that is still held counts
    /// until both sides have ended it.
    pub async fn drain(&self, limit: Duration) -> bool {
        let before = self.shared.peek(|state| state.told_cut_short);
        // What is not closed by then is left to the peer's timers.
        let _ = tokio::time::timeout(limit, self.none_left(Host::unsettled_count)).await;
        self.shared.peek(|state| {
            state.told_cut_short = state.host.cut_short_count();
            let has_all = state.check().is_ok() && state.host.undelivered_count() == 0;
            has_all && state.told_cut_short == before
        })
    }

    /// Ends every connection, all of which were let go: what was written is delivered, as long as peers take some of it within each
    /// `limit`, of which none begins after a minute; a peer that has it all and does not end its side within `linger` is reset, so that it waits for
    /// nobody.
    ///
    /// Returns whether all was delivered, as [`Stack::drain`] does.
    pub async fn finish(&self, limit: Duration, linger: Duration) -> bool {
        self.finish_after(std::future::ready(()), limit, linger).await
    }

    /// As [`Stack::finish`], where `handed_over` is done once the stack has been given all; the time for that is part of it.
    pub async fn finish_after(&self, handed_over: impl Future, limit: Duration, linger: Duration) -> bool {
        let delivered = async {
            handed_over.await;
            self.none_left(Host::undelivered_count).await;
        };
        self.while_taken(limit, delivered).await;
        let is_delivered = self.drain(linger).await;
        self.shared.tell(|state, now| state.host.abort_all(now));
        is_delivered
    }

    /// Ends every connection at once: nobody waits for what can't come any more.
    pub fn abort_connections(&self) {
        self.shared.tell(|state, now| state.host.abort_all(now));
    }

    /// Waits for `done`, as long as peers acknowledge something within each `limit`; once a minute is over, for no further one.
    async fn while_taken(&self, limit: Duration, done: impl Future) {
        let mut done = std::pin::pin!(done);
        let until = tokio::time::Instant::now() + LONGEST_FINISH;
        let mut taken_bytes = self.acknowledged_bytes();
        while tokio::time::timeout(limit, &mut done).await.is_err() {
            let now_bytes = self.acknowledged_bytes();
            if now_bytes == taken_bytes || tokio::time::Instant::now() >= until {
                return;
            }
            taken_bytes = now_bytes;
        }
    }

    /// Waits until `count` is zero, or until the stack has ended: then nothing changes any more.
    async fn none_left(&self, count: impl Fn(&Host) -> usize) {
        let start = tokio::time::Instant::now();
        while self.shared.peek(|state| state.check().is_ok() && count(&state.host) > 0) {
            let wait = start.elapsed() / LOOKS_PER_TIME;
            tokio::time::sleep(wait.clamp(FIRST_LOOK, LONGEST_LOOK)).await;
        }
    }

    fn acknowledged_bytes(&self) -> u64 {
        self.shared.peek(|state| state.host.acknowledged_bytes())
    }
}

/// A handle to a [`Stack`] that does not keep it running.
#[derive(Clone, Debug)]
pub struct WeakStack {
    shared: Weak<StackShared>,
    left: Arc<OnceLock<Remains>>,
}

impl WeakStack {
    /// As [`Stack::figures`]; those of the end, once the stack is gone.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.remains().figures
    }

    /// Counters by the kernel's names, those of the driver among them; those of the end, once the stack is gone.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.remains().counters
    }

    fn remains(&self) -> Remains {
        match self.shared.upgrade() {
            Some(shared) => shared.remains(),
            None => self.left.get().cloned().unwrap_or_default(),
        }
    }

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
