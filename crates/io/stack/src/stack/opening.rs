//! How connections come out of a stack: they are opened, or arrive at a listener.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use polypath_mptcp::ConnectionConfig;
use polypath_wire::Endpoint;

use super::handle::Stack;
use super::listener::StackListener;
use super::stream::StackStream;
use crate::connect_options::ConnectOptions;

impl Stack {
    /// Opens a connection, from the address that `options` name or else from the first path of the remote's family.
    ///
    /// Errors: [`io::ErrorKind::ConnectionRefused`], [`io::ErrorKind::TimedOut`], [`io::ErrorKind::NetworkUnreachable`] if no path has
    /// an address of the remote's family, and what the driver says.
    pub async fn connect(&self, remote: SocketAddr, options: &ConnectOptions) -> io::Result<StackStream> {
        options.in_time(remote, self.expected_of_peers(), self.open(remote, options)).await
    }

    async fn open(&self, remote: SocketAddr, options: &ConnectOptions) -> io::Result<StackStream> {
        let dialled = self.shared.underlay(|underlay| underlay.dials(remote)).unwrap_or(remote);
        let local = match options.local {
            Some(local) => {
                Some(self.shared.underlay(|underlay| underlay.connects_from(local)).unwrap_or(Ok(local))?)
            }
            None => None,
        };
        let only = self.shared.underlay(|underlay| underlay.starts_at(dialled)).transpose()?.flatten();
        let id = self.shared.with(|state, now| {
            state.check()?;
            let local = match (local, only) {
                (Some(local), _) => Endpoint::from(local),
                (None, Some(addr)) => Endpoint::new(addr, 0),
                (None, None) => Endpoint::new(state.first_path(dialled)?, 0),
            };
            let id = state
                .host
                .connect(now, local, dialled.into(), options.config.clone().map(|config| state.fit(config)))
                .map_err(|error| io::Error::new(io::ErrorKind::AddrNotAvailable, error.to_string()))?;
            state.open(id);
            Ok::<_, io::Error>(id)
        })??;
        let stream = StackStream::new(self.clone(), id);
        if let Some(look) = self.shared.underlay(|underlay| underlay.doubts(dialled)).flatten() {
            tokio::task::spawn_blocking(look).await.map_err(io::Error::other)??;
        }
        stream.connected().await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                io::Error::new(error.kind(), format!("{remote} refused the connection"))
            }
            io::ErrorKind::TimedOut => io::Error::new(error.kind(), format!("{remote} did not answer")),
            io::ErrorKind::HostUnreachable => self.unreachable(remote),
            _ => error,
        })?;
        Ok(stream)
    }

    /// Listens at an address of the stack, or at all of them.
    ///
    /// Errors: [`io::ErrorKind::AddrInUse`]; over UDP also [`io::ErrorKind::Unsupported`] if the stack is not reachable, and
    /// [`io::ErrorKind::AddrNotAvailable`] if the address is not the host's; on uplinks that as well for an address of the loopback
    /// interface, at which nothing reaches the stack.
    pub fn listen(&self, local: SocketAddr) -> io::Result<StackListener> {
        self.listen_with(Some(local), None)
    }

    /// As [`Stack::listen`], for whoever has a socket of the kernel that listens at the same port.
    pub fn listen_beside(&self, local: SocketAddr) -> io::Result<StackListener> {
        self.listen_at(Some(local), None, true)
    }

    /// Listens at an address or, without one, at every address and port where nothing else listens; the connections
    /// get `config`, if there is one.
    pub fn listen_with(
        &self,
        local: Option<SocketAddr>,
        config: Option<Arc<ConnectionConfig>>,
    ) -> io::Result<StackListener> {
        self.listen_at(local, config, false)
    }

    fn listen_at(
        &self,
        asked: Option<SocketAddr>,
        config: Option<Arc<ConnectionConfig>>,
        is_held: bool,
    ) -> io::Result<StackListener> {
        if let Some(local) = asked {
            self.shared.underlay(|underlay| underlay.may_listen(local, is_held)).transpose()?;
        }
        let own =
            asked.map(|local| self.shared.underlay(|underlay| underlay.listens_at(local)).unwrap_or(local));
        let mut first_free = FIRST_FREE_PORT;
        loop {
            let fitted = config.clone();
            let (id, local) = self.shared.with(|state, _| {
                let config = fitted.map(|config| state.fit(config));
                state.listen(own, first_free, config)
            })??;
            // In the words of who asked, with the port that it got.
            let known_as = SocketAddr::new(asked.unwrap_or(local).ip(), local.port());
            let listener = StackListener::new(self.clone(), id, known_as);
            if own.is_none() {
                return Ok(listener);
            }
            let exposed = self.shared.underlay(|underlay| underlay.expose(local.port(), is_held)).transpose();
            match (exposed, local.port().checked_add(1)) {
                // Nobody asked for this port, which somebody else has beside the stack.
                (Err(error), Some(next))
                    if error.kind() == io::ErrorKind::AddrInUse && asked.is_some_and(|at| at.port() == 0) =>
                {
                    first_free = next;
                }
                (exposed, _) => return exposed.map(|_| listener),
            }
        }
    }

    fn unreachable(&self, remote: SocketAddr) -> io::Error {
        // Peers of a kind answer at one port, of which the network says that it is closed. Elsewhere a closed port refuses.
        let text = match self.expected_of_peers() {
            Some(expected) => format!("nobody listens at {remote}, the network says; expected {expected}"),
            None => format!(
                "there is no route to {remote}, or a firewall lets nothing through, the network says; `polypath doctor` tells of each interface"
            ),
        };
        io::Error::new(io::ErrorKind::HostUnreachable, text)
    }
}

/// Where ports begin that a listener gets which asked for none (RFC 6335 §6).
const FIRST_FREE_PORT: u16 = 49_152;

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use polypath_mptcp::HostConfig;
    use polypath_mptcp::path_manager::LocalEndpoint;
    use polypath_wire::Packet;

    use super::*;
    use crate::stack::{Receive, Transmit, Underlay};

    /// A network that carries nothing.
    struct Nowhere;

    impl Transmit for Nowhere {
        fn transmit(&mut self, _packet: Packet) -> io::Result<()> {
            Ok(())
        }
    }

    impl Receive for Nowhere {
        fn poll_receive(
            &mut self,
            _cx: &mut Context<'_>,
            _packets: &mut Vec<Packet>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    /// A host on which others have the first two of the free ports.
    #[derive(Debug)]
    struct Shared;

    impl Underlay for Shared {
        fn listens_at(&self, local: SocketAddr) -> SocketAddr {
            local
        }

        fn expose(&self, port: u16, _is_held: bool) -> io::Result<()> {
            if port < FIRST_FREE_PORT + 2 { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(()) }
        }
    }

    #[tokio::test]
    async fn a_listener_that_asks_for_no_port_gets_one_that_nobody_has() {
        let stack = Stack::start(HostConfig::default(), Nowhere, [Nowhere]).expect("a stack");
        stack.set_underlay(Box::new(Shared));
        let at = |port: u16| SocketAddr::from(([0; 4], port));
        let listeners = [0, 0].map(|port| stack.listen(at(port)).expect("a listener"));
        let ports = listeners.each_ref().map(|listener| listener.local_addr().port());
        assert_eq!(ports, [FIRST_FREE_PORT + 2, FIRST_FREE_PORT + 3]);
        // Whoever asks for one that somebody has is told.
        let taken = stack.listen(at(FIRST_FREE_PORT)).expect_err("somebody else has it");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn connections_start_at_the_first_path_again_once_it_is_back() {
        let path = |id| LocalEndpoint::subflow([10, 0, 0, id].into(), id);
        let config = HostConfig { endpoints: vec![path(1), path(2)], ..HostConfig::default() };
        let stack = Stack::start(config, Nowhere, [Nowhere]).expect("a stack");
        let remote = ([192, 0, 2, 1], 80).into();
        let starts_at =
            |id| stack.shared.peek(|state| state.first_path(remote).expect("a path") == path(id).addr);
        assert!(starts_at(1));
        stack.remove_path(path(1).addr);
        assert!(starts_at(2));
        stack.add_path(path(1));
        assert!(starts_at(1));
    }

    #[tokio::test]
    async fn settings_of_a_connection_do_not_make_packets_larger_than_the_stacks() {
        let of_mtu = |mtu_bytes| {
            let mut config = ConnectionConfig::default();
            Arc::make_mut(&mut config.tcp).mtu_bytes = mtu_bytes;
            Arc::new(config)
        };
        let config = HostConfig { connection: of_mtu(1400), ..HostConfig::default() };
        let stack = Stack::start(config, Nowhere, [Nowhere]).expect("a stack");
        for (asked, given) in [(1500, 1400), (1400, 1400), (1300, 1300)] {
            let fitted = stack.shared.peek(|state| state.fit(of_mtu(asked)));
            assert_eq!(fitted.tcp.mtu_bytes, given);
        }
    }
}
