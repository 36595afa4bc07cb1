//! The Multipath TCP host as a [`Stack`].

use bytes::Bytes;
use polypath_mptcp::{CloseReason, ConnectionId, Event, FallbackReason, Host};
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
        let (id, event) = Host::poll(self)?;
        let event = match event {
            Event::Readable => StreamEvent::Readable,
            Event::Writable => StreamEvent::Writable,
            Event::Accepted { local, .. } => StreamEvent::Accepted { local },
            Event::Connected => StreamEvent::Connected,
            Event::PeerFinished => StreamEvent::PeerFinished,
            Event::Closed(reason) => {
                StreamEvent::Closed { in_order: reason == CloseReason::Finished, reason: close_words(reason) }
            }
            Event::FellBack(reason) => StreamEvent::FellBack { reason: fallback_words(reason) },
            Event::SubflowEstablished { .. } => StreamEvent::SubflowEstablished,
            Event::SubflowClosed { .. } => StreamEvent::SubflowClosed,
            _ => StreamEvent::Other,
        };
        Some((id, event))
    }

    fn send(&mut self, now: Instant, id: ConnectionId, data: Bytes) -> usize {
        Host::send(self, now, id, data).unwrap_or(0)
    }

    #[inline]
    fn recv(&mut self, now: Instant, id: ConnectionId) -> Option<Payload> {
        Host::recv(self, now, id)
    }

    fn shutdown(&mut self, now: Instant, id: ConnectionId) {
        Host::shutdown(self, now, id);
    }

    fn abort(&mut self, now: Instant, id: ConnectionId) {
        Host::abort(self, now, id);
    }

    fn release(&mut self, now: Instant, id: ConnectionId) {
        Host::release(self, now, id);
    }

    fn info(&self, id: ConnectionId) -> StackInfo {
        let Some(info) = Host::info(self, id) else { return StackInfo::default() };
        let subflows = info.subflows.iter().filter(|subflow| subflow.established);
        let subflows = subflows.map(|subflow| SubflowInfo::of_tcp(subflow.id, subflow.tuple, &subflow.tcp));
        StackInfo { subflows: subflows.collect(), receive_buffer_bytes: info.receive_buffer_bytes }
    }
}

fn close_words(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Finished => "finished",
        CloseReason::Aborted => "aborted",
        CloseReason::Reset => "reset by the peer",
        CloseReason::Refused => "refused",
        CloseReason::TimedOut => "timed out",
        CloseReason::Unreachable => "unreachable",
        CloseReason::Damaged => "damaged by a middlebox",
    }
}

fn fallback_words(reason: FallbackReason) -> &'static str {
    match reason {
        FallbackReason::Disabled => "disabled",
        FallbackReason::PeerLacksMptcp => "the peer lacks Multipath TCP",
        FallbackReason::SynDropped => "SYNs with the option were dropped",
        FallbackReason::Mirrored => "the SYN/ACK mirrored the option",
        FallbackReason::ThirdAckStripped => "the third ACK came without the option",
        FallbackReason::DssMissing => "segments came without the option",
        FallbackReason::ChecksumFailed => "a checksum failed",
        FallbackReason::InfiniteMapping => "the peer fell back",
    }
}
