//! Whose the connections of our own stack are, for limits of paths.

use std::sync::Arc;

use polypath_mptcp::{Attachment, ConnectionId};
use polypath_stack::engine::Stream;
use polypath_stack::stack::Stack;

use super::leg::Leg;
use crate::throttle::FlowKey;

/// A connection of our own stack.
pub(super) type OfStack = (Stack, ConnectionId);

/// What a stream is there, if it is of our own stack.
pub(super) fn of_stack(leg: &Leg) -> Option<OfStack> {
    leg.with(|stream| match stream {
        Stream::Stack(stream) => Some((stream.stack().clone(), stream.id())),
        _ => None,
    })
}

/// One proxy's word of whose connections are. The stack keeps it with each until that is closed: what waits in its send buffer goes on when the
/// proxy has nothing of it any more. Copies are of the same proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners(Arc<()>);

#[derive(Debug)]
struct Owner {
    said_by: Owners,
    key: FlowKey,
}

impl Owners {
    /// These are a client's and its server's, until they are another's or closed.
    pub(super) fn own(&self, connections: [Option<OfStack>; 2], key: impl FnOnce() -> FlowKey) {
        if connections.iter().all(Option::is_none) {
            return;
        }
        let owner = Arc::new(Owner { said_by: self.clone(), key: key() });
        for (stack, id) in connections.into_iter().flatten() {
            stack.set_owner(id, owner.clone());
        }
    }

    /// Whose it is, of what this proxy has said.
    pub(super) fn of<'a>(&self, kept: Option<&'a Attachment>) -> Option<&'a FlowKey> {
        let owner = kept?.downcast_ref::<Owner>()?;
        Arc::ptr_eq(&owner.said_by.0, &self.0).then_some(&owner.key)
    }
}
