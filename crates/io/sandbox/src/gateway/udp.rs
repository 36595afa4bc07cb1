//! UDP: a socket outside for each flow of the program, as a NAT keeps a port.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polypath_wire::{Datagram, IpHeader, Packet, Payload, Transport};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::Instant;

use super::ends::Ends;
use super::{Gateway, icmp};

/// Flows at a time; beyond them the one that has been quiet for longest ends.
const MAX_FLOWS: usize = 4096;
/// How long a flow may be quiet (RFC 4787 §4.3 asks for two minutes at least)...
const IDLE_LIMIT: Duration = Duration::from_secs(180);
/// ...and one to a name server, which is a question and an answer.
const DNS_IDLE_LIMIT: Duration = Duration::from_secs(20);
/// The largest datagram.
const MAX_DATAGRAM_BYTES: usize = 65_535;

#[derive(Default)]
pub(super) struct Flows(HashMap<Ends, Flow>);

struct Flow {
    socket: Rc<UdpSocket>,
    task: AbortHandle,
    last_used: Instant,
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A datagram came from the program.
pub(super) fn handle(gateway: &Rc<Gateway>, ip: &IpHeader, datagram: &Datagram) {
    let ends = Ends {
        program: SocketAddr::new(ip.src, datagram.src_port),
        remote: SocketAddr::new(ip.dst, datagram.dst_port),
    };
    if ip.dst.is_multicast() || ip.dst == std::net::IpAddr::V4(Ipv4Addr::BROADCAST) {
        // Nobody outside is in the program's network.
        return;
    }
    if !gateway.state.borrow().datagrams.0.contains_key(&ends)
        && let Err(error) = open(gateway, ends)
    {
        gateway.say(format_args!("{} (UDP): {error}", ends.remote));
        return refuse(gateway, ends, &error);
    }
    let mut state = gateway.state.borrow_mut();
    let Some(flow) = state.datagrams.0.get_mut(&ends) else { return };
    flow.last_used = Instant::now();
    let payload: Bytes = match datagram.payload.slices() {
        [] => Bytes::new(),
        [slice] => slice.clone(),
        slices => slices.concat().into(),
    };
    let socket = SockRef::from(&*flow.socket);
    // The first call may tell of an earlier datagram; what the second refuses is lost, as any datagram may be.
    if let Err(error) = socket.send(&payload)
        && error.kind() != io::ErrorKind::WouldBlock
    {
        let _ = socket.send(&payload);
        drop(state);
        refuse(gateway, ends, &error);
    }
}

fn open(gateway: &Rc<Gateway>, ends: Ends) -> io::Result<()> {
    let (destination, _) = gateway.outside(ends.remote);
    let any: SocketAddr = match destination {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect(destination)?;
    socket.set_nonblocking(true)?;
    let socket = Rc::new(UdpSocket::from_std(socket)?);
    let task = spawn_local(receive(gateway.clone(), socket.clone(), ends)).abort_handle();
    let flows = &mut gateway.state.borrow_mut().datagrams.0;
    if flows.len() >= MAX_FLOWS {
        let quietest = flows.iter().min_by_key(|(_, flow)| flow.last_used).map(|(ends, _)| *ends);
        quietest.map(|ends| flows.remove(&ends));
    }
    flows.insert(ends, Flow { socket, task, last_used: Instant::now() });
    Ok(())
}

/// Takes what comes back to the program, until nothing comes or goes any more.
async fn receive(gateway: Rc<Gateway>, socket: Rc<UdpSocket>, ends: Ends) {
    let limit = if ends.remote.port() == 53 { DNS_IDLE_LIMIT } else { IDLE_LIMIT };
    let mut buffer = BytesMut::new();
    let mut quiet_until = Instant::now() + limit;
    loop {
        match tokio::time::timeout_at(quiet_until, socket.ready(Interest::READABLE | Interest::ERROR)).await {
            Ok(Ok(ready)) if ready.is_error() => {
                if let Ok(Some(error)) = socket.take_error() {
                    refuse(&gateway, ends, &error);
                }
                // It was told; the next one makes the socket ready again.
                let _ = socket.try_io(Interest::ERROR, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                continue;
            }
            Ok(Ok(_)) => {}
            Ok(Err(_)) => break,
            Err(_) => {
                let last_used = gateway.state.borrow().datagrams.0.get(&ends).map(|flow| flow.last_used);
                match last_used.map(|at| at + limit) {
                    Some(until) if until > Instant::now() => quiet_until = until,
                    _ => break,
                }
                continue;
            }
        }
        buffer.reserve(MAX_DATAGRAM_BYTES);
        match socket.try_recv_buf(&mut buffer) {
            Ok(_) => {
                quiet_until = Instant::now() + limit;
                deliver(&gateway, ends, buffer.split().freeze());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => refuse(&gateway, ends, &error),
        }
    }
    gateway.state.borrow_mut().datagrams.0.remove(&ends);
}

fn deliver(gateway: &Gateway, ends: Ends, payload: Bytes) {
    let datagram = Datagram {
        src_port: ends.remote.port(),
        dst_port: ends.program.port(),
        payload: Payload::from(payload),
    };
    let ip = IpHeader::new(ends.remote.ip(), ends.program.ip());
    gateway.state.borrow_mut().give(Packet { ip, transport: Transport::Udp(datagram) });
}

/// Tells the program what the outside says of its datagrams.
fn refuse(gateway: &Gateway, ends: Ends, error: &io::Error) {
    let code = match error.kind() {
        io::ErrorKind::ConnectionRefused => icmp::Unreachable::Port,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable => icmp::Unreachable::Network,
        io::ErrorKind::HostUnreachable => icmp::Unreachable::Host,
        _ => return,
    };
    let message = icmp::unreachable(code, ends);
    gateway.state.borrow_mut().transmit.transmit_bytes(&message);
}
