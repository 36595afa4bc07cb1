//! Limits of paths are set and looked at, and subflows are looked up for them.

use polypath_mptcp::ConnectionId;

use super::handle::Stack;
use super::path_limits::{MOST_LIMITS, PathLimit, PathLimitState, SeenSubflow, TooManyLimits, Unsorted};
use super::state::StackShared;

impl Stack {
    /// So many limits of paths can be there at once.
    pub const MOST_PATH_LIMITS: usize = MOST_LIMITS;

    /// Sets a limit of paths, or changes that of the same name, from now on and also for connections that live. What is too much for it waits in a
    /// queue of 100 ms at that rate, twenty packets at least and a thousand at most, or is dropped. It comes down to its rate within a second, so
    /// that senders can follow.
    pub fn set_path_limit(&self, name: &str, limit: PathLimit) -> Result<(), TooManyLimits> {
        let mut set = Ok(());
        self.shared.tell(|state, now| set = state.path_limits.set(now, name, limit, &state.host));
        set
    }

    /// Removes a limit of paths, and says whether there was one. What waited goes on at once.
    pub fn remove_path_limit(&self, name: &str) -> bool {
        let mut was_set = false;
        self.shared.tell(|state, now| was_set = state.path_limits.remove(now, name, &state.host));
        was_set
    }

    /// Has limits asked of a connection now, and not only within a second, since something has changed that they ask for.
    pub fn ask_path_limits(&self, connection: ConnectionId) {
        if self.shared.peek(|state| state.path_limits.is_active()) {
            self.shared.tell(|state, _| {
                let info = state.host.info(connection);
                let tuples = info.iter().flat_map(|info| info.subflows.iter().map(|subflow| subflow.tuple));
                state.path_limits.look_again(tuples);
            });
        }
    }

    /// The limits of paths, and what they do, in the order in which they were set.
    #[must_use]
    pub fn path_limits(&self) -> Vec<PathLimitState> {
        self.shared.peek(|state| state.path_limits.states(&state.host))
    }
}

impl StackShared {
    /// Finds out which limits are of some subflows. Neither the state nor the underlay is locked while limits are asked.
    pub(super) fn sort_into_limits(&self, unsorted: Vec<Unsorted>) {
        let question = self.peek(|state| state.path_limits.question());
        let sort = |Unsorted { tuple, connection, is_client }| {
            let seen =
                self.underlay(|underlay| (underlay.seen_subflow(tuple), underlay.subflow_path_name(tuple)));
            let (ends, path_name) = seen.unwrap_or((tuple, None));
            let seen = SeenSubflow { connection, is_client, ends, path_name };
            (tuple, question.sort(&seen))
        };
        let sorted = unsorted.into_iter().map(sort).collect();
        let now = self.now();
        self.peek(|state| state.path_limits.sort(now, &question, sorted));
    }
}
