use bytes::Bytes;
use polypath_units::{Duration, Instant};
use polypath_wire::{FourTuple, IcmpMessage, Packet, Payload, Transport};

use super::counters::Counters;
use super::event::{HostEvent, SendError};
use super::hosted::{Call, Hosted};
use super::time_wait::TimeWaitNumbers;
use crate::{CloseReason, Connection, ConnectionOption, Event, Info, State};

/// Most data that one call to [`PlainConnection::send`] takes.
const MAX_SEND_BYTES: u64 = 1 << 30;

/// A connection of plain TCP, and what its application wants of it.
pub(super) struct PlainConnection {
    tcp: Connection<()>,
    owner: Owner,
    /// Its flow leads here. TCP is done with it otherwise, and only the application is not.
    is_bound: bool,
    is_established: bool,
    is_closed: bool,
    /// The application sends no more.
    is_finished: bool,
    wants_writable: bool,
    /// [`HostEvent::Readable`] waits to be polled.
    is_readable_queued: bool,
    /// When an orphan in FIN-WAIT-2 is given up.
    orphan_ends_at: Option<Instant>,
    /// It was.
    is_given_up: bool,
}

/// Who would hear of its events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Nobody yet: it came from outside, and its handshake is under way.
    Listener,
    Application,
    /// The application has released it.
    Nobody,
}

/// What a host is to do about a connection that has nothing to transmit for now.
pub(super) enum Rest {
    /// Wait for its timer.
    Wait,
    /// TCP is done with it.
    Over,
    /// Tell the application that it is closed, and wait for its timer.
    Closed,
    /// Nobody holds it, and a record can take its place until that instant, if it is known.
    TimeWait(TimeWaitNumbers, Option<Instant>),
}

impl PlainConnection {
    /// One that the application has opened.
    pub(super) fn opened(tcp: Connection<()>) -> Self {
        Self { owner: Owner::Application, ..Self::half_open(tcp) }
    }

    /// One from outside, which is the application's from [`PlainConnection::hold`] on.
    pub(super) fn half_open(tcp: Connection<()>) -> Self {
        Self {
            tcp,
            owner: Owner::Listener,
            is_bound: true,
            is_established: false,
            is_closed: false,
            is_finished: false,
            wants_writable: false,
            is_readable_queued: false,
            orphan_ends_at: None,
            is_given_up: false,
        }
    }

    // ---- the application's

    pub(super) fn hold(&mut self) {
        self.owner = Owner::Application;
    }

    pub(super) fn is_held(&self) -> bool {
        self.owner == Owner::Application
    }

    pub(super) fn send(&mut self, mut data: Bytes) -> Result<usize, SendError> {
        if !self.may_finish() {
            return Err(SendError::Closed);
        }
        let len = data.len().min(self.buffer_room_bytes().min(MAX_SEND_BYTES) as usize);
        self.wants_writable = len < data.len();
        if len > 0 {
            data.truncate(len);
            self.tcp.enqueue(Payload::from(data), ());
        }
        Ok(len)
    }

    /// Bytes that [`PlainConnection::send`] would take.
    pub(super) fn send_room_bytes(&self) -> u64 {
        if self.may_finish() { self.buffer_room_bytes() } else { 0 }
    }

    fn buffer_room_bytes(&self) -> u64 {
        let held = self.tcp.enqueued_offset().saturating_sub(self.tcp.acked_offset());
        self.tcp.send_buffer_bytes().saturating_sub(held)
    }

    pub(super) fn recv(&mut self) -> Option<Payload> {
        let payload = self.tcp.read()?;
        if !self.is_closed {
            self.tcp.window_may_have_opened(&());
        }
        Some(payload)
    }

    pub(super) fn set_option(&mut self, now: Instant, option: ConnectionOption) {
        self.tcp.set_option(now, option);
    }

    /// There is a side to [`PlainConnection::finish`].
    pub(super) fn may_finish(&self) -> bool {
        !self.is_finished && !self.is_closed
    }

    pub(super) fn finish(&mut self) {
        self.is_finished = true;
        self.tcp.finish();
    }

    pub(super) fn abort(&mut self) {
        self.is_finished = true;
        self.tcp.abort();
    }

    /// The listener that it came to is no more.
    pub(super) fn refuse(&mut self) {
        self.tcp.abort();
    }

    /// The application lets go; true if it did not read everything (RFC 2525 §2.17).
    pub(super) fn release(&mut self) -> bool {
        self.owner = Owner::Nobody;
        if self.tcp.readable_bytes() > 0 && !self.is_closed {
            self.tcp.abort();
            self.is_closed = true;
            return true;
        }
        if self.tcp.state() == State::SynSent && self.tcp.enqueued_offset() == 0 {
            // Nobody waits for it to open (RFC 9293 §3.10.4).
            self.tcp.abort();
        } else if !self.is_finished {
            self.is_finished = true;
            self.tcp.finish();
        }
        false
    }

    /// Resets it if data came that nobody will read, and the peer must know (RFC 9293 §3.6.1); true if so.
    pub(super) fn abort_if_unwanted(&mut self) -> bool {
        let is_left = self.owner == Owner::Nobody && self.is_established && !self.is_closed;
        let is_unwanted = is_left && self.tcp.readable_bytes() > 0;
        if is_unwanted {
            self.is_closed = true;
            self.tcp.abort();
        }
        is_unwanted
    }

    // ---- the host's

    pub(super) fn is_open(&self) -> bool {
        !self.is_closed
    }

    pub(super) fn is_bound(&self) -> bool {
        self.is_bound
    }

    pub(super) fn is_established(&self) -> bool {
        self.is_established
    }

    pub(super) fn is_half_open(&self) -> bool {
        self.tcp.is_half_open()
    }

    /// It was silent for too long after the application let go.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    pub(super) fn flow(&self) -> FourTuple {
        self.tcp.tuple()
    }

    pub(super) fn info(&self) -> Info {
        self.tcp.info()
    }

    pub(super) fn add_to(&self, counters: &mut Counters) {
        let info = self.tcp.info();
        counters.retrans_segs += info.retransmits;
        counters.tcp_timeouts += info.timeouts.unwrap_or(0);
    }

    /// In ESTABLISHED or CLOSE-WAIT.
    pub(super) fn is_up(&self) -> bool {
        self.is_bound && matches!(self.tcp.state(), State::Established | State::CloseWait)
    }

    /// TCP is done with it.
    pub(super) fn unbind(&mut self) {
        self.is_bound = false;
        self.is_closed = true;
    }

    /// The next thing to tell the application.
    pub(super) fn poll_event(&mut self, counters: &mut Counters) -> Option<HostEvent> {
        while let Some(event) = self.tcp.poll() {
            match event {
                Event::Connected => {
                    self.is_established = true;
                    return Some(HostEvent::Connected);
                }
                Event::Readable if self.is_readable_queued => {}
                Event::Readable => {
                    self.is_readable_queued = true;
                    return Some(HostEvent::Readable);
                }
                Event::PeerFinished => return Some(HostEvent::PeerFinished),
                // The connection itself deals with these.
                Event::TimedOut | Event::MtuChanged => {}
                Event::Closed(reason) => {
                    let is_reset = matches!(reason, CloseReason::Reset | CloseReason::Aborted);
                    counters.estab_resets += u64::from(self.is_established && is_reset);
                    counters.tcp_abort_on_timeout += u64::from(reason == CloseReason::TimedOut);
                    if !core::mem::replace(&mut self.is_closed, true) {
                        return Some(HostEvent::Closed(reason));
                    }
                }
            }
        }
        // As Linux: a third of the buffer must be free, so that a writer wakes for more than a segment.
        let has_space = || self.buffer_room_bytes() >= self.tcp.send_buffer_bytes() / 3;
        if self.wants_writable && !self.is_closed && has_space() {
            self.wants_writable = false;
            return Some(HostEvent::Writable);
        }
        None
    }

    /// The application takes note of an event.
    pub(super) fn event_polled(&mut self, event: HostEvent) {
        if event == HostEvent::Readable {
            self.is_readable_queued = false;
        }
    }

    /// There is nothing to transmit for now. An orphan in FIN-WAIT-2 waits no longer than `fin_wait_2` for its peer.
    pub(super) fn rest(&mut self, now: Instant, fin_wait_2: Duration) -> Rest {
        let is_orphan = self.owner == Owner::Nobody;
        if is_orphan {
            self.tcp.orphan(now);
        }
        match self.tcp.state() {
            State::Closed => return Rest::Over,
            State::TimeWait if is_orphan => {
                return Rest::TimeWait(self.tcp.time_wait_numbers(), self.tcp.poll_timeout());
            }
            State::TimeWait if !core::mem::replace(&mut self.is_closed, true) => return Rest::Closed,
            State::FinWait2 if is_orphan && self.orphan_ends_at.is_none() => {
                self.orphan_ends_at = Some(now + fin_wait_2);
            }
            _ => {}
        }
        Rest::Wait
    }
}

impl Hosted for PlainConnection {
    type Resources = Counters;

    type Tag = ();

    const BURST_PACKETS: u32 = 1;

    #[inline]
    fn flow(&self, (): ()) -> Option<FourTuple> {
        Some(self.tcp.tuple())
    }

    #[inline]
    fn handle_packet(&mut self, call: Call<'_, Counters>, (): (), packet: &mut Packet) {
        let Transport::Tcp(segment) = &mut packet.transport else { return };
        let (_, is_withheld) = self.tcp.handle_segment_within(call.now, segment, &mut (), call.challenges);
        call.resources.challenges_withheld += u64::from(is_withheld);
    }

    fn handle_icmp(&mut self, call: Call<'_, Counters>, (): (), message: &IcmpMessage) {
        self.tcp.handle_icmp(call.now, message);
    }

    fn handle_timeout(&mut self, call: Call<'_, Counters>) {
        if self.orphan_ends_at.is_some_and(|end| end <= call.now) {
            // Silently, as Linux: a FIN that comes yet is reset.
            self.is_given_up = true;
        } else {
            self.tcp.handle_timeout(call.now, &mut ());
        }
    }

    #[inline]
    fn poll_transmit(&mut self, call: Call<'_, Counters>) -> Option<Packet> {
        self.tcp.poll_transmit(call.now, &mut ())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.tcp.poll_timeout(), self.orphan_ends_at].into_iter().flatten().min()
    }
}
