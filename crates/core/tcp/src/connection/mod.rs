//! One TCP connection.
//!
//! Split by direction and reason: [`input`] (RFC 9293 §3.10.7, one function a step), [`ack`] (acknowledgments),
//! [`recovery`] (losses, undo), [`timeout`] (retransmission timeouts, tail loss probes), [`output`] (what leaves, and
//! with which options), [`timers`], [`mtu`], [`getters`].

mod ack;
mod acks;
mod challenges;
mod getters;
mod handshake;
mod input;
mod keepalive;
mod losses;
mod mtu;
mod options;
mod output;
mod peer_window;
mod prr;
mod rack;
mod receive;
mod recovery;
mod retransmit_timer;
mod send;
mod stall;
mod stateless;
mod tail_probe;
#[cfg(test)]
mod tests;
mod timeout;
mod timers;
mod timestamps;
mod undo;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt::Debug;

use polypath_congestion::Controller;
use polypath_units::Instant;
use polypath_wire::{FourTuple, IcmpMessage, Payload, Segment, SeqNumber};

use crate::config::Config;
use crate::delivery::Delivery;
use crate::extension::Extension;
use crate::rtt::RttEstimator;

pub use getters::Info;
pub use options::ConnectionOption;
pub use stateless::stateless_syn_ack;

use acks::OwedAcks;
use handshake::Handshake;
use keepalive::Keepalive;
use mtu::PathMtu;
use receive::ReceiveHalf;
use recovery::Recovery;
use retransmit_timer::RetransmitTimer;
use send::SendHalf;
use stall::Stall;
use timers::Timers;
use timestamps::Timestamping;

/// The states of RFC 9293 §3.3.2, LISTEN excepted: listening is the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

impl State {
    /// Both SYNs have been exchanged.
    #[must_use]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Data or its retransmission may leave.
    const fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck)
    }

    /// The peer may still send data.
    const fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

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
    /// Congestion control, built for the segment size that the path MTU allows.
    pub controller: Box<dyn Controller>,
}

/// What became of a segment, and how much of it may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Sequence, flags and acknowledgment were acceptable (RFC 9293 §3.10.7.4): its options may be believed.
    Accepted,
    /// Its sequence number was not acceptable, though it lies where a copy of what was received before may lie. Only what it
    /// acknowledges was taken, and nothing else of it may be believed: anybody can make one up. Its payload stays in the segment.
    Acknowledged,
    /// A RST that was to be believed (RFC 5961 §3): the connection is over, and its options may say why.
    Reset,
    /// It changed nothing, but may have caused an acknowledgment.
    Dropped(DropReason),
}

impl Disposition {
    /// True for [`Disposition::Accepted`].
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Accepted)
    }
}

/// Why a segment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The connection is closed.
    Closed,
    /// Outside of the receive window (RFC 9293 §3.10.7.4, first).
    Sequence,
    /// All of it was received before, and its acknowledgment is of no use either.
    Duplicate,
    /// An old timestamp (RFC 7323 §5).
    Paws,
    /// No timestamp where timestamps were negotiated (RFC 7323 §3.2).
    NoTimestamp,
    /// RST that did not match exactly (RFC 5961 §3), or that has nothing left to reset.
    Reset,
    /// SYN on a synchronized connection (RFC 5961 §4).
    Syn,
    /// Acknowledges what was never sent, or lies too far back (RFC 5961 §5).
    Ack,
    /// No ACK flag where one is required.
    NoAck,
}

/// What a connection tells its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Both ends agreed to talk.
    Connected,
    /// There is data to [`Connection::read`].
    Readable,
    /// The peer's FIN arrived, and everything before it.
    PeerFinished,
    /// A retransmission timeout: the path may be dead.
    TimedOut,
    /// The segment size changed with the path MTU.
    MtuChanged,
    /// The connection is over. Nothing follows.
    Closed(CloseReason),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both ends closed in order.
    Finished,
    /// The peer reset it.
    Reset,
    /// The peer refused it: RST in answer to SYN.
    Refused,
    /// This end reset it.
    Aborted,
    /// Nothing came back.
    TimedOut,
    /// ICMP says there is no way (RFC 1122 §4.2.3.9), before the connection was established.
    Unreachable,
}

#[derive(Clone, Copy, Debug, Default)]
struct PendingEvents {
    connected: bool,
    readable: bool,
    peer_finished: bool,
    timed_out: bool,
    mtu_changed: bool,
    closed: Option<CloseReason>,
}

/// Running totals.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    bytes_sent: u64,
    bytes_retrans: u64,
    segs_out: u64,
    retransmits: u64,
    timeouts: u64,
    recoveries: u64,
    spurious: u64,
    dsacks: u64,
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
#[derive(Debug)]
pub struct Connection<M = ()> {
    tuple: FourTuple,
    config: Arc<Config>,
    controller: Box<dyn Controller>,
    state: State,

    send: SendHalf<M>,
    rtt: RttEstimator,
    recovery: Recovery,
    delivery: Delivery,
    stall: Stall,
    last_sent_at: Instant,
    pace_at: Instant,
    corked: bool,
    no_delay: bool,

    receive: ReceiveHalf,
    acks: OwedAcks,
    keepalive: Keepalive,

    mtu: PathMtu,
    handshake: Handshake,
    timestamps: Timestamping,

    pending: PendingSegments,
    retransmit: RetransmitTimer,
    timers: Timers,
    events: PendingEvents,
    totals: Totals,
}

/// Segments that are owed.
#[derive(Clone, Copy, Debug, Default)]
struct PendingSegments {
    probe: bool,
    reset: bool,
    /// Sequence number of a RST that answers a segment which can't be of this connection.
    stray_reset: Option<SeqNumber>,
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
        let Setup { tuple, isn, timestamp_offset, config, controller } = setup;
        let shift = if config.window_scaling { scale_for(config.receive_buffer_bytes) } else { 0 };
        Self {
            tuple,
            controller,
            state,
            send: SendHalf::new(isn),
            rtt: RttEstimator::new(config.initial_rto, config.min_rto, config.max_rto),
            recovery: Recovery::default(),
            delivery: Delivery::new(now),
            stall: Stall::new(now),
            last_sent_at: now,
            pace_at: now,
            corked: false,
            no_delay: config.no_delay,
            receive: ReceiveHalf::new(shift),
            acks: OwedAcks::new(config.quick_ack_packets),
            keepalive: Keepalive::new(now),
            mtu: PathMtu::new(config.mtu_bytes, config.min_mtu_bytes, tuple.local.addr.is_ipv6()),
            handshake: Handshake::new(&config),
            timestamps: Timestamping::new(now, config.timestamps, timestamp_offset),
            pending: PendingSegments::default(),
            retransmit: RetransmitTimer::OFF,
            timers: Timers::OFF,
            events: PendingEvents::default(),
            totals: Totals::default(),
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
        match self.state {
            State::Closed => {}
            State::SynSent | State::TimeWait => self.close(CloseReason::Aborted),
            _ => {
                self.close(CloseReason::Aborted);
                self.pending.reset = true;
            }
        }
    }

    /// Lets one acknowledgment leave at the next [`Connection::poll_transmit`].
    pub fn request_ack(&mut self) {
        if self.state.is_synchronized() {
            self.acks.owe();
        }
    }

    /// Lets one keep-alive probe leave at the next [`Connection::poll_transmit`] (RFC 9293 §3.8.4): a peer that lives answers.
    pub fn request_probe(&mut self) {
        self.pending.probe |= self.state.is_synchronized();
    }

    /// The next data in order.
    #[inline]
    pub fn read(&mut self) -> Option<Payload> {
        self.receive.read()
    }

    /// After reading: a window update leaves if the window opened by enough (RFC 9293 §3.8.6.2.2).
    pub fn window_may_have_opened<X: Extension<Mapping = M>>(&mut self, _now: Instant, ext: &X) {
        if !self.state.may_receive() {
            return;
        }
        let window = ext.receive_window_bytes(self.own_window_bytes());
        if self.receive.should_update(window, self.mtu.peer_mss_bytes(), self.config.receive_buffer_bytes) {
            self.acks.owe();
        }
    }

    /// Replaces congestion control.
    pub fn set_controller(&mut self, controller: Box<dyn Controller>) {
        self.controller = controller;
    }

    /// Next thing that the owner should know.
    #[must_use]
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        let events = &mut self.events;
        if core::mem::take(&mut events.connected) {
            return Some(Event::Connected);
        }
        if core::mem::take(&mut events.readable) {
            return Some(Event::Readable);
        }
        if core::mem::take(&mut events.peer_finished) {
            return Some(Event::PeerFinished);
        }
        if core::mem::take(&mut events.timed_out) {
            return Some(Event::TimedOut);
        }
        if core::mem::take(&mut events.mtu_changed) {
            return Some(Event::MtuChanged);
        }
        // The owner hears of the end after the RST has left.
        if self.pending.reset { None } else { events.closed.take().map(Event::Closed) }
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

    fn close(&mut self, reason: CloseReason) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.timers = Timers::OFF;
            self.retransmit = RetransmitTimer::OFF;
            self.recovery.tail_probe_mut().cancel();
            self.stall.cancel();
            self.acks.forget();
            self.acks.stop_delay();
            self.handshake.cancel_syn();
            self.keepalive.stop();
            self.pending = PendingSegments::default();
            self.events.closed = Some(reason);
        }
    }

    fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers = Timers::OFF;
        self.retransmit = RetransmitTimer::OFF;
        self.stall.stop_persisting();
        self.acks.stop_delay();
        self.keepalive.stop();
        self.timers.time_wait = now + self.config.time_wait;
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
                if matches!(self.state, State::SynSent | State::SynReceived) {
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
