//! Sockets that listen already, handed down by who started the proxy, as systemd does for a socket unit (`LISTEN_FDS`).

use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;

use super::super::complain;

/// Held as long as the proxy runs, so that where clients enter can be closed and opened again.
#[derive(Debug, Default)]
pub(super) struct HandedDown(Vec<(SocketAddr, TcpListener)>);

impl HandedDown {
    /// Takes them out of the environment. To be called before there are threads, which might look there.
    pub(super) fn take() -> Self {
        let mut given = ListenFd::from_env();
        let sockets = (0..given.len()).filter_map(|number| {
            let taken = given.take_tcp_listener(number).and_then(|socket| {
                let socket = socket.ok_or(std::io::ErrorKind::NotFound)?;
                Ok((socket.local_addr()?, socket))
            });
            taken
                .map_err(|error| complain(&format!("a socket that was handed down is left alone: {error}")))
                .ok()
        });
        Self(sockets.collect())
    }

    /// A copy of the one that listens there.
    pub(super) fn at(&self, listen: SocketAddr) -> Option<std::io::Result<TcpListener>> {
        let (_, socket) = self.0.iter().find(|(at, _)| *at == listen)?;
        Some(socket.try_clone())
    }

    /// Where those listen that nobody enters by.
    pub(super) fn beside<'a>(&'a self, wanted: &'a [SocketAddr]) -> impl Iterator<Item = SocketAddr> + 'a {
        self.0.iter().map(|(at, _)| *at).filter(move |at| !wanted.contains(at))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
