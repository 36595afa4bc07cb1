//! What all connections of a proxy share.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use bytes::Bytes;
use polypath_mptcp::ConnectionOption;
use polypath_stack::engine::Stream;
use polypath_units::Instant;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use super::connect::{Connector, ServerSide};
use super::flow::Flow;
use super::pump::{Moved, pump};
use super::session::{Ending, SessionEnd, Sessions};
use super::settings::{Entrance, Settings};
use crate::access::{Client, Clients};
use crate::failure::ConnectFailure;
use crate::proxy_protocol::ProxyHeader;
use crate::target::Target;

/// The state of a proxy.
pub(super) struct Inner {
    pub(super) connector: Connector,
    pub(super) settings: RwLock<Arc<Settings>>,
    pub(super) sessions: Sessions,
    pub(super) clients: Clients,
    pub(super) log: Box<dyn Fn(&SessionEnd<'_>) + Send + Sync>,
    pub(super) stop: watch::Sender<Stop>,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    No,
    /// No client enters; those within finish.
    Draining,
    /// Those within are reset.
    Now,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("connector", &self.connector)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

/// What is known of a session by its end.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) user: Option<Box<str>>,
    pub(super) target: Option<Target>,
    pub(super) server: Option<SocketAddr>,
    pub(super) is_multipath: Option<(bool, bool)>,
}

impl Inner {
    pub(super) fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn stop(&self) -> watch::Receiver<Stop> {
        self.stop.subscribe()
    }

    /// What comes of it, unless all have to leave first.
    pub(super) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stop = self.stop();
        let stopped = async {
            // The guard of what it waited for must not be held on.
            let _ = stop.wait_for(|stop| *stop == Stop::Now).await.map(|_| ());
        };
        tokio::select! {
            done = work => Some(done),
            () = stopped => None,
        }
    }

    /// Since some moment.
    pub(super) fn now() -> Instant {
        static BEGUN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        Instant::from_nanos(u64::try_from(BEGUN.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn tell_of_nobody(&self, entrance: &Entrance, client: SocketAddr, ending: &Ending) {
        self.tell(entrance.protocol(), client, &Known::default(), &Flow::new(), ending);
    }

    pub(super) fn tell(
        &self,
        protocol: &'static str,
        client: SocketAddr,
        known: &Known,
        flow: &Flow,
        ending: &Ending,
    ) {
        (self.log)(&SessionEnd {
            protocol,
            client,
            user: known.user.as_deref(),
            target: known.target.as_ref(),
            server: known.server,
            is_multipath: known.is_multipath,
            flow,
            ending,
        });
    }

    pub(super) fn allows(
        &self,
        client: SocketAddr,
        user: Option<&str>,
        target: &Target,
        address: IpAddr,
    ) -> bool {
        let client = Client { address: client.ip(), user };
        self.settings().rules.check_address(&client, target, address).is_ok()
    }

    /// Reaches a target, if the client may go there.
    pub(super) async fn connect(
        &self,
        client: SocketAddr,
        user: Option<&str>,
        target: &Target,
        entrance: &Entrance,
    ) -> Result<ServerSide, ConnectFailure> {
        let settings = self.settings();
        let who = Client { address: client.ip(), user };
        settings.rules.check(&who, target)?;
        let allows = |address| settings.rules.check_address(&who, target, address).is_ok();
        self.reach(target, client, entrance, allows).await
    }

    /// Reaches a target, which is told who the client is, if it is to know.
    pub(super) async fn reach(
        &self,
        target: &Target,
        client: SocketAddr,
        entrance: &Entrance,
        allows: impl Fn(IpAddr) -> bool,
    ) -> Result<ServerSide, ConnectFailure> {
        let limit = self.settings().timeouts.connecting;
        let reaching = self.connector.connect(target, limit, allows);
        let mut server = self.unless_stopped(reaching).await.unwrap_or(Err(ConnectFailure::Local))?;
        send_at_once(&server.stream);
        if let Some(version) = entrance.proxy_protocol_to_servers {
            let header = ProxyHeader::Proxied { source: client, destination: server.address };
            let written = server.stream.write_all(&header.emit(version)).await;
            written.map_err(|error| ConnectFailure::from(&error))?;
        }
        Ok(server)
    }

    /// Bytes pass through until both have ended.
    pub(super) async fn join(
        &self,
        client: Stream,
        server: ServerSide,
        early: Bytes,
        flow: &Flow,
        known: &mut Known,
    ) -> Ending {
        known.server = Some(server.address);
        let server = server.stream;
        let pumping = pump(&client, &server, early, flow, self.settings().timeouts.idle);
        let moved = self.unless_stopped(pumping).await;
        known.is_multipath = Some((is_multipath(&client), is_multipath(&server)));
        let ending = match moved {
            Some(Moved::Finished) => return Ending::Finished,
            Some(Moved::ClientBroke(error)) => Ending::ClientBroke(error.to_string().into()),
            Some(Moved::ServerBroke(error)) => Ending::ServerBroke(error.to_string().into()),
            Some(Moved::Idle) => Ending::Idle,
            None => Ending::Stopped,
        };
        client.abort();
        server.abort();
        ending
    }
}

/// Bytes leave when they come: who waits for more to send with them is a client or a server.
pub(super) fn send_at_once(stream: &Stream) {
    match stream {
        Stream::Stack(stream) => stream.set_option(ConnectionOption::NoDelay(true)),
        // What has ended has no options.
        Stream::Kernel(stream) => drop(stream.as_tokio().set_nodelay(true)),
        _ => {}
    }
}

/// Whether Multipath TCP is in use there.
pub(super) fn is_multipath(stream: &Stream) -> bool {
    match stream {
        Stream::Kernel(stream) => polypath_stack::engine::is_multipath(stream.as_tokio()),
        stream => stream.info().is_ok_and(|info| info.is_multipath),
    }
}
