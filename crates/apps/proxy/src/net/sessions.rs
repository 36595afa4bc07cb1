//! Who is connected through the proxy now.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polypath_stack::engine::StreamInfo;
use tokio::sync::Notify;

use super::counts::Counts;
use super::flow::{Carried, Flow};
use super::known::Known;
use super::leg::Leg;
use super::session::Ending;
use super::watched::Watched;
use crate::access::Admission;
use crate::target::Target;
use crate::throttle::{Direction, FlowKey};

/// One that is there, as it is now.
#[derive(Clone, Debug)]
pub struct SessionState {
    /// Which one since the start.
    pub number: u64,
    /// The name of its protocol.
    pub protocol: &'static str,
    /// The client.
    pub client: SocketAddr,
    /// Who asked, if that was said.
    pub user: Option<Box<str>>,
    /// What it asked for, if it did yet.
    pub target: Option<Target>,
    /// Where that is.
    pub server: Option<SocketAddr>,
    /// What it moves.
    pub flow: Arc<Flow>,
    /// The client's connection, once it has said what it wants.
    pub client_side: Option<StreamInfo>,
    /// The server's, while there is one.
    pub server_side: Option<StreamInfo>,
}

impl SessionState {
    /// Who it is and where it goes, as limits of paths know it, once it has reached a server. They ask for no path and no direction there.
    #[must_use]
    pub fn owner(&self) -> Option<FlowKey> {
        let server = self.server?;
        Some(FlowKey {
            client: self.client.ip(),
            user: self.user.clone(),
            target: self.target.clone().unwrap_or_else(|| server.into()),
            address: server.ip(),
            interface: None,
            local: None,
            direction: Direction::Down,
        })
    }
}

/// Those that are there.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    present: BTreeMap<u64, Arc<Session>>,
    /// By those that have left.
    carried: Carried,
}

impl Sessions {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().present.len()
    }

    /// Those that are there, in the order in which they came.
    #[must_use]
    pub fn states(&self) -> Vec<SessionState> {
        // The kernel is asked of each without the table's lock.
        let present: Vec<_> =
            self.lock().present.iter().map(|(number, session)| (*number, session.clone())).collect();
        present.iter().map(|(number, session)| session.state(*number)).collect()
    }

    /// Adds those that are there, and what all have moved.
    pub(super) fn count_in(&self, counts: &mut Counts) {
        let table = self.lock();
        counts.carried.add(table.carried);
        for session in table.present.values() {
            *counts.present.entry(session.protocol).or_default() += 1;
            counts.carried.add(session.flow.carried());
        }
    }

    /// Until there are none.
    pub async fn drained(&self) {
        loop {
            let changed = self.0.changed.notified();
            if self.count() == 0 {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn enter(&self, protocol: &'static str, client: SocketAddr, admission: Admission) -> Held {
        let (flow, told) = (Arc::new(Flow::new()), Mutex::default());
        let session = Arc::new(Session { protocol, client, flow, told });
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        table.present.insert(number, session.clone());
        drop(table);
        Held { sessions: self.clone(), number, session, _admission: admission }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that is there, for those who serve it.
#[derive(Debug)]
pub(super) struct Session {
    protocol: &'static str,
    client: SocketAddr,
    flow: Arc<Flow>,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    user: Option<Box<str>>,
    target: Option<Target>,
    server: Option<SocketAddr>,
    shown: Shown,
    given_up: Option<Ending>,
}

/// What can be looked at of the connections.
#[derive(Debug, Default)]
enum Shown {
    #[default]
    Nothing,
    /// Bytes pass through.
    Joined(Arc<Ends>),
    /// Requests are answered one by one.
    Answering { client: Watched, server: Option<Watched> },
}

/// The two connections between which bytes pass.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) client: Leg,
    pub(super) server: Leg,
    are_reset_when_dropped: AtomicBool,
}

impl Ends {
    pub(super) fn new(client: Leg, server: Leg) -> Self {
        Self { client, server, are_reset_when_dropped: AtomicBool::new(false) }
    }

    /// Each has what the other sent.
    pub(super) fn close(self) {
        if self.are_reset_when_dropped.into_inner() {
            self.client.set_reset_when_dropped(false);
            self.server.set_reset_when_dropped(false);
        }
    }

    /// Nobody shall take it for the end.
    pub(super) fn abort(self) {
        self.client.abort();
        self.server.abort();
    }
}

impl Session {
    pub(super) fn client(&self) -> SocketAddr {
        self.client
    }

    pub(super) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// Who asks, and for what.
    pub(super) fn asks(&self, user: Option<&str>, target: &Target) {
        let mut told = self.told();
        told.user = user.map(Into::into);
        told.target = Some(target.clone());
        told.server = None;
    }

    /// What was told of it so far.
    pub(super) fn known(&self) -> Known {
        let told = self.told();
        Known {
            user: told.user.clone(),
            target: told.target.clone(),
            server: told.server,
            is_multipath: None,
        }
    }

    pub(super) fn reached(&self, server: SocketAddr) {
        self.told().server = Some(server);
    }

    /// The proxy ends it, for that reason.
    pub(super) fn give_up(&self, why: Ending) {
        self.told().given_up = Some(why);
    }

    /// Why the proxy has ended it, if it has.
    pub(super) fn given_up(&self) -> Option<Ending> {
        self.told().given_up.clone()
    }

    /// These can be looked at until they are taken back.
    pub(super) fn show(&self, ends: Ends) -> Arc<Ends> {
        let ends = Arc::new(ends);
        self.told().shown = Shown::Joined(ends.clone());
        ends
    }

    /// It has lasted: while bytes pass through, both sides get keep-alives, and a reset if the proxy is killed.
    pub(super) fn lasts(&self) {
        if let Shown::Joined(ends) = &self.told().shown {
            for side in [&ends.client, &ends.server] {
                side.keep_alive();
                side.set_reset_when_dropped(true);
            }
            ends.are_reset_when_dropped.store(true, Ordering::Relaxed);
        }
    }

    /// Requests come over this, and go on over that, if there is one.
    pub(super) fn show_answering(&self, client: Watched, server: Option<Watched>) {
        self.told().shown = Shown::Answering { client, server };
    }

    /// For who has them alone again.
    pub(super) fn take_back(&self, ends: Arc<Ends>) -> Option<Ends> {
        // Who looks holds the lock.
        self.told().shown = Shown::Nothing;
        Arc::into_inner(ends)
    }

    fn state(&self, number: u64) -> SessionState {
        let told = self.told();
        let info = |leg: &Leg| Some(leg.info());
        let (client_side, server_side) = match &told.shown {
            Shown::Nothing => (None, None),
            Shown::Joined(ends) => (info(&ends.client), info(&ends.server)),
            Shown::Answering { client, server } => (client.info(), server.as_ref().and_then(Watched::info)),
        };
        SessionState {
            number,
            protocol: self.protocol,
            client: self.client,
            user: told.user.clone(),
            target: told.target.clone(),
            server: told.server,
            flow: self.flow.clone(),
            client_side,
            server_side,
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    sessions: Sessions,
    number: u64,
    session: Arc<Session>,
    _admission: Admission,
}

impl Held {
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut table = self.sessions.lock();
        table.present.remove(&self.number);
        // At once, so that the sum never goes back.
        table.carried.add(self.session.flow.carried());
        drop(table);
        self.sessions.0.changed.notify_waiters();
    }
}
