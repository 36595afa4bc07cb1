use core::fmt;

use bytes::Bytes;
use polypath_units::Instant;
use polypath_wire::{FourTuple, Packet, Payload};

use super::{ConnectionId, Host, HostEvent, SendError};
use crate::Info;

/// A host as its driver and its applications see it, whatever protocol it speaks: packets and time on one side, byte streams on the
/// other. For what drives any of them; each host has these calls, and more, as its own.
///
/// The driver gives it packets and time, then takes events from [`StreamHost::poll`] and packets from [`StreamHost::poll_transmit`]
/// until there are none, and comes back when [`StreamHost::poll_timeout`] says. Time never goes back.
pub trait StreamHost: fmt::Debug {
    /// What it tells an application.
    type Event;
    /// A connection in numbers.
    type Info;

    /// A packet arrived.
    fn handle_packet(&mut self, now: Instant, packet: Packet);

    /// The instant of [`StreamHost::poll_timeout`] came. Does nothing if it comes early.
    fn handle_timeout(&mut self, now: Instant);

    /// The next packet to send.
    #[must_use]
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet>;

    /// When [`StreamHost::handle_timeout`] is due.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next event.
    #[must_use]
    fn poll(&mut self) -> Option<(ConnectionId, Self::Event)>;

    /// Queues data; returns how many bytes of it the send buffer took.
    fn send(&mut self, id: ConnectionId, data: Bytes) -> Result<usize, SendError>;

    /// The next received data in order, if there is any.
    fn recv(&mut self, id: ConnectionId) -> Option<Payload>;

    /// The application sends no more.
    fn shutdown(&mut self, now: Instant, id: ConnectionId);

    /// Ends the connection at once, without regard for data.
    fn abort(&mut self, now: Instant, id: ConnectionId);

    /// The application is done with the connection, and will not name it again.
    fn release(&mut self, now: Instant, id: ConnectionId);

    /// The connection in numbers; `None` if the host does not know it.
    fn info(&self, id: ConnectionId) -> Option<Self::Info>;
}

impl StreamHost for Host {
    type Event = HostEvent;
    type Info = (FourTuple, Info);

    #[inline]
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.handle_packet(now, packet);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        self.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    #[inline]
    fn poll(&mut self) -> Option<(ConnectionId, Self::Event)> {
        self.poll()
    }

    fn send(&mut self, id: ConnectionId, data: Bytes) -> Result<usize, SendError> {
        self.send(id, data)
    }

    #[inline]
    fn recv(&mut self, id: ConnectionId) -> Option<Payload> {
        self.recv(id)
    }

    fn shutdown(&mut self, _now: Instant, id: ConnectionId) {
        self.shutdown(id);
    }

    fn abort(&mut self, _now: Instant, id: ConnectionId) {
        self.abort(id);
    }

    fn release(&mut self, _now: Instant, id: ConnectionId) {
        self.release(id);
    }

    fn info(&self, id: ConnectionId) -> Option<Self::Info> {
        Some((self.tuple(id)?, self.info(id)?))
    }
}
