use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use polypath_tcp::ConnectionId;
use polypath_units::Instant;
use polypath_wire::Packet;

use crate::app::{App, Stack, StackInfo, StreamEvent};

/// A node that takes packets and gives packets: the shape of every protocol stack here.
///
/// After each call, the network takes packets from [`Node::poll_transmit`] until there are none, and then
/// asks [`Node::poll_timeout`]. Time never goes backwards.
pub trait Node: fmt::Debug {
    /// A packet arrived.
    fn handle_packet(&mut self, now: Instant, packet: Packet);
    /// The next packet to send, until `None`.
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet>;
    /// When [`Node::handle_timeout`] is to be called, if ever.
    fn poll_timeout(&mut self) -> Option<Instant>;
    /// The instant of [`Node::poll_timeout`] came.
    fn handle_timeout(&mut self, now: Instant);
}

/// Number of an application on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(pub(crate) u32);

/// A host: a stack and the applications over it.
#[derive(Debug)]
pub struct HostNode<S: Stack> {
    /// The stack.
    pub stack: S,
    apps: Vec<Running<S>>,
    // The application of each connection, by the connection's slot.
    by_slot: Vec<Option<AppId>>,
    acceptors: BTreeMap<u16, VecDeque<AppId>>,
    next_app_timeout: Instant,
    unclaimed_connections: u64,
}

#[derive(Debug)]
struct Running<S: Stack> {
    app: App<S>,
    id: Option<ConnectionId>,
    timeout: Instant,
}

impl<S: Stack> HostNode<S> {
    /// A host without applications.
    pub fn new(stack: S) -> Self {
        Self {
            stack,
            apps: Vec::new(),
            by_slot: Vec::new(),
            acceptors: BTreeMap::new(),
            next_app_timeout: Instant::FAR_FUTURE,
            unclaimed_connections: 0,
        }
    }

    /// Gives the next connection that is accepted at `port` to `app`. Several wait in order.
    pub fn accept(&mut self, port: u16, app: App<S>) -> AppId {
        let app_id = self.add(app);
        self.acceptors.entry(port).or_default().push_back(app_id);
        app_id
    }

    /// An application.
    pub fn app(&self, app: AppId) -> &App<S> {
        &self.apps[app.0 as usize].app
    }

    /// The connection of an application in numbers, once it has one.
    pub fn info(&self, app: AppId) -> Option<StackInfo> {
        self.connection(app).map(|id| self.stack.info(id).map_or_else(StackInfo::default, Into::into))
    }

    /// Gives an application the connection that was opened for it, or tells it that none could be.
    pub(crate) fn bind_or_refuse(&mut self, now: Instant, id: Option<ConnectionId>, app: AppId) {
        match id {
            Some(id) => self.bind(id, app),
            None => self.apps[app.0 as usize].app.refuse(now),
        }
    }

    /// The connection of an application, once it has one.
    pub fn connection(&self, app: AppId) -> Option<ConnectionId> {
        self.apps[app.0 as usize].id
    }

    /// Connections that were accepted when no application waited.
    pub fn unclaimed_connections(&self) -> u64 {
        self.unclaimed_connections
    }

    /// Adds an application that has no connection yet.
    pub fn add(&mut self, app: App<S>) -> AppId {
        self.apps.push(Running { app, id: None, timeout: Instant::FAR_FUTURE });
        AppId(self.apps.len() as u32 - 1)
    }

    /// Gives the connection `id` to an application.
    pub fn bind(&mut self, id: ConnectionId, app_id: AppId) {
        let slot = id.index();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(app_id);
        self.apps[app_id.0 as usize].id = Some(id);
        self.refresh_timeout(app_id);
    }

    /// Hands events to applications until there are none.
    #[inline]
    pub(crate) fn run_apps(&mut self, now: Instant) {
        while let Some((id, event)) = self.stack.poll() {
            let event = event.into();
            if let StreamEvent::Accepted { local } = event {
                match self.acceptors.get_mut(&local.port).and_then(VecDeque::pop_front) {
                    Some(app_id) => self.bind(id, app_id),
                    None => {
                        self.unclaimed_connections += 1;
                        self.stack.abort(now, id);
                        self.stack.release(now, id);
                        continue;
                    }
                }
            }
            let Some(app_id) = self.by_slot.get(id.index()).copied().flatten() else { continue };
            let running = &mut self.apps[app_id.0 as usize];
            // A slot is used again after its connection is gone.
            if running.id == Some(id) {
                running.app.handle_event(now, &mut self.stack, id, event);
                self.refresh_timeout(app_id);
            }
        }
    }

    /// The instant of [`HostNode::poll_timeout`] came.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.next_app_timeout <= now {
            for index in 0..self.apps.len() {
                let running = &mut self.apps[index];
                if let (true, Some(id)) = (running.timeout <= now, running.id) {
                    running.app.handle_timeout(now, &mut self.stack, id);
                    self.refresh_timeout(AppId(index as u32));
                }
            }
        }
        self.stack.handle_timeout(now);
    }

    #[inline]
    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        let stack = self.stack.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        Some(stack.min(self.next_app_timeout))
    }

    #[inline]
    fn refresh_timeout(&mut self, app_id: AppId) {
        let running = &mut self.apps[app_id.0 as usize];
        let timeout = running.app.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        if timeout != running.timeout {
            running.timeout = timeout;
            self.next_app_timeout =
                self.apps.iter().map(|running| running.timeout).min().unwrap_or(Instant::FAR_FUTURE);
        }
    }
}

/// What a router did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// Packets passed on.
    pub forwarded: u64,
    /// Packets dropped because their time to live ended.
    pub ttl_expired: u64,
    /// Packets dropped for want of a route.
    pub unroutable: u64,
}
