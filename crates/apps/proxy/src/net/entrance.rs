//! Where clients enter, and what becomes of them.

use std::borrow::Borrow;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polypath_stack::Engine;
use polypath_stack::engine::{Arrival, Listener};
use polypath_stack::stack::PathLimitSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::budgets::UsedBudget;
use super::clock::{cookie_period, now};
use super::connect::{Connector, ServerSide};
use super::counts::{Counts, Ended};
use super::flow::Way;
use super::full::MOST_TOLD;
use super::http;
use super::intercepted::destination;
use super::known::Known;
use super::lasting::Lasting;
use super::leg::Leg;
use super::negotiate::{negotiate, say_farewell};
use super::own_places::OwnPlaces;
use super::owners::Owners;
use super::runtimes::{Runtimes, Served};
use super::session::{Ending, SessionEnd};
use super::sessions::{Held, Session, Sessions};
use super::settings::{CurrentSettings, Entrance, EntranceKind, InterceptedBy, Settings};
use super::shaped::Shaped;
use super::stopped::Stopped;
use super::udp;
use super::within::{Inner, Joined, Passage, Stop, Visitor, unboxed};
use crate::access::{Clients, Memory};
use crate::convert;
use crate::failure::{ConnectFailure, UpstreamFailure};
use crate::negotiation::{Command, Negotiation, Refusal};
use crate::proxy_protocol::ProxyHeader;
use crate::socks::Socks5;
use crate::target::Target;
use crate::throttle::{LimitState, Throttle};

/// What a client gets that comes by itself to where others are led.
const ITSELF: Refusal =
    Refusal::Unsupported("it asked for the proxy itself, to which others' connections are led");
/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// A proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Inner>);

/// Of what a client of a forwarded port has said already, so much goes with a request to a proxy on the way.
const EARLY_BYTES: usize = 2048;

/// One client's connection.
struct Visit<'a> {
    client: Visitor,
    entrance: &'a Entrance,
    session: &'a Arc<Session>,
    /// Whom its certificate names.
    named: Option<Box<str>>,
    /// Where the proxy listens.
    at: Option<SocketAddr>,
}

impl Proxy {
    /// One that reaches servers by this. `log` is told of each session at its end.
    pub fn new(
        connector: Connector,
        settings: Settings,
        log: impl Fn(&SessionEnd<'_>) + Send + Sync + 'static,
    ) -> Self {
        let path_limits = match connector.engine() {
            Engine::Stack(stack) => Some(stack.path_limit_set()),
            _ => None,
        };
        Self(Arc::new(Inner {
            connector,
            path_limits,
            clients: Clients::new(settings.limits),
            settings: CurrentSettings::new(settings),
            sessions: Sessions::default(),
            ended: Ended::default(),
            throttle: Throttle::new(),
            owners: Owners::default(),
            lasting: Lasting::default(),
            own_places: OwnPlaces::default(),
            runtimes: Runtimes::default(),
            fullness: Mutex::default(),
            told_at_once: Semaphore::new(MOST_TOLD),
            log: Box::new(log),
            stop: watch::Sender::new(Stop::No),
            stopped: Stopped::default(),
        }))
    }

    /// Who is within.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// What it has done since its start. The sessions are walked through, and no connection is asked.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { ended: self.0.ended.so_far(), ..Counts::default() };
        self.0.sessions.count_in(&mut counts);
        counts
    }

    pub(super) fn engine(&self) -> &Engine {
        self.0.connector.engine()
    }

    pub(super) fn throttle(&self) -> &Throttle {
        &self.0.throttle
    }

    pub(super) fn owners(&self) -> &Owners {
        &self.0.owners
    }

    pub(super) fn path_limit_set(&self) -> Option<&PathLimitSet> {
        self.0.path_limits.as_ref()
    }

    pub(super) fn settings(&self) -> &CurrentSettings {
        &self.0.settings
    }

    /// How much memory this process has, and may have before nobody else comes in, if that is limited.
    #[must_use]
    pub fn memory(&self) -> Option<Memory> {
        self.0.memory()
    }

    /// What holds for connections that come from now on.
    pub fn set_settings(&self, settings: Settings) {
        self.0.clients.set_limits(settings.limits);
        self.0.settings.set(settings);
    }

    /// The limits, and what they do; but for those of [`Proxy::path_limits`].
    #[must_use]
    pub fn limits(&self) -> Vec<LimitState> {
        self.0.throttle.limits()
    }

    /// What is used of budgets whose periods run.
    #[must_use]
    pub fn used_budgets(&self) -> Vec<UsedBudget> {
        let now = now();
        self.0.throttle.used(now).into_iter().map(|used| UsedBudget::of(used, now)).collect()
    }

    /// What was used of a budget before this process began. Nothing comes of it if there is no such limit.
    pub fn set_used_budget(&self, used: &UsedBudget) {
        let now = now();
        self.0.throttle.set_used(now, &used.at(now));
    }

    /// Lets clients in, until [`Proxy::drain`], or until this future is dropped. Those within stay.
    pub async fn serve(&self, listener: impl Borrow<Listener>, entrance: Entrance) {
        let (listener, entrance): (&Listener, _) = (listener.borrow(), Arc::new(entrance));
        let at = listener.local_addr().ok();
        let _own = at.map(|at| self.0.own_places.listens(at));
        let mut stop = self.0.stop.subscribe();
        let mut is_told = false;
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop >= Stop::Draining) => return,
                accepted = listener.arrival() => accepted,
            };
            match accepted {
                Ok((arrival, peer)) => {
                    let client = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    let (runtime, served) = self.0.runtimes.least_busy();
                    let session = self.0.clone().session(arrival, client, at, entrance.clone(), served);
                    drop(match runtime {
                        Some(runtime) => runtime.spawn(session),
                        None => tokio::spawn(session),
                    });
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

    /// Has these runtimes serve connections, too, beside the one in which clients are let in. They have to last until [`Proxy::drain`] has ended: what
    /// one of them has ends with it, and the others get the rest. To be called once: later calls change nothing. A proxy whose engine is a stack of
    /// ours gains nothing by it.
    pub fn serve_by(&self, runtimes: impl IntoIterator<Item = Handle>) {
        self.0.runtimes.add(runtimes);
    }

    /// Lets nobody in any more, waits until those within have finished, and resets who has not within `limit`. Returns whether all have
    /// finished by themselves.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.0.stop.send_replace(Stop::Draining);
        let has_drained = timeout(limit, self.0.runtimes.idle()).await.is_ok();
        self.0.stopped.set();
        self.0.runtimes.idle().await;
        has_drained
    }
}

/// What becomes of a client that was let in.
enum Entered {
    /// Bytes are to pass between it and a server.
    Passing(Box<Passage>),
    /// Its requests are to be answered.
    Asking(Box<http::Arrived>),
    /// It has ended.
    Ended(Ending),
}

impl Inner {
    /// What leads to where bytes pass through is boxed, and given back before they do: those that last hold little.
    fn session(
        self: Arc<Self>,
        arrival: Arrival,
        peer: SocketAddr,
        at: Option<SocketAddr>,
        entrance: Arc<Entrance>,
        mut served: Served,
    ) -> impl Future<Output = ()> {
        let entering = Box::pin(self.clone().enter(arrival, peer, at, entrance.clone()));
        async move {
            served.begin();
            let Some((held, entered)) = entering.await else { return };
            let session = held.session();
            let (ending, are_multipath) = match entered {
                Entered::Passing(passage) => {
                    let (ending, are_multipath) = self.pass(passage, session).await;
                    (ending, Some(are_multipath))
                }
                // It tells of each of its requests. Boxed: each connection has room for this.
                Entered::Asking(arrived) => {
                    let arrived = unboxed(arrived);
                    return Box::pin(http::serve(&self, arrived, &entrance, session.clone())).await;
                }
                Entered::Ended(ending) => (ending, None),
            };
            let known = Known { is_multipath: are_multipath, ..session.known() };
            self.tell(entrance.protocol(), session.client(), &known, session.flow(), &ending);
            // Who waits until none is served finds nobody within.
            drop((held, served));
        }
    }

    /// Lets a client in, and does what it wants, up to where bytes are to pass between it and a server. Returns nothing if all has been told by then.
    #[expect(clippy::manual_async_fn, reason = "an async fn has room for its arguments twice")]
    fn enter(
        self: Arc<Self>,
        arrival: Arrival,
        peer: SocketAddr,
        at: Option<SocketAddr>,
        entrance: Arc<Entrance>,
    ) -> impl Future<Output = Option<(Held, Entered)>> {
        async move {
            // Here, as this may be another thread than the one that has let it in.
            let mut stream = match arrival.drive() {
                Ok(stream) => Leg::Plain(stream),
                Err(error) => {
                    self.tell_of_nobody(&entrance, peer, &Ending::ClientBroke(error.to_string().into()));
                    return None;
                }
            };
            // What is said of a connection that just passes through comes from the server alone: its first bytes wait for nothing.
            let says_nothing =
                matches!(entrance.kind, EntranceKind::Forward(_) | EntranceKind::Transparent(_));
            if entrance.tls.is_some() || !(says_nothing && stream.is_of_kernel()) {
                stream.send_at_once();
            }
            let mut input = BytesMut::new();
            let mut client = peer;
            if entrance.proxy_protocol_from.iter().any(|network| network.contains(peer.ip())) {
                // Whose place it is, the header says; who sends none for long holds one all the same.
                let _place = match self.wait() {
                    Ok(place) => place,
                    Err(overload) => {
                        stream.abort();
                        self.tell_of_nobody(&entrance, peer, &Ending::Overloaded(overload));
                        return None;
                    }
                };
                let limit = self.settings().timeouts.asking;
                let read = {
                    let reading = pin!(timeout(limit, read_proxy_header(&mut stream, &mut input)));
                    self.unless_stopped(reading).await
                };
                let ending = match read {
                    Some(Ok(Ok(ProxyHeader::Proxied { source, .. }))) => {
                        client = source;
                        None
                    }
                    Some(Ok(Ok(ProxyHeader::Local))) => None,
                    Some(Ok(Err(ending))) => Some(ending),
                    Some(Err(_)) => Some(Ending::Unasked),
                    None => Some(Ending::Stopped),
                };
                if let Some(ending) = ending {
                    // No end: it would be an empty answer.
                    stream.abort();
                    self.tell_of_nobody(&entrance, peer, &ending);
                    return None;
                }
            }
            let admission = match self.admit(client.ip()) {
                Ok(admission) => admission,
                // Boxed, as what comes below.
                Err(overload) => {
                    Box::pin(self.turn_away(stream, input, &entrance, client, overload)).await;
                    return None;
                }
            };
            let held = self.sessions.enter(entrance.protocol(), client, admission);
            let visitor = Visitor { address: client, peer };
            let mut named = None;
            if let Some(tls) = &entrance.tls {
                match Box::pin(self.secure(tls, stream, input.split().freeze())).await {
                    Ok((secured, by)) => (stream, named) = (secured, by),
                    Err(ending) => {
                        self.tell_of_nobody(&entrance, client, &ending);
                        return None;
                    }
                }
            }
            if let EntranceKind::Http = entrance.kind {
                let arrived = http::Arrived { stream, early: input.freeze(), visitor, named };
                return Some((held, Entered::Asking(Box::new(arrived))));
            }
            let mut known = Known::default();
            let visit = Visit { client: visitor, entrance: &entrance, session: held.session(), named, at };
            let run = self.run(stream, input, &visit, &mut known).await;
            let entered = match run {
                Ok(joined) => Entered::Passing(self.begin(joined, held.session(), &mut known)),
                Err(ending) => Entered::Ended(ending),
            };
            Some((held, entered))
        }
    }

    /// Until there are two connections between which bytes are to pass, or it has ended.
    #[expect(clippy::manual_async_fn, reason = "an async fn has room for its arguments twice")]
    fn run(
        &self,
        mut stream: Leg,
        mut input: BytesMut,
        visit: &Visit<'_>,
        known: &mut Known,
    ) -> impl Future<Output = Result<Joined, Ending>> {
        async move {
            match &visit.entrance.kind {
                EntranceKind::Forward(target) => {
                    known.target = Some(target.clone());
                    known.user.clone_from(&visit.named);
                    visit.session.asks(visit.named.as_deref(), target);
                    // What is there already may go with a request to a proxy on the way.
                    if self.settings().via.is_some() && read_now(&mut stream, &mut input).await.is_err() {
                        stream.abort();
                        return Err(Ending::Unasked);
                    }
                    let (said, mut early) = (input.len(), input.freeze());
                    let reached = {
                        let client = visit.client.address;
                        let reaching = pin!(self.reach(target, client, visit.entrance, &mut early, |_| true));
                        Self::while_there(&stream, reaching).await
                    };
                    go_on(stream, reached, said, early, visit)
                }
                EntranceKind::Transparent(by) => {
                    let target = match intercepted_target(&stream, *by, visit) {
                        Ok(target) => target,
                        Err(ending) => {
                            stream.abort();
                            return Err(ending);
                        }
                    };
                    known.target = Some(target.clone());
                    visit.session.asks(None, &target);
                    let (said, mut early) = (input.len(), input.freeze());
                    let reached = {
                        let reaching =
                            pin!(self.connect(&visit.client, None, &target, visit.entrance, &mut early));
                        Self::while_there(&stream, reaching).await
                    };
                    go_on(stream, reached, said, early, visit)
                }
                EntranceKind::Socks => {
                    let negotiation = Socks5::new(self.settings().users.clone());
                    Box::pin(self.negotiated(stream, input, negotiation, visit, known)).await
                }
                EntranceKind::Convert(config) => {
                    let client = visit.client.address.ip();
                    let negotiation = convert::Server::new(config.clone(), client, cookie_period());
                    Box::pin(self.negotiated(stream, input, negotiation, visit, known)).await
                }
                // Its requests are answered one by one.
                EntranceKind::Http => Err(Ending::Unasked),
            }
        }
    }

    async fn negotiated(
        &self,
        mut stream: Leg,
        mut input: BytesMut,
        mut negotiation: impl Negotiation,
        visit: &Visit<'_>,
        known: &mut Known,
    ) -> Result<Joined, Ending> {
        let asked = {
            let asking = negotiate(&mut stream, &mut negotiation, &mut input);
            self.unless_stopped(pin!(timeout(self.settings().timeouts.asking, asking))).await
        };
        let request = match asked {
            Some(Ok(Ok(request))) => request,
            Some(Ok(Err(ending))) => return Err(ending),
            Some(Err(_)) => return Err(Ending::Unasked),
            None => return Err(Ending::Stopped),
        };
        known.user = request.user.or_else(|| visit.named.clone());
        known.target = Some(request.target.clone());
        let user = known.user.as_deref();
        visit.session.asks(user, &request.target);
        if request.command == Command::Associate && self.settings().via.is_some() {
            // The proxy on the way carries none, and past it they shall not go.
            let failure = ConnectFailure::Upstream(UpstreamFailure::Unsupported);
            say_farewell(&mut stream, &negotiation.handle_failed(failure)).await;
            return Err(Ending::NotReached(failure));
        }
        if request.command == Command::Associate && visit.entrance.tls.is_some() {
            say_farewell(&mut stream, &negotiation.handle_failed(ConnectFailure::NotAllowed)).await;
            return Err(Ending::Refused(Refusal::Unsupported("its datagrams would come without TLS")));
        }
        if request.command == Command::Associate {
            let allows = |target: &Target, address| self.allows(&visit.client, user, target, address);
            let udp = udp::Associating { connector: &self.connector, allows, flow: visit.session.flow() };
            let client = visit.client.address.ip();
            // It needs three descriptors, and a place is of two.
            let _place = match self.clients.admit_further(client) {
                Ok(place) => place,
                Err(overload) => {
                    say_farewell(&mut stream, &negotiation.handle_failed(overload.into())).await;
                    return Err(Ending::Overloaded(overload));
                }
            };
            let shaped = Shaped::new(&self.throttle, self.settings.clone(), client, user);
            let running = pin!(udp.run(stream, negotiation, &request.target, shaped));
            let running = pin!(visit.session.flow().unless_idle(self.settings().timeouts.idle, running));
            return Err(match self.unless_stopped(running).await {
                Some(ended) => ended.unwrap_or(Ending::Idle),
                None => Ending::Stopped,
            });
        }
        let (said, mut early) = (input.len(), input.freeze());
        let reached = {
            let reaching =
                pin!(self.connect(&visit.client, user, &request.target, visit.entrance, &mut early));
            Self::while_there(&stream, reaching).await
        };
        match reached {
            Ok(server) => {
                visit.session.flow().moved(Way::ToServer, said - early.len());
                if server.stream.is_multipath() {
                    negotiation.handle_multipath();
                }
                let local = server.stream.local_addr().unwrap_or_else(|_| unspecified(server.address));
                let answer = negotiation.handle_connected(local);
                match stream.write_all(&answer).await {
                    Ok(()) => Ok(Joined { client: stream, server, early }),
                    Err(error) => {
                        server.stream.abort();
                        Err(Ending::ClientBroke(error.to_string().into()))
                    }
                }
            }
            Err(Ending::NotReached(failure)) => {
                say_farewell(&mut stream, &negotiation.handle_failed(failure)).await;
                Err(Ending::NotReached(failure))
            }
            Err(ending) => {
                stream.abort();
                Err(ending)
            }
        }
    }
}

/// Where a client wanted to go that was led here.
fn intercepted_target(client: &Leg, by: InterceptedBy, visit: &Visit<'_>) -> Result<Target, Ending> {
    let at = visit.at.unwrap_or_else(|| unspecified(visit.client.peer));
    match client.with(|stream| destination(stream, by, at)) {
        Ok(Some(destination)) => Ok(Target::from(destination)),
        Ok(None) => Err(Ending::Refused(ITSELF)),
        Err(error) => Err(Ending::ClientBroke(error.to_string().into())),
    }
}

/// For a client that can only be told by a reset that its server is not reached. Of as many bytes as it had said, these have not gone with the
/// request to a proxy on the way.
fn go_on(
    client: Leg,
    reached: Result<ServerSide, Ending>,
    said: usize,
    early: Bytes,
    visit: &Visit<'_>,
) -> Result<Joined, Ending> {
    match reached {
        Ok(server) => {
            visit.session.flow().moved(Way::ToServer, said - early.len());
            Ok(Joined { client, server, early })
        }
        Err(ending) => {
            client.abort();
            Err(ending)
        }
    }
}

/// Takes what a client has said already, and waits for nothing. Its end is left for who reads next.
async fn read_now(stream: &mut Leg, input: &mut BytesMut) -> io::Result<()> {
    input.reserve(EARLY_BYTES);
    tokio::select! {
        biased;
        read = stream.read_buf(input) => read.map(drop),
        () = std::future::ready(()) => Ok(()),
    }
}

/// Who the client is, as somebody says who is to be believed.
async fn read_proxy_header(stream: &mut Leg, input: &mut BytesMut) -> Result<ProxyHeader, Ending> {
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

fn unspecified(like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of what the function returns, which is not called.
    fn future_bytes<A, B, C, D, E, F, G: Future>(_: impl Fn(A, B, C, D, E, F) -> G) -> usize {
        size_of::<G>()
    }

    #[test]
    fn a_connection_holds_little() {
        // Each has this, and it is moved when the connection comes. A future that is handed on by value doubles it unseen.
        let bytes = future_bytes(Inner::session);
        assert!(bytes <= 1064, "{bytes} bytes");
    }
}
