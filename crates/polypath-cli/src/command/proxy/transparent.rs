//! Connections of clients that know of no proxy: which of them this host leads to it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use polypath_netsetup::{Intercept, InterceptBy};
use polypath_proxy::access::{Network, PortRange};
use polypath_stack::Engine;
use polypath_stack::engine::{KernelEngine, Listener};

use super::super::Failure;
use super::super::ports::cannot_listen;

/// Which connections, and how they come. A list that is empty says: whichever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transparent {
    pub(super) by: InterceptBy,
    /// Of servers.
    pub(super) ports: Vec<PortRange>,
    /// By which clients come; without these and networks of clients, those that have no default route.
    pub(super) interfaces: Vec<String>,
    pub(super) clients: Vec<Network>,
}

impl Transparent {
    /// All of those behind interfaces that have no default route.
    pub(super) fn new(by: InterceptBy) -> Self {
        Self { by, ports: Vec::new(), interfaces: Vec::new(), clients: Vec::new() }
    }

    /// What the system is asked for, with listeners at these addresses.
    pub(super) fn intercept(&self, at: &[SocketAddr]) -> Intercept {
        let at = match (self.by, at) {
            // Such a listener is of both families.
            (InterceptBy::Redirect, [SocketAddr::V6(both)]) => {
                vec![(Ipv4Addr::UNSPECIFIED, both.port()).into(), (*both).into()]
            }
            _ => at.to_vec(),
        };
        Intercept {
            by: self.by,
            at,
            ports: self.ports.iter().cloned().map(Into::into).collect(),
            interfaces: self.interfaces.clone(),
            clients: self.clients.iter().map(|of| (of.address(), of.prefix_length())).collect(),
        }
    }

    /// Listens at a port of this host. Multipath TCP is an option where the kernel can do it: of a connection of it that was translated, no
    /// kernel says where it went.
    pub(super) async fn listen(
        &self,
        port: u16,
        multipath: Option<&KernelEngine>,
    ) -> Result<Vec<Listener>, Failure> {
        let cannot = |error: std::io::Error| cannot_listen(port, error.kind(), error);
        if self.by == InterceptBy::Redirect {
            let listener = Engine::from(KernelEngine::plain_tcp()).listen_everywhere(port).await;
            return Ok(vec![listener.map_err(cannot)?]);
        }
        let plain = KernelEngine::plain_tcp();
        let listen = |at: SocketAddr| {
            let engines = multipath.into_iter().chain([&plain]).cloned();
            let mut tried = engines.map(|engine| engine.with_transparent_listeners().listen(at));
            let first = tried.next().unwrap_or_else(|| Err(std::io::ErrorKind::Unsupported.into()));
            first.or_else(|error| tried.next().unwrap_or(Err(error))).map(Listener::Kernel)
        };
        let mut listeners = vec![listen((Ipv4Addr::LOCALHOST, port).into()).map_err(cannot)?];
        match listen((Ipv6Addr::LOCALHOST, port).into()) {
            Ok(listener) => listeners.push(listener),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => return Err(cannot(error)),
            // No IPv6 here.
            Err(_) => {}
        }
        Ok(listeners)
    }
}

impl fmt::Display for Transparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by {
            InterceptBy::Tproxy => "intercepted by TPROXY",
            InterceptBy::Redirect => "redirected",
        })?;
        let listed = |words: Vec<String>| words.join(", ");
        if !self.ports.is_empty() {
            write!(
                f,
                " on the way to ports {}",
                listed(self.ports.iter().map(ToString::to_string).collect())
            )?;
        }
        if !self.interfaces.is_empty() {
            write!(f, " from {}", listed(self.interfaces.clone()))?;
        }
        if !self.clients.is_empty() {
            write!(f, " of clients {}", listed(self.clients.iter().map(ToString::to_string).collect()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_intercepted_is_told() {
        let mut all = Transparent::new(InterceptBy::Tproxy);
        assert_eq!(all.to_string(), "intercepted by TPROXY");
        all.ports = vec![80.into(), "8000-8080".parse().expect("ports")];
        all.interfaces = vec!["lan0".into()];
        all.clients = vec!["10.0.0.0/8".parse().expect("a network")];
        let expected =
            "intercepted by TPROXY on the way to ports 80, 8000-8080 from lan0 of clients 10.0.0.0/8";
        assert_eq!(all.to_string(), expected);
    }

    #[test]
    fn a_listener_at_all_addresses_is_of_both_families() {
        let redirect = Transparent::new(InterceptBy::Redirect);
        let at = redirect.intercept(&[(Ipv6Addr::UNSPECIFIED, 8877).into()]).at;
        assert_eq!(at, ["0.0.0.0:8877".parse().unwrap(), "[::]:8877".parse().unwrap()]);
        let at = redirect.intercept(&[(Ipv4Addr::UNSPECIFIED, 8877).into()]).at;
        assert_eq!(at, ["0.0.0.0:8877".parse().unwrap()]);
    }
}
