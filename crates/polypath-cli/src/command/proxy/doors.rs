//! Where clients of a running proxy enter.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use polypath_proxy::convert::{OptionKind, ServerConfig, SupportedExtensions};
use polypath_proxy::net::{Entrance, EntranceKind, Proxy};
use polypath_stack::Engine;
use polypath_stack::engine::Listener;
use tokio::task::JoinHandle;

use super::super::Failure;
use super::super::ports::cannot_listen;
use super::entrances::{EntrancePlan, Listen, Protocol};
use super::report::ListenerReport;

/// Where clients enter now.
pub(super) struct Doors {
    accepting: Engine,
    proxy: Proxy,
    open: BTreeMap<Listen, Door>,
}

struct Door {
    plan: EntrancePlan,
    /// With the port that it got.
    at: SocketAddr,
    serving: JoinHandle<()>,
}

impl Door {
    /// Until its socket is closed.
    async fn close(mut self) -> EntrancePlan {
        self.serving.abort();
        // It was aborted, which is no news.
        let _ = (&mut self.serving).await;
        self.plan.clone()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Doors {
    pub(super) fn new(accepting: Engine, proxy: Proxy) -> Self {
        Self { accepting, proxy, open: BTreeMap::new() }
    }

    /// Where that is, as it is told.
    pub(super) fn report(&self) -> Vec<ListenerReport> {
        let report = |door: &Door| ListenerReport {
            protocol: door.plan.protocol.name().into(),
            address: door.at.to_string(),
            target: match &door.plan.protocol {
                Protocol::Forward(target) => Some(target.to_string()),
                _ => None,
            },
        };
        self.open.values().map(report).collect()
    }

    /// Opens and closes what differs; those who are within stay. Says what it did. If not all of it can be, what was open is open again.
    pub(super) async fn follow(&mut self, wanted: &[EntrancePlan]) -> Result<Vec<String>, Failure> {
        let is_open =
            |plan: &EntrancePlan| self.open.get(&plan.listen).is_some_and(|door| door.plan == *plan);
        let missing: Vec<&EntrancePlan> = wanted.iter().filter(|plan| !is_open(plan)).collect();
        let mut told = Vec::new();
        // What is listened at for something else must be free first.
        let is_wanted = |listen: &Listen| wanted.iter().any(|plan| plan.listen == *listen && is_open(plan));
        let closing: Vec<Listen> = self.open.keys().copied().filter(|listen| !is_wanted(listen)).collect();
        let (mut listeners, mut replaced) = (Vec::new(), Vec::new());
        for plan in missing {
            if let Some(door) = self.open.remove(&plan.listen) {
                replaced.push(door.close().await);
            }
            match self.listen(plan.listen).await {
                Ok(listener) => listeners.push((plan, listener)),
                Err(failure) => {
                    drop(listeners);
                    for plan in &replaced {
                        let listener = self.listen(plan.listen).await?;
                        self.begin(plan, listener)?;
                    }
                    return Err(failure);
                }
            }
        }
        for listen in closing {
            if self.open.remove(&listen).is_some() {
                told.push(format!("Nobody enters at {} any more", listen.0));
            }
        }
        for (plan, listener) in listeners {
            told.push(self.begin(plan, listener)?);
        }
        Ok(told)
    }

    async fn listen(&self, Listen(at): Listen) -> Result<Listener, Failure> {
        let listener = self.accepting.listen(at).await;
        listener.map_err(|error| cannot_listen(at.port(), error.kind(), error))
    }

    /// Lets clients in, and says so.
    fn begin(&mut self, plan: &EntrancePlan, listener: Listener) -> Result<String, Failure> {
        let at = listener.local_addr().map_err(Failure::run)?;
        let (proxy, entrance) = (self.proxy.clone(), entrance(plan)?);
        let serving = tokio::spawn(async move { proxy.serve(listener, entrance).await });
        self.open.insert(plan.listen, Door { plan: plan.clone(), at, serving });
        let leads = match &plan.protocol {
            Protocol::Forward(target) => format!(" to {target}"),
            _ => String::new(),
        };
        Ok(format!("Clients of {} enter at {at}{leads}", plan.protocol.name()))
    }
}

fn entrance(plan: &EntrancePlan) -> Result<Entrance, Failure> {
    let kind = match &plan.protocol {
        Protocol::Socks => EntranceKind::Socks,
        Protocol::Http => EntranceKind::Http,
        Protocol::Forward(target) => EntranceKind::Forward(target.clone()),
        Protocol::Convert => EntranceKind::Convert(Arc::new(ServerConfig::new(SupportedExtensions::new([
            OptionKind::MULTIPATH_TCP,
        ])))),
    };
    Ok(Entrance {
        proxy_protocol_from: plan.proxy_protocol_from.clone(),
        proxy_protocol_to_servers: plan.proxy_protocol_to_servers,
        ..kind.into()
    })
}
