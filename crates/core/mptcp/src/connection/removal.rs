//! Addresses that the peer withdraws (RFC 8684 §3.4.2): whoever says so may not be the peer, so a subflow is closed only if its
//! path does not answer, and the last one never.

use alloc::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::ResetReason;

use super::Connection;
use crate::event::SubflowError;
use crate::subflow::Stage;

/// Keep-alive probes that a path may leave unanswered, and how long each is waited for.
const PROBES: u8 = 3;
const MIN_WAIT: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Subflows that are asked whether they still work.
#[derive(Debug, Default)]
pub(super) struct Removals {
    asked: Vec<Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    subflow: u8,
    since: Instant,
    probes: u8,
    /// When the latest probe counts as unanswered.
    due_at: Instant,
}

impl Removals {
    pub(super) fn next_timeout(&self) -> Instant {
        self.asked.iter().map(|asked| asked.due_at).min().unwrap_or(Instant::FAR_FUTURE)
    }
}

impl Connection {
    /// Asks the subflows to the address `id` of the peer whether they still work.
    pub(super) fn probe_withdrawn(&mut self, now: Instant, id: u8) {
        for subflow in &mut self.subflows {
            let asked = &mut self.addresses.removals.asked;
            let is_asked = asked.iter().any(|asked| asked.subflow == subflow.meta.id);
            let is_meant = subflow.meta.remote_id == id && subflow.meta.stage == Stage::Established;
            if !is_meant || subflow.meta.finishing || is_asked {
                continue;
            }
            subflow.tcp.request_probe();
            let due_at = now + wait(subflow);
            asked.push(Asked { subflow: subflow.meta.id, since: now, probes: 1, due_at });
        }
    }

    pub(super) fn removals_timeout(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(asked) = self.addresses.removals.asked.get(at).copied() {
            if asked.due_at > now {
                at += 1;
            } else if !self.ask_again(now, at, asked) {
                self.addresses.removals.asked.swap_remove(at);
            }
        }
    }

    /// Sends the next probe where none was answered; false if there is nothing more to ask.
    fn ask_again(&mut self, now: Instant, at: usize, asked: Asked) -> bool {
        let Some(position) = self.position(asked.subflow) else { return false };
        let Some(subflow) = self.subflows.get_mut(position) else { return false };
        if subflow.meta.finishing || subflow.tcp.last_received_at() > asked.since {
            return false;
        }
        if asked.probes < PROBES {
            subflow.tcp.request_probe();
            let due_at = now + wait(subflow);
            if let Some(known) = self.addresses.removals.asked.get_mut(at) {
                *known = Asked { probes: asked.probes + 1, due_at, ..asked };
            }
            return true;
        }
        if self.is_other_in_use(asked.subflow) {
            self.reset_subflow(position, SubflowError::TimedOut, ResetReason::UNSPECIFIED);
            self.reinject_from(asked.subflow);
        }
        false
    }

    /// A subflow other than `id` carries data, both ways.
    pub(super) fn is_other_in_use(&self, id: u8) -> bool {
        self.subflows.iter().any(|subflow| {
            subflow.meta.id != id
                && subflow.meta.stage == Stage::Established
                && !subflow.meta.finishing
                && !subflow.tcp.is_peer_finished()
        })
    }
}

fn wait(subflow: &crate::subflow::Subflow) -> Duration {
    let (srtt, variance) = (subflow.tcp.srtt(), subflow.tcp.rtt_variance());
    (srtt + variance * 4).max(MIN_WAIT).min(MAX_WAIT)
}
