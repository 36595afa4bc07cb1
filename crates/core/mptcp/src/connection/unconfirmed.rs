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

use super::close::is_unknown_token;
use super::state::Mode;
use super::{Connection, Context, Request, addresses};
use crate::crypto::Key;
use crate::event::{CloseReason, Event, SubflowError};
use crate::host::is_rival;
use crate::path_manager::PathEvent;
use crate::subflow::{Meta, Stage};

/// A server's first DSS is awaited for so long, and for a retransmission timeout, before anything is done about it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for the answer to each thing that is done.
const STEP: Duration = Duration::from_millis(500);
/// Retransmission timeouts after which other paths are asked, where data is under way.
const TIMEOUTS: u8 = 2;
/// Probes that may go without a DSS or a sign of TCP, where data was taken. They take about a minute.
const MOST_PROBES: u32 = 10;
/// After the SYN/ACK, a connection of which the server knows nothing is given so long to get through after all: its path may only have
/// been cut for some seconds, which TCP alone would survive.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// What is known of a handshake whose end was not heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unconfirmed {
    /// When the SYN/ACK came.
    since: Instant,
    doubt: Doubt,
    /// Probes that asked who has the data that was taken.
    probes: u32,
}

/// How doubtful it is that the path works. An idle server need not have said anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doubt {
    #[default]
    None,
    /// The third ACK was sent again.
    SaidAgain,
    /// After it, a probe went out that every server answers.
    Probed,
    /// Other paths are asked.
    Asking,
    /// The server knows of no connection.
    Refused,
}

impl Unconfirmed {
    /// MP_JOINs may leave.
    pub(super) fn is_asking(self) -> bool {
        matches!(self.doubt, Doubt::Asking | Doubt::Refused)
    }
}

impl Connection {
    /// The third ACK leaves on the subflow at `position`.
    pub(super) fn await_confirmation(&mut self, cx: &Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get(position) else { return };
        let tuple = subflow.tcp.tuple();
        self.unconfirmed = Unconfirmed { since: cx.now, ..Unconfirmed::default() };
        // Where there is no other path, TCP's own timeouts are all there is.
        let is_other = |endpoint: &&crate::path_manager::LocalEndpoint| {
            endpoint.subflow && endpoint.addr != tuple.local.addr
        };
        if cx.endpoints.iter().any(|endpoint| is_other(&endpoint)) {
            self.timers.confirm = cx.now + PATIENCE.max(subflow.tcp.rto());
            self.third_ack_goes_first = true;
        }
    }

    /// Time has passed without a DSS.
    pub(super) fn watch_handshake(&mut self, cx: &mut Context<'_>) {
        self.timers.confirm = Instant::FAR_FUTURE;
        let is_unconfirmed = self.shared.mode == Mode::Mptcp && !self.shared.confirmed;
        let give_up_at = self.unconfirmed.since + GIVE_UP_AFTER;
        // To ask would cost the only subflow there is.
        let must_wait = self.addresses.breaks_first() && cx.now < give_up_at;
        let initial = self.subflows.iter_mut().find(|subflow| subflow.meta.stage == Stage::CapableAck);
        let Some(subflow) = initial.filter(|_| is_unconfirmed) else { return };
        let tcp = &mut subflow.tcp;
        let has_data = tcp.enqueued_offset() > 0;
        let timeouts = tcp.consecutive_timeouts();
        match self.unconfirmed.doubt {
            Doubt::Asking => {}
            Doubt::Refused => self.handle_refusal(cx),
            // TCP repeats data by itself, and the keys with it.
            _ if has_data && timeouts < TIMEOUTS => self.timers.confirm = cx.now + STEP,
            Doubt::None if !has_data => {
                tcp.request_ack();
                self.doubt(cx.now, Doubt::SaidAgain);
            }
            Doubt::SaidAgain if !has_data => {
                tcp.request_probe();
                self.doubt(cx.now, Doubt::Probed);
            }
            _ if has_data && must_wait => self.timers.confirm = give_up_at,
            _ => {
                let id = subflow.meta.id;
                subflow.meta.is_stale = true;
                self.unconfirmed.doubt = Doubt::Asking;
                cx.mib.subflow_stale += 1;
                addresses::notify(self, cx, PathEvent::SubflowStale { subflow: id });
                addresses::notify(self, cx, PathEvent::Wake);
            }
        }
    }

    fn doubt(&mut self, now: Instant, doubt: Doubt) {
        self.unconfirmed.doubt = doubt;
        self.timers.confirm = now + STEP;
    }

    /// No DSS has said that the server has a connection, and it was not asked over another path: no subflow may join (RFC 8684 §3.1),
    /// and if the initial one is reset, none is left.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.shared.is_client && !self.shared.confirmed && !self.unconfirmed.is_asking()
    }

    /// A subflow that was to ask over another path has ended.
    pub(super) fn note_refusal(&mut self, now: Instant, meta: &Meta, error: Option<SubflowError>) {
        let is_refused = meta.stage == Stage::JoinSyn && error.is_some_and(is_unknown_token);
        if is_refused && self.unconfirmed.doubt == Doubt::Asking && !self.shared.confirmed {
            self.unconfirmed.doubt = Doubt::Refused;
            self.timers.confirm = now;
        }
    }

    /// The server's TCP took data, but whether Multipath TCP stands behind it no DSS has said: what acknowledged the data lay outside
    /// the window, and nothing else of such a segment is believed. An answer to a probe lies inside. Until it comes the data is not
    /// sent again, as it would count twice where the server is TCP.
    pub(super) fn ask_who_has_data(&mut self, next_at: Instant) {
        self.unconfirmed.probes += 1;
        if self.unconfirmed.probes > MOST_PROBES {
            return self.fail(CloseReason::TimedOut);
        }
        if let Some(subflow) =
            self.subflows.iter_mut().find(|subflow| subflow.meta.stage == Stage::CapableAck)
        {
            subflow.tcp.request_probe();
        }
        self.timers.data_retransmit = next_at;
    }

    fn handle_refusal(&mut self, cx: &mut Context<'_>) {
        let send = &self.shared.send;
        let has_left = self.shared.data_fin.is_some() || send.next() != self.shared.first_data_seq();
        let give_up_at = self.unconfirmed.since + GIVE_UP_AFTER;
        let initial = self.addresses.initial;
        let may_race = self.shared.config.race
            && cx.endpoints.iter().any(|other| is_rival(other, initial.local.addr, initial.remote.addr));
        if !has_left && may_race {
            self.begin_anew();
        } else if cx.now >= give_up_at {
            self.fail(CloseReason::TimedOut);
        } else {
            self.timers.confirm = give_up_at;
        }
    }

    /// Gives the initial subflow up, of which the server knows nothing, and asks for a connection over the other paths. A late answer
    /// on the old one finds no flow, and is reset.
    fn begin_anew(&mut self) {
        let initial = self.addresses.initial;
        while let Some(subflow) = self.subflows.pop() {
            let (id, tuple) = (subflow.meta.id, subflow.tcp.tuple());
            self.requests.push(Request::RemoveFlow { tuple });
            if subflow.meta.stage == Stage::CapableAck {
                let error = Some(SubflowError::TimedOut);
                self.emit(Event::SubflowClosed { subflow: id, tuple, error });
            }
        }
        self.shared.views.clear();
        self.unconfirmed = Unconfirmed::default();
        self.shared.forget_peer();
        self.requests.push(Request::Race { initial });
    }
}

impl super::state::Shared {
    /// What the peer has said so far counts no more: it begins again.
    fn forget_peer(&mut self) {
        self.mode = Mode::Negotiating;
        self.remote_key = None::<Key>;
        self.remote_token = 0;
        self.checksum = self.config.checksum;
        self.no_join_initial = false;
        self.receive_next = polypath_wire::DataSeq(0);
    }
}
