//! Data that goes out again: what a subflow lost or holds for too long leaves on another, and what a subflow delivered but nobody
//! data-acknowledged leaves on any (RFC 8684 §3.3.6).

use polypath_units::Duration;
use polypath_wire::DataSeq;

use super::{Connection, Context};
use crate::identifiers::SubflowId;
use crate::mapping::Repetition;
use crate::sent_chunk::SentChunk;
use crate::subflow::Stage;

impl Connection {
    /// A subflow timed out, or is gone: what it holds goes out on another.
    pub(super) fn reinject_from(&mut self, id: SubflowId) {
        if !self.stream.lifecycle.is_mptcp() {
            return;
        }
        let subflow = self.subflows.find(id);
        let (is_gone, acked) = (subflow.is_none(), subflow.map_or(0, |subflow| subflow.tcp.acked_offset()));
        let is_other_alive = || {
            self.subflows.any(|subflow| {
                subflow.state.id != id
                    && subflow.state.stage() == Stage::Established
                    && subflow.tcp.consecutive_timeouts() == 0
            })
        };
        if is_gone || is_other_alive() {
            self.stream.send.reinject_from(id, acked, is_gone);
            self.scheduling.request();
        }
    }

    /// A new subflow is up: it takes over from those that have timed out.
    pub(super) fn rescue_stalled(&mut self) {
        for at in 0..self.subflows.len() {
            if let Some(subflow) = self.subflows.get(at)
                && subflow.tcp.consecutive_timeouts() > 0
            {
                self.reinject_from(subflow.state.id);
            }
        }
    }

    /// Sends again, on another subflow or the same, what was sent before.
    pub(super) fn resend(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        seq: DataSeq,
        count: u64,
        repetition: Repetition,
    ) {
        let data = self.stream.send.slice(seq, count);
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let id = subflow.state.id;
        if data.is_empty() {
            return;
        }
        cx.counters.mptcp_retrans += 1;
        let len_bytes = data.len() as u64;
        self.scheduling.handle_sent(id, seq, len_bytes);
        let end_offset = self.stream.push(cx.now, subflow, seq, data, repetition);
        self.stream.send.handle_sent_again(seq, len_bytes, id, end_offset);
    }

    /// After each acknowledgment: fallback acknowledges data by subflow; Multipath TCP watches for data that a subflow
    /// delivered and nobody data-acknowledged.
    pub(super) fn after_acknowledgment(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get(position) else { return };
        if subflow.state.stage() == Stage::Plain {
            if self.stream.send.handle_subflow_ack(subflow.tcp.acked_offset()) {
                self.notify_writable();
            }
            return;
        }
        let subflows = &self.subflows;
        let slowest_srtt = || subflows.longest(|tcp| tcp.srtt());
        self.stream.send.watch_delivery(cx.now, |chunk| subflows.has_delivered(chunk), slowest_srtt);
    }

    /// The first data without DATA_ACK was delivered long ago, as far as its subflow knows: its mapping was lost, or the
    /// peer dropped it. It goes out again, on any subflow.
    pub(super) fn data_retransmit(&mut self, cx: &mut Context<'_>) {
        let slowest_srtt: Duration = self.subflows.longest(|tcp| tcp.srtt());
        if self.stream.negotiation.is_client() && !self.stream.negotiation.is_confirmed() {
            self.stream.send.retransmit_after(cx.now, slowest_srtt);
            return self.ask_who_has_data();
        }
        let subflows = &self.subflows;
        if self.stream.send.reinject_delivered(|chunk: &SentChunk| subflows.has_delivered(chunk)) {
            self.scheduling.request();
            self.stream.send.retransmit_after(cx.now, slowest_srtt);
        }
    }
}
