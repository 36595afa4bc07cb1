//! Subflows whose address the peer has withdrawn, while they are asked whether they still work (RFC 8684 §3.4.2).

use polypath_units::Instant;

use crate::identifiers::SubflowId;
use crate::rare_list::RareList;

/// Keep-alive probes that a path may leave unanswered.
const PROBES: u8 = 3;

/// Subflows that are asked whether they still work.
#[derive(Debug, Default)]
pub(super) struct AskedSubflows {
    asked: RareList<Asked>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) subflow: SubflowId,
    pub(super) since: Instant,
    probes: u8,
    /// When the latest probe counts as unanswered.
    due_at: Instant,
}

impl Asked {
    /// Another probe may be sent.
    pub(super) const fn may_probe(&self) -> bool {
        self.probes < PROBES
    }
}

impl AskedSubflows {
    /// A subflow is asked already.
    pub(super) fn is_asked(&self, id: SubflowId) -> bool {
        self.asked.iter().any(|asked| asked.subflow == id)
    }

    /// A probe leaves on a subflow for the first time; it is answered by `due_at`.
    pub(super) fn ask(&mut self, subflow: SubflowId, now: Instant, due_at: Instant) {
        self.asked.push_back(Asked { subflow, since: now, probes: 1, due_at });
    }

    /// One whose latest probe was not answered in time: it is to be asked again, or no more.
    pub(super) fn unanswered(&self, now: Instant) -> Option<Asked> {
        self.asked.iter().find(|asked| asked.due_at <= now).copied()
    }

    /// Another probe leaves; it is answered by `due_at`.
    pub(super) fn ask_again(&mut self, id: SubflowId, due_at: Instant) {
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.subflow == id) {
            asked.probes += 1;
            asked.due_at = due_at;
        }
    }

    /// There is nothing more to ask.
    pub(super) fn stop_asking(&mut self, id: SubflowId) {
        self.asked.retain(|asked| asked.subflow != id);
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Instant {
        self.asked.iter().map(|asked| asked.due_at).min().unwrap_or(Instant::FAR_FUTURE)
    }
}
