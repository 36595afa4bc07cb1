//! Where clients enter, and what becomes of them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polypath_mptcp::ConnectionOption;
use polypath_stack::engine::{Listener, Stream};
use polypath_units::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connect::{Connector, ServerSide};
use super::flow::Flow;
use super::http;
use super::negotiate::{negotiate, say_farewell};
use super::pump::{Moved, pump};
use super::session::{Ending, SessionEnd, Sessions};
use super::udp;
use crate::access::{Allowance, Client, ClientLimits, Clients, Network, Rules, Verdict};
use crate::convert::{self, CookiePeriod, ServerConfig};
use crate::failure::ConnectFailure;
use crate::negotiation::{Authority, Command, Negotiation};
use crate::proxy_protocol::{ProxyHeader, ProxyProtocolVersion};
use crate::socks::Socks5;
use crate::target::Target;

/// How long a cookie of a converter lasts, and once more.
const COOKIE_PERIOD: Duration = Duration::from_secs(3600);
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
#[derive(Clone)]
pub struct Settings {
    /// How long each phase may take.
    pub timeouts: Timeouts,
    /// Who may go where. What is forwarded to one target asks no rule.
    pub rules: Rules,
    /// Who has to say who it is, if anybody has to: clients of SOCKS and HTTP.
    pub users: Option<Arc<dyn Authority>>,
    /// How much clients may have.
    pub limits: ClientLimits,
}

impl Default for Settings {
    fn default() -> Self {
        let each = Allowance { connections: 4_096, new_per_second: 4_096, burst: 8_192, memory: u64::MAX };
        let all = Allowance { connections: 65_536, new_per_second: 65_536, burst: 131_072, memory: u64::MAX };
        Self {
            timeouts: Timeouts::default(),
            rules: Rules::new(Vec::new(), Verdict::Allow),
            users: None,
            limits: ClientLimits { each, all, clients: 65_536 },
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Settings");
        shown.field("timeouts", &self.timeouts).field("rules", &self.rules).field("limits", &self.limits);
        shown.field("has_users", &self.users.is_some()).finish()
    }
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
    /// 0-RTT TCP Convert (RFC 8803).
    Convert(Arc<ServerConfig>),
}

/// Where clients enter.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// What is spoken there.
    pub kind: EntranceKind,
    /// Connections from here begin with a header of the PROXY protocol, which says who the client is. From elsewhere, none is believed.
    pub proxy_protocol_from: Vec<Network>,
    /// Connections to servers begin with such a header.
    pub proxy_protocol_to_servers: Option<ProxyProtocolVersion>,
}

impl From<EntranceKind> for Entrance {
    fn from(kind: EntranceKind) -> Self {
        Self { kind, proxy_protocol_from: Vec::new(), proxy_protocol_to_servers: None }
    }
}

impl Entrance {
    pub(super) fn protocol(&self) -> &'static str {
        match self.kind {
            EntranceKind::Forward(_) => "forward",
            EntranceKind::Socks => "socks",
            EntranceKind::Http => "http",
            EntranceKind::Convert(_) => "convert",
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
    clients: Clients,
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

/// One client's connection.
struct Visit<'a> {
    client: SocketAddr,
    entrance: &'a Entrance,
    flow: &'a Flow,
}

/// What is known of a session by its end.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) user: Option<Box<str>>,
    pub(super) target: Option<Target>,
    pub(super) server: Option<SocketAddr>,
    pub(super) is_multipath: Option<(bool, bool)>,
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
            clients: Clients::new(settings.limits),
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
        self.0.clients.set_limits(settings.limits);
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

    async fn session(self: Arc<Self>, mut stream: Stream, peer: SocketAddr, entrance: Arc<Entrance>) {
        let mut stop = self.stop();
        send_at_once(&stream);
        let mut input = BytesMut::new();
        let mut client = peer;
        if entrance.proxy_protocol_from.iter().any(|network| network.contains(peer.ip())) {
            let limit = self.settings().timeouts.asking;
            match timeout(limit, read_proxy_header(&mut stream, &mut input)).await {
                Ok(Ok(ProxyHeader::Proxied { source, .. })) => client = source,
                Ok(Ok(ProxyHeader::Local)) => {}
                Ok(Err(ending)) => return self.tell_of_nobody(&entrance, peer, &ending),
                Err(_) => return self.tell_of_nobody(&entrance, peer, &Ending::Unasked),
            }
        }
        let admission = match self.clients.admit(Inner::now(), client.ip()) {
            Ok(admission) => admission,
            Err(overload) => {
                stream.abort();
                return self.tell_of_nobody(&entrance, client, &Ending::Overloaded(overload));
            }
        };
        let held = self.sessions.enter(client, admission);
        if let EntranceKind::Http = entrance.kind {
            // It tells of each of its requests.
            let serving = http::serve(&self, stream, input.freeze(), client, &entrance, held.shared_flow());
            tokio::select! {
                () = serving => {}
                _ = stop.wait_for(|stop| *stop == Stop::Now) => {}
            }
            return;
        }
        let mut known = Known::default();
        let ending = {
            let visit = Visit { client, entrance: &entrance, flow: held.flow() };
            let running = self.run(stream, input, &visit, &mut known);
            tokio::select! {
                ending = running => ending,
                _ = stop.wait_for(|stop| *stop == Stop::Now) => Ending::Stopped,
            }
        };
        self.tell(entrance.protocol(), client, &known, held.flow(), &ending);
    }

    /// Since some moment.
    fn now() -> Instant {
        static BEGUN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        Instant::from_nanos(u64::try_from(BEGUN.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn tell_of_nobody(&self, entrance: &Entrance, client: SocketAddr, ending: &Ending) {
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

    async fn run(&self, stream: Stream, input: BytesMut, visit: &Visit<'_>, known: &mut Known) -> Ending {
        match &visit.entrance.kind {
            EntranceKind::Forward(target) => {
                known.target = Some(target.clone());
                let limit = self.settings().timeouts.connecting;
                let reached = self.connector.connect(target, limit, |_| true).await;
                match self.greeted(reached, visit.client, visit.entrance).await {
                    Ok(server) => self.join(stream, server, input.freeze(), visit.flow, known).await,
                    Err(failure) => {
                        stream.abort();
                        Ending::NotReached(failure)
                    }
                }
            }
            EntranceKind::Socks => {
                let negotiation = Socks5::new(self.settings().users.clone());
                self.negotiated(stream, input, negotiation, visit, known).await
            }
            EntranceKind::Convert(config) => {
                let period = CookiePeriod::of(Duration::from_nanos(Self::now().as_nanos()), COOKIE_PERIOD);
                let negotiation = convert::Server::new(config.clone(), visit.client.ip(), period);
                self.negotiated(stream, input, negotiation, visit, known).await
            }
            // Its requests are answered one by one.
            EntranceKind::Http => Ending::Unasked,
        }
    }

    async fn negotiated(
        &self,
        mut stream: Stream,
        mut input: BytesMut,
        mut negotiation: impl Negotiation,
        visit: &Visit<'_>,
        known: &mut Known,
    ) -> Ending {
        let asking = negotiate(&mut stream, &mut negotiation, &mut input);
        let request = match timeout(self.settings().timeouts.asking, asking).await {
            Ok(Ok(request)) => request,
            Ok(Err(ending)) => return ending,
            Err(_) => return Ending::Unasked,
        };
        known.user = request.user;
        known.target = Some(request.target.clone());
        let user = known.user.as_deref();
        if request.command == Command::Associate {
            let allows = |target: &Target, address| self.allows(visit.client, user, target, address);
            let udp = udp::Associating { connector: &self.connector, allows, flow: visit.flow };
            return udp.run(stream, negotiation, &request.target).await;
        }
        match self.connect(visit.client, user, &request.target, visit.entrance).await {
            Ok(server) => {
                let local = server.stream.local_addr().unwrap_or_else(|_| unspecified(server.address));
                let answer = negotiation.handle_connected(local);
                match stream.write_all(&answer).await {
                    Ok(()) => self.join(stream, server, input.freeze(), visit.flow, known).await,
                    Err(error) => Ending::ClientBroke(error.to_string().into()),
                }
            }
            Err(failure) => {
                say_farewell(&mut stream, &negotiation.handle_failed(failure)).await;
                Ending::NotReached(failure)
            }
        }
    }

    fn allows(&self, client: SocketAddr, user: Option<&str>, target: &Target, address: IpAddr) -> bool {
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
        let reached = self.connector.connect(target, settings.timeouts.connecting, allows).await;
        self.greeted(reached, client, entrance).await
    }

    /// A server is told who the client is, if it is to know.
    async fn greeted(
        &self,
        reached: Result<ServerSide, ConnectFailure>,
        client: SocketAddr,
        entrance: &Entrance,
    ) -> Result<ServerSide, ConnectFailure> {
        let mut server = reached?;
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
        let moved = pump(&client, &server, early, flow, self.settings().timeouts.idle).await;
        known.is_multipath = Some((is_multipath(&client), is_multipath(&server)));
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

/// Who the client is, as somebody says who is to be believed.
async fn read_proxy_header(stream: &mut Stream, input: &mut BytesMut) -> Result<ProxyHeader, Ending> {
    loop {
        match ProxyHeader::parse(input) {
            Ok(Some(header)) => return Ok(header),
            Ok(None) => {}
            Err(error) => return Err(Ending::NoProxyHeader(error)),
        }
        match stream.read_buf(input).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Err(Ending::Unasked),
        }
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
