//! A Multipath TCP connection: subflows below, one byte stream above.
//!
//! Split by what happens: [`handshake`] (MP_CAPABLE, MP_JOIN), [`data_in`] (mappings, reassembly, DATA_ACK),
//! [`data_out`] (scheduling, reinjection), [`close`] (DATA_FIN, MP_FASTCLOSE, death of subflows), [`fallback`],
//! [`addresses`] (ADD_ADDR, REMOVE_ADDR, MP_PRIO and the path manager).

mod addresses;
mod application;
mod close;
mod data_in;
mod data_out;
mod fallback;
mod handshake;
mod info;
mod joins;
mod judging;
mod mapping_out;
mod option_writer;
mod options;
mod reinjection;
mod removal;
mod staleness;
mod state;
mod unconfirmed;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_tcp::{Connection as TcpConnection, Disposition, DropReason, Event as TcpEvent, ReplyLimit};
use polypath_units::{Duration, Instant};
use polypath_wire::{DataSeq, Ecn, FourTuple, IcmpMessage, MptcpVersion, Packet, Segment};

use crate::config::ConnectionConfig;
use crate::crypto::Key;
use crate::event::{CloseReason, Event};
use crate::host::{Budgets, PathQuality};
use crate::mib::Mib;
use crate::path_manager::{Limits, LocalEndpoint, PathEvent};
use crate::receive_window::ReceiveMemory;
use crate::scheduler::{Scheduler, SubflowView};
use crate::subflow::{Meta, ReceiveMode, Receiver, Stage, Subflow};

use addresses::Addresses;
use option_writer::SubflowExtension;
use state::{Mode, Shared};

pub(crate) use handshake::IncomingJoin;
pub use info::{ConnectionInfo, SubflowInfo};
pub(crate) use state::capable_flags;

/// What a connection needs of its host for the length of a call.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) mib: &'a mut Mib,
    pub(crate) endpoints: &'a [LocalEndpoint],
    pub(crate) limits: Limits,
    pub(crate) max_announced_addresses: usize,
    pub(crate) memory: &'a mut ReceiveMemory,
    pub(crate) budgets: &'a mut Budgets,
    pub(crate) challenges: &'a mut ReplyLimit,
}

/// What a connection asks its host to do.
#[derive(Debug)]
pub(crate) enum Request {
    /// Open a subflow.
    OpenSubflow { local: IpAddr, local_id: u8, remote: polypath_wire::Endpoint, backup: bool },
    /// The first handshake got no answer in time: try it over other paths.
    Race { initial: FourTuple },
    /// The server at this address answers in version 0.
    AskInVersion0 { remote: IpAddr },
    /// What a subflow knew of its path when it ended.
    Remember { tuple: FourTuple, quality: PathQuality },
    /// The flow is over.
    RemoveFlow { tuple: FourTuple },
    /// The flow is in TIME-WAIT: answer for it from now on.
    TimeWait { tuple: FourTuple, numbers: polypath_tcp::TimeWaitNumbers },
    /// The token leads nowhere any more (fallback, close).
    ForgetToken,
}

/// Timers of the connection itself; those of its subflows are theirs.
#[derive(Debug)]
struct Timers {
    data_fin: Instant,
    data_fin_interval: Duration,
    /// Data that a subflow delivered is still not data-acknowledged.
    data_retransmit: Instant,
    data_retransmit_interval: Duration,
    no_subflow: Instant,
    /// With nothing in flight, a window of less than a segment is used from then on (RFC 9293 §3.8.6.2.1).
    sliver: Instant,
    /// A passive closer leaves TIME-WAIT to the peer: it sends its FINs only after the peer's, or now.
    passive_close: Instant,
    /// FINs of subflows are waited for until then, with everything said.
    last_fins: Instant,
    /// MP_FAIL is sent again until an infinite mapping arrives.
    fail: Instant,
    fail_retries: u8,
    /// The connection is given up, unless the peer acknowledges more than it had when this was set.
    stall: Instant,
    /// What it had: up to where, and whether everything.
    stalled_at: Option<(DataSeq, bool)>,
    /// The first handshake goes out over the other paths too.
    race: Instant,
    /// The initial subflow is to be confirmed by then: see [`unconfirmed`].
    confirm: Instant,
}

impl Timers {
    const OFF: Self = Self {
        data_fin: Instant::FAR_FUTURE,
        data_fin_interval: Duration::ZERO,
        data_retransmit: Instant::FAR_FUTURE,
        data_retransmit_interval: Duration::ZERO,
        no_subflow: Instant::FAR_FUTURE,
        sliver: Instant::FAR_FUTURE,
        passive_close: Instant::FAR_FUTURE,
        last_fins: Instant::FAR_FUTURE,
        fail: Instant::FAR_FUTURE,
        fail_retries: 0,
        stall: Instant::FAR_FUTURE,
        stalled_at: None,
        race: Instant::FAR_FUTURE,
        confirm: Instant::FAR_FUTURE,
    };

    fn earliest(&self) -> Instant {
        self.data_fin
            .min(self.data_retransmit)
            .min(self.no_subflow)
            .min(self.sliver)
            .min(self.passive_close)
            .min(self.last_fins)
            .min(self.fail)
            .min(self.stall)
            .min(self.race)
            .min(self.confirm)
    }
}

/// A connection. Its host lends it time, counters and the rest of [`Context`].
#[derive(Debug)]
pub(crate) struct Connection {
    shared: Shared,
    // Boxed: a subflow is large and the vector is reordered when one goes.
    #[allow(clippy::vec_box)]
    subflows: Vec<Box<Subflow>>,
    scheduler: Box<dyn Scheduler>,
    addresses: Addresses,
    timers: Timers,
    unconfirmed: unconfirmed::Unconfirmed,
    judging: judging::Judging,
    events: VecDeque<Event>,
    requests: Vec<Request>,
    /// Data that goes out again on another subflow.
    reinjections: reinjection::Reinjections,
    /// Scratch space of the scheduler's view, kept to save its allocation.
    candidates: Vec<SubflowView>,
    /// Something changed that may let data go out.
    needs_schedule: bool,
    /// The third ACK leaves before data that could go with it, where another path is to join: the server's answer, which lets it
    /// join (RFC 8684 §3.1), does not wait until a thin path has carried a full segment.
    third_ack_goes_first: bool,
    /// When the first SYN left, as far as its round trip tells.
    opened_at: Instant,
    /// The application wrote since data was last scheduled.
    was_written: bool,
    /// Data is scheduled because the application wrote, and for no other reason: see [`Connection::tail_waits`].
    only_written: bool,
    /// The application holds back what fills no segment (`TCP_CORK`).
    corked: bool,
    next_subflow_id: u8,
    /// Where `poll_transmit` goes on.
    transmit_position: usize,
    /// How often data was lost above the subflows: from the third time on mappings are long.
    data_level_losses: u32,
    /// Subflow stream offset of the segment that is being handled, if it has payload.
    segment_offset: Option<u64>,
    readable_notified: bool,
    writable_wanted: bool,
    /// The application knows that the connection is open.
    announced: bool,
    /// The handshake is complete in which Multipath TCP was asked for, whatever came of it.
    negotiated: bool,
    /// Joins that were accepted without having been held half-open.
    stateless_joins: joins::StatelessJoins,
    closed: Option<CloseReason>,
    released: bool,
}

/// How a connection comes to be.
pub(crate) struct Birth {
    pub(crate) config: Arc<ConnectionConfig>,
    pub(crate) is_client: bool,
    pub(crate) version: MptcpVersion,
    pub(crate) local_key: Key,
    pub(crate) tcp: TcpConnection<crate::mapping::Mapping>,
    pub(crate) stage: Stage,
}

impl Connection {
    pub(crate) fn new(birth: Birth) -> Self {
        let Birth { config, is_client, version, local_key, tcp, stage } = birth;
        let mode = if stage == Stage::Plain { Mode::Plain } else { Mode::Negotiating };
        let tuple = tcp.tuple();
        let shared = Shared::new(config, is_client, version, local_key, mode);
        let mut connection = Self {
            scheduler: shared.config.scheduler.build(),
            addresses: Addresses::new(shared.config.path_manager.build(), tuple),
            shared,
            subflows: Vec::new(),
            timers: Timers::OFF,
            unconfirmed: unconfirmed::Unconfirmed::default(),
            judging: judging::Judging::default(),
            events: VecDeque::new(),
            requests: Vec::new(),
            reinjections: reinjection::Reinjections::default(),
            candidates: Vec::new(),
            needs_schedule: true,
            third_ack_goes_first: false,
            opened_at: Instant::ZERO,
            was_written: false,
            only_written: false,
            corked: false,
            next_subflow_id: 0,
            transmit_position: 0,
            data_level_losses: 0,
            segment_offset: None,
            readable_notified: false,
            writable_wanted: false,
            announced: false,
            negotiated: false,
            stateless_joins: joins::StatelessJoins::default(),
            closed: None,
            released: false,
        };
        connection.add_subflow(tcp, stage);
        connection
    }

    /// Adds a subflow and returns its identifier.
    fn add_subflow(&mut self, tcp: TcpConnection<crate::mapping::Mapping>, stage: Stage) -> u8 {
        let mut id = self.next_subflow_id;
        while self.subflows.iter().any(|subflow| subflow.meta.id == id) {
            id = id.wrapping_add(1);
        }
        self.next_subflow_id = id.wrapping_add(1);
        self.shared.views.push(tcp.flow_view());
        let mut rx = Receiver::default();
        if stage == Stage::Plain {
            rx.mode = ReceiveMode::Infinite { offset: 0, data_seq: self.shared.receive_next };
        }
        self.subflows.push(Box::new(Subflow { tcp, meta: Meta::new(id, stage), rx }));
        self.needs_schedule = true;
        id
    }

    /// What the path of a subflow carried when it was used before.
    pub(crate) fn remember_rate(&mut self, id: u8, bytes_per_s: Option<u64>) {
        if let Some(subflow) = self.position(id).and_then(|position| self.subflows.get_mut(position)) {
            subflow.meta.remembered_bytes_per_s = bytes_per_s;
        }
    }

    pub(crate) fn has_subflow_from(&self, local: core::net::IpAddr) -> bool {
        self.subflows.iter().any(|subflow| subflow.tcp.tuple().local.addr == local)
    }

    pub(crate) fn position(&self, id: u8) -> Option<usize> {
        self.subflows.iter().position(|subflow| subflow.meta.id == id)
    }

    // ---- input

    /// A segment for the subflow `id`.
    pub(crate) fn handle_segment(&mut self, cx: &mut Context<'_>, id: u8, ecn: Ecn, segment: &mut Segment) {
        let Some(position) = self.position(id) else { return };
        if !self.may_enter(position, segment) {
            return;
        }
        let is_negotiating = self.shared.mode == Mode::Negotiating && self.shared.is_client;
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let Subflow { tcp, meta, .. } = &mut **subflow;
        let had_timed_out = tcp.consecutive_timeouts() > 0;
        let payload_bytes = segment.payload.len() as u64;
        let has_payload = payload_bytes > 0;
        self.segment_offset =
            has_payload.then(|| tcp.offset_of(segment.seq)).and_then(|at| u64::try_from(at).ok());
        let mut extension = SubflowExtension { shared: &mut self.shared, meta, position };
        let (disposition, is_withheld) =
            tcp.handle_segment_within(cx.now, ecn, segment, &mut extension, cx.challenges);
        cx.mib.challenges_withheld += u64::from(is_withheld);
        let is_back = had_timed_out && tcp.consecutive_timeouts() == 0;
        if let Some(view) = self.shared.views.get_mut(position) {
            *view = tcp.flow_view();
        }
        self.needs_schedule = true;
        match disposition {
            Disposition::Accepted => {
                self.handle_options(cx, position, segment);
                self.receive_data(cx, position, segment);
                if has_payload {
                    self.tune_receive_window(cx, position, segment, payload_bytes);
                    self.judge_arrival(cx, position, segment, payload_bytes);
                }
                self.after_acknowledgment(cx, position);
            }
            Disposition::Acknowledged => {
                self.handle_old_acknowledgment(position, segment);
                self.after_acknowledgment(cx, position);
            }
            Disposition::Reset => self.handle_reset_options(cx, position, segment),
            Disposition::Dropped(DropReason::Reset) => self.handle_inexact_reset(cx, segment),
            Disposition::Dropped(DropReason::Syn) => self.handle_crossed_syn(cx, position),
            Disposition::Dropped(_) => {}
        }
        self.handle_tcp_events(cx, id);
        if is_back {
            self.path_works_again(cx, id);
        }
        if is_negotiating && self.shared.mode != Mode::Negotiating {
            self.end_race();
        }
        self.update_close(cx);
    }

    pub(crate) fn handle_icmp(&mut self, cx: &mut Context<'_>, id: u8, message: &IcmpMessage) {
        if let Some(subflow) = self.position(id).and_then(|position| self.subflows.get_mut(position)) {
            subflow.tcp.handle_icmp(cx.now, message);
            self.needs_schedule = true;
            self.handle_tcp_events(cx, id);
            self.update_close(cx);
        }
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let mut position = 0;
        while let Some(subflow) = self.subflows.get_mut(position) {
            let Subflow { tcp, meta, .. } = &mut **subflow;
            let (id, join_due) = (meta.id, meta.join_retry_at <= cx.now);
            if tcp.poll_timeout().is_some_and(|at| at <= cx.now) {
                let mut extension = SubflowExtension { shared: &mut self.shared, meta, position };
                let was_probing = tcp.is_probing();
                tcp.handle_timeout(cx.now, &mut extension);
                let is_silent = tcp.is_probing() && !was_probing;
                if let Some(view) = self.shared.views.get_mut(position) {
                    *view = tcp.flow_view();
                }
                self.needs_schedule = true;
                if is_silent {
                    self.reinject_from(id);
                }
                self.handle_tcp_events(cx, id);
                if self.position(id) == Some(position) {
                    self.watch_path(cx, position);
                }
            }
            if join_due && self.position(id) == Some(position) {
                self.retry_join_ack(cx, position);
            }
            // A subflow that ended has made room at its position for the next.
            if self.position(id) == Some(position) {
                position += 1;
            }
        }
        if self.timers.earliest() <= cx.now {
            self.handle_own_timers(cx);
        }
        self.addresses_timeout(cx);
        self.judge_timeout(cx);
        self.update_close(cx);
    }

    fn handle_own_timers(&mut self, cx: &mut Context<'_>) {
        if self.timers.data_retransmit <= cx.now {
            self.data_retransmit(cx);
        }
        self.needs_schedule |= self.timers.sliver <= cx.now;
        if self.timers.data_fin <= cx.now {
            self.retransmit_data_fin(cx.now);
        }
        if self.timers.last_fins <= cx.now {
            self.fail(CloseReason::Finished);
            return;
        }
        if self.timers.passive_close <= cx.now {
            self.timers.passive_close = Instant::FAR_FUTURE;
            self.finish_subflows();
        }
        if self.timers.fail <= cx.now {
            self.retry_fail(cx);
        }
        if self.timers.no_subflow <= cx.now {
            self.no_subflow_timeout(cx.now);
        }
        if self.timers.race <= cx.now {
            self.timers.race = Instant::FAR_FUTURE;
            self.requests.push(Request::Race { initial: self.addresses.initial });
        }
        if self.timers.confirm <= cx.now {
            self.watch_handshake(cx);
        }
        if self.timers.stall <= cx.now {
            self.give_up(CloseReason::TimedOut);
        }
    }

    // ---- output

    /// The next packet to send; call until `None`.
    pub(crate) fn poll_transmit(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let third_ack_goes_first = core::mem::take(&mut self.third_ack_goes_first);
        if !third_ack_goes_first && (self.needs_schedule || self.was_written) {
            self.only_written = !core::mem::take(&mut self.needs_schedule);
            self.was_written = false;
            self.schedule(cx);
        }
        for _ in 0..self.subflows.len() {
            if self.transmit_position >= self.subflows.len() {
                self.transmit_position = 0;
            }
            let position = self.transmit_position;
            let subflow = self.subflows.get_mut(position)?;
            let Subflow { tcp, meta, .. } = &mut **subflow;
            let mut extension = SubflowExtension { shared: &mut self.shared, meta, position };
            if let Some(packet) = tcp.poll_transmit(cx.now, &mut extension) {
                return Some(packet);
            }
            // Before that, an acknowledgment has no room for signals, and would be followed by others without end.
            // And data leaves no acknowledgment that DATA_FIN could go with.
            let owes_fin = meta.owes_data_fin && tcp.unsent_bytes() == 0;
            let owes = match meta.stage {
                Stage::Established => !meta.signals.is_empty() || meta.owes_data_ack || owes_fin,
                Stage::CapableAck => owes_fin,
                _ => false,
            };
            if owes {
                tcp.request_ack();
                let mut extension = SubflowExtension { shared: &mut self.shared, meta, position };
                if let Some(packet) = tcp.poll_transmit(cx.now, &mut extension) {
                    return Some(packet);
                }
            }
            self.transmit_position += 1;
        }
        let before = self.subflows.len();
        self.reap(cx);
        if self.subflows.len() < before {
            // What it did not deliver is for the others now, and nothing else may come to say so.
            self.needs_schedule = true;
            return self.poll_transmit(cx);
        }
        if third_ack_goes_first {
            return self.poll_transmit(cx);
        }
        None
    }

    /// An acknowledgment leaves on the subflow `id`.
    pub(crate) fn acknowledge(&mut self, id: u8) {
        let Some(position) = self.position(id) else { return };
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.tcp.request_ack();
        }
    }

    /// When [`Connection::handle_timeout`] is due next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let mut earliest =
            self.timers.earliest().min(self.addresses.next_timeout()).min(self.judging.next_timeout());
        for subflow in &self.subflows {
            earliest = earliest.min(subflow.meta.join_retry_at);
            if let Some(at) = subflow.tcp.poll_timeout() {
                earliest = earliest.min(at);
            }
        }
        (earliest != Instant::FAR_FUTURE).then_some(earliest)
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Gives back the memory of an empty event queue: an idle connection holds little.
    pub(crate) fn trim(&mut self) {
        self.events.shrink_to(0);
        self.requests.shrink_to(0);
        self.shared.views.shrink_to(0);
    }

    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        core::mem::take(&mut self.requests)
    }

    /// The application was told that it is closed, or does not care.
    pub(crate) fn is_over(&self) -> bool {
        self.closed.is_some()
    }

    /// Established as the kernel counts it: open, and this end has not finished.
    pub(crate) fn is_established(&self) -> bool {
        self.negotiated && !self.is_write_closed()
    }

    /// The host may forget the connection: it is over and the application let go.
    pub(crate) fn is_done(&self) -> bool {
        self.subflows.is_empty() && self.closed.is_some() && self.released
    }

    // ---- what subflows report

    fn handle_tcp_events(&mut self, cx: &mut Context<'_>, id: u8) {
        while let Some(position) = self.position(id) {
            let Some(event) = self.subflows.get_mut(position).and_then(|subflow| subflow.tcp.poll()) else {
                return;
            };
            match event {
                TcpEvent::Connected if self.shared.mode == Mode::Plain => self.notify_established(),
                TcpEvent::TimedOut => self.reinject_from(id),
                TcpEvent::PeerFinished => self.subflow_peer_finished(cx, position),
                TcpEvent::Closed(reason) => self.subflow_closed(cx, position, Some(reason)),
                _ => {}
            }
        }
    }

    fn emit(&mut self, event: Event) {
        self.events.push_back(event);
    }

    fn notify_readable(&mut self) {
        if self.announced && !self.readable_notified && self.shared.unread_bytes > 0 {
            self.readable_notified = true;
            self.emit(Event::Readable);
        }
    }

    fn notify_writable(&mut self) {
        if !self.writable_wanted {
            return;
        }
        let limit = self.send_limit_bytes();
        let room = limit.saturating_sub(self.shared.send.len_bytes());
        let under_way = self.shared.send.next().diff(self.shared.send.start()) as u64;
        if room * 3 >= limit.saturating_sub(under_way) {
            self.writable_wanted = false;
            self.emit(Event::Writable);
        }
    }

    fn notify_established(&mut self) {
        if core::mem::replace(&mut self.announced, true) {
            return;
        }
        let local = self.addresses.initial.local;
        self.emit(if self.shared.is_client {
            Event::Connected
        } else {
            Event::Accepted { local, listener: None }
        });
        // Data, and even the end of it, may have come with the segment that completed the handshake.
        self.notify_readable();
        if self.shared.peer_finished {
            self.emit(Event::PeerFinished);
        }
    }

    fn notify_peer_finished(&mut self) {
        if self.announced {
            self.emit(Event::PeerFinished);
        }
    }

    fn notify_path_manager(&mut self, cx: &mut Context<'_>, event: PathEvent) {
        addresses::notify(self, cx, event);
    }

    pub(crate) fn config(&self) -> &Arc<ConnectionConfig> {
        &self.shared.config
    }

    /// The connection goes: so does what it promised.
    pub(crate) fn release_memory(&mut self, memory: &mut ReceiveMemory) {
        self.shared.receive_window.release(memory);
    }

    /// The first handshake waits for the third ACK.
    pub(crate) fn is_half_open(&self) -> bool {
        self.subflows.first().is_some_and(|subflow| subflow.tcp.is_half_open())
    }

    pub(crate) fn receive_window_bytes(&self) -> u64 {
        self.shared.receive_window_bytes()
    }

    pub(crate) fn local_token(&self) -> u32 {
        self.shared.local_token
    }
}
