//! Data with its number, and the end of it, on their way to the application (RFC 8684 §3.3.3).

use polypath_wire::{DataSeq, Payload};

use super::data_receive::PeerFin;
use super::{Connection, Context};
use crate::misbehaviour::Misbehaviour;
use crate::subflow::Stage;

impl Connection {
    /// Data with its number.
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, position: usize, seq: DataSeq, data: Payload) {
        if data.is_empty() {
            return;
        }
        self.stream.receive.note_window(&self.stream.config);
        let end = seq.add(data.len() as u64);
        if self.stream.lifecycle.is_mptcp() && self.stream.receive.contradicts_fin(&self.stream.config, end) {
            let is_told = self.stream.receive.is_finished();
            self.answer(cx, position, Misbehaviour::DataAfterDataFin { is_told });
        }
        let is_plain = self.stream.lifecycle.is_plain();
        match self.stream.receive.handle_data(&self.stream.config, cx.counters, is_plain, seq, data) {
            Ok(true) => self.finish_receiving(),
            Ok(false) => {}
            Err(misbehaviour) => self.answer(cx, position, misbehaviour),
        }
    }

    /// A DATA_FIN says where the peer's stream ends.
    pub(super) fn note_peer_fin(&mut self, cx: &mut Context<'_>, position: usize, seq: DataSeq) {
        match self.stream.receive.handle_fin(&self.stream.config, seq) {
            // Say it again on each subflow.
            Ok(PeerFin::Unacknowledged) => return self.acknowledge_everywhere(),
            Ok(PeerFin::New) => self.stream.lifecycle.handle_peer_end_known(!self.stream.send.is_finishing()),
            Ok(PeerFin::Moved) => self.answer(cx, position, Misbehaviour::DataFinMoved),
            Ok(PeerFin::Repeated) => {}
            Err(misbehaviour) => return self.answer(cx, position, misbehaviour),
        }
        if self.stream.receive.is_complete() {
            self.finish_receiving();
        }
    }

    /// Everything before the peer's DATA_FIN is there.
    fn finish_receiving(&mut self) {
        self.stream.receive.finish();
        self.notify_peer_finished();
        self.acknowledge_everywhere();
    }

    pub(super) fn acknowledge_everywhere(&mut self) {
        for subflow in self.subflows.iter_mut() {
            if subflow.state.stage() == Stage::Established {
                subflow.tcp.request_ack();
            }
        }
    }
}
