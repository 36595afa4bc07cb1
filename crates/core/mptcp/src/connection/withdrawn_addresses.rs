//! Addresses that the peer withdraws (RFC 8684 §3.4.2): whoever says so may not be the peer, so a subflow is closed only if its
//! path does not answer, and the last one never.

use polypath_units::{Duration, Instant};
use polypath_wire::ResetReason;

use super::Connection;
use super::asked_subflows::Asked;
use crate::event::SubflowError;
use crate::identifiers::{AddressId, SubflowId};
use crate::subflow::{Stage, Subflow};

/// How long a probe is waited for.
const MIN_WAIT: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(1);

impl Connection {
    /// Asks the subflows to the address `id` of the peer whether they still work.
    pub(super) fn probe_withdrawn(&mut self, now: Instant, id: AddressId) {
        for subflow in self.subflows.iter_mut() {
            let is_meant = subflow.state.role.remote_id() == id && subflow.is_in_use();
            if is_meant && !self.addresses.is_asked(subflow.state.id) {
                subflow.tcp.request_probe();
                self.addresses.ask(subflow.state.id, now, now + wait(subflow));
            }
        }
    }

    pub(super) fn withdrawn_timeout(&mut self, now: Instant) {
        while let Some(asked) = self.addresses.unanswered(now) {
            match self.ask_again(now, &asked) {
                Some(due_at) => self.addresses.ask_again(asked.subflow, due_at),
                None => self.addresses.stop_asking(asked.subflow),
            }
        }
    }

    /// Sends the next probe where none was answered, and says until when it is to be; `None` if there is nothing more to ask.
    fn ask_again(&mut self, now: Instant, asked: &Asked) -> Option<Instant> {
        let position = self.subflows.position(asked.subflow)?;
        let subflow = self.subflows.get_mut(position)?;
        if subflow.state.ending.is_ending() || subflow.tcp.last_received_at() > asked.since {
            return None;
        }
        if asked.may_probe() {
            subflow.tcp.request_probe();
            return Some(now + wait(subflow));
        }
        if self.is_other_in_use(asked.subflow) {
            self.reset_subflow(position, SubflowError::TimedOut, ResetReason::UNSPECIFIED);
            self.reinject_from(asked.subflow);
        }
        None
    }

    /// A subflow other than `id` carries data, both ways.
    pub(super) fn is_other_in_use(&self, id: SubflowId) -> bool {
        self.subflows.any(|subflow| {
            subflow.state.id != id
                && subflow.state.stage() == Stage::Established
                && !subflow.state.ending.is_ending()
                && !subflow.tcp.is_peer_finished()
        })
    }
}

fn wait(subflow: &Subflow) -> Duration {
    let (srtt, variance) = (subflow.tcp.srtt(), subflow.tcp.rtt_variance());
    (srtt + variance * 4).max(MIN_WAIT).min(MAX_WAIT)
}
