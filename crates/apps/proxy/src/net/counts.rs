//! What a proxy has done since its start, in numbers.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::flow::Carried;
use super::session::Ending;
use crate::failure::ConnectFailure;

/// How a session ended, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Both sides ended in order.
    Complete,
    /// Rules or users of this proxy were against it.
    Refused,
    /// The client, or all together, had as much as they may have.
    Overloaded,
    /// The server was not reached.
    NotReached,
    /// One side broke, was idle for too long, or the proxy ended first.
    Broken,
    /// The client asked for nothing that can be answered.
    Unasked,
}

impl Outcome {
    /// In a word, such as for a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Refused => "refused",
            Self::Overloaded => "overloaded",
            Self::NotReached => "not_reached",
            Self::Broken => "broken",
            Self::Unasked => "unasked",
        }
    }
}

impl From<&Ending> for Outcome {
    fn from(ending: &Ending) -> Self {
        match ending {
            Ending::Finished => Self::Complete,
            Ending::NotReached(ConnectFailure::NotAllowed)
            | Ending::Refused(_)
            | Ending::NotSecured(_)
            | Ending::NoProxyHeader(_) => Self::Refused,
            Ending::NotReached(ConnectFailure::Overloaded) | Ending::Overloaded(_) => Self::Overloaded,
            Ending::NotReached(_) | Ending::Misnamed(_) => Self::NotReached,
            Ending::Unasked | Ending::NoHandshake(_) => Self::Unasked,
            Ending::ClientBroke(_) | Ending::ServerBroke(_) | Ending::Idle | Ending::Stopped => Self::Broken,
        }
    }
}

/// What a proxy has done since its start, and who is within. None of the numbers but the first goes back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those within, by the name of the protocol.
    pub present: BTreeMap<&'static str, u64>,
    /// Those that have ended, of HTTP each request, by the name of the protocol and how they ended.
    pub ended: BTreeMap<(&'static str, Outcome), u64>,
    /// What they have moved, those within too.
    pub carried: Carried,
}

/// Sessions that have ended. Touched once by each.
#[derive(Debug, Default)]
pub(super) struct Ended(Mutex<BTreeMap<(&'static str, Outcome), u64>>);

impl Ended {
    pub(super) fn count(&self, protocol: &'static str, ending: &Ending) {
        *self.lock().entry((protocol, ending.into())).or_default() += 1;
    }

    pub(super) fn so_far(&self) -> BTreeMap<(&'static str, Outcome), u64> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, Outcome), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_has_one_word() {
        for (ending, expected) in [
            (Ending::Finished, "complete"),
            (Ending::NotReached(ConnectFailure::NotAllowed), "refused"),
            (Ending::NotReached(ConnectFailure::Refused), "not_reached"),
            (Ending::Overloaded(crate::access::Overload::Memory), "overloaded"),
            (Ending::ServerBroke("reset".into()), "broken"),
            (Ending::Stopped, "broken"),
            (Ending::Unasked, "unasked"),
            (Ending::NoHandshake("there was none"), "unasked"),
        ] {
            assert_eq!(Outcome::from(&ending).name(), expected, "{ending}");
        }
    }
}
