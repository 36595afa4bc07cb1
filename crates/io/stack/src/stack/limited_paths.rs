//! Limits of paths are set and looked at, and subflows are looked up for them.

use polypath_mptcp::{Attachment, ConnectionId};

use super::handle::Stack;
use super::path_limits::{
    MOST_LIMITS, PathLimit, PathLimitState, SeenSubflow, SetId, TooManyLimits, Unsorted,
};
use super::state::StackShared;

/// Limits of paths that somebody has set. Their names are known to nobody else, and they are gone once this is dropped. It is a handle to the
/// stack, too, which does not end before.
#[derive(Debug)]
pub struct PathLimitSet {
    stack: Stack,
    id: SetId,
}

impl PathLimitSet {
    /// Sets a limit of paths, or changes that of the same name, from now on and also for connections that live. What is too much for it waits in a
    /// queue of 100 ms at that rate, twenty packets at least and a thousand at most, or is dropped. It comes down to its rate within a second, so
    /// that senders can follow.
    pub fn set(&self, name: &str, limit: PathLimit) -> Result<(), TooManyLimits> {
        let mut set = Ok(None);
        self.stack.shared.tell(|state, now| {
            set = state.path_limits.set(now, (self.id, name), limit, &state.host);
        });
        set.map(drop)
    }

    /// Removes a limit of paths, and says whether there was one. What waited goes on at once.
    pub fn remove(&self, name: &str) -> bool {
        !self.remove_those(Some(name)).is_empty()
    }

    fn remove_those(&self, name: Option<&str>) -> Vec<PathLimit> {
        let mut gone = Vec::new();
        self.stack.shared.tell(|state, now| {
            gone = state.path_limits.remove(now, self.id, name, &state.host);
        });
        gone
    }

    /// The limits, and what they do, in the order in which they were set.
    #[must_use]
    pub fn states(&self) -> Vec<PathLimitState> {
        self.stack.shared.peek(|state| state.path_limits.states(self.id, &state.host))
    }
}

impl Drop for PathLimitSet {
    fn drop(&mut self) {
        self.remove_those(None);
    }
}

impl Stack {
    /// So many limits of paths can be there at once, whoever set them.
    pub const MOST_PATH_LIMITS: usize = MOST_LIMITS;

    /// Limits of paths of the caller's own.
    #[must_use]
    pub fn path_limit_set(&self) -> PathLimitSet {
        PathLimitSet { stack: self.clone(), id: self.shared.peek(|state| state.path_limits.begin_set()) }
    }

    /// Says whose a connection is now, for limits of paths, which are asked of it at once. That holds until another is said or the connection is
    /// closed, which may be long after its stream was dropped: not before the peer has all. What is said is dropped while the stack is locked, and
    /// must not call it then.
    pub fn set_owner(&self, connection: ConnectionId, owner: Attachment) {
        let is_asked = self.shared.peek(|state| {
            state.host.attach(connection, owner);
            state.path_limits.is_active()
        });
        if is_asked {
            self.shared.tell(|state, _| {
                let info = state.host.info(connection);
                let tuples = info.iter().flat_map(|info| info.subflows.iter().map(|subflow| subflow.tuple));
                state.path_limits.look_again(tuples);
            });
        }
    }
}

impl StackShared {
    /// Finds out which limits are of some subflows. Neither the state nor the underlay is locked while limits are asked.
    pub(super) fn sort_into_limits(&self, unsorted: Vec<Unsorted>) {
        let question = self.peek(|state| state.path_limits.question());
        let sort = |Unsorted { tuple, connection, is_client, owner }| {
            let seen =
                self.underlay(|underlay| (underlay.seen_subflow(tuple), underlay.subflow_path_name(tuple)));
            let (ends, path_name) = seen.unwrap_or((tuple, None));
            let seen = SeenSubflow { connection, is_client, ends, path_name, owner };
            (tuple, question.sort(&seen))
        };
        let sorted = unsorted.into_iter().map(sort).collect();
        let now = self.now();
        self.peek(|state| state.path_limits.sort(now, &question, sorted));
    }
}
