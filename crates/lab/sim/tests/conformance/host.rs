//! The host under test: one of the two that are shipped, behind the calls that a case makes.

use std::net::IpAddr;

use bytes::Bytes;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{FallbackReason, SubflowError};
use polypath_tcp::{ConnectionId, ListenConfig, StreamHost};
use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, Packet, Payload};

use crate::settings::Settings;

/// Which host plays a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `polypath_tcp::Host`.
    Tcp,
    /// `polypath_mptcp::Host` without Multipath TCP.
    PlainMultipath,
    /// `polypath_mptcp::Host`.
    Multipath,
}

/// What a case does to a host. Connections are one at a time: the latest.
pub(crate) trait Driven {
    fn listen(&mut self, local: Endpoint) -> Result<(), String>;
    fn connect(&mut self, now: Instant, local: IpAddr, remote: Endpoint) -> Result<(), String>;
    fn write(&mut self, data: Bytes) -> Result<usize, String>;
    fn read(&mut self) -> Option<Payload>;
    fn shutdown(&mut self, now: Instant);
    fn close(&mut self, now: Instant);
    fn abort(&mut self, now: Instant);
    fn handle_packet(&mut self, now: Instant, packet: Packet);
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet>;
    fn poll_timeout(&mut self) -> Option<Instant>;
    fn handle_timeout(&mut self, now: Instant);
    /// The next event, in the words of a case.
    fn poll_event(&mut self) -> Option<String>;
    fn add_endpoint(&mut self, now: Instant, endpoint: LocalEndpoint);
    fn remove_endpoint(&mut self, now: Instant, addr: IpAddr);
    fn set_backup(&mut self, now: Instant, flow: FourTuple, backup: bool);
}

pub(crate) fn build(kind: Kind, settings: &Settings) -> Box<dyn Driven> {
    match kind {
        Kind::Tcp => {
            let host = polypath_tcp::Host::new(settings.tcp_host(), 1);
            Box::new(Latest { host: Tcp { host, listen: settings.listen() }, id: None })
        }
        Kind::PlainMultipath | Kind::Multipath => {
            let config = settings.multipath_host(kind == Kind::Multipath);
            Box::new(Latest { host: polypath_mptcp::Host::new(config, 1), id: None })
        }
    }
}

/// What the two hosts do each in its own way.
trait Tested {
    type Host: StreamHost;

    fn host(&mut self) -> &mut Self::Host;
    fn listen(&mut self, local: Endpoint) -> Result<(), String>;
    fn connect(&mut self, now: Instant, local: Endpoint, remote: Endpoint) -> Result<ConnectionId, String>;
    fn words(event: &<Self::Host as StreamHost>::Event) -> String;
    fn add_endpoint(&mut self, _now: Instant, _endpoint: LocalEndpoint) {}
    fn remove_endpoint(&mut self, _now: Instant, _addr: IpAddr) {}
    fn set_backup(&mut self, _now: Instant, _id: ConnectionId, _flow: FourTuple, _backup: bool) {}
}

/// A host and its latest connection.
struct Latest<T> {
    host: T,
    id: Option<ConnectionId>,
}

impl<T: Tested> Driven for Latest<T> {
    fn listen(&mut self, local: Endpoint) -> Result<(), String> {
        self.host.listen(local)
    }

    fn connect(&mut self, now: Instant, local: IpAddr, remote: Endpoint) -> Result<(), String> {
        self.id = Some(self.host.connect(now, Endpoint::new(local, 0), remote)?);
        Ok(())
    }

    fn write(&mut self, data: Bytes) -> Result<usize, String> {
        let id = self.id.ok_or("no connection")?;
        self.host.host().send(id, data).map_err(|error| error.to_string())
    }

    fn read(&mut self) -> Option<Payload> {
        self.host.host().recv(self.id?)
    }

    fn shutdown(&mut self, now: Instant) {
        self.id.into_iter().for_each(|id| self.host.host().shutdown(now, id));
    }

    fn close(&mut self, now: Instant) {
        self.id.into_iter().for_each(|id| self.host.host().release(now, id));
    }

    fn abort(&mut self, now: Instant) {
        self.id.into_iter().for_each(|id| self.host.host().abort(now, id));
    }

    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.host.host().handle_packet(now, packet);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        self.host.host().poll_transmit(now)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.host.host().poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.host.host().handle_timeout(now);
    }

    fn poll_event(&mut self) -> Option<String> {
        let (id, event) = self.host.host().poll()?;
        let words = T::words(&event);
        if words == ACCEPTED {
            self.id = Some(id);
        }
        Some(words)
    }

    fn add_endpoint(&mut self, now: Instant, endpoint: LocalEndpoint) {
        self.host.add_endpoint(now, endpoint);
    }

    fn remove_endpoint(&mut self, now: Instant, addr: IpAddr) {
        self.host.remove_endpoint(now, addr);
    }

    fn set_backup(&mut self, now: Instant, flow: FourTuple, backup: bool) {
        self.id.into_iter().for_each(|id| self.host.set_backup(now, id, flow, backup));
    }
}

const ACCEPTED: &str = "accepted";

struct Tcp {
    host: polypath_tcp::Host,
    listen: ListenConfig,
}

impl Tested for Tcp {
    type Host = polypath_tcp::Host;

    fn host(&mut self) -> &mut polypath_tcp::Host {
        &mut self.host
    }

    fn listen(&mut self, local: Endpoint) -> Result<(), String> {
        self.host.listen(local, self.listen).map(|_| ()).map_err(|error| error.to_string())
    }

    fn connect(&mut self, now: Instant, local: Endpoint, remote: Endpoint) -> Result<ConnectionId, String> {
        self.host.connect(now, local, remote).map_err(|error| error.to_string())
    }

    fn words(event: &polypath_tcp::HostEvent) -> String {
        use polypath_tcp::{CloseReason, HostEvent};
        match event {
            HostEvent::Accepted { .. } => ACCEPTED.into(),
            HostEvent::Connected => "connected".into(),
            HostEvent::Readable => "readable".into(),
            HostEvent::Writable => "writable".into(),
            HostEvent::PeerFinished => "end of file".into(),
            HostEvent::Closed(reason) => {
                let reason = match reason {
                    CloseReason::Finished => "finished",
                    CloseReason::Reset => "reset",
                    CloseReason::Refused => "refused",
                    CloseReason::Aborted => "aborted",
                    CloseReason::TimedOut => "timed out",
                    CloseReason::Unreachable => "unreachable",
                    _ => "unknown",
                };
                format!("closed: {reason}")
            }
        }
    }
}

impl Tested for polypath_mptcp::Host {
    type Host = Self;

    fn host(&mut self) -> &mut Self {
        self
    }

    fn listen(&mut self, local: Endpoint) -> Result<(), String> {
        self.listen(local).map(|_| ()).map_err(|error| error.to_string())
    }

    fn connect(&mut self, now: Instant, local: Endpoint, remote: Endpoint) -> Result<ConnectionId, String> {
        self.connect(now, local, remote, None).map_err(|error| error.to_string())
    }

    fn words(event: &polypath_mptcp::Event) -> String {
        words(event)
    }

    fn add_endpoint(&mut self, now: Instant, endpoint: LocalEndpoint) {
        self.add_endpoint(now, endpoint);
    }

    fn remove_endpoint(&mut self, now: Instant, addr: IpAddr) {
        self.remove_endpoint(now, addr);
    }

    fn set_backup(&mut self, now: Instant, id: ConnectionId, flow: FourTuple, backup: bool) {
        let Some(info) = self.info(id) else { return };
        let of_flow = info.subflows.iter().filter(|subflow| subflow.tuple == flow);
        for multipath in of_flow.filter_map(|subflow| subflow.multipath.as_ref()) {
            self.set_backup(now, id, multipath.id, backup);
        }
    }
}

fn words(event: &polypath_mptcp::Event) -> String {
    use polypath_mptcp::{CloseReason, Event};
    match event {
        Event::Accepted { .. } => ACCEPTED.into(),
        Event::Connected => "connected".into(),
        Event::Readable => "readable".into(),
        Event::Writable => "writable".into(),
        Event::PeerFinished => "end of file".into(),
        Event::FellBack(reason) => format!("fell back: {}", fallback(*reason)),
        Event::SubflowEstablished { backup: false, .. } => "subflow established".into(),
        Event::SubflowEstablished { backup: true, .. } => "subflow established: backup".into(),
        Event::SubflowClosed { error, .. } => format!("subflow closed: {}", subflow_error(*error)),
        Event::Announced { id, remote } => format!("announced: {id} {remote}"),
        Event::Removed { id } => format!("removed: {id}"),
        Event::Closed(reason) => {
            let reason = match reason {
                CloseReason::Finished => "finished",
                CloseReason::Aborted => "aborted",
                CloseReason::Reset => "reset",
                CloseReason::Refused => "refused",
                CloseReason::TimedOut => "timed out",
                CloseReason::Unreachable => "unreachable",
                CloseReason::Damaged => "damaged",
            };
            format!("closed: {reason}")
        }
        other => format!("{other:?}"),
    }
}

fn fallback(reason: FallbackReason) -> &'static str {
    match reason {
        FallbackReason::Disabled => "disabled",
        FallbackReason::PeerLacksMptcp => "peer lacks it",
        FallbackReason::SynDropped => "SYN dropped",
        FallbackReason::Mirrored => "mirrored",
        FallbackReason::ThirdAckStripped => "third ACK stripped",
        FallbackReason::DssMissing => "DSS missing",
        FallbackReason::ChecksumFailed => "checksum failed",
        FallbackReason::InfiniteMapping => "infinite mapping",
    }
}

fn subflow_error(error: Option<SubflowError>) -> String {
    match error {
        None => "in order".into(),
        Some(SubflowError::Reset(None)) => "reset".into(),
        Some(SubflowError::Reset(Some(reason))) => format!("reset {}", reason.0),
        Some(SubflowError::TimedOut) => "timed out".into(),
        Some(SubflowError::JoinStripped) => "join stripped".into(),
        Some(SubflowError::WrongHmac) => "wrong HMAC".into(),
        Some(SubflowError::Middlebox) => "middlebox".into(),
        Some(SubflowError::Local) => "local".into(),
    }
}
