//! Connections that are opened to see what the network makes of them: with and without Multipath TCP, by each path.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use polypath_stack::engine::is_multipath;
use polypath_system::{Link, SystemState};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, Socket, Type};

use super::ask;

/// Three SYNs: the first, and what is sent again after one and two seconds.
///
/// Not longer: with the fourth the kernel gives Multipath TCP up, and then for all programs for an hour
/// (`net.mptcp.blackhole_timeout`).
const PATIENCE: Duration = Duration::from_millis(2800);

/// Where nobody listens, as traceroute assumes: the peer says so, which shows that the packet arrived.
const CLOSED_PORT: u16 = 33_434;
/// Times that a large packet is sent, and how long an answer is waited for.
const ATTEMPTS: u32 = 3;
const ANSWER: Duration = Duration::from_millis(400);

/// What became of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Open, with Multipath TCP.
    Multipath,
    /// Open, as plain TCP.
    Plain,
    /// The peer refused it.
    Refused,
    /// No answer came.
    Silent,
    /// The system could not even try.
    Failed(String),
}

/// How large packets may be on the way to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathMtu {
    /// As large as the interface sends.
    Whole,
    /// At most so many bytes.
    Bytes(u32),
    /// The peer does not tell.
    Unknown,
}

/// What was tried to an address of the peer by one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) remote: SocketAddr,
    pub(super) tcp: Outcome,
    /// Time that the peer took to answer.
    pub(super) answer_time: Duration,
    /// None if it was not tried: plain TCP failed, or the kernel has no Multipath TCP.
    pub(super) multipath: Option<Outcome>,
    pub(super) path_mtu: PathMtu,
}

/// What was tried by all paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Probed {
    /// For each of the links.
    pub(super) of_links: Vec<Vec<Probe>>,
    /// The kernel left Multipath TCP out, since it had been lost before.
    pub(super) is_given_up: bool,
}

impl Probed {
    pub(super) fn all(&self) -> impl Iterator<Item = &Probe> {
        self.of_links.iter().flatten()
    }

    /// Whether the peer showed by any path that it speaks Multipath TCP.
    pub(super) fn peer_speaks_multipath(&self) -> bool {
        self.all().any(|probe| probe.multipath == Some(Outcome::Multipath))
    }
}

/// Tries every path at once, in the calling thread's namespace.
pub(super) fn probe_all(state: &SystemState, links: &[&Link], peer: &[SocketAddr]) -> Probed {
    let firsts = [true, false].map(|is_v4| peer.iter().find(|addr| addr.is_ipv4() == is_v4));
    let firsts: Vec<SocketAddr> = firsts.into_iter().flatten().copied().collect();
    let given_up = ask::counter("MPCapableSYNTXDisabled");
    // Threads inherit the namespace.
    let of_links = thread::scope(|scope| {
        let running: Vec<Vec<_>> = links
            .iter()
            .map(|link| {
                let pairs = firsts.iter().filter_map(|remote| Some((local(state, link, *remote)?, *remote)));
                pairs.map(|(local, remote)| scope.spawn(move || probe(link, local, remote))).collect()
            })
            .collect();
        let finish = |probes: Vec<thread::ScopedJoinHandle<'_, Probe>>| {
            let finished = probes.into_iter().map(thread::ScopedJoinHandle::join);
            finished.map(|probe| probe.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        };
        running.into_iter().map(finish).collect()
    });
    Probed { of_links, is_given_up: ask::counter("MPCapableSYNTXDisabled") > given_up }
}

/// The address from which the peer is reached by a link, if it can be at all.
fn local(state: &SystemState, link: &Link, remote: SocketAddr) -> Option<IpAddr> {
    let is_v4 = remote.is_ipv4();
    let leads = |route: &polypath_system::Route| {
        route.link == link.index
            && route.destination.0.is_ipv4() == is_v4
            && contains(route.destination, remote.ip())
    };
    let is_reached = link.is_running && state.routes.iter().any(leads);
    link.addresses.iter().copied().find(|addr| addr.is_ipv4() == is_v4).filter(|_| is_reached)
}

fn contains((prefix, length): (IpAddr, u8), addr: IpAddr) -> bool {
    let shifted =
        |bits: u128, width: u8| bits.checked_shr(u32::from(width.saturating_sub(length))).unwrap_or(0);
    match (prefix, addr) {
        (IpAddr::V4(prefix), IpAddr::V4(addr)) => {
            shifted(prefix.to_bits().into(), 32) == shifted(addr.to_bits().into(), 32)
        }
        (IpAddr::V6(prefix), IpAddr::V6(addr)) => {
            shifted(prefix.to_bits(), 128) == shifted(addr.to_bits(), 128)
        }
        _ => false,
    }
}

fn probe(link: &Link, local: IpAddr, remote: SocketAddr) -> Probe {
    let began = Instant::now();
    let tcp = connect(link, local, remote, Protocol::TCP);
    let answer_time = began.elapsed();
    let multipath = (tcp == Outcome::Plain).then(|| {
        let first = connect(link, local, remote, Protocol::MPTCP);
        // Three SYNs can be lost by chance as well.
        if first == Outcome::Silent { connect(link, local, remote, Protocol::MPTCP) } else { first }
    });
    let is_missing = matches!(multipath, Some(Outcome::Failed(_)));
    let answers = matches!(tcp, Outcome::Plain | Outcome::Refused);
    let path_mtu = if answers { path_mtu(link, local, remote.ip()) } else { Ok(PathMtu::Unknown) };
    Probe {
        remote,
        tcp,
        answer_time,
        multipath: multipath.filter(|_| !is_missing),
        path_mtu: path_mtu.unwrap_or(PathMtu::Unknown),
    }
}

fn connect(link: &Link, local: IpAddr, remote: SocketAddr, protocol: Protocol) -> Outcome {
    let connected = socket(link, local, Type::STREAM, protocol).and_then(|socket| {
        socket.connect_timeout(&remote.into(), PATIENCE)?;
        Ok(if is_multipath(&socket) { Outcome::Multipath } else { Outcome::Plain })
    });
    connected.unwrap_or_else(|error| match error.kind() {
        ErrorKind::ConnectionRefused => Outcome::Refused,
        ErrorKind::TimedOut => Outcome::Silent,
        _ => Outcome::Failed(error.to_string()),
    })
}

fn socket(link: &Link, local: IpAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let local = SocketAddr::new(local, 0);
    let socket = Socket::new(Domain::for_address(local), kind, Some(protocol))?;
    socket.bind_device(Some(link.name.as_bytes()))?;
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Sends a packet as large as the interface takes, that must not be cut up on the way.
fn path_mtu(link: &Link, local: IpAddr, remote: IpAddr) -> io::Result<PathMtu> {
    let socket = socket(link, local, Type::DGRAM, Protocol::UDP)?;
    socket.connect(&SocketAddr::new(remote, CLOSED_PORT).into())?;
    socket.set_read_timeout(Some(ANSWER))?;
    let headers = if remote.is_ipv4() {
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
        20 + 8
    } else {
        sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
        40 + 8
    };
    let socket = UdpSocket::from(socket);
    let payload = vec![0; link.mtu_bytes.clamp(headers, 65_535).saturating_sub(headers) as usize];
    for _ in 0..ATTEMPTS {
        match socket.send(&payload).and_then(|_| socket.recv(&mut [0])) {
            // Somebody listens there after all.
            Ok(_) => return Ok(PathMtu::Whole),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(PathMtu::Whole),
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                let known =
                    if remote.is_ipv4() { sockopt::ip_mtu(&socket) } else { sockopt::ipv6_mtu(&socket) };
                return Ok(PathMtu::Bytes(known?));
            }
            Err(_) => {}
        }
    }
    Ok(PathMtu::Unknown)
}
