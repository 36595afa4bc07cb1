//! Joins a program's socket with one of ours, over the loopback interface.
//!
//! The program's socket connects to a listener that answers nothing, so it stays connecting, for `poll` too, until a
//! socket of ours opens the same connection from the other side (simultaneous open, RFC 9293 §3.5). So every call on the
//! program's socket does what it does on any TCP socket, and the kernel copies and limits what is under way.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

/// Where programs' sockets connect to.
#[derive(Debug)]
pub(super) struct Hub {
    v4: SilentListener,
    /// A system may lack IPv6.
    v6: Option<SilentListener>,
}

/// A listener that takes no connection.
#[derive(Debug)]
struct SilentListener {
    socket: Socket,
    /// The connection that fills its queue, where a filter is not allowed.
    _filling: Option<Socket>,
}

/// How long a connection within this machine may take.
const FILLING: Duration = Duration::from_secs(5);

/// So often it is looked whether there are descriptors again.
const SCARCITY_WAIT: Duration = Duration::from_millis(20);

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

impl SilentListener {
    fn open(domain: Domain, at: SocketAddr) -> io::Result<Self> {
        let socket = open(domain)?;
        match drop_everything(&socket) {
            // Some kernels let only the privileged filter what TCP sockets get.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Self::filled(domain, at),
            result => {
                result?;
                socket.bind(&at.into())?;
                socket.listen(1)?;
                Ok(Self { socket, _filling: None })
            }
        }
    }

    /// Without a filter: its queue has room for one connection, and once that is there, the kernel drops every SYN.
    fn filled(domain: Domain, at: SocketAddr) -> io::Result<Self> {
        let socket = open(domain)?;
        socket.bind(&at.into())?;
        socket.listen(0)?;
        let filling = fill(&socket, domain)?;
        Ok(Self { socket, _filling: Some(filling) })
    }

    fn address(&self) -> io::Result<SocketAddr> {
        own_address(&SockRef::from(&self.socket))
    }
}

/// Puts a connection into a listener's queue, and gives its other end.
fn fill(listener: &Socket, domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    let at = own_address(&SockRef::from(listener))?;
    socket.connect_timeout(&at.into(), FILLING)?;
    // It is in the queue when the listener gets its last acknowledgment, which is after the other end is connected.
    let mut queue = [PollFd::new(listener, PollFlags::IN)];
    let wait = Timespec::try_from(FILLING).map_err(io::Error::other)?;
    match rustix::io::retry_on_intr(|| rustix::event::poll(&mut queue, Some(&wait)))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(socket),
    }
}

fn own_address(socket: &SockRef<'_>) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

impl Hub {
    pub(super) fn open() -> io::Result<Self> {
        let v4 = SilentListener::open(Domain::IPV4, (Ipv4Addr::LOCALHOST, 0).into())
            .map_err(|error| polypath_system::in_context("can't use the loopback address", error))?;
        let v6 = SilentListener::open(Domain::IPV6, (Ipv6Addr::LOCALHOST, 0).into()).ok();
        Ok(Self { v4, v6 })
    }

    /// Makes a program's socket, which must not be connected yet, connecting.
    pub(super) fn begin(&self, program: &SockRef<'_>) -> io::Result<Meeting> {
        let is_v4 = program.domain()? == Domain::IPV4;
        let takes_v4 = is_v4 || !program.only_v6()? && !is_bound_to_v6(program);
        let (hub, to) = if takes_v4 {
            let hub = self.v4.address()?;
            let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), hub.port()));
            (hub, if is_v4 { hub } else { mapped })
        } else {
            let hub = self.v6.as_ref().ok_or(io::ErrorKind::AddrNotAvailable)?;
            let hub = hub.address()?;
            (hub, hub)
        };
        // First: without it there is no connection.
        let held = program.as_fd().try_clone_to_owned()?;
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
                Ok(Meeting { hub, to, at, program: held })
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
    let error = loop {
        // Sending nothing waits as connecting does. But it never connects once more, if that has failed meanwhile.
        match program.send_with_flags(&[], libc::MSG_NOSIGNAL) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
            // For the kernel the program has been told only now.
            Ok(_) => return program.connect(&to.into()),
        }
    };
    Err(match error.kind() {
        // The time is over. It was the first call that the program made.
        io::ErrorKind::WouldBlock => io::Error::from_raw_os_error(libc::EINPROGRESS),
        io::ErrorKind::BrokenPipe => io::ErrorKind::ConnectionReset.into(),
        _ => error,
    })
}

/// Undoes what [`Meeting::refuse`] left at a program's socket, so that it can connect again. True if the program was not
/// told yet that its last attempt has failed.
pub(super) fn forget_refusal(program: &SockRef<'_>) -> bool {
    // None is there if the refusal did without.
    let _ = program.detach_filter();
    program.take_error().is_ok_and(|error| error.is_some())
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

    /// Makes connecting fail: the program's socket is reset without having been connected for a moment. Takes no descriptor.
    pub(super) async fn refuse(self) -> io::Result<()> {
        let program = self.program();
        if own_address(&program)? != self.at || program.peer_addr().is_ok() {
            // The program has put it to another use.
            return Ok(());
        }
        match rustix::net::connect_unspec(&self.program) {
            // Linux 6.4 to 6.6 don't while a thread waits.
            Err(Errno::BUSY) => self.reset_unseen().await,
            result => Ok(result?),
        }
    }

    async fn reset_unseen(&self) -> io::Result<()> {
        // It gets our SYN and our RST, but not the ACK between them, which would connect it.
        self.program().attach_filter(&[
            SockFilter::new((libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16, 0, 0, FLAGS),
            SockFilter::new((libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16, 0, 1, SYN_OR_RST),
            SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, u32::MAX),
            SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0),
        ])?;
        reset(self.complete().await?);
        Ok(())
    }
}

/// What `open` gives. Where descriptors have run out, it waits until there are some.
pub(super) async fn when_there_is_room<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        match open() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                tokio::time::sleep(SCARCITY_WAIT).await;
            }
            result => return result,
        }
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
    let _ = SockRef::from(&ours).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One with and one without a filter, where filters are allowed.
    fn hubs() -> [Hub; 2] {
        let filled = |domain, at: std::net::IpAddr| SilentListener::filled(domain, (at, 0).into());
        let v4 = filled(Domain::IPV4, Ipv4Addr::LOCALHOST.into()).expect("a listener");
        let v6 = filled(Domain::IPV6, Ipv6Addr::LOCALHOST.into()).ok();
        [Hub::open().expect("the loopback interface"), Hub { v4, v6 }]
    }

    fn program(is_nonblocking: bool) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).expect("a socket");
        socket.set_nonblocking(is_nonblocking).expect("a mode");
        socket
    }

    fn seen(program: &Socket) -> PollFlags {
        let mut polled = [PollFd::new(program, PollFlags::OUT | PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())).expect("what is seen");
        polled[0].revents()
    }

    #[tokio::test]
    async fn a_socket_is_connecting_until_the_stack_says_how_it_went() {
        for hub in hubs() {
            let (connected, refused) = (program(true), program(true));
            let [first, second] =
                [&connected, &refused].map(|program| hub.begin(&SockRef::from(program)).expect("begun"));
            assert!(seen(&connected).is_empty() && seen(&refused).is_empty());
            let ours = first.complete().await.expect("the other side");
            assert_eq!(seen(&connected), PollFlags::OUT);
            assert_eq!(connected.peer_addr().expect("a peer").as_socket(), ours.local_addr().ok());
            second.refuse().await.expect("it is reset");
            assert!(seen(&refused).contains(PollFlags::ERR | PollFlags::OUT));
            // It is told once, and can connect again then.
            assert!(forget_refusal(&SockRef::from(&refused)) && !forget_refusal(&SockRef::from(&refused)));
            let third = hub.begin(&SockRef::from(&refused)).expect("begun");
            third.complete().await.expect("the other side");
            assert!(seen(&refused).contains(PollFlags::OUT));
        }
    }

    #[tokio::test]
    async fn a_blocking_socket_learns_of_a_refusal_before_and_after_it_waits() {
        for hub in hubs() {
            let program = std::sync::Arc::new(program(false));
            let meeting = hub.begin(&SockRef::from(&*program)).expect("begun");
            let to = meeting.to();
            meeting.refuse().await.expect("it is reset");
            let error = wait(&SockRef::from(&*program), to).expect_err("it was refused");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            let meeting = hub.begin(&SockRef::from(&*program)).expect("begun");
            let waiting = program.clone();
            let waiting = std::thread::spawn(move || wait(&SockRef::from(&*waiting), to));
            meeting.complete().await.expect("the other side");
            waiting.join().expect("no panic").expect("it is connected");
            assert!(program.peer_addr().is_ok());
        }
    }
}
