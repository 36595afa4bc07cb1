//! One TCP connection.
//!
//! Split by direction and reason: [`input`] (RFC 9293 §3.10.7, one function a step), [`ack`] (acknowledgments),
//! [`recovery`] (losses, undo), [`timeout`] (retransmission timeouts, tail loss probes), [`output`] (what leaves, and
//! with which options), [`timers`], [`mtu`], [`getters`].

mod ack;
mod challenges;
mod getters;
mod input;
mod keepalive;
mod mtu;
mod options;
mod output;
mod recovery;
mod stall;
mod stateless;
#[cfg(test)]
mod tests;
mod timeout;
mod timers;
mod timestamps;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt::Debug;

use polypath_congestion::Controller;
use polypath_units::Instant;
use polypath_wire::{FourTuple, IcmpMessage, Payload, Segment, SeqNumber};

use crate::config::Config;
use crate::delivery::Delivery;
use crate::extension::Extension;
use crate::reassembly::ReceiveQueue;
use crate::rtt::RttEstimator;
use crate::scoreboard::Scoreboard;
use crate::send_queue::SendQueue;

pub use getters::Info;
pub use options::ConnectionOption;
pub use stateless::stateless_syn_ack;

use challenges::Challenges;
use keepalive::Keepalive;
use mtu::PathMtu;
use recovery::Recovery;
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

    isn: SeqNumber,
    /// First position not acknowledged, and first not sent.
    una: u64,
    next: u64,
    queue: SendQueue<M>,
    board: Scoreboard,
    finishing: bool,
    /// Position of our FIN, once it left.
    fin_at: Option<u64>,
    /// Right edge of the peer's window, as a position.
    window_end: u64,
    peer_window_bytes: u64,
    /// The largest window that the peer has shown, or the most that its SYN can: the measure of a silly one (RFC 9293 §3.8.6.2.1).
    largest_window_bytes: u64,
    /// Segment that last updated the window (RFC 9293 §3.10.7.4: SND.WL1, SND.WL2).
    window_seq: u64,
    window_ack: u64,
    rtt: RttEstimator,
    recovery: Recovery,
    delivery: Delivery,
    stall: Stall,
    last_sent_at: Instant,
    pace_at: Instant,
    corked: bool,
    no_delay: bool,

    peer_isn: SeqNumber,
    receive: ReceiveQueue,
    /// Largest right edge advertised, as a stream offset.
    window_edge: u64,
    /// Stream offset of the peer's FIN, if it arrived early or in order.
    peer_fin: Option<u64>,
    fin_received: bool,
    /// What the last acknowledgment covered.
    acked_to: u64,
    unacked_segments: u32,
    quick_acks: u32,
    dsack: Option<(u64, u64)>,
    keepalive: Keepalive,

    mtu: PathMtu,
    peer_mss: u16,
    peer_shift: u8,
    own_shift: u8,
    scaling: bool,
    timestamps: Timestamping,
    sack: bool,

    pending: PendingSegments,
    timers: Timers,
    events: PendingEvents,
    totals: Totals,
    challenges: Challenges,
    syn_sent: u8,
}

/// Segments that are owed.
#[derive(Clone, Copy, Debug, Default)]
struct PendingSegments {
    syn: bool,
    ack: bool,
    /// An acknowledgment that the host may withhold (RFC 5961 §10).
    challenge: bool,
    probe: bool,
    reset: bool,
    tail_probe: bool,
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
            isn,
            una: 0,
            next: 0,
            queue: SendQueue::new(),
            board: Scoreboard::default(),
            finishing: false,
            fin_at: None,
            window_end: 1,
            peer_window_bytes: 0,
            largest_window_bytes: u64::from(u16::MAX),
            window_seq: 0,
            window_ack: 0,
            rtt: RttEstimator::new(config.initial_rto, config.min_rto, config.max_rto),
            recovery: Recovery::default(),
            delivery: Delivery::new(now),
            stall: Stall::new(now),
            last_sent_at: now,
            pace_at: now,
            corked: false,
            no_delay: config.no_delay,
            peer_isn: SeqNumber(0),
            receive: ReceiveQueue::default(),
            window_edge: 0,
            peer_fin: None,
            fin_received: false,
            acked_to: 0,
            unacked_segments: 0,
            quick_acks: config.quick_ack_packets,
            dsack: None,
            keepalive: Keepalive::new(now),
            mtu: PathMtu::new(config.mtu_bytes, config.min_mtu_bytes, tuple.local.addr.is_ipv6()),
            peer_mss: if tuple.local.addr.is_ipv4() { 536 } else { 1220 },
            peer_shift: 0,
            own_shift: shift,
            scaling: config.window_scaling,
            timestamps: Timestamping::new(now, config.timestamps, timestamp_offset),
            sack: config.sack,
            pending: PendingSegments { syn: true, ..PendingSegments::default() },
            timers: Timers::OFF,
            events: PendingEvents::default(),
            totals: Totals::default(),
            challenges: Challenges::default(),
            syn_sent: 0,
            config,
        }
    }

    // ---- commands

    /// Appends data, all of it with one mapping. The owner asks [`Connection::window_room_bytes`] or its own buffer limit
    /// first; here there is none.
    pub fn enqueue(&mut self, data: Payload, mapping: M) {
        if !self.finishing {
            self.queue.push(data, mapping);
        }
    }

    /// Sends FIN after everything queued.
    pub fn finish(&mut self) {
        self.finishing = true;
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
        self.pending.ack |= self.state.is_synchronized();
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
        // What the header can't say is no news.
        let most = u64::from(u16::MAX) << self.own_shift;
        let window = ext.receive_window_bytes(self.own_window_bytes()).min(most);
        let edge = self.receive.next() + window;
        let step = (2 * u64::from(self.peer_mss)).min(self.config.receive_buffer_bytes / 2).max(1);
        // As the peer knows it.
        let known = self.window_edge.saturating_sub(self.receive.next()) >> self.own_shift << self.own_shift;
        let closed = known <= u64::from(self.peer_mss);
        // Small steps go with the next acknowledgment; a window that was nearly closed, or opened by a half, cannot wait.
        let far = edge.saturating_sub(self.window_edge) >= (self.config.receive_buffer_bytes / 2).max(1);
        if far || closed && edge >= self.window_edge + step {
            self.pending.ack = true;
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

    #[inline]
    fn outstanding_bytes(&self) -> u64 {
        self.next - self.una
    }

    #[inline]
    fn wire_seq(&self, position: u64) -> SeqNumber {
        self.isn.add(position as u32)
    }

    /// The acknowledgment number to send.
    #[inline]
    fn wire_ack(&self) -> SeqNumber {
        self.wire_receive(self.receive.next()).add(u32::from(self.fin_received))
    }

    /// The peer's sequence number of a stream offset.
    #[inline]
    fn wire_receive(&self, offset: u64) -> SeqNumber {
        self.peer_isn.add(1).add(offset as u32)
    }

    /// The stream offset of a peer's sequence number near the next expected: −1 is its SYN.
    #[must_use]
    #[inline]
    pub fn offset_of(&self, seq: SeqNumber) -> i64 {
        let next = self.receive.next();
        next as i64 + i64::from(seq.diff(self.wire_receive(next)))
    }

    fn own_window_bytes(&self) -> u64 {
        // Data behind gaps lies inside of the window, so only what waits to be read takes room from it.
        self.config.receive_buffer_bytes.saturating_sub(self.receive.ready_bytes())
    }

    /// The window as the header carries it.
    fn window_field(&self, window_bytes: u64) -> u16 {
        u16::try_from(window_bytes >> self.own_shift).unwrap_or(u16::MAX)
    }

    fn close(&mut self, reason: CloseReason) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.timers = Timers::OFF;
            self.stall.cancel();
            self.keepalive.stop();
            self.pending = PendingSegments::default();
            self.events.closed = Some(reason);
        }
    }

    fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers = Timers::OFF;
        self.stall.stop_persisting();
        self.keepalive.stop();
        self.timers.time_wait = now + self.config.time_wait;
    }

    /// An ICMP message about this flow (RFC 5927: believed only if it quotes something in flight).
    pub fn handle_icmp(&mut self, now: Instant, message: &IcmpMessage) {
        let (IcmpMessage::PacketTooBig { seq, .. } | IcmpMessage::Unreachable { seq, .. }) = message;
        let ahead = i64::from(seq.diff(self.wire_seq(self.una)));
        if ahead < 0 || ahead as u64 >= self.outstanding_bytes().max(1) {
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
