//! Whose the connections of our own stack are, for limits of paths.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polypath_mptcp::ConnectionId;
use polypath_stack::engine::Stream;
use polypath_stack::stack::Stack;

use crate::throttle::FlowKey;

/// A connection of our own stack.
pub(super) type OfStack = (Stack, ConnectionId);

/// What a stream is there, if it is of our own stack.
pub(super) fn of_stack(stream: &Stream) -> Option<OfStack> {
    let Stream::Stack(stream) = stream else { return None };
    Some((stream.stack().clone(), stream.id()))
}

/// By connection: who is its client, and where it goes. Copies are of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    owned: BTreeMap<ConnectionId, (u64, Arc<FlowKey>)>,
}

impl Owners {
    /// These are a client's and its server's, as long as what is returned is kept.
    pub(super) fn own(
        &self,
        connections: [Option<OfStack>; 2],
        key: impl FnOnce() -> FlowKey,
    ) -> Option<Arc<Owned>> {
        if connections.iter().all(Option::is_none) {
            return None;
        }
        let key = Arc::new(key());
        let connections = connections.into_iter().flatten();
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        let mut told = Vec::new();
        for (stack, id) in connections {
            table.owned.insert(id, (number, key.clone()));
            told.push((stack, id));
        }
        // Limits ask here.
        drop(table);
        told.iter().for_each(|(stack, id)| stack.ask_path_limits(*id));
        let ids = told.into_iter().map(|(_, id)| id).collect();
        Some(Arc::new(Owned { owners: self.clone(), number, ids }))
    }

    /// Whose it is now.
    pub(super) fn of(&self, id: ConnectionId) -> Option<Arc<FlowKey>> {
        self.lock().owned.get(&id).map(|(_, key)| key.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections that are somebody's until this is dropped, or they are another's.
#[derive(Debug)]
pub(super) struct Owned {
    owners: Owners,
    number: u64,
    ids: Vec<ConnectionId>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut table = self.owners.lock();
        for id in &self.ids {
            if table.owned.get(id).is_some_and(|(number, _)| *number == self.number) {
                table.owned.remove(id);
            }
        }
    }
}
