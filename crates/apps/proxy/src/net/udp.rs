//! Datagrams of a client of SOCKS (RFC 1928 §7). They go by UDP alone, over the way that the system chooses.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connect::Connector;
use super::flow::{Flow, Way};
use super::leg::Leg;
use super::negotiate::say_farewell;
use super::session::Ending;
use super::shaped::{Held, Shaped};
use crate::failure::ConnectFailure;
use crate::negotiation::Negotiation;
use crate::socks::{DatagramHeader, Datagrams};
use crate::target::{Host, Target};
use crate::throttle::Direction;

/// The longest datagram there is.
const LONGEST: usize = 65_535;
/// How long datagrams wait for a name.
const LOOKUP: Duration = Duration::from_secs(5);
/// Datagrams of a client that wait for a name, at most. More are lost.
const MOST_WAITING: usize = 16;
/// Hosts that may answer a client: those that it wrote to last.
const MOST_ASKED: usize = 256;

/// What an association needs.
pub(super) struct Associating<'a, A> {
    pub(super) connector: &'a Connector,
    /// Whether a datagram for a target may go to that address of it, or to none that is known yet.
    pub(super) allows: A,
    pub(super) flow: &'a Flow,
}

impl<A: Fn(&Target, Option<IpAddr>) -> bool> Associating<'_, A> {
    /// Until the client ends its connection, which is how it ends the association.
    pub(super) async fn run(
        &self,
        mut stream: Leg,
        mut negotiation: impl Negotiation,
        expected: &Target,
        shaped: Shaped,
    ) -> Ending {
        let opened =
            if stream.is_of_kernel() { open(&stream).await } else { Err(io::ErrorKind::Unsupported.into()) };
        let Ok((inner, outer, client)) = opened else {
            say_farewell(&mut stream, &negotiation.handle_failed(ConnectFailure::Local)).await;
            return Ending::NotReached(ConnectFailure::Local);
        };
        let at = inner.local_addr().unwrap_or_else(|_| (client, 0).into());
        if stream.write_all(&negotiation.handle_connected(at)).await.is_err() {
            return Ending::Unasked;
        }
        let port = Some(expected.port).filter(|port| *port != 0);
        let (asked, datagrams, waiting) = (Asked::default(), Datagrams::default(), JoinSet::new());
        let mut association = Association { client, port, inner, outer, asked, datagrams, shaped, waiting };
        let mut rest = [0; 64];
        tokio::select! {
            ended = association.carry(self) => match ended {
                Ok(()) => Ending::Finished,
                Err(error) => Ending::ServerBroke(error.to_string().into()),
            },
            () = async { while let Ok(1..) = stream.read(&mut rest).await {} } => Ending::Finished,
        }
    }
}

/// A socket for the client, one for everybody else, and the client's address.
async fn open(stream: &Leg) -> io::Result<(UdpSocket, UdpSocket, IpAddr)> {
    let own = stream.local_addr()?.ip().to_canonical();
    let client = stream.peer_addr()?.ip().to_canonical();
    let inner = UdpSocket::bind((own, 0)).await?;
    let outer = match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await {
        Ok(socket) => socket,
        // No IPv6 here.
        Err(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?,
    };
    Ok((inner, outer, client))
}

/// Hosts that a client wrote to, the last ones.
#[derive(Debug, Default)]
struct Asked {
    hosts: BTreeSet<IpAddr>,
    order: VecDeque<IpAddr>,
}

impl Asked {
    fn add(&mut self, host: IpAddr) {
        if self.hosts.insert(host) {
            self.order.push_back(host);
        }
        if self.order.len() > MOST_ASKED
            && let Some(oldest) = self.order.pop_front()
        {
            self.hosts.remove(&oldest);
        }
    }
}

struct Association {
    client: IpAddr,
    /// The client's, once it is known.
    port: Option<u16>,
    inner: UdpSocket,
    outer: UdpSocket,
    asked: Asked,
    datagrams: Datagrams,
    shaped: Shaped,
    /// For the addresses of their targets. Others do not wait behind them.
    waiting: JoinSet<LookedUp>,
}

/// A datagram, and the addresses of its target.
type LookedUp = (Target, Bytes, Vec<IpAddr>);

impl Association {
    async fn carry<A: Fn(&Target, Option<IpAddr>) -> bool>(
        &mut self,
        by: &Associating<'_, A>,
    ) -> io::Result<()> {
        let (mut from_client, mut from_server) =
            (vec![0; LONGEST], vec![0; LONGEST + DatagramHeader::LONGEST]);
        loop {
            tokio::select! {
                received = self.inner.recv_from(&mut from_client) => {
                    let (count, source) = received?;
                    self.handle_from_client(by, &from_client[..count], source).await;
                }
                (direction, held) = poll_fn(|cx| self.shaped.poll(cx)) => {
                    self.handle_passed(direction, &held, by.flow).await;
                }
                Some(ended) = self.waiting.join_next() => {
                    let Ok((target, payload, addresses)) = ended else { continue };
                    self.send(by, &target, &payload, &addresses).await;
                }
                received = self.outer.recv_from(&mut from_server[DatagramHeader::LONGEST..]) => {
                    // A host that refuses a datagram is no end of the association.
                    let Ok((count, source)) = received else { continue };
                    self.handle_from_server(&mut from_server, count, source, by.flow).await;
                }
            }
        }
    }

    async fn handle_from_client<A: Fn(&Target, Option<IpAddr>) -> bool>(
        &mut self,
        by: &Associating<'_, A>,
        bytes: &[u8],
        source: SocketAddr,
    ) {
        let is_client =
            source.ip().to_canonical() == self.client && self.port.is_none_or(|port| port == source.port());
        if !is_client {
            return;
        }
        let Some(datagram) = self.datagrams.open(bytes) else { return };
        self.port = Some(source.port());
        let target = datagram.target;
        let name = match &target.host {
            Host::Address(address) => {
                return self.send(by, &target, datagram.payload, &[*address]).await;
            }
            Host::Name(name) => name.clone(),
        };
        if self.waiting.len() >= MOST_WAITING || !(by.allows)(&target, None) {
            return;
        }
        let (connector, payload) = (by.connector.clone(), Bytes::copy_from_slice(datagram.payload));
        self.waiting.spawn(async move {
            let found = timeout(LOOKUP, connector.addresses_of(&name)).await;
            (target, payload, found.unwrap_or_default())
        });
    }

    /// To the first of these addresses to which it may go.
    async fn send<A: Fn(&Target, Option<IpAddr>) -> bool>(
        &mut self,
        by: &Associating<'_, A>,
        target: &Target,
        payload: &[u8],
        addresses: &[IpAddr],
    ) {
        let allowed = addresses.iter().copied().find(|address| (by.allows)(target, Some(*address)));
        let Some(address) = allowed else { return };
        self.asked.add(address);
        let to = SocketAddr::new(address, target.port);
        if self.shaped.goes_up(target, to, payload) {
            self.send_up(payload, to, by.flow).await;
        } else {
            self.note_waiting(by.flow);
        }
    }

    async fn send_up(&self, payload: &[u8], to: SocketAddr, flow: &Flow) {
        if self.outer.send_to(payload, mapped(to, &self.outer)).await.is_ok() {
            flow.moved(Way::ToServer, payload.len());
        }
    }

    /// What limits hold back does not rest.
    fn note_waiting(&self, flow: &Flow) {
        if self.shaped.are_waiting() {
            flow.is_held_back();
        }
    }

    /// One that limits held back goes on.
    async fn handle_passed(&self, direction: Direction, held: &Held, flow: &Flow) {
        match direction {
            Direction::Up => self.send_up(&held.bytes, held.server, flow).await,
            Direction::Down => self.send_down(&held.bytes, held.count, flow).await,
        }
    }

    async fn handle_from_server(&mut self, buffer: &mut [u8], count: usize, source: SocketAddr, flow: &Flow) {
        let source = SocketAddr::new(source.ip().to_canonical(), source.port());
        if !self.asked.hosts.contains(&source.ip()) {
            return;
        }
        let header = DatagramHeader::new(source);
        let header = header.as_bytes();
        // Right before what was received.
        let begin = DatagramHeader::LONGEST - header.len();
        buffer[begin..DatagramHeader::LONGEST].copy_from_slice(header);
        let datagram = &buffer[begin..DatagramHeader::LONGEST + count];
        if self.shaped.goes_down(source, count, datagram) {
            self.send_down(datagram, count, flow).await;
        } else {
            self.note_waiting(flow);
        }
    }

    async fn send_down(&self, datagram: &[u8], count: usize, flow: &Flow) {
        let Some(port) = self.port else { return };
        if self.inner.send_to(datagram, (self.client, port)).await.is_ok() {
            flow.moved(Way::ToClient, count);
        }
    }
}

/// As a socket of both families writes it.
fn mapped(address: SocketAddr, socket: &UdpSocket) -> SocketAddr {
    match (address, socket.local_addr()) {
        (SocketAddr::V4(v4), Ok(SocketAddr::V6(_))) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        _ => address,
    }
}
