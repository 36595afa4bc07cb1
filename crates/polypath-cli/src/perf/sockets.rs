//! Options of data connections, and the sockets of UDP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use polypath_stack::engine::{SocketOptions, Stream};
use polypath_tcp::ConnectionOption;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::Error;
use super::control::PATIENCE;
use super::datagram::{HELLO, answer, is_welcome};
use super::parameters::Parameters;

/// How long an answer may take before the word is sent again.
const AGAIN: Duration = Duration::from_secs(1);

/// What the kernel's sockets are to be set to before they connect.
pub(super) fn before_connecting(parameters: &Parameters) -> SocketOptions {
    SocketOptions {
        mss_bytes: parameters.mss_bytes.map(u32::from),
        buffer_bytes: parameters.window_bytes.and_then(|bytes| usize::try_from(bytes).ok()),
        tos: Some(parameters.tos).filter(|tos| *tos > 0),
    }
}

/// What can be set on a data connection that is open: everything else was taken from the options of the connection.
pub(super) fn prepare(stream: &Stream, parameters: &Parameters) -> Result<(), Error> {
    let failed = |option| move |source| Error::Option { option, source };
    match stream {
        Stream::Kernel(stream) => {
            let socket = SockRef::from(stream.as_tokio());
            if parameters.no_delay {
                socket.set_tcp_nodelay(true).map_err(failed("--no-delay"))?;
            }
            // A connection that was accepted has its segments, and its window's scale.
            let options = SocketOptions { mss_bytes: None, ..before_connecting(parameters) };
            options.set(&socket).map_err(failed("--window or --tos"))?;
            if let Some(name) = &parameters.congestion {
                stream
                    .set_congestion(name)
                    .map_err(|source| Error::Congestion { name: name.clone(), source })?;
            }
        }
        Stream::Stack(stream) => {
            if parameters.no_delay {
                stream.set_option(ConnectionOption::NoDelay(true));
            }
            if let Some(bytes) = parameters.window_bytes {
                stream.set_option(ConnectionOption::SendBufferBytes(bytes));
                stream.set_option(ConnectionOption::ReceiveBufferBytes(bytes));
            }
        }
        _ => {}
    }
    Ok(())
}

fn datagram_socket(at: SocketAddr, parameters: &Parameters) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    // The sockets of a server share its port.
    socket.set_reuse_address(true)?;
    if at.is_ipv6() && at.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    SocketOptions { mss_bytes: None, ..before_connecting(parameters) }.set(&SockRef::from(&socket))?;
    socket.bind(&at.into())?;
    UdpSocket::from_std(socket.into())
}

/// Opens a stream of datagrams to a server.
pub(super) async fn connect(
    server: SocketAddr,
    local: Option<IpAddr>,
    parameters: &Parameters,
) -> io::Result<UdpSocket> {
    let any = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = datagram_socket(SocketAddr::new(local.unwrap_or(any), 0), parameters)?;
    socket.connect(server).await?;
    let answered = async {
        loop {
            socket.send(&HELLO).await?;
            let mut word = [0; 64];
            // Else it is data of a server that has begun already, or nothing.
            if let Ok(length) = timeout(AGAIN, socket.recv(&mut word)).await
                && is_welcome(&word[..length?])
            {
                return Ok::<_, io::Error>(());
            }
        }
    };
    let silent = || io::Error::new(io::ErrorKind::TimedOut, "no answer to the first datagram");
    timeout(PATIENCE, answered).await.unwrap_or_else(|_| Err(silent()))?;
    Ok(socket)
}

/// Where streams of datagrams arrive at a server.
#[derive(Debug)]
pub(super) struct Door {
    at: SocketAddr,
    socket: UdpSocket,
}

impl Door {
    pub(super) fn open(at: SocketAddr, parameters: &Parameters) -> io::Result<Self> {
        Ok(Self { at, socket: datagram_socket(at, parameters)? })
    }

    /// The next stream from a client. What others send, and words that open none, are dropped: nobody has datagrams sent to a third.
    pub(super) async fn next(&mut self, client: IpAddr, parameters: &Parameters) -> io::Result<UdpSocket> {
        loop {
            let mut word = [0; 64];
            let (length, peer) = self.socket.recv_from(&mut word).await?;
            if peer.ip().to_canonical() != client.to_canonical() {
                continue;
            }
            let Some(answer) = answer(&word[..length]) else { continue };
            self.socket.connect(peer).await?;
            let next = datagram_socket(self.at, parameters)?;
            let socket = std::mem::replace(&mut self.socket, next);
            socket.send(&answer).await?;
            return Ok(socket);
        }
    }
}
