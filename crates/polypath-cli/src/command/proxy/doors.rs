//! Where clients of a running proxy enter.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use polypath_netsetup::InterceptBy;
use polypath_proxy::convert::{CookieKey, OptionKind, ServerConfig, SupportedExtensions};
use polypath_proxy::net::{Entrance, EntranceKind, InterceptedBy, Proxy};
use polypath_stack::Engine;
use polypath_stack::engine::{KernelEngine, Listener};
use tokio::task::JoinSet;

use super::super::ports::cannot_listen;
use super::super::{Failure, complain};
use super::entrances::{EntrancePlan, Listen, Protocol};
use super::handed_down::HandedDown;
use super::intercepting::Intercepting;
use super::report::ListenerReport;

/// Where clients enter now.
pub(super) struct Doors {
    accepting: Engine,
    /// For clients of Convert: it may take data with their first packets, which may come twice.
    converting: Engine,
    /// For those who are intercepted, if Multipath TCP is wanted.
    multipath: Option<KernelEngine>,
    proxy: Proxy,
    handed_down: HandedDown,
    /// Of what converters give, as long as the proxy runs.
    cookie_key: CookieKey,
    /// For whom root's rights were given up.
    successor: Option<String>,
    open: BTreeMap<Listen, Door>,
    /// What leads connections here, once anything had to.
    intercepting: Option<Intercepting>,
}

struct Door {
    plan: EntrancePlan,
    /// With the ports that it got.
    at: Vec<SocketAddr>,
    /// They may lead elsewhere without being closed: who waits in their queues stays there, and no right is needed to open them again.
    listeners: Vec<Arc<Listener>>,
    /// Dropping it closes the door.
    serving: JoinSet<()>,
}

impl Door {
    /// Until nobody is let in.
    async fn close(mut self) -> Closed {
        self.serving.shutdown().await;
        Closed { plan: self.plan, at: self.at, listeners: self.listeners }
    }
}

/// A door that was closed, and its sockets, unless these are to be opened anew.
struct Closed {
    plan: EntrancePlan,
    at: Vec<SocketAddr>,
    listeners: Vec<Arc<Listener>>,
}

/// What is listened at for an entrance.
struct Opened<'a> {
    plan: &'a EntrancePlan,
    at: Vec<SocketAddr>,
    listeners: Vec<Arc<Listener>>,
}

impl Doors {
    pub(super) fn new(
        [accepting, converting]: [Engine; 2],
        multipath: Option<KernelEngine>,
        proxy: Proxy,
        handed_down: HandedDown,
    ) -> Result<Self, Failure> {
        Ok(Self {
            accepting,
            converting,
            multipath,
            proxy,
            handed_down,
            cookie_key: CookieKey::new(random_octets().map_err(Failure::run)?),
            successor: None,
            open: BTreeMap::new(),
            intercepting: None,
        })
    }

    /// Root's rights were given up for this user: ports that need them can't be opened any more.
    pub(super) fn set_without_rights(&mut self, user: &str) {
        self.successor = Some(user.into());
    }

    /// Says which sockets that were handed down have no use, or that none can have.
    pub(super) fn check_handed_down(&self, wanted: &[EntrancePlan]) -> Result<Vec<String>, Failure> {
        if !self.handed_down.is_empty() && !matches!(self.accepting, Engine::Kernel(_)) {
            return Err(Failure::Input(
                "sockets that are handed down are the kernel's: expected --accept kernel or tcp with them"
                    .into(),
            ));
        }
        let wanted: Vec<SocketAddr> = wanted.iter().map(|plan| plan.listen.0).collect();
        let unused = self.handed_down.beside(&wanted).map(|at| {
            format!("a socket at {at} was handed down, where nobody enters: expected an entrance that listens there")
        });
        Ok(unused.collect())
    }

    /// Where that is, as it is told.
    pub(super) fn report(&self) -> Vec<ListenerReport> {
        let report = |door: &Door, at: &SocketAddr| ListenerReport {
            protocol: door.plan.protocol.name().into(),
            address: at.to_string(),
            target: match &door.plan.protocol {
                Protocol::Forward(target) => Some(target.to_string()),
                _ => None,
            },
            tls: door.plan.tls.as_ref().map(ToString::to_string),
            intercepted: match &door.plan.protocol {
                Protocol::Transparent(of) => Some(of.to_string()),
                _ => None,
            },
        };
        self.open.values().flat_map(|door| door.at.iter().map(move |at| report(door, at))).collect()
    }

    /// Opens and closes what differs; those who are within stay. Says what it did. If not all of it can be, what was open is open again.
    pub(super) async fn follow(&mut self, wanted: &[EntrancePlan]) -> Result<Vec<String>, Failure> {
        let intercepts = |plan: &EntrancePlan| matches!(plan.protocol, Protocol::Transparent(_));
        if self.intercepting.is_none() && wanted.iter().any(intercepts) {
            self.intercepting = Some(Intercepting::begin().await?);
        }
        let is_open = |plan: &EntrancePlan| {
            self.open.get(&plan.listen).is_some_and(|door| door.plan.has_same_door(plan))
        };
        let missing: Vec<&EntrancePlan> = wanted.iter().filter(|plan| !is_open(plan)).collect();
        let mut told = Vec::new();
        // What is listened at for something else must be free first.
        let is_wanted = |listen: &Listen| wanted.iter().any(|plan| plan.listen == *listen && is_open(plan));
        let closing: Vec<Listen> = self.open.keys().copied().filter(|listen| !is_wanted(listen)).collect();
        let (mut opened, mut replaced) = (Vec::new(), Vec::new());
        for plan in missing {
            if let Some(door) = self.open.remove(&plan.listen) {
                let mut closed = door.close().await;
                if intercepts(&closed.plan) || intercepts(plan) {
                    // These are other sockets.
                    closed.listeners.clear();
                } else {
                    let (at, listeners) = (closed.at.clone(), closed.listeners.clone());
                    opened.push(Opened { plan, at, listeners });
                }
                let has_sockets = !closed.listeners.is_empty();
                replaced.push(closed);
                if has_sockets {
                    continue;
                }
            }
            match self.listen(plan).await {
                Ok(listened) => opened.push(listened),
                Err(failure) => {
                    drop(opened);
                    return Err(self.reopened(replaced, failure).await);
                }
            }
        }
        if let Err(failure) = self.intercept(wanted, &opened).await {
            drop(opened);
            return Err(self.reopened(replaced, failure).await);
        }
        for listen in closing {
            if self.open.remove(&listen).is_some() {
                told.push(format!("Nobody enters at {} any more", listen.0));
            }
        }
        for plan in wanted {
            if let Some(door) = self.open.get_mut(&plan.listen)
                && door.plan != *plan
            {
                door.plan = plan.clone();
                told.push(door.tell());
            }
        }
        for listened in opened {
            told.push(self.begin(listened)?);
        }
        Ok(told)
    }

    /// Leads nobody here any more. Those within stay as long as what this returns is not closed.
    pub(super) async fn stop_intercepting(&mut self) -> Option<Intercepting> {
        let intercepting = self.intercepting.take()?;
        if let Err(Failure::Input(message) | Failure::Run(message)) = intercepting.set(Vec::new()).await {
            complain(&message);
        }
        Some(intercepting)
    }

    async fn listen<'a>(&self, plan: &'a EntrancePlan) -> Result<Opened<'a>, Failure> {
        let Listen(at) = plan.listen;
        let listeners = match &plan.protocol {
            Protocol::Transparent(of) => of.listen(at.port(), self.multipath.as_ref()).await?,
            _ => {
                let accepting =
                    if plan.protocol == Protocol::Convert { &self.converting } else { &self.accepting };
                let listener = match (accepting, self.handed_down.at(at)) {
                    (Engine::Kernel(engine), Some(socket)) => {
                        socket.and_then(|socket| engine.adopt(socket)).map(Listener::Kernel)
                    }
                    (accepting, _) => accepting.listen(at).await,
                };
                let refused = |error: std::io::Error| match &self.successor {
                    Some(user) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                        Failure::Run(format!(
                            "port {} needs root's rights, which were given up for {user}: expected a start anew, or a port from 1024 on",
                            at.port()
                        ))
                    }
                    _ => cannot_listen(at.port(), error.kind(), error),
                };
                vec![listener.map_err(refused)?]
            }
        };
        let at = listeners.iter().map(Listener::local_addr).collect::<Result<_, _>>();
        let at = at.map_err(Failure::run)?;
        Ok(Opened { plan, at, listeners: listeners.into_iter().map(Arc::new).collect() })
    }

    /// Has the system lead here what these entrances are for. What fails changes nothing.
    async fn intercept(&self, wanted: &[EntrancePlan], opened: &[Opened<'_>]) -> Result<(), Failure> {
        let Some(intercepting) = &self.intercepting else { return Ok(()) };
        let of = |plan: &EntrancePlan| {
            let Protocol::Transparent(of) = &plan.protocol else { return None };
            let opened = opened.iter().find(|opened| opened.plan.listen == plan.listen);
            let at = opened.map(|opened| &opened.at);
            let at = at.or_else(|| self.open.get(&plan.listen).map(|door| &door.at))?;
            Some(of.intercept(at))
        };
        intercepting.set(wanted.iter().filter_map(of).collect()).await
    }

    /// Opens again what was closed, after a failure; which is returned, unless not even that can be.
    async fn reopened(&mut self, closed: Vec<Closed>, failure: Failure) -> Failure {
        for Closed { plan, at, listeners } in closed {
            let opened = if listeners.is_empty() {
                self.listen(&plan).await
            } else {
                Ok(Opened { plan: &plan, at, listeners })
            };
            let begun = opened.and_then(|opened| self.begin(opened));
            if let Err(failure) = begun {
                return failure;
            }
        }
        failure
    }

    /// Lets clients in, and says so.
    fn begin(&mut self, Opened { plan, at, listeners }: Opened<'_>) -> Result<String, Failure> {
        let mut serving = JoinSet::new();
        for listener in listeners.clone() {
            let (proxy, entrance) = (self.proxy.clone(), entrance(plan, &self.cookie_key)?);
            serving.spawn(async move { proxy.serve(listener, entrance).await });
        }
        let door = Door { plan: plan.clone(), at, listeners, serving };
        let told = door.tell();
        self.open.insert(plan.listen, door);
        Ok(told)
    }
}

impl Door {
    fn tell(&self) -> String {
        let at = self.at.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        let how = match &self.plan.protocol {
            Protocol::Forward(target) => format!(" to {target}"),
            Protocol::Transparent(of) => format!(", {of}"),
            _ => String::new(),
        };
        let tls = self.plan.tls.as_ref().map(|tls| format!(" {tls}")).unwrap_or_default();
        format!("Clients of {} enter at {at}{tls}{how}", self.plan.protocol.name())
    }
}

fn random_octets() -> std::io::Result<[u8; 16]> {
    let mut octets = [0; 16];
    // So few come whole.
    rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty())?;
    Ok(octets)
}

fn entrance(plan: &EntrancePlan, key: &CookieKey) -> Result<Entrance, Failure> {
    let kind = match &plan.protocol {
        Protocol::Socks => EntranceKind::Socks,
        Protocol::Http => EntranceKind::Http,
        Protocol::Forward(target) => EntranceKind::Forward(target.clone()),
        Protocol::Convert => {
            let config = ServerConfig::new(SupportedExtensions::new([OptionKind::MULTIPATH_TCP]));
            EntranceKind::Convert(Arc::new(if plan.wants_cookies {
                config.with_cookies(key.clone())
            } else {
                config
            }))
        }
        Protocol::Transparent(of) => EntranceKind::Transparent(match of.by {
            InterceptBy::Tproxy => InterceptedBy::Tproxy,
            InterceptBy::Redirect => InterceptedBy::Redirect,
        }),
    };
    let protocol = matches!(plan.protocol, Protocol::Http).then_some(&b"http/1.1"[..]);
    let tls = plan.tls.as_ref().map(|tls| tls.entrance(protocol)).transpose();
    Ok(Entrance {
        tls: tls.map_err(Failure::run)?,
        proxy_protocol_from: plan.proxy_protocol_from.clone(),
        proxy_protocol_to_servers: plan.proxy_protocol_to_servers,
        ..kind.into()
    })
}
