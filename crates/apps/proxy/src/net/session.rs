//! Who is connected through the proxy, and how it ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::flow::Flow;
use crate::access::{Admission, Overload};
use crate::failure::ConnectFailure;
use crate::negotiation::Refusal;
use crate::proxy_protocol::ProxyHeaderError;
use crate::target::Target;

/// How a session ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Ending {
    /// Both sides ended their streams, and each has what the other sent.
    #[error("ended")]
    Finished,
    /// The server was not reached.
    #[error("{0}")]
    NotReached(ConnectFailure),
    /// What the client said led to nothing.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The client said too little in the time for it, or left before it asked for anything.
    #[error("the client said nothing that can be answered")]
    Unasked,
    /// Who sent it there said nothing of who it is.
    #[error("{0}")]
    NoProxyHeader(ProxyHeaderError),
    /// The client, or all together, have as much as they may have.
    #[error("refused: {0}")]
    Overloaded(Overload),
    /// The client's connection broke.
    #[error("the client's connection broke: {0}")]
    ClientBroke(Arc<str>),
    /// The server's connection broke.
    #[error("the server's connection broke: {0}")]
    ServerBroke(Arc<str>),
    /// Nothing moved for as long as that is allowed.
    #[error("nothing moved for too long")]
    Idle,
    /// The proxy ended before it.
    #[error("the proxy ended")]
    Stopped,
}

/// One that is over.
#[derive(Debug)]
pub struct SessionEnd<'a> {
    /// The name of its protocol.
    pub protocol: &'static str,
    /// The client.
    pub client: SocketAddr,
    /// Who asked, if that was said.
    pub user: Option<&'a str>,
    /// What it asked for, if it did.
    pub target: Option<&'a Target>,
    /// Where that was.
    pub server: Option<SocketAddr>,
    /// Which of the connections are of Multipath TCP: the client's, and the server's. None where bytes did not just pass through.
    pub is_multipath: Option<(bool, bool)>,
    /// What it moved.
    pub flow: &'a Flow,
    /// How it ended.
    pub ending: &'a Ending,
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
    flows: BTreeMap<u64, (SocketAddr, Arc<Flow>)>,
}

impl Sessions {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().flows.len()
    }

    /// Who they are of, and what they move.
    #[must_use]
    pub fn flows(&self) -> Vec<(SocketAddr, Arc<Flow>)> {
        self.lock().flows.values().cloned().collect()
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

    pub(super) fn enter(&self, client: SocketAddr, admission: Admission) -> Held {
        let flow = Arc::new(Flow::new());
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        table.flows.insert(number, (client, flow.clone()));
        drop(table);
        Held { sessions: self.clone(), number, flow, _admission: admission }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    sessions: Sessions,
    number: u64,
    flow: Arc<Flow>,
    _admission: Admission,
}

impl Held {
    pub(super) fn flow(&self) -> &Flow {
        &self.flow
    }

    pub(super) fn shared_flow(&self) -> Arc<Flow> {
        self.flow.clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.sessions.lock().flows.remove(&self.number);
        self.sessions.0.changed.notify_waiters();
    }
}
