//! What a connection tells its owner.

/// What a connection tells its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Both ends agreed to talk.
    Connected,
    /// There is data to [`Connection::read`](super::Connection::read).
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

/// Events that the owner has not heard of, each once, in the order of [`Event`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Events {
    connected: bool,
    readable: bool,
    peer_finished: bool,
    timed_out: bool,
    mtu_changed: bool,
    closed: Option<CloseReason>,
}

impl Events {
    /// The owner should hear of this.
    #[inline]
    pub(super) fn report(&mut self, event: Event) {
        match event {
            Event::Connected => self.connected = true,
            Event::Readable => self.readable = true,
            Event::PeerFinished => self.peer_finished = true,
            Event::TimedOut => self.timed_out = true,
            Event::MtuChanged => self.mtu_changed = true,
            Event::Closed(reason) => self.closed = Some(reason),
        }
    }

    /// The next to hear of; of the end only if that `may_close`.
    #[inline]
    pub(super) fn poll(&mut self, may_close: bool) -> Option<Event> {
        if core::mem::take(&mut self.connected) {
            return Some(Event::Connected);
        }
        if core::mem::take(&mut self.readable) {
            return Some(Event::Readable);
        }
        if core::mem::take(&mut self.peer_finished) {
            return Some(Event::PeerFinished);
        }
        if core::mem::take(&mut self.timed_out) {
            return Some(Event::TimedOut);
        }
        if core::mem::take(&mut self.mtu_changed) {
            return Some(Event::MtuChanged);
        }
        if may_close { self.closed.take().map(Event::Closed) } else { None }
    }
}
