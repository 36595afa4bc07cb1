//! The host under test: one of the two that are shipped, behind the calls that a case makes.

use std::net::IpAddr;

use bytes::Bytes;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{FallbackReason, SubflowError};
use polypath_tcp::ListenConfig;
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
    fn write(&mut self, now: Instant, data: Bytes) -> Result<usize, String>;
    fn read(&mut self, now: Instant) -> Option<Payload>;
    fn shutdown(&mut self, now: Instant);
    fn close(&mut self, now: Instant);
    fn abort(&mut self, now: Instant);
    fn handle_packet(&mut self, now: Instant, packet: Packet);
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet>;
    fn poll_timeout(&self) -> Option<Instant>;
    fn handle_timeout(&mut self, now: Instant);
    /// The next event, in the words of a case.
    fn poll_event(&mut self) -> Option<String>;
    fn add_endpoint(&mut self, _now: Instant, _endpoint: LocalEndpoint) {}
    fn remove_endpoint(&mut self, _now: Instant, _addr: IpAddr) {}
    fn set_backup(&mut self, _now: Instant, _flow: FourTuple, _backup: bool) {}
}

pub(crate) fn build(kind: Kind, settings: &Settings) -> Box<dyn Driven> {
    match kind {
        Kind::Tcp => {
            let host = polypath_tcp::Host::new(settings.tcp_host(), 1);
            Box::new(Tcp { host, listen: settings.listen(), id: None })
        }
        Kind::PlainMultipath | Kind::Multipath => {
            let config = settings.multipath_host(kind == Kind::Multipath);
            Box::new(Multipath { host: polypath_mptcp::Host::new(config, 1), id: None })
        }
    }
}

struct Tcp {
    host: polypath_tcp::Host,
    listen: ListenConfig,
    id: Option<polypath_tcp::ConnectionId>,
}

impl Driven for Tcp {
    fn listen(&mut self, local: Endpoint) -> Result<(), String> {
        self.host.listen(local, self.listen).map(|_| ()).map_err(|error| error.to_string())
    }

    fn connect(&mut self, now: Instant, local: IpAddr, remote: Endpoint) -> Result<(), String> {
        let id = self.host.connect(now, Endpoint::new(local, 0), remote);
        self.id = Some(id.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn write(&mut self, now: Instant, data: Bytes) -> Result<usize, String> {
        let id = self.id.ok_or("no connection")?;
        self.host.send(now, id, data).map_err(|error| error.to_string())
    }

    fn read(&mut self, now: Instant) -> Option<Payload> {
        self.host.recv(now, self.id?)
    }

    fn shutdown(&mut self, _now: Instant) {
        self.id.into_iter().for_each(|id| self.host.shutdown(id));
    }

    fn close(&mut self, _now: Instant) {
        self.id.into_iter().for_each(|id| self.host.release(id));
    }

    fn abort(&mut self, _now: Instant) {
        self.id.into_iter().for_each(|id| self.host.abort(id));
    }

    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.host.handle_packet(now, packet);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        self.host.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.host.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.host.handle_timeout(now);
    }

    fn poll_event(&mut self) -> Option<String> {
        use polypath_tcp::{CloseReason, HostEvent};
        let (id, event) = self.host.poll()?;
        Some(match event {
            HostEvent::Accepted { .. } => {
                self.id = Some(id);
                "accepted".into()
            }
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
        })
    }
}

struct Multipath {
    host: polypath_mptcp::Host,
    id: Option<polypath_mptcp::ConnectionId>,
}

impl Driven for Multipath {
    fn listen(&mut self, local: Endpoint) -> Result<(), String> {
        self.host.listen(local).map(|_| ()).map_err(|error| error.to_string())
    }

    fn connect(&mut self, now: Instant, local: IpAddr, remote: Endpoint) -> Result<(), String> {
        let id = self.host.connect(now, Endpoint::new(local, 0), remote, None);
        self.id = Some(id.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn write(&mut self, now: Instant, data: Bytes) -> Result<usize, String> {
        let id = self.id.ok_or("no connection")?;
        self.host.send(now, id, data).map_err(|error| error.to_string())
    }

    fn read(&mut self, now: Instant) -> Option<Payload> {
        self.host.recv(now, self.id?)
    }

    fn shutdown(&mut self, now: Instant) {
        self.id.into_iter().for_each(|id| self.host.shutdown(now, id));
    }

    fn close(&mut self, now: Instant) {
        self.id.into_iter().for_each(|id| self.host.release(now, id));
    }

    fn abort(&mut self, now: Instant) {
        self.id.into_iter().for_each(|id| self.host.abort(now, id));
    }

    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.host.handle_packet(now, packet);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        self.host.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.host.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.host.handle_timeout(now);
    }

    fn poll_event(&mut self) -> Option<String> {
        let (id, event) = self.host.poll()?;
        if matches!(event, polypath_mptcp::Event::Accepted { .. }) {
            self.id = Some(id);
        }
        Some(words(&event))
    }

    fn add_endpoint(&mut self, now: Instant, endpoint: LocalEndpoint) {
        self.host.add_endpoint(now, endpoint);
    }

    fn remove_endpoint(&mut self, now: Instant, addr: IpAddr) {
        self.host.remove_endpoint(now, addr);
    }

    fn set_backup(&mut self, now: Instant, flow: FourTuple, backup: bool) {
        let Some(id) = self.id else { return };
        let Some(info) = self.host.info(id) else { return };
        for subflow in info.subflows.iter().filter(|subflow| subflow.tuple == flow) {
            self.host.set_backup(now, id, subflow.id, backup);
        }
    }
}

fn words(event: &polypath_mptcp::Event) -> String {
    use polypath_mptcp::{CloseReason, Event};
    match event {
        Event::Accepted { .. } => "accepted".into(),
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
