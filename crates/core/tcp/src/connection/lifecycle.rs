//! Where a connection is between its first SYN and its end (RFC 9293 §3.3.2): every transition, and who has to hear of it.

use polypath_units::Instant;
use polypath_wire::SeqNumber;

use super::event::{CloseReason, Event, Events};

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
    pub(super) const fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck)
    }

    /// The peer may still send data.
    pub(super) const fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

/// What came of a FIN that came or was acknowledged, for those that the end concerns too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFin {
    /// The connection goes on.
    GoesOn,
    /// Both ends have finished, and the last acknowledgment may be lost.
    TimeWait,
    /// Both ends have finished, and know it.
    Closed,
}

/// The state, what the owner has not heard, and the RSTs that end it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifecycle {
    /// End of TIME-WAIT; [`Instant::FAR_FUTURE`] is off.
    time_wait: Instant,
    state: State,
    events: Events,
    /// A RST is to leave that ends the connection.
    reset_is_due: bool,
    /// Sequence number of a RST that answers a segment which can't be of this connection.
    stray_reset: Option<SeqNumber>,
}

impl Lifecycle {
    /// Begins as SYN-SENT or SYN-RECEIVED.
    pub(super) fn new(state: State) -> Self {
        Self {
            time_wait: Instant::FAR_FUTURE,
            state,
            events: Events::default(),
            reset_is_due: false,
            stray_reset: None,
        }
    }

    /// Where it is.
    #[inline]
    pub(super) const fn state(&self) -> State {
        self.state
    }

    // ---- transitions

    /// Both ends opened at once (RFC 9293 §3.5, figure 7).
    pub(super) fn become_syn_received(&mut self) {
        debug_assert_eq!(self.state, State::SynSent, "it waits for the answer to its SYN");
        self.state = State::SynReceived;
    }

    /// Both SYNs were acknowledged.
    pub(super) fn become_established(&mut self) {
        debug_assert!(matches!(self.state, State::SynSent | State::SynReceived), "{:?}", self.state);
        self.state = State::Established;
        self.events.report(Event::Connected);
    }

    /// Our FIN leaves.
    pub(super) fn handle_fin_sent(&mut self) {
        debug_assert!(matches!(self.state, State::Established | State::CloseWait), "{:?}", self.state);
        self.state = if self.state == State::CloseWait { State::LastAck } else { State::FinWait1 };
    }

    /// The peer's FIN came, and everything before it. What TIME-WAIT follows ends then.
    pub(super) fn handle_peer_fin(&mut self, time_wait_until: Instant) -> AfterFin {
        debug_assert!(!matches!(self.state, State::SynSent | State::SynReceived), "{:?}", self.state);
        self.events.report(Event::PeerFinished);
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => return self.wait_until(time_wait_until),
            _ => {}
        }
        AfterFin::GoesOn
    }

    /// Our FIN was acknowledged, now or before. What TIME-WAIT follows ends then.
    #[inline]
    pub(super) fn handle_fin_acked(&mut self, time_wait_until: Instant) -> AfterFin {
        debug_assert!(!matches!(self.state, State::SynSent | State::SynReceived), "{:?}", self.state);
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => return self.wait_until(time_wait_until),
            State::LastAck => {
                self.become_closed(CloseReason::Finished);
                return AfterFin::Closed;
            }
            _ => {}
        }
        AfterFin::GoesOn
    }

    /// Waits for what may still travel.
    fn wait_until(&mut self, until: Instant) -> AfterFin {
        self.state = State::TimeWait;
        self.time_wait = until;
        AfterFin::TimeWait
    }

    /// A FIN came again: it waits anew (RFC 9293 §3.10.7.4, eighth).
    pub(super) fn extend_time_wait(&mut self, until: Instant) {
        debug_assert_eq!(self.state, State::TimeWait);
        self.time_wait = until;
    }

    /// The end. False if it was before.
    pub(super) fn become_closed(&mut self, reason: CloseReason) -> bool {
        if self.state == State::Closed {
            return false;
        }
        *self = Self { events: self.events, ..Self::new(State::Closed) };
        self.events.report(Event::Closed(reason));
        true
    }

    /// End of TIME-WAIT.
    #[inline]
    pub(super) const fn poll_timeout(&self) -> Instant {
        self.time_wait
    }

    // ---- resets

    /// The peer hears of the end by a RST.
    pub(super) fn send_reset(&mut self) {
        self.reset_is_due = true;
    }

    /// A segment that can't be of this connection is answered by a RST with this sequence number (RFC 9293 §3.10.7.3).
    pub(super) fn send_stray_reset(&mut self, seq: SeqNumber) {
        self.stray_reset = Some(seq);
    }

    /// True once if a RST is to leave.
    #[inline]
    pub(super) fn poll_reset(&mut self) -> bool {
        core::mem::take(&mut self.reset_is_due)
    }

    /// The sequence number of a stray RST, once.
    #[inline]
    pub(super) fn poll_stray_reset(&mut self) -> Option<SeqNumber> {
        self.stray_reset.take()
    }

    // ---- events

    /// The owner should know.
    #[inline]
    pub(super) fn report(&mut self, event: Event) {
        self.events.report(event);
    }

    /// The next that it should. It hears of the end after the RST has left.
    #[inline]
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.poll(!self.reset_is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9293 §3.3.2, figure 5, from ESTABLISHED on.
    #[test]
    fn fins_lead_where_the_figure_says() {
        #[derive(Clone, Copy)]
        enum Fin {
            Sent,
            Acked,
            Received,
        }
        use AfterFin::{Closed, GoesOn, TimeWait};
        use Fin::{Acked, Received, Sent};
        let cases: [[(Fin, State, AfterFin); 3]; 4] = [
            [
                (Sent, State::FinWait1, GoesOn),
                (Acked, State::FinWait2, GoesOn),
                (Received, State::TimeWait, TimeWait),
            ],
            [
                (Sent, State::FinWait1, GoesOn),
                (Received, State::Closing, GoesOn),
                (Acked, State::TimeWait, TimeWait),
            ],
            [
                (Received, State::CloseWait, GoesOn),
                (Sent, State::LastAck, GoesOn),
                (Acked, State::Closed, Closed),
            ],
            // Our data is acknowledged in the same segment that brings the FIN.
            [
                (Received, State::CloseWait, GoesOn),
                (Acked, State::CloseWait, GoesOn),
                (Sent, State::LastAck, GoesOn),
            ],
        ];
        for case in cases {
            let mut lifecycle = Lifecycle::new(State::SynSent);
            lifecycle.become_established();
            for (fin, state, after) in case {
                let step = match fin {
                    Sent => {
                        lifecycle.handle_fin_sent();
                        GoesOn
                    }
                    Acked => lifecycle.handle_fin_acked(Instant::from_secs(60)),
                    Received => lifecycle.handle_peer_fin(Instant::from_secs(60)),
                };
                assert_eq!((lifecycle.state(), step), (state, after));
            }
        }
    }

    #[test]
    fn the_owner_hears_of_the_end_once_the_reset_has_left() {
        let mut lifecycle = Lifecycle::new(State::SynReceived);
        lifecycle.become_established();
        lifecycle.handle_fin_sent();
        lifecycle.handle_fin_acked(Instant::from_secs(9));
        lifecycle.handle_peer_fin(Instant::from_secs(9));
        assert_eq!((lifecycle.state(), lifecycle.poll_timeout()), (State::TimeWait, Instant::from_secs(9)));
        assert!(lifecycle.become_closed(CloseReason::Aborted));
        assert!(!lifecycle.become_closed(CloseReason::Finished));
        lifecycle.send_reset();
        assert_eq!(lifecycle.poll_timeout(), Instant::FAR_FUTURE);
        assert_eq!(lifecycle.poll_event(), Some(Event::Connected));
        assert_eq!(lifecycle.poll_event(), Some(Event::PeerFinished));
        assert_eq!(lifecycle.poll_event(), None);
        assert!(lifecycle.poll_reset() && !lifecycle.poll_reset());
        assert_eq!(lifecycle.poll_event(), Some(Event::Closed(CloseReason::Aborted)));
        assert_eq!(lifecycle.poll_event(), None);
    }
}
