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
    pub async fn connect(&self, remote: SocketAddr, options: &ConnectOptions) -> io::Result<StackStream> {
        let dialled = self.shared.underlay(|underlay| underlay.dials(remote)).unwrap_or(remote);
        let only = self.shared.underlay(|underlay| underlay.starts_at(dialled)).transpose()?.flatten();
        let id = self.shared.with(|state, now| {
            let local = match (options.local, only) {
                (Some(local), _) => Endpoint::from(local),
                (None, Some(addr)) => Endpoint::new(addr, 0),
                (None, None) => Endpoint::new(state.first_path(dialled)?, 0),
            };
            let id = state
                .host
                .connect(now, local, dialled.into(), options.config.clone())
                .map_err(|error| io::Error::new(io::ErrorKind::AddrNotAvailable, error.to_string()))?;
            state.open(id);
            Ok::<_, io::Error>(id)
        })?;
        let stream = StackStream::new(self.clone(), id);
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
        local: Option<SocketAddr>,
        config: Option<Arc<ConnectionConfig>>,
        is_held: bool,
    ) -> io::Result<StackListener> {
        let own =
            local.map(|local| self.shared.underlay(|underlay| underlay.listens_at(local)).unwrap_or(local));
        let (id, local) = self.shared.with(|state, _| state.listen(own, config))?;
        let listener = StackListener::new(self.clone(), id, local);
        if own.is_some() {
            self.shared.underlay(|underlay| underlay.expose(local.port(), is_held)).transpose()?;
        }
        Ok(listener)
    }

    fn unreachable(&self, remote: SocketAddr) -> io::Error {
        let expected = self.expected_of_peers().map(|expected| format!("; expected {expected}"));
        let text = format!("nobody listens at {remote}, the network says{}", expected.unwrap_or_default());
        io::Error::new(io::ErrorKind::HostUnreachable, text)
    }
}
