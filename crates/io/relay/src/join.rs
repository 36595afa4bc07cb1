//! Joins a program's socket with one of ours, over the loopback interface.
//!
//! The program's socket connects to a listener whose filter drops everything, so it stays connecting, for `poll` too,
//! until a socket of ours opens the same connection from the other side (simultaneous open, RFC 9293 §3.5). So every
//! call on the program's socket does what it does on any TCP socket, and the kernel copies and limits what is under way.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

/// Where programs' sockets connect to.
#[derive(Debug)]
pub(super) struct Hub {
    v4: Socket,
    /// A system may lack IPv6.
    v6: Option<Socket>,
}

/// A program's socket that is connecting: where to, and from where.
#[derive(Debug)]
pub(super) struct Meeting {
    hub: SocketAddr,
    /// The same, in the family of the program's socket.
    to: SocketAddr,
    at: SocketAddr,
    program: OwnedFd,
}

/// Where the flags are in a TCP header, and those of a SYN and an RST.
const FLAGS: u32 = 13;
const SYN_OR_RST: u32 = 0x02 | 0x04;

fn open(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    // Ours that open connections from the hub's port share it. Nobody else's may: the kernel asks for the same user.
    socket.set_reuse_port(true)?;
    Ok(socket)
}

fn drop_everything(socket: &Socket) -> io::Result<()> {
    let keep_nothing = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
    socket.attach_filter(&[keep_nothing])
}

fn listen(domain: Domain, at: SocketAddr) -> io::Result<Socket> {
    let socket = open(domain)?;
    drop_everything(&socket)?;
    socket.bind(&at.into())?;
    socket.listen(1)?;
    Ok(socket)
}

fn own_address(socket: &SockRef<'_>) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

impl Hub {
    pub(super) fn open() -> io::Result<Self> {
        let v4 = listen(Domain::IPV4, (Ipv4Addr::LOCALHOST, 0).into()).map_err(|error| {
            io::Error::new(error.kind(), format!("can't use the loopback address: {error}"))
        })?;
        let v6 = listen(Domain::IPV6, (Ipv6Addr::LOCALHOST, 0).into()).ok();
        Ok(Self { v4, v6 })
    }

    /// Makes a program's socket, which must not be connected yet, connecting.
    pub(super) fn begin(&self, program: &SockRef<'_>) -> io::Result<Meeting> {
        let is_v4 = program.domain()? == Domain::IPV4;
        let takes_v4 = is_v4 || !program.only_v6()? && !is_bound_to_v6(program);
        let (hub, to) = if takes_v4 {
            let hub = own_address(&SockRef::from(&self.v4))?;
            let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), hub.port()));
            (hub, if is_v4 { hub } else { mapped })
        } else {
            let hub = self.v6.as_ref().ok_or(io::ErrorKind::AddrNotAvailable)?;
            let hub = own_address(&SockRef::from(hub))?;
            (hub, hub)
        };
        let is_blocking = !program.nonblocking()?;
        if is_blocking {
            program.set_nonblocking(true)?;
        }
        let begun = program.connect(&to.into());
        if is_blocking {
            program.set_nonblocking(false)?;
        }
        match begun {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => {
                let at = own_address(program)?;
                Ok(Meeting { hub, to, at, program: program.as_fd().try_clone_to_owned()? })
            }
        }
    }
}

fn is_bound_to_v6(program: &SockRef<'_>) -> bool {
    own_address(program).is_ok_and(|at| at.is_ipv6() && !at.ip().is_unspecified())
}

/// Waits until a blocking program's socket, which is connecting to `to`, is connected: as long as its own time limit says,
/// as the kernel does it.
pub(super) fn wait(program: &SockRef<'_>, to: SocketAddr) -> io::Result<()> {
    loop {
        match program.connect(&to.into()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The time is over. It was the first call that the program made.
            Err(error) if error.raw_os_error() == Some(libc::EALREADY) => {
                return Err(io::Error::from_raw_os_error(libc::EINPROGRESS));
            }
            result => return result,
        }
    }
}

/// Undoes what [`Meeting::refuse`] left at a program's socket, so that it can connect again.
pub(super) fn forget_refusal(program: &SockRef<'_>) {
    // None is there if the refusal did not get so far.
    let _ = program.detach_filter();
}

impl Meeting {
    pub(super) fn program(&self) -> SockRef<'_> {
        SockRef::from(&self.program)
    }

    /// Where the program's socket is connecting to.
    pub(super) fn to(&self) -> SocketAddr {
        self.to
    }

    /// Opens the connection from our side: the program's socket is connected, if it is still there.
    pub(super) async fn complete(&self) -> io::Result<TcpStream> {
        let socket = open(Domain::for_address(self.hub))?;
        socket.bind(&self.hub.into())?;
        let ours = TcpSocket::from_std_stream(socket.into()).connect(self.at).await?;
        ours.set_nodelay(true)?;
        Ok(ours)
    }

    /// Makes connecting fail: the program's socket is reset without having been connected for a moment.
    pub(super) async fn refuse(self) -> io::Result<()> {
        // It gets our SYN and our RST, but not the ACK between them, which would connect it.
        SockRef::from(&self.program).attach_filter(&[
            SockFilter::new((libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16, 0, 0, FLAGS),
            SockFilter::new((libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16, 0, 1, SYN_OR_RST),
            SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, u32::MAX),
            SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0),
        ])?;
        reset(self.complete().await?);
        Ok(())
    }
}

/// A socket of ours that is to connect to a program's listener, and its address, by which the program's accepted socket
/// is known again.
pub(super) fn caller(listener: SocketAddr) -> io::Result<(TcpSocket, SocketAddr)> {
    let domain = Domain::for_address(listener);
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(listener.ip(), 0).into())?;
    let at = own_address(&SockRef::from(&socket))?;
    Ok((TcpSocket::from_std_stream(socket.into()), at))
}

/// Where a program's listener is reached from this machine.
pub(super) fn reached_at(listener: &SockRef<'_>) -> io::Result<SocketAddr> {
    let mut at = own_address(listener)?;
    if at.ip().is_unspecified() {
        // A listener for both families takes IPv4 too.
        let is_only_v6 = at.is_ipv6() && listener.only_v6()?;
        at.set_ip(if is_only_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() });
    }
    Ok(at)
}

/// Ends a connection to a program's socket so that it sees a reset.
pub(super) fn reset(ours: TcpStream) {
    // If it can't be set, an end is all that the program sees.
    let _ = SockRef::from(&ours).set_linger(Some(std::time::Duration::ZERO));
}
