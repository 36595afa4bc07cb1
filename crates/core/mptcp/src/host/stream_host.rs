//! The Multipath TCP host, for whatever drives any host.

use bytes::Bytes;
use polypath_tcp::{ConnectionId, SendError, StreamHost};
use polypath_units::Instant;
use polypath_wire::{Packet, Payload};

use super::Host;
use crate::connection::ConnectionInfo;
use crate::event::Event;

impl StreamHost for Host {
    type Event = Event;
    type Info = ConnectionInfo;

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
    fn poll(&mut self) -> Option<(ConnectionId, Event)> {
        self.poll()
    }

    fn send(&mut self, id: ConnectionId, data: Bytes) -> Result<usize, SendError> {
        self.send(id, data)
    }

    #[inline]
    fn recv(&mut self, id: ConnectionId) -> Option<Payload> {
        self.recv(id)
    }

    fn shutdown(&mut self, now: Instant, id: ConnectionId) {
        self.shutdown(now, id);
    }

    fn abort(&mut self, now: Instant, id: ConnectionId) {
        self.abort(now, id);
    }

    fn release(&mut self, now: Instant, id: ConnectionId) {
        self.release(now, id);
    }

    fn info(&self, id: ConnectionId) -> Option<ConnectionInfo> {
        self.info(id)
    }
}
