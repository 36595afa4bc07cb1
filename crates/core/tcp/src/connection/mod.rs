//! One TCP connection: parts that own their state, and what routes between them.
//!
//! A part is a type whose fields nothing outside of its file sees. `handle_*` tells it what happened, `poll_*` takes out what it
//! wants, getters say what holds. [`Connection`] has the parts, and tells each of them what the others found out.
//!
//! | part | owns |
//! |---|---|
//! | [`lifecycle`] | state, events for the owner, resets, TIME-WAIT |
//! | [`handshake`] | the SYN that is to leave, what both SYNs agreed on, [`timestamps`] |
//! | [`send`] | data, positions, scoreboard, FIN, the peer's window |
//! | [`departure`] | pacing, Nagle's algorithm, cork |
//! | [`path_mtu`] | segment sizes, and the probe for a larger one |
//! | [`recovery`] | the episode that is on, RACK, PRR, undo, F-RTO, tail loss probes |
//! | [`retransmit_timer`] | timeout, tail loss probe, reordering; probes of a dead path |
//! | [`stall`] | how long data waits, the persist timer, when it is enough |
//! | [`receive`] | the peer's data and FIN, the window promised to it |
//! | [`receiver_rtt`] | the round-trip time by the echoes of data that came |
//! | [`owed_acks`] | acknowledgments that are to leave, challenge ACKs |
//! | [`keepalive`] | when the peer was heard, probes of a silent one |
//!
//! Routes, by direction and reason: [`input`] (RFC 9293 §3.10.7, one function a step), [`ack`] (acknowledgments that arrive),
//! [`losses`] (detection, recovery, undo), [`losses_by_count`], [`timeout`] (retransmission timeouts, tail loss probes), [`output`] (what leaves, and
//! with which options), [`timers`], [`mtu_search`], [`options`], [`getters`].

mod ack;
mod departure;
mod disposition;
mod event;
mod getters;
mod handshake;
mod input;
mod keepalive;
mod lifecycle;
mod losses;
mod losses_by_count;
mod mtu_search;
mod options;
mod output;
mod owed_acks;
mod path_mtu;
mod receive;
mod receiver_rtt;
mod recovery;
mod retransmit_timer;
mod send;
mod stall;
mod stateless;
#[cfg(test)]
mod states_tests;
#[cfg(test)]
mod tests;
mod timeout;
mod timers;
mod timestamps;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt::Debug;

use polypath_congestion::{self as congestion, Controller};
use polypath_units::Instant;
use polypath_wire::{FourTuple, IcmpMessage, Payload, Segment, SeqNumber};

use crate::config::Config;
use crate::delivery::Delivery;
use crate::extension::Extension;
use crate::rtt::RttEstimator;

pub use disposition::{Disposition, DropReason};
pub use event::{CloseReason, Event};
pub use getters::Info;
pub use lifecycle::State;
pub use options::ConnectionOption;
pub use stateless::stateless_syn_ack;

use departure::Departure;
use handshake::Handshake;
use keepalive::Keepalive;
use lifecycle::{AfterFin, Lifecycle};
use owed_acks::OwedAcks;
use path_mtu::PathMtu;
use receive::ReceiveHalf;
use receiver_rtt::ReceiverRtt;
use recovery::Recovery;
use retransmit_timer::RetransmitTimer;
use send::SendHalf;
use stall::Stall;

/// What a connection is built from.
#[derive(Debug)]
pub struct Setup {
    /// Both ends.
    pub tuple: FourTuple,
    /// Our initial sequence number (RFC 6528).
    pub isn: SeqNumber,
    /// Added to the clock in milliseconds to make timestamps (RFC 7323 §5.4).
    pub timestamp_offset: u32,
    /// Settings.
    pub config: Arc<Config>,
    /// Congestion control. It begins with the segment size that the path MTU allows.
    pub congestion: congestion::Policy,
}

/// A TCP connection as a state machine; `M` is what an [`Extension`] attaches to data.
///
/// Four kinds of method:
/// - `handle_*` tell it what happened: a segment or ICMP message came, a deadline passed;
/// - commands: [`Connection::enqueue`], [`Connection::finish`], [`Connection::abort`], [`Connection::read`],
///   [`Connection::request_ack`];
/// - `poll_*` say what it wants. After any of the above call [`Connection::poll_transmit`] until it returns `None`,
///   then [`Connection::poll`] likewise, then ask [`Connection::poll_timeout`] when [`Connection::handle_timeout`] is
///   due. A `handle_timeout` that comes early does nothing;
/// - getters.
///
/// `now` must never go back. Inside, positions count from the initial sequence number (SYN is 0, the first byte 1) and
/// do not wrap; sequence numbers are made and read at the edge.
///
/// ```
/// # mod polypath { pub use {polypath_congestion as congestion, polypath_tcp as tcp, polypath_units as units, polypath_wire as wire}; }
/// use polypath::tcp::{Connection, Setup, State};
/// use polypath::units::Instant;
/// use polypath::wire::{Endpoint, FourTuple, SeqNumber, Transport};
///
/// let tuple = FourTuple {
///     local: Endpoint::new([10, 0, 0, 1].into(), 40_000),
///     remote: Endpoint::new([10, 0, 0, 2].into(), 80),
/// };
/// let setup = |tuple, isn| Setup {
///     tuple,
///     isn: SeqNumber(isn),
///     timestamp_offset: 0,
///     config: Default::default(),
///     congestion: polypath::congestion::CUBIC,
/// };
/// let now = Instant::ZERO;
/// let mut client: Connection = Connection::connect(now, setup(tuple, 1));
/// let Transport::Tcp(syn) = client.poll_transmit(now, &mut ()).unwrap().transport else { panic!("a segment") };
/// let mut server: Connection = Connection::accept(now, setup(tuple.reversed(), 2), &syn);
/// let Transport::Tcp(mut syn_ack) = server.poll_transmit(now, &mut ()).unwrap().transport else { panic!("a segment") };
/// client.handle_segment(now, &mut syn_ack, &mut ());
/// assert_eq!((client.state(), server.state()), (State::Established, State::SynReceived));
/// ```
#[derive(Debug)]
pub struct Connection<M = ()> {
    tuple: FourTuple,
    config: Arc<Config>,
    lifecycle: Lifecycle,
    handshake: Handshake,

    // What leaves.
    send: SendHalf<M>,
    mtu: PathMtu,
    departure: Departure,
    controller: Box<dyn Controller>,

    // What became of it.
    rtt: RttEstimator,
    delivery: Delivery,
    recovery: Recovery,
    retransmit: RetransmitTimer,
    stall: Stall,

    // What arrives.
    receive: ReceiveHalf,
    receiver_rtt: ReceiverRtt,
    acks: OwedAcks,
    keepalive: Keepalive,
}

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// Opens a connection; the SYN comes out of [`Connection::poll_transmit`].
    #[must_use]
    pub fn connect(now: Instant, setup: Setup) -> Self {
        Self::new(now, setup, State::SynSent)
    }

    /// Answers a SYN; the SYN/ACK comes out of [`Connection::poll_transmit`].
    #[must_use]
    pub fn accept(now: Instant, setup: Setup, syn: &Segment) -> Self {
        let mut connection = Self::new(now, setup, State::SynReceived);
        connection.learn_from_syn(now, syn);
        connection
    }

    fn new(now: Instant, setup: Setup, state: State) -> Self {
        let Setup { tuple, isn, timestamp_offset, config, congestion } = setup;
        let mtu = PathMtu::new(config.mtu_bytes, config.min_mtu_bytes, tuple.local.addr.is_ipv6());
        let shift = if config.window_scaling { scale_for(config.receive_buffer_bytes) } else { 0 };
        Self {
            tuple,
            lifecycle: Lifecycle::new(state),
            handshake: Handshake::new(now, timestamp_offset, &config),
            send: SendHalf::new(isn),
            controller: config.controller(&congestion, mtu.own_mss_bytes().into()),
            mtu,
            departure: Departure::new(now, config.no_delay),
            rtt: RttEstimator::new(&config),
            delivery: Delivery::new(now),
            recovery: Recovery::new(&config.loss_recovery),
            retransmit: RetransmitTimer::OFF,
            stall: Stall::new(now),
            receive: ReceiveHalf::new(shift),
            receiver_rtt: ReceiverRtt::new(now),
            acks: OwedAcks::new(config.quick_ack_packets),
            keepalive: Keepalive::new(now),
            config,
        }
    }

    // ---- commands

    /// Appends data, all of it with one mapping. The owner asks [`Connection::window_room_bytes`] or its own buffer limit
    /// first; here there is none.
    pub fn enqueue(&mut self, data: Payload, mapping: M) {
        self.send.enqueue(data, mapping);
    }

    /// Sends FIN after everything queued.
    pub fn finish(&mut self) {
        self.send.finish();
    }

    /// Resets the connection: a RST leaves, if the peer knows of us, and it is over.
    pub fn abort(&mut self) {
        match self.state() {
            State::Closed => {}
            State::SynSent | State::TimeWait => self.close(CloseReason::Aborted),
            _ => {
                self.close(CloseReason::Aborted);
                self.lifecycle.send_reset();
            }
        }
    }

    /// Lets one acknowledgment leave at the next [`Connection::poll_transmit`].
    pub fn request_ack(&mut self) {
        if self.state().is_synchronized() {
            self.acks.owe();
        }
    }

    /// Lets one keep-alive probe leave at the next [`Connection::poll_transmit`] (RFC 9293 §3.8.4): a peer that lives answers.
    pub fn request_probe(&mut self) {
        if self.state().is_synchronized() {
            self.keepalive.send_probe();
        }
    }

    /// The next data in order.
    #[inline]
    pub fn read(&mut self) -> Option<Payload> {
        self.receive.read()
    }

    /// After reading: a window update leaves if the window opened by enough (RFC 9293 §3.8.6.2.2).
    pub fn window_may_have_opened<X: Extension<Mapping = M>>(&mut self, ext: &X) {
        if !self.state().may_receive() {
            return;
        }
        let window = ext.receive_window_bytes(self.own_window_bytes());
        if self.receive.should_update(window, self.mtu.peer_mss_bytes(), self.config.receive_buffer_bytes) {
            self.acks.owe();
        }
    }

    /// Replaces congestion control; the new one knows nothing of what was.
    pub fn set_congestion(&mut self, algorithm: &congestion::Policy) {
        self.controller = self.config.controller(algorithm, self.mss_bytes());
    }

    /// Goes on as if slow start had brought the congestion window to this.
    pub fn catch_up_to(&mut self, window_bytes: u64) {
        self.controller.set_window(window_bytes, None);
    }

    /// Halves the congestion window, and makes it the slow-start threshold if that is meant too: a scheduler penalizes a flow that holds
    /// up the others (Paasch 4.2.1).
    pub fn halve_window(&mut self, sets_threshold: bool) {
        let half_bytes = self.window_bytes() / 2;
        self.controller.set_window(half_bytes, sets_threshold.then_some(half_bytes));
    }

    /// Next thing that the owner should know.
    #[must_use]
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        self.lifecycle.poll_event()
    }

    // ---- positions and sequence numbers

    /// The stream offset of a peer's sequence number near the next expected: −1 is its SYN.
    #[must_use]
    #[inline]
    pub fn offset_of(&self, seq: SeqNumber) -> i64 {
        self.receive.offset_of(seq)
    }

    fn own_window_bytes(&self) -> u64 {
        self.receive.room_bytes(self.config.receive_buffer_bytes)
    }

    // ---- the end

    /// The connection is over: nothing is owed any longer, and no timer runs.
    fn close(&mut self, reason: CloseReason) {
        if self.lifecycle.become_closed(reason) {
            self.forget_what_is_owed();
        }
    }

    fn forget_what_is_owed(&mut self) {
        self.stop_timers();
        self.stall.cancel();
        self.acks.forget();
        self.handshake.cancel_syn();
        self.keepalive.cancel_probe();
        self.recovery.cancel_tail_probe();
    }

    fn close_after_reset(&mut self, reason: CloseReason) {
        self.close(reason);
        self.lifecycle.send_reset();
    }

    /// What a FIN that came or was acknowledged leads to, beside the state.
    #[inline]
    fn go_on_after(&mut self, fin: AfterFin) {
        match fin {
            AfterFin::GoesOn => {}
            AfterFin::TimeWait => self.stop_timers(),
            AfterFin::Closed => self.forget_what_is_owed(),
        }
    }

    /// All but that of TIME-WAIT.
    fn stop_timers(&mut self) {
        self.retransmit = RetransmitTimer::OFF;
        self.departure.stop();
        self.stall.stop_persisting();
        self.acks.stop_delay();
        self.keepalive.stop();
    }

    /// An ICMP message about this flow (RFC 5927: believed only if it quotes something in flight).
    pub fn handle_icmp(&mut self, now: Instant, message: &IcmpMessage) {
        let (IcmpMessage::PacketTooBig { seq, .. } | IcmpMessage::Unreachable { seq, .. }) = message;
        let ahead = self.send.ahead(*seq);
        if ahead < 0 || ahead as u64 >= self.send.outstanding_bytes().max(1) {
            return;
        }
        match message {
            IcmpMessage::PacketTooBig { mtu, .. } => {
                if self.mtu.lower_to(*mtu) {
                    self.segment_size_fell(now);
                }
            }
            IcmpMessage::Unreachable { .. } => {
                if matches!(self.state(), State::SynSent | State::SynReceived) {
                    self.close(CloseReason::Unreachable);
                }
            }
        }
    }
}

/// The least shift with which `bytes` fit the header's field (RFC 7323 §2.3: at most 14).
fn scale_for(bytes: u64) -> u8 {
    (0..14).find(|shift| bytes >> shift <= u64::from(u16::MAX)).unwrap_or(14)
}
