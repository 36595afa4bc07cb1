//! Subflows whose address the peer has withdrawn, while they are asked whether they still work (RFC 8684 §3.4.2).

use alloc::vec::Vec;

use polypath_units::Instant;

use crate::identifiers::SubflowId;

/// Keep-alive probes that a path may leave unanswered.
const PROBES: u8 = 3;

/// Subflows that are asked whether they still work.
#[derive(Debug, Default)]
pub(super) struct AskedSubflows {
    asked: Vec<Asked>,
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
        self.asked.push(Asked { subflow, since: now, probes: 1, due_at });
    }

    /// Deadlines passed. `ask_again` may send another probe, and says when that counts as unanswered.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        mut ask_again: impl FnMut(&Asked) -> Option<Instant>,
    ) {
        let mut at = 0;
        while let Some(asked) = self.asked.get_mut(at) {
            if asked.due_at > now {
                at += 1;
            } else if let Some(due_at) = ask_again(asked) {
                asked.probes += 1;
                asked.due_at = due_at;
            } else {
                self.asked.swap_remove(at);
            }
        }
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Instant {
        self.asked.iter().map(|asked| asked.due_at).min().unwrap_or(Instant::FAR_FUTURE)
    }
}
