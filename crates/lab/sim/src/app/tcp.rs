//! The plain TCP host as a [`Stack`].

use bytes::Bytes;
use polypath_tcp::{CloseReason, ConnectionId, Host, HostEvent};
use polypath_units::Instant;
use polypath_wire::{Packet, Payload};

use super::{Stack, StackInfo, StreamEvent, SubflowInfo};

impl Stack for Host {
    type Id = ConnectionId;

    fn slot(id: ConnectionId) -> usize {
        id.index()
    }

    #[inline]
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        Host::handle_packet(self, now, packet);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        Host::poll_transmit(self, now)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        Host::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        Host::handle_timeout(self, now);
    }

    #[inline]
    fn poll(&mut self) -> Option<(ConnectionId, StreamEvent)> {
        loop {
            let (id, event) = Host::poll(self)?;
            let event = match event {
                HostEvent::Readable => StreamEvent::Readable,
                HostEvent::Writable => StreamEvent::Writable,
                HostEvent::Accepted { .. } => match self.tuple(id) {
                    Some(tuple) => StreamEvent::Accepted { local: tuple.local },
                    None => continue,
                },
                HostEvent::Connected => StreamEvent::Connected,
                HostEvent::PeerFinished => StreamEvent::PeerFinished,
                HostEvent::Closed(reason) => StreamEvent::Closed {
                    in_order: reason == CloseReason::Finished,
                    reason: close_words(reason),
                },
            };
            return Some((id, event));
        }
    }

    fn send(&mut self, now: Instant, id: ConnectionId, data: Bytes) -> usize {
        Host::send(self, now, id, data).unwrap_or(0)
    }

    #[inline]
    fn recv(&mut self, now: Instant, id: ConnectionId) -> Option<Payload> {
        Host::recv(self, now, id)
    }

    fn shutdown(&mut self, _now: Instant, id: ConnectionId) {
        Host::shutdown(self, id);
    }

    fn abort(&mut self, _now: Instant, id: ConnectionId) {
        Host::abort(self, id);
    }

    fn release(&mut self, _now: Instant, id: ConnectionId) {
        Host::release(self, id);
    }

    fn info(&self, id: ConnectionId) -> StackInfo {
        let (Some(info), Some(tuple)) = (Host::info(self, id), self.tuple(id)) else {
            return StackInfo::default();
        };
        StackInfo { subflows: vec![SubflowInfo::of_tcp(0, tuple, &info)], receive_buffer_bytes: 0 }
    }
}

fn close_words(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Finished => "finished",
        CloseReason::Aborted => "aborted",
        CloseReason::Reset => "reset by the peer",
        CloseReason::Refused => "refused",
        _ => "timed out",
    }
}
