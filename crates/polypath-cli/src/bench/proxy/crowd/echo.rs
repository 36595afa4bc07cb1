//! The server behind the proxy: what comes goes back. A process of its own, for a process has only so many descriptors.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use polypath_system::process::raise_descriptor_limit;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

pub(super) const PORT: u16 = 7;
/// Connections that may wait.
const BACKLOG: i32 = 4096;
/// Taken over at once; small, for there are many.
const BUFFER_BYTES: usize = 16 << 10;
/// Of a socket, each way; the kernel takes twice as much. Clients, proxy and server have one machine's memory for TCP, and this is about what the proxy
/// needs of it.
const SOCKET_BYTES: usize = 64 << 10;

/// This program, as the server.
pub(super) fn command() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "proxy-echo"]);
    Ok(command)
}

/// Until it is killed.
pub(crate) fn serve() -> io::Result<()> {
    raise_descriptor_limit();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let multipath = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
        let socket = multipath.or_else(|_| Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)))?;
        socket.set_recv_buffer_size(SOCKET_BYTES)?;
        socket.set_send_buffer_size(SOCKET_BYTES)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from_std(socket.into())?;
        loop {
            // A client that has gone before is its own affair.
            if let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo(stream));
            }
        }
    })
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reading, mut writing) = stream.split();
    // Nothing is held for who is silent.
    loop {
        reading.readable().await?;
        let mut block = Vec::with_capacity(BUFFER_BYTES);
        match reading.try_read_buf(&mut block) {
            Ok(0) => break,
            Ok(_) => writing.write_all(&block).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    writing.shutdown().await
}
