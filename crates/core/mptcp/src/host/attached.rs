//! What applications keep with connections.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::any::Any;

use polypath_tcp::ConnectionId;

/// Anything that an application knows of a connection.
pub type Attachment = Arc<dyn Any + Send + Sync>;

/// By connection; most have nothing.
#[derive(Debug, Default)]
pub(super) struct Attached(BTreeMap<ConnectionId, Attachment>);

impl Attached {
    pub(super) fn insert(&mut self, id: ConnectionId, what: Attachment) {
        self.0.insert(id, what);
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Attachment> {
        self.0.get(&id)
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.0.remove(&id);
    }
}
