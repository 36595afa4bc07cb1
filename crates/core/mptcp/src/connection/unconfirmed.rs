//! A client whose initial subflow falls silent right after the SYN/ACK.
//!
//! Nothing says whether the server has the third ACK, and with it a connection. Until a DSS has come, RFC 8684 §3.1 lets no
//! subflow join, so that a path that dies in this round trip would take the connection along although another works. But the
//! server knows, and an MP_JOIN over another path asks it: who has a connection with that token answers with its HMAC, which only
//! the keys of the third ACK yield, and the connection goes on there. Who has none refuses. Then nothing was delivered, as far as
//! that server knows; but an answer may come from another server behind the same address, or a middlebox may have taken the option
//! out of the third ACK. So what has left for the server is never sent in a second handshake, which might bring it to an
//! application twice: such a connection ends, and its application decides. While nothing has left, a second handshake harms nobody.

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use super::opening::Doubt;
use super::subflow_end::is_unknown_token;
use super::{Connection, Context, Request};
use crate::carried::Carried;
use crate::event::{CloseReason, Event, SubflowError};
use crate::host::Rivals;
use crate::path_manager::{LocalEndpoint, PathEvent};
use crate::subflow::{Stage, Subflow, SubflowState};

/// A server's first DSS is awaited for so long, and for a retransmission timeout, before anything is done about it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Retransmission timeouts after which other paths are asked, where data is under way.
const TIMEOUTS: u8 = 2;

impl Connection {
    /// The third ACK leaves on the subflow at `position`.
    pub(super) fn await_confirmation(&mut self, cx: &Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get(position) else { return };
        let tuple = subflow.tcp.tuple();
        // Where there is no other path, TCP's own timeouts are all there is.
        let is_other = |endpoint: &LocalEndpoint| endpoint.subflow && endpoint.addr != tuple.local.addr;
        let has_other = cx.endpoints.iter().any(is_other);
        let until = has_other.then(|| cx.now + PATIENCE.max(subflow.tcp.rto()));
        self.opening.await_confirmation(cx.now, until);
    }

    /// Time has passed without a DSS.
    pub(super) fn watch_handshake(&mut self, cx: &mut Context<'_>) {
        let is_unconfirmed = self.stream.lifecycle.is_mptcp() && !self.stream.negotiation.is_confirmed();
        let give_up_at = self.opening.give_up_at();
        // To ask would cost the only subflow there is.
        let must_wait = self.addresses.breaks_first() && cx.now < give_up_at;
        let initial = self.subflows.iter_mut().find(|subflow| subflow.state.stage() == Stage::CapableAck);
        let Some(subflow) = initial.filter(|_| is_unconfirmed) else { return };
        let tcp = &mut subflow.tcp;
        let has_data = tcp.enqueued_offset() > 0;
        let timeouts = tcp.consecutive_timeouts();
        match self.opening.doubt() {
            Doubt::Asking => {}
            Doubt::Refused => self.handle_refusal(cx),
            // TCP repeats data by itself, and the keys with it.
            _ if has_data && timeouts < TIMEOUTS => self.opening.wait(cx.now),
            Doubt::None if !has_data => {
                tcp.request_ack();
                self.opening.say_again(cx.now);
            }
            Doubt::SaidAgain if !has_data => {
                tcp.request_probe();
                self.opening.probe(cx.now);
            }
            _ if has_data && must_wait => self.opening.wait_until(give_up_at),
            _ => {
                let (id, tuple) = (subflow.state.id, subflow.tcp.tuple());
                subflow.state.path.become_stale();
                self.opening.ask();
                self.tell_stale(cx, id, tuple);
                self.notify_path_manager(cx, PathEvent::Wake);
            }
        }
    }

    /// No DSS has said that the server has a connection, and it was not asked over another path: no subflow may join (RFC 8684 §3.1),
    /// and if the initial one is reset, none is left.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.stream.negotiation.is_client()
            && !self.stream.negotiation.is_confirmed()
            && !self.opening.is_asking()
    }

    /// A subflow that was to ask over another path has ended.
    pub(super) fn note_refusal(&mut self, now: Instant, state: &SubflowState, error: Option<SubflowError>) {
        let is_refused = state.stage() == Stage::JoinSyn && error.is_some_and(is_unknown_token);
        if is_refused && !self.stream.negotiation.is_confirmed() {
            self.opening.handle_refusal(now);
        }
    }

    /// The server's TCP took data, but whether Multipath TCP stands behind it no DSS has said: what acknowledged the data lay outside
    /// the window, and nothing else of such a segment is believed. An answer to a probe lies inside. Until it comes the data is not
    /// sent again, as it would count twice where the server is TCP.
    pub(super) fn ask_who_has_data(&mut self) {
        if !self.opening.may_probe_for_data() {
            return self.fail(CloseReason::TimedOut);
        }
        let is_initial = |subflow: &&mut Subflow| subflow.state.stage() == Stage::CapableAck;
        if let Some(subflow) = self.subflows.iter_mut().find(is_initial) {
            subflow.tcp.request_probe();
        }
    }

    fn handle_refusal(&mut self, cx: &mut Context<'_>) {
        let has_left = self.stream.send.is_finishing()
            || self.stream.send.next() != self.stream.negotiation.first_data_seq();
        let give_up_at = self.opening.give_up_at();
        let initial = self.addresses.initial();
        let may_race = self.stream.config.race
            && cx
                .endpoints
                .iter()
                .any(|other| Rivals::Regular.has(other, initial.local.addr, initial.remote.addr));
        if !has_left && may_race {
            self.begin_again();
        } else if cx.now >= give_up_at {
            self.fail(CloseReason::TimedOut);
        } else {
            self.opening.wait_until(give_up_at);
        }
    }

    /// Gives the initial subflow up, of which the server knows nothing, and asks for a connection over the other paths. A late answer
    /// on the old one finds no flow, and is reset.
    pub(super) fn begin_again(&mut self) {
        let initial = self.addresses.initial();
        // What was to join the old connection would ask for it by a token that is no one's.
        self.outbox.forget_subflows();
        while let Some(subflow) = self.subflows.pop() {
            let (id, tuple) = (subflow.state.id, subflow.tcp.tuple());
            self.outbox.ask(Request::RemoveFlow { tuple, carried: Carried::by(&subflow) });
            if subflow.state.stage() == Stage::CapableAck {
                let error = Some(SubflowError::TimedOut);
                self.outbox.emit(Event::SubflowClosed { subflow: id, tuple, error });
            }
        }
        self.opening.begin_again();
        self.stream.lifecycle.become_negotiating();
        self.stream.negotiation.forget_peer(&self.stream.config);
        self.stream.receive.begin(DataSeq(0));
        self.outbox.ask(Request::Race { initial, rivals: Rivals::Regular });
    }
}
