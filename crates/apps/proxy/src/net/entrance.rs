//! Where clients enter, and what becomes of them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polypath_mptcp::ConnectionOption;
use polypath_stack::engine::{Listener, Stream};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connect::{Connector, ServerSide};
use super::flow::Flow;
use super::http;
use super::negotiate::{negotiate, say_farewell};
use super::pump::{Moved, pump};
use super::session::{Ending, Held, SessionEnd, Sessions};
use super::udp;
use crate::failure::ConnectFailure;
use crate::negotiation::{Command, Negotiation};
use crate::socks::Socks5;
use crate::target::Target;

/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// How long each phase of a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the client has said what it wants, and between two requests of HTTP.
    pub asking: Duration,
    /// Until the server is reached.
    pub connecting: Duration,
    /// Until the server of an HTTP request begins with its answer.
    pub answering: Duration,
    /// Without a byte either way; none for ever.
    pub idle: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            asking: Duration::from_secs(20),
            connecting: Duration::from_secs(15),
            answering: Duration::from_secs(120),
            idle: Some(Duration::from_secs(3600)),
        }
    }
}

/// What may change while connections live. Each takes what there is when it comes.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How long each phase may take.
    pub timeouts: Timeouts,
}

/// What is spoken where clients enter.
#[derive(Clone, Debug)]
pub enum EntranceKind {
    /// Nothing: each connection goes to this target.
    Forward(Target),
    /// SOCKS version 5.
    Socks,
    /// HTTP: CONNECT, and requests with a whole URL.
    Http,
}

/// Where clients enter.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// What is spoken there.
    pub kind: EntranceKind,
}

impl Entrance {
    pub(super) fn protocol(&self) -> &'static str {
        match self.kind {
            EntranceKind::Forward(_) => "forward",
            EntranceKind::Socks => "socks",
            EntranceKind::Http => "http",
        }
    }
}

/// A proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Inner>);

pub(super) struct Inner {
    pub(super) connector: Connector,
    settings: RwLock<Arc<Settings>>,
    sessions: Sessions,
    log: Box<dyn Fn(&SessionEnd<'_>) + Send + Sync>,
    stop: watch::Sender<Stop>,
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
    pub(super) is_multipath: (bool, bool),
}

impl Proxy {
    /// One that reaches servers by this. `log` is told of each session at its end.
    pub fn new(
        connector: Connector,
        settings: Settings,
        log: impl Fn(&SessionEnd<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            connector,
            settings: RwLock::new(Arc::new(settings)),
            sessions: Sessions::default(),
            log: Box::new(log),
            stop: watch::Sender::new(Stop::No),
        }))
    }

    /// Who is within.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// What holds for connections that come from now on.
    pub fn set_settings(&self, settings: Settings) {
        *self.0.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Lets clients in, until [`Proxy::drain`], or until this future is dropped. Those within stay.
    pub async fn serve(&self, listener: Listener, entrance: Entrance) {
        let entrance = Arc::new(entrance);
        let mut stop = self.0.stop.subscribe();
        let mut is_told = false;
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop >= Stop::Draining) => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let client = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    tokio::spawn(self.0.clone().session(stream, client, entrance.clone()));
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!("no connection can be accepted: {error}; it is tried again and again");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Lets nobody in any more, waits until those within have finished, and resets who has not within `limit`. Returns whether all have
    /// finished by themselves.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.0.stop.send_replace(Stop::Draining);
        let has_drained = timeout(limit, self.0.sessions.drained()).await.is_ok();
        self.0.stop.send_replace(Stop::Now);
        self.0.sessions.drained().await;
        has_drained
    }
}

impl Inner {
    pub(super) fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn stop(&self) -> watch::Receiver<Stop> {
        self.stop.subscribe()
    }

    async fn session(self: Arc<Self>, stream: Stream, client: SocketAddr, entrance: Arc<Entrance>) {
        let held = self.sessions.enter(client);
        let mut stop = self.stop();
        let mut known = Known::default();
        send_at_once(&stream);
        if let EntranceKind::Http = entrance.kind {
            // It logs each of its requests.
            let serving = http::serve(&self, stream, client, held.shared_flow());
            tokio::select! {
                () = serving => {}
                _ = stop.wait_for(|stop| *stop == Stop::Now) => {}
            }
            return;
        }
        let ending = {
            let running = self.run(stream, &entrance, &held, &mut known);
            tokio::select! {
                ending = running => ending,
                _ = stop.wait_for(|stop| *stop == Stop::Now) => Ending::Stopped,
            }
        };
        self.tell(entrance.protocol(), client, &known, held.flow(), &ending);
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

    async fn run(&self, stream: Stream, entrance: &Entrance, held: &Held, known: &mut Known) -> Ending {
        match &entrance.kind {
            EntranceKind::Forward(target) => {
                known.target = Some(target.clone());
                match self.connect(target).await {
                    Ok(server) => self.join(stream, server, Bytes::new(), held.flow(), known).await,
                    Err(failure) => {
                        stream.abort();
                        Ending::NotReached(failure)
                    }
                }
            }
            EntranceKind::Socks => self.negotiated(stream, Socks5::new(None), held, known).await,
            // Its requests are answered one by one.
            EntranceKind::Http => Ending::Unasked,
        }
    }

    async fn negotiated(
        &self,
        mut stream: Stream,
        mut negotiation: impl Negotiation,
        held: &Held,
        known: &mut Known,
    ) -> Ending {
        let mut input = BytesMut::new();
        let asking = negotiate(&mut stream, &mut negotiation, &mut input);
        let request = match timeout(self.settings().timeouts.asking, asking).await {
            Ok(Ok(request)) => request,
            Ok(Err(ending)) => return ending,
            Err(_) => return Ending::Unasked,
        };
        known.user = request.user;
        known.target = Some(request.target.clone());
        if request.command == Command::Associate {
            return udp::associate(self, stream, negotiation, &request.target, held.flow()).await;
        }
        match self.connect(&request.target).await {
            Ok(server) => {
                let local = server.stream.local_addr().unwrap_or_else(|_| unspecified(server.address));
                let answer = negotiation.handle_connected(local);
                match stream.write_all(&answer).await {
                    Ok(()) => self.join(stream, server, input.freeze(), held.flow(), known).await,
                    Err(error) => Ending::ClientBroke(error.to_string().into()),
                }
            }
            Err(failure) => {
                say_farewell(&mut stream, &negotiation.handle_failed(failure)).await;
                Ending::NotReached(failure)
            }
        }
    }

    pub(super) async fn connect(&self, target: &Target) -> Result<ServerSide, ConnectFailure> {
        let limit = self.settings().timeouts.connecting;
        let reached = self.connector.connect(target, limit, |_| true).await?;
        send_at_once(&reached.stream);
        Ok(reached)
    }

    /// Where datagrams for a target go; nowhere if that is not allowed.
    pub(super) async fn address_of(&self, target: &Target) -> Option<SocketAddr> {
        let limit = self.settings().timeouts.connecting;
        timeout(limit, self.connector.address_of(target, |_| true)).await.ok()?
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
        let moved = pump(&client, &server, early, flow, self.settings().timeouts.idle).await;
        known.is_multipath = (is_multipath(&client), is_multipath(&server));
        let ending = match moved {
            Moved::Finished => return Ending::Finished,
            Moved::ClientBroke(error) => Ending::ClientBroke(error.to_string().into()),
            Moved::ServerBroke(error) => Ending::ServerBroke(error.to_string().into()),
            Moved::Idle => Ending::Idle,
        };
        client.abort();
        server.abort();
        ending
    }
}

/// Bytes leave when they come: who waits for more to send with them is a client or a server.
fn send_at_once(stream: &Stream) {
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

fn unspecified(like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
