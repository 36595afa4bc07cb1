//! A Multipath TCP connection: subflows below, one byte stream above; parts that own their state, and what routes between them.
//!
//! A part is a type whose fields nothing outside of its file sees. `handle_*` tells it what happened, `poll_*` and `take_*` take out
//! what it wants, getters say what holds. [`Connection`] has the parts, and tells each of them what the others found out.
//!
//! | part | owns |
//! |---|---|
//! | [`stream`] | the byte stream: |
//! | – [`negotiation`] | keys, tokens, version, checksum, flags |
//! | – [`lifecycle`] | what is spoken, how far both directions are, the end; timers of what ends |
//! | – [`data_send`] | data, its numbers, DATA_ACKs, reinjections, our DATA_FIN, the peer's window |
//! | – [`data_receive`] | the peer's data and DATA_FIN, reassembly, the window promised to it |
//! | – [`infinite_mapping`] | the mapping of a fallback, MP_FAIL |
//! | [`opening`] | the race of handshakes, a third ACK that may not have arrived |
//! | [`subflows`] | the table of subflows, and whose turn it is |
//! | [`scheduling`] | the scheduler, when it is asked and what it sees; [`portion`] says how much leaves |
//! | [`addresses`] | addresses of both ends, the path manager, [`asked_subflows`] |
//! | [`path_judge`] | what paths bring and hold up |
//! | [`silence_watch`] | whether the peer's data goes on coming on each subflow |
//! | [`stateless_joins`] | nonces of joins that were held nowhere |
//! | [`outbox`] | events for the application, requests to the host |
//!
//! Routes, by direction and reason: [`input`] (segments and their options), [`data_in`] (mappings), [`delivery`] (data with its
//! number), [`answer`] (what follows from a peer's misbehaviour), [`handshake`] and [`join`] (MP_CAPABLE, MP_JOIN), [`unconfirmed`],
//! [`schedule`] (data that leaves; which becomes one mapping, the stream says in [`mapping_out`]), [`reinjection`], [`fallback`],
//! [`close`] (DATA_FIN, MP_FASTCLOSE) and [`subflow_end`], [`paths`] (the path manager) and [`address_options`] (ADD_ADDR,
//! REMOVE_ADDR, MP_PRIO), [`withdrawn_addresses`], [`staleness`], [`silence`], [`judging`], [`timers`], [`application`],
//! [`options`], [`info`]. What a segment of ours carries is decided by the [`option_writer`].

mod address_options;
mod addresses;
mod answer;
mod application;
mod asked_subflows;
mod close;
mod context;
mod data_in;
mod data_receive;
mod data_send;
mod delivery;
mod fallback;
mod half_open_joins;
mod handshake;
mod infinite_mapping;
mod info;
mod input;
mod join;
mod judging;
mod lifecycle;
mod mapping_out;
mod negotiation;
mod opening;
mod option_writer;
mod options;
mod outbox;
mod path_judge;
mod paths;
mod portion;
mod reinjection;
#[cfg(test)]
mod request_tests;
mod schedule;
mod scheduling;
mod silence;
mod silence_watch;
mod staleness;
mod stateless_joins;
#[cfg(test)]
mod states_tests;
mod stream;
mod subflow_end;
mod subflow_table;
mod subflows;
mod timers;
mod unconfirmed;
mod withdrawn_addresses;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_tcp::Connection as TcpConnection;
use polypath_wire::{MptcpVersion, Packet};

use crate::config::ConnectionConfig;
use crate::crypto::Key;
use crate::event::Event;
use crate::identifiers::SubflowId;
use crate::mapping::Mapping;
use crate::receive_window::ReceiveMemory;
use crate::subflow::{Receiver, Stage, Subflow, SubflowState};

use addresses::Addresses;
use data_receive::DataReceive;
use data_send::DataSend;
use infinite_mapping::Fallback;
use lifecycle::{Lifecycle, Mode};
use negotiation::Negotiation;
use opening::Opening;
use option_writer::SubflowExtension;
use outbox::Outbox;
use path_judge::PathJudge;
use scheduling::Scheduling;
use silence_watch::SilenceWatch;
use stateless_joins::StatelessJoins;
use stream::Stream;
use subflows::Subflows;

pub(crate) use context::Context;
pub use info::{ConnectionInfo, MultipathInfo, SubflowInfo};
pub(crate) use join::IncomingJoin;
pub(crate) use negotiation::capable_flags;
pub(crate) use outbox::Request;

/// A connection. Its host lends it time, counters and the rest of [`Context`].
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    opening: Opening,
    subflows: Subflows,
    scheduling: Scheduling,
    addresses: Addresses,
    path_judge: PathJudge,
    stateless_joins: StatelessJoins,
    silence_watch: Option<Box<SilenceWatch>>,
    outbox: Outbox,
}

/// What a connection is built from.
pub(crate) struct ConnectionSetup {
    pub(crate) config: Arc<ConnectionConfig>,
    pub(crate) is_client: bool,
    pub(crate) version: MptcpVersion,
    pub(crate) local_key: Key,
    /// The initial subflow, and how far its handshake is.
    pub(crate) tcp: TcpConnection<Mapping>,
    pub(crate) stage: Stage,
}

impl Connection {
    pub(crate) fn new(setup: ConnectionSetup) -> Self {
        let ConnectionSetup { config, is_client, version, local_key, tcp, stage } = setup;
        let mode = if stage == Stage::Plain { Mode::Plain } else { Mode::Negotiating };
        let negotiation = Negotiation::new(is_client, version, local_key);
        let mut connection = Self {
            scheduling: Scheduling::new(config.scheduler.build()),
            addresses: Addresses::new(config.path_manager.build(), tcp.tuple()),
            stream: Stream {
                send: DataSend::new(negotiation.first_data_seq()),
                negotiation,
                lifecycle: Lifecycle::new(mode),
                receive: DataReceive::new(),
                fallback: Fallback::new(),
                config,
            },
            opening: Opening::new(),
            subflows: Subflows::default(),
            path_judge: PathJudge::default(),
            stateless_joins: StatelessJoins::default(),
            silence_watch: None,
            outbox: Outbox::default(),
        };
        connection.add_subflow(tcp, stage);
        connection
    }

    /// Adds a subflow and returns its identifier.
    fn add_subflow(&mut self, tcp: TcpConnection<Mapping>, stage: Stage) -> SubflowId {
        let mut rx = Receiver::default();
        if stage == Stage::Plain {
            rx.become_infinite(0, self.stream.receive.next());
        }
        self.scheduling.request();
        self.subflows.add(|id| Subflow { tcp, state: SubflowState::new(id, stage), rx })
    }

    // ---- output

    /// The next packet to send; call until `None`.
    pub(crate) fn poll_transmit(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let third_ack_goes_first = self.opening.take_third_ack();
        if !third_ack_goes_first && self.scheduling.poll() {
            self.schedule(cx);
        }
        for _ in 0..self.subflows.len() {
            let position = self.subflows.turn();
            let (subflow, views) = self.subflows.with_views(position)?;
            let Subflow { tcp, state, .. } = subflow;
            if let Some(packet) = tcp
                .poll_transmit(cx.now, &mut SubflowExtension { stream: &self.stream, state, views, position })
            {
                return Some(packet);
            }
            if state.owes_acknowledgment(tcp.unsent_bytes() == 0) {
                tcp.request_ack();
                let packet = tcp.poll_transmit(
                    cx.now,
                    &mut SubflowExtension { stream: &self.stream, state, views, position },
                );
                if packet.is_some() {
                    return packet;
                }
            }
            self.subflows.next_turn();
        }
        let before = self.subflows.len();
        self.reap(cx);
        if self.subflows.len() < before {
            // What it did not deliver is for the others now, and nothing else may come to say so.
            self.scheduling.request();
            return self.poll_transmit(cx);
        }
        if third_ack_goes_first {
            return self.poll_transmit(cx);
        }
        None
    }

    /// What the path of a subflow carried when it was used before.
    pub(crate) fn remember_rate(&mut self, id: SubflowId, bytes_per_s: Option<u64>) {
        if let Some(subflow) = self.subflows.find_mut(id) {
            subflow.state.path.remember(bytes_per_s);
        }
    }

    /// An acknowledgment leaves on the subflow `id`.
    pub(crate) fn acknowledge(&mut self, id: SubflowId) {
        if let Some(subflow) = self.subflows.find_mut(id) {
            subflow.tcp.request_ack();
        }
    }

    // ---- what the host takes out

    /// The next thing that the application should know.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.outbox.poll_event()
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.outbox.requests_len() > 0
    }

    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        self.outbox.take_requests()
    }

    /// Gives back the memory of empty queues: an idle connection holds little.
    pub(crate) fn trim(&mut self) {
        self.outbox.trim();
        self.subflows.trim();
    }

    /// The connection goes: so does what it promised.
    pub(crate) fn release_memory(&mut self, memory: &mut ReceiveMemory) {
        self.stream.receive.release(memory);
    }

    // ---- getters

    pub(crate) fn config(&self) -> &Arc<ConnectionConfig> {
        &self.stream.config
    }

    /// The application was told that it is closed, or does not care.
    pub(crate) fn is_over(&self) -> bool {
        self.stream.lifecycle.is_closed()
    }

    /// Established as the kernel counts it: open, and this end has not finished.
    pub(crate) fn is_established(&self) -> bool {
        self.stream.lifecycle.is_negotiated() && !self.is_write_closed()
    }

    /// The host may forget the connection: it is over and the application let go.
    pub(crate) fn is_done(&self) -> bool {
        self.subflows.is_empty() && self.stream.lifecycle.is_closed() && self.stream.lifecycle.is_released()
    }

    /// The first handshake waits for the third ACK.
    pub(crate) fn is_half_open(&self) -> bool {
        self.subflows.first().is_some_and(|subflow| subflow.tcp.is_half_open())
    }

    pub(crate) fn has_subflow_from(&self, local: IpAddr) -> bool {
        self.subflows.any(|subflow| subflow.tcp.tuple().local.addr == local)
    }

    pub(crate) fn receive_window_bytes(&self) -> u64 {
        self.stream.receive.window_bytes(&self.stream.config)
    }

    pub(crate) fn local_token(&self) -> u32 {
        self.stream.negotiation.local_token()
    }

    /// What a MP_FASTCLOSE for the peer needs; none if this is no Multipath TCP connection.
    pub(crate) fn fastclose_key(&self) -> Option<u64> {
        self.stream.negotiation.remote_key().filter(|_| self.stream.lifecycle.is_mptcp())
    }

    // ---- what every route tells the application

    fn notify_readable(&mut self) {
        if self.stream.lifecycle.is_announced() && self.stream.receive.unread_bytes() > 0 {
            self.outbox.emit_readable();
        }
    }

    #[inline]
    fn notify_writable(&mut self) {
        if self.stream.send.wants_writable() && self.stream.send.poll_writable(self.send_limit_bytes()) {
            self.outbox.emit(Event::Writable);
        }
    }

    fn notify_established(&mut self) {
        if !self.stream.lifecycle.handle_open() {
            return;
        }
        let local = self.addresses.initial().local;
        let is_client = self.stream.negotiation.is_client();
        self.outbox.emit(if is_client {
            Event::Connected
        } else {
            Event::Accepted { local, listener: None }
        });
        // Data, and even the end of it, may have come with the segment that completed the handshake.
        self.notify_readable();
        if self.stream.receive.is_finished() {
            self.outbox.emit(Event::PeerFinished);
        }
    }

    /// The peer's stream is complete.
    fn notify_peer_finished(&mut self) {
        self.stream.lifecycle.handle_peer_finished();
        if self.stream.lifecycle.is_announced() {
            self.outbox.emit(Event::PeerFinished);
        }
    }
}
