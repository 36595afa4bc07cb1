//! ICMP: errors about datagrams, and ping.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use polypath_wire::{Checksum, Datagram, IncrementalSum, IpHeader, Packet, Payload, Transport};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, spawn_local};

use super::Gateway;
use super::ends::Ends;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Running pings at a time.
const MAX_FLOWS: usize = 64;
/// How long one may be quiet.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// Why a datagram did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreachable {
    Network,
    Host,
    Port,
}

impl Unreachable {
    /// Type and code (RFC 792; RFC 4443 §3.1).
    const fn numbers(self, is_v4: bool) -> (u8, u8) {
        match (self, is_v4) {
            (Self::Network, true) => (3, 0),
            (Self::Host, true) => (3, 1),
            (Self::Port, true) => (3, 3),
            (Self::Network, false) => (1, 0),
            (Self::Host, false) => (1, 3),
            (Self::Port, false) => (1, 4),
        }
    }
}

/// The packet that tells the sender of a flow's datagrams that they don't arrive.
pub(super) fn unreachable(why: Unreachable, ends: Ends) -> Vec<u8> {
    let datagram =
        Datagram { src_port: ends.program.port(), dst_port: ends.remote.port(), payload: Payload::EMPTY };
    let lost = Packet {
        ip: IpHeader::new(ends.program.ip(), ends.remote.ip()),
        transport: Transport::Udp(datagram),
    };
    let mut quote = Vec::new();
    lost.emit_header(&mut quote, Checksum::Partial);
    let (kind, code) = why.numbers(ends.program.is_ipv4());
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&quote);
    in_ip(ends.remote.ip(), ends.program.ip(), message)
}

/// An ICMP message, whose checksum is zero yet, as a packet.
fn in_ip(src: IpAddr, dst: IpAddr, mut message: Vec<u8>) -> Vec<u8> {
    let mut sum = IncrementalSum::new();
    let mut packet = Vec::with_capacity(40 + message.len());
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let length = ((20 + message.len()) as u16).to_be_bytes();
            packet.extend_from_slice(&[0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, ICMP, 0, 0]);
            packet.extend_from_slice(&src.octets());
            packet.extend_from_slice(&dst.octets());
            let mut header = IncrementalSum::new();
            header.push(&packet);
            packet[10..12].copy_from_slice(&header.finish().to_be_bytes());
        }
        (src, dst) => {
            let octets = |addr: IpAddr| match addr {
                IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
                IpAddr::V6(addr) => addr.octets(),
            };
            let length = (message.len() as u16).to_be_bytes();
            packet.extend_from_slice(&[0x60, 0, 0, 0, length[0], length[1], ICMPV6, 64]);
            packet.extend_from_slice(&octets(src));
            packet.extend_from_slice(&octets(dst));
            // The pseudo header (RFC 8200 §8.1).
            sum.push(&packet[8..40]);
            sum.push(&[0, 0, length[0], length[1], 0, 0, 0, ICMPV6]);
        }
    }
    sum.push(&message);
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    packet.extend_from_slice(&message);
    packet
}

/// An echo request of the program.
struct Echo {
    src: IpAddr,
    dst: IpAddr,
    /// The message, from its type on.
    message: Bytes,
}

impl Echo {
    fn parse(packet: &Bytes) -> Option<Self> {
        let (src, dst, at): (IpAddr, IpAddr, usize) = match packet.first()? >> 4 {
            4 if *packet.get(9)? == ICMP && packet.get(6)? & 0x3f == 0 && *packet.get(7)? == 0 => {
                let addr = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
                (addr(12)?, addr(16)?, usize::from(packet.first()? & 15) * 4)
            }
            6 if *packet.get(6)? == ICMPV6 => {
                let addr = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
                (addr(8)?, addr(24)?, 40)
            }
            _ => return None,
        };
        let request = if src.is_ipv4() { 8 } else { 128 };
        let is_echo = packet.len() >= at + 8 && *packet.get(at)? == request;
        (is_echo && !dst.is_multicast()).then(|| Self { src, dst, message: packet.slice(at..) })
    }

    fn identifier(&self) -> [u8; 2] {
        [self.message[4], self.message[5]]
    }
}

type Key = (IpAddr, [u8; 2]);

#[derive(Default)]
pub(super) struct Flows(HashMap<Key, Flow>);

struct Flow {
    socket: Rc<UdpSocket>,
    task: AbortHandle,
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A packet that is neither TCP nor UDP came from the program: an echo request, if it is of use.
pub(super) fn handle(gateway: &Rc<Gateway>, packet: &Bytes) {
    let Some(echo) = Echo::parse(packet) else { return };
    let key = (echo.dst, echo.identifier());
    let known = gateway.state.borrow().echoes.0.get(&key).map(|flow| flow.socket.clone());
    let socket = match known {
        Some(socket) => socket,
        None => match open(gateway, &echo, key) {
            Ok(socket) => socket,
            Err(error) => {
                gateway.say(format_args!(
                    "can't ping {} ({error}); sysctl net.ipv4.ping_group_range says which groups may",
                    echo.dst
                ));
                return;
            }
        },
    };
    // A request that is not taken is lost, as any may be.
    let _ = SockRef::from(&*socket).send(&echo.message);
}

/// A socket for echo requests: the kernel fills in an identifier of its own, and takes only the answers to it.
fn open(gateway: &Rc<Gateway>, echo: &Echo, key: Key) -> io::Result<Rc<UdpSocket>> {
    let (destination, _) = gateway.outside(SocketAddr::new(echo.dst, 0));
    let protocol = if echo.dst.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
    let socket = Socket::new(Domain::for_address(destination), Type::DGRAM.nonblocking(), Some(protocol))?;
    socket.connect(&destination.into())?;
    // To the type it is a datagram socket like others.
    let socket = Rc::new(UdpSocket::from_std(socket.into())?);
    let answers = receive(gateway.clone(), socket.clone(), key, echo.src);
    let task = spawn_local(answers).abort_handle();
    let flows = &mut gateway.state.borrow_mut().echoes.0;
    if flows.len() >= MAX_FLOWS {
        let any = flows.keys().next().copied();
        any.map(|key| flows.remove(&key));
    }
    flows.insert(key, Flow { socket: socket.clone(), task });
    Ok(socket)
}

async fn receive(gateway: Rc<Gateway>, socket: Rc<UdpSocket>, key: Key, program: IpAddr) {
    let mut message = vec![0; 65_535];
    while let Ok(received) = tokio::time::timeout(IDLE_LIMIT, socket.recv(&mut message)).await {
        // An error is about one request; the next may have more luck.
        let Some(answer) = received.ok().and_then(|length| message.get(..length)) else { continue };
        if let [kind, code, _, _, _, _, rest @ ..] = answer {
            let header = [*kind, *code, 0, 0, key.1[0], key.1[1]];
            let packet = in_ip(key.0, program, [&header, rest].concat());
            gateway.state.borrow_mut().transmit.transmit_bytes(&packet);
        }
    }
    gateway.state.borrow_mut().echoes.0.remove(&key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_valid_packets_of_both_families() {
        let ends = |program: &str, remote: &str| Ends {
            program: program.parse().unwrap(),
            remote: remote.parse().unwrap(),
        };
        let v4 = unreachable(Unreachable::Port, ends("198.18.0.2:5000", "192.0.2.1:53"));
        assert_eq!((v4.len(), v4[9], v4[20], v4[21]), (20 + 8 + 28, 1, 3, 3));
        let sum = |bytes: &[u8]| {
            let mut sum = IncrementalSum::new();
            sum.push(bytes);
            sum.finish()
        };
        assert_eq!((sum(&v4[..20]), sum(&v4[20..])), (0, 0));
        assert_eq!(&v4[48..52], &[0x13, 0x88, 0, 53]);

        let v6 = unreachable(Unreachable::Network, ends("[fd70::2]:5000", "[2001:db8::1]:53"));
        assert_eq!((v6.len(), v6[6], v6[40], v6[41]), (40 + 8 + 48, 58, 1, 0));
        let length = (v6.len() - 40) as u8;
        let checked = [&v6[8..40], &[0, 0, 0, length, 0, 0, 0, 58], &v6[40..]].concat();
        assert_eq!(sum(&checked), 0);
    }

    #[test]
    fn only_echo_requests_are_relayed() {
        let request = |kind| {
            let mut message = vec![kind, 0, 0, 0, 1, 2, 0, 1];
            message.extend_from_slice(b"data");
            Bytes::from(in_ip("198.18.0.2".parse().unwrap(), "192.0.2.1".parse().unwrap(), message))
        };
        let echo = Echo::parse(&request(8)).unwrap();
        assert_eq!((echo.identifier(), echo.dst), ([1, 2], "192.0.2.1".parse().unwrap()));
        assert!(Echo::parse(&request(0)).is_none());
        assert!(Echo::parse(&request(8).slice(..24)).is_none());
        assert!(Echo::parse(&Bytes::new()).is_none());
    }
}
