//! What all connections of a proxy share.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use polypath_stack::stack::PathLimitSet;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, watch};

use super::connect::{Connector, ServerSide};
use super::counts::Ended;
use super::flow::Flow;
use super::fullness::Fullness;
use super::gate::{Gate, Gates};
use super::known::Known;
use super::lasting::Lasting;
use super::leg::Leg;
use super::own_places::OwnPlaces;
use super::owners::{OfStack, Owners, of_stack};
use super::pump::{Early, Moved, both, broken, ways};
use super::runtimes::Runtimes;
use super::session::{Ending, SessionEnd};
use super::sessions::{Ends, Session, Sessions};
use super::settings::{CurrentSettings, Entrance, Settings};
use super::stopped::Stopped;
use crate::access::{Client, Clients};
use crate::failure::{ConnectFailure, Distrust, UpstreamFailure};
use crate::proxy_protocol::ProxyHeader;
use crate::target::Target;
use crate::throttle::{Direction, FlowKey, Throttle};

/// The log says, too, which name would have been the right one.
const OTHER_NAME: ConnectFailure = ConnectFailure::Upstream(UpstreamFailure::Distrusted(Distrust::OtherName));

/// The state of a proxy.
pub(super) struct Inner {
    pub(super) connector: Connector,
    pub(super) settings: CurrentSettings,
    pub(super) sessions: Sessions,
    pub(super) ended: Ended,
    pub(super) throttle: Throttle,
    pub(super) owners: Owners,
    /// Where connections to servers are of our own stack.
    pub(super) path_limits: Option<PathLimitSet>,
    pub(super) lasting: Lasting,
    pub(super) own_places: OwnPlaces,
    pub(super) runtimes: Runtimes,
    pub(super) clients: Clients,
    pub(super) fullness: Mutex<Fullness>,
    /// Places for those who are told that they can't come in.
    pub(super) told_at_once: Semaphore,
    pub(super) log: Box<dyn Fn(&SessionEnd<'_>) + Send + Sync>,
    /// How far the end has come, but for what `stopped` says.
    pub(super) stop: watch::Sender<Stop>,
    /// Those within are reset.
    pub(super) stopped: Stopped,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    No,
    /// No client enters; those within finish.
    Draining,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("connector", &self.connector)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

/// Who a client is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visitor {
    /// Where it is, which a header of the PROXY protocol may have said.
    pub(super) address: SocketAddr,
    /// Where its connection comes from.
    pub(super) peer: SocketAddr,
}

impl Visitor {
    fn asking<'a>(&self, user: Option<&'a str>) -> Client<'a> {
        // Who is elsewhere is not here because somebody says so, and who passes on others' connections from here is not they.
        let is_on_this_host = [self.address, self.peer].iter().all(|at| at.ip().to_canonical().is_loopback());
        Client { address: self.address.ip(), user, is_on_this_host }
    }
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub(super) struct Route {
    address: SocketAddr,
    local: Option<IpAddr>,
    interface: Option<Box<str>>,
}

impl Route {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Two connections between which bytes are to pass.
pub(super) struct Joined {
    pub(super) client: Leg,
    pub(super) server: ServerSide,
    /// What the client has said for the server already.
    pub(super) early: Bytes,
}

/// What bytes need to pass through. Boxed when it is handed on, so that no future has it twice.
pub(super) struct Passage {
    ends: Arc<Ends>,
    early: Early,
    gates: Gates,
}

impl Inner {
    pub(super) fn settings(&self) -> Arc<Settings> {
        self.settings.get()
    }

    pub(super) fn stop(&self) -> watch::Receiver<Stop> {
        self.stop.subscribe()
    }

    /// What comes of it, unless all have to leave first. It is pinned already: a future that is handed on by value is twice in the one that has it.
    pub(super) fn unless_stopped<T>(
        &self,
        work: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        self.stopped.unless(work)
    }

    /// What comes of reaching a server, unless the client has gone first: what is opened for it would be held for nobody.
    pub(super) async fn while_there(
        client: &Leg,
        reaching: Pin<&mut impl Future<Output = Result<ServerSide, ConnectFailure>>>,
    ) -> Result<ServerSide, Ending> {
        tokio::select! {
            biased;
            reached = reaching => reached.map_err(Ending::NotReached),
            error = broken(client) => Err(Ending::ClientBroke(error.to_string().into())),
        }
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
        self.ended.count(protocol, ending);
        let misnamed = match ending {
            Ending::NotReached(OTHER_NAME) => self.settings().via.clone(),
            _ => None,
        };
        let misnamed = misnamed.map(|via| Ending::Misnamed(via.called().into()));
        let ending = misnamed.as_ref().unwrap_or(ending);
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

    /// Whether the client may go there, which is asked before a name is looked up and then of each of its addresses.
    pub(super) fn allows(
        &self,
        client: &Visitor,
        user: Option<&str>,
        target: &Target,
        address: Option<IpAddr>,
    ) -> bool {
        let (client, settings) = (client.asking(user), self.settings());
        match address {
            Some(address) => settings.rules.check_address(&client, target, address).is_ok(),
            None => settings.rules.check(&client, target).is_ok(),
        }
    }

    /// Reaches a target, if the client may go there.
    pub(super) async fn connect(
        &self,
        client: &Visitor,
        user: Option<&str>,
        target: &Target,
        entrance: &Entrance,
        early: &mut Bytes,
    ) -> Result<ServerSide, ConnectFailure> {
        let settings = self.settings();
        let who = client.asking(user);
        settings.rules.check(&who, target)?;
        let allows = |address| settings.rules.check_address(&who, target, address).is_ok();
        self.reach(target, client.address, entrance, early, allows).await
    }

    /// Reaches a target, which is told who the client is, if it is to know. Of what the client has said already, nothing is left if it went with
    /// the request to the proxy on the way.
    pub(super) async fn reach(
        &self,
        target: &Target,
        client: SocketAddr,
        entrance: &Entrance,
        early: &mut Bytes,
        allows: impl Fn(IpAddr) -> bool,
    ) -> Result<ServerSide, ConnectFailure> {
        let settings = self.settings();
        let (via, limit) = (settings.via.as_ref(), settings.timeouts.connecting);
        let header = |destination| match entrance.proxy_protocol_to_servers {
            Some(version) => ProxyHeader::Proxied { source: client, destination }.emit(version),
            None => Bytes::new(),
        };
        // A name may have several addresses, and each would get it.
        let first =
            target.address().filter(|_| via.is_some_and(|via| via.takes_first_bytes())).map(|address| {
                // Limits are asked of a connection that is there.
                let said =
                    if self.throttle.limits().is_empty() { std::mem::take(early) } else { Bytes::new() };
                Bytes::from([header(address), said].concat())
            });
        let with_request = first.clone().unwrap_or_default();
        let reaching = pin!(async {
            match via {
                Some(via) => {
                    Box::pin(via.connect(
                        &self.connector,
                        &self.own_places,
                        target,
                        limit,
                        allows,
                        with_request,
                    ))
                    .await
                }
                None => self.connector.connect(target, limit, allows).await,
            }
        });
        let mut server = self.unless_stopped(reaching).await.unwrap_or(Err(ConnectFailure::Local))?;
        if self.own_places.leads_back(&server.stream) {
            server.stream.abort();
            return Err(ConnectFailure::NotAllowed);
        }
        let said = if first.is_none() { header(server.address) } else { Bytes::new() };
        // The first bytes of a connection wait for nothing.
        if via.is_some() || !said.is_empty() || !server.stream.is_of_kernel() {
            server.stream.send_at_once();
        }
        let written = server.stream.write_all(&said).await;
        written.map_err(|error| ConnectFailure::from(&error))?;
        Ok(server)
    }

    /// How a server is reached. Over several paths it is none that a limit could name.
    pub(super) fn route(&self, server: &ServerSide) -> Route {
        let local = server.stream.local_addr().ok().filter(|_| !server.stream.is_multipath());
        let local = local.map(|local| local.ip().to_canonical());
        let interface = local.and_then(|local| match of_stack(&server.stream) {
            Some((stack, _)) => stack.path_name(local).map(Into::into),
            None => self.settings().surroundings.interface_of(local),
        });
        Route { address: server.address, local, interface }
    }

    /// What limits have to say of a connection to a server. `ours` are the client's and the server's, as far as they are of our own stack.
    pub(super) fn gates(
        &self,
        client: SocketAddr,
        known: &Known,
        route: &Route,
        ours: [Option<OfStack>; 2],
    ) -> Gates {
        let key = |direction| FlowKey {
            client: client.ip(),
            user: known.user.clone(),
            target: known.target.clone().unwrap_or_else(|| route.address.into()),
            address: route.address.ip(),
            interface: route.interface.clone(),
            local: route.local,
            direction,
        };
        let surroundings = &self.settings().surroundings;
        self.owners.own(ours, || key(Direction::Up));
        let gate = |direction| Gate::new(self.throttle.open(key(direction)), surroundings.clone());
        Gates { to_server: gate(Direction::Up), to_client: gate(Direction::Down) }
    }

    /// What is to be done before bytes pass between the two.
    pub(super) fn begin(&self, joined: Joined, session: &Arc<Session>, known: &mut Known) -> Box<Passage> {
        let Joined { client, server, early } = joined;
        known.server = Some(server.address);
        session.reached(server.address);
        let ours = [&client, &server.stream].map(of_stack);
        let gates = self.gates(session.client(), known, &self.route(&server), ours);
        let early = Early { of_client: early, of_server: server.early };
        let ends = session.show(Ends::new(client, server.stream));
        self.lasting.begins(session);
        Box::new(Passage { ends, early, gates })
    }

    /// Bytes pass through until both have ended. Returns also which of the two are of Multipath TCP.
    pub(super) async fn pass(&self, passage: Box<Passage>, session: &Arc<Session>) -> (Ending, (bool, bool)) {
        let Passage { ends, early, gates } = unboxed(passage);
        let idle = self.settings().timeouts.idle;
        let moved = {
            let flow = session.flow();
            let one_has_ended = AtomicBool::new(false);
            let (up, down) = ways(&ends.client, &ends.server, early, flow, gates, &one_has_ended);
            let (up, down) = (pin!(up), pin!(down));
            let both = pin!(both(up, down, &ends.client));
            let moving = pin!(flow.unless_idle(idle, both));
            self.unless_stopped(moving).await
        };
        let are_multipath = (ends.client.is_multipath(), ends.server.is_multipath());
        let ends = session.take_back(ends);
        let ending = match moved {
            Some(Some(Moved::Finished)) => Ending::Finished,
            Some(Some(Moved::ClientBroke(error))) => Ending::ClientBroke(error.to_string().into()),
            Some(Some(Moved::ServerBroke(error))) => Ending::ServerBroke(error.to_string().into()),
            Some(None) => Ending::Idle,
            None => Ending::Stopped,
        };
        match ending {
            Ending::Finished => ends.map(Ends::close),
            _ => ends.map(Ends::abort),
        };
        (ending, are_multipath)
    }
}

/// The box is given back.
#[expect(clippy::boxed_local, reason = "the box is what it takes")]
pub(super) fn unboxed<T>(boxed: Box<T>) -> T {
    *boxed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_here_because_somebody_says_so() {
        for (address, peer, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("[::ffff:127.0.0.1]:1", "[::1]:1", true),
            ("127.0.0.1:1", "192.0.2.1:1", false),
            ("192.0.2.1:1", "127.0.0.1:1", false),
        ] {
            let visitor = Visitor { address: address.parse().unwrap(), peer: peer.parse().unwrap() };
            assert_eq!(visitor.asking(None).is_on_this_host, expected, "{address} by {peer}");
        }
    }
}
