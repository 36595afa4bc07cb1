//! The other end of the program's only link: what comes out of the namespace is carried on from here.
//!
//! Everything runs on one thread: a driver reads packets and lets the TCP host speak, and each connection, datagram
//! flow and listener is a task beside it. State is borrowed only between two points where a task waits.

mod ends;
mod icmp;
mod outer;
mod resolver;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use polypath_stack::engine::{KernelEngine, Listener};
use polypath_stack::stack::Transmit;
use polypath_stack::tun::{TunReceive, TunTransmit};
use polypath_stack::{Engine, tun};
use polypath_system::WallClock;
use polypath_system::tun::Tun;
use polypath_tcp::{Host, HostConfig, ListenConfig};
use polypath_units::Instant;
use polypath_wire::{FourTuple, Packet, Transport};
use tokio::sync::Notify;
use tokio::task::spawn_local;

use super::ended::RunError;
use super::{DEVICE, Enclosure, Publish};

/// Buffer of each direction of a connection within this machine, in bytes: some round trips of a very fast link.
const BUFFER_BYTES: u64 = 1 << 20;
/// How long the program's last words may take after its end.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// What all tasks share.
struct Gateway {
    state: RefCell<State>,
    /// The host may have something to send, or an event.
    kick: Notify,
    /// A connection's way out of the program ended.
    drained: Notify,
    clock: WallClock,
    engine: Engine,
    host_loopback: Vec<IpAddr>,
}

struct State {
    transmit: TunTransmit,
    receive: Vec<TunReceive>,
    host: Host,
    /// Connections that the program has opened or is opening, as the host sees them.
    opened: HashMap<FourTuple, tcp::Opened>,
    slots: Vec<tcp::Slot>,
    /// Connections whose program's side may still send.
    sending: usize,
    datagrams: udp::Flows,
    echoes: icmp::Flows,
}

/// The running gateway.
pub(super) struct Running(Rc<Gateway>);

/// Starts it on the current [`tokio::task::LocalSet`]. `descriptors` are what the process inside has handed over.
pub(super) async fn start(
    enclosure: &Enclosure,
    engine: Engine,
    descriptors: Vec<OwnedFd>,
) -> Result<Running, RunError> {
    let system = |what| move |error| RunError::System { what, error };
    let mut descriptors = descriptors.into_iter();
    let device = descriptors
        .next()
        .ok_or_else(|| system("the namespace has no device")(io::ErrorKind::NotFound.into()))?;
    let (transmit, receive) =
        tun::split(&Tun::from_queue(DEVICE, device)).map_err(system("can't use the program's device"))?;
    let mut host = Host::new(host_config(enclosure.mtu_bytes), random_seed()?);
    let _ = host.listen_everywhere(ListenConfig { backlog: usize::MAX, backlog_per_source: usize::MAX });
    let state = State {
        transmit,
        receive,
        host,
        opened: HashMap::new(),
        slots: Vec::new(),
        sending: 0,
        datagrams: udp::Flows::default(),
        echoes: icmp::Flows::default(),
    };
    let gateway = Rc::new(Gateway {
        state: RefCell::new(state),
        kick: Notify::new(),
        drained: Notify::new(),
        clock: WallClock::starting_at(Instant::from_secs(1)),
        engine,
        host_loopback: enclosure.host_loopback.clone(),
    });
    for &Publish { addr, outside, inside } in &enclosure.publish {
        let listener = match addr {
            // Our own stack is at the uplinks' addresses; at a loopback address the system's own programs alone call.
            Some(addr) if addr.is_loopback() && matches!(gateway.engine, Engine::Stack(_)) => {
                KernelEngine::plain_tcp().listen((addr, outside).into()).map(Listener::Kernel)
            }
            Some(addr) => gateway.engine.listen((addr, outside).into()).await,
            None => gateway.engine.listen_everywhere(outside).await,
        };
        let listener = listener.map_err(|error| RunError::Publish { port: outside, error })?;
        spawn_local(tcp::publish(gateway.clone(), listener, inside));
    }
    for &resolver in &enclosure.resolvers {
        let (Some(datagrams), Some(listener)) = (descriptors.next(), descriptors.next()) else { break };
        let at = SocketAddr::new(resolver, 53);
        resolver::start(at, datagrams, listener).map_err(system("can't relay to the resolver"))?;
    }
    spawn_local(drive(gateway.clone()));
    Ok(Running(gateway))
}

/// A link that loses nothing, with large packets and next to no delay.
fn host_config(mtu_bytes: u16) -> HostConfig {
    let connection = polypath_tcp::Config {
        receive_buffer_bytes: BUFFER_BYTES,
        send_buffer_bytes: BUFFER_BYTES,
        mtu_bytes,
        pacing: false,
        mtu_probing: false,
        // A program with a send buffer of less than two of these large packets has one under way at a time, and its kernel holds
        // the next one back until the first is acknowledged (Nagle's algorithm).
        quick_ack_packets: u32::MAX,
        // The program's kernel keeps TIME-WAIT as well.
        time_wait: polypath_units::Duration::from_secs(2),
        ..Default::default()
    };
    HostConfig { connection: Arc::new(connection), max_connections: 1 << 16, ..Default::default() }
}

fn random_seed() -> Result<u64, RunError> {
    let mut seed = [0; 8];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| RunError::System { what: "no random numbers", error: error.into() })?;
    Ok(u64::from_ne_bytes(seed))
}

impl Running {
    /// Waits until what the program has sent before its end is handed to the engine.
    pub(super) async fn drain(self) {
        let all_sent = async {
            loop {
                let drained = self.0.drained.notified();
                if self.0.state.borrow().sending == 0 {
                    return;
                }
                drained.await;
            }
        };
        let _ = tokio::time::timeout(DRAIN_LIMIT, all_sent).await;
    }
}

/// Reads packets, runs the host's timers, sends what it wants to send.
async fn drive(gateway: Rc<Gateway>) {
    let mut batch = Vec::new();
    loop {
        gateway.flush();
        let due = gateway.state.borrow().host.poll_timeout();
        let wait = due.map_or(Duration::from_secs(3600), |at| (at - gateway.clock.now()).into());
        tokio::select! {
            read = gateway.read_batch(&mut batch) => {
                if let Err(error) = read {
                    gateway.say(format_args!("the program's device is gone: {error}"));
                    return;
                }
            }
            () = gateway.kick.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        gateway.state.borrow_mut().host.handle_timeout(gateway.clock.now());
        for packet in batch.drain(..) {
            gateway.handle(packet);
        }
    }
}

impl State {
    /// Gives a packet to the program's kernel. When its device is gone, reading from it says so.
    fn give(&mut self, packet: Packet) {
        let _ = self.transmit.transmit(packet);
    }
}

impl Gateway {
    async fn read_batch(&self, batch: &mut Vec<Bytes>) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            let receive = &mut self.state.borrow_mut().receive;
            let take = |packet| {
                batch.push(packet);
                true
            };
            match receive.first_mut() {
                Some(queue) => queue.poll_each(cx, take),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// A packet came out of the namespace.
    fn handle(self: &Rc<Self>, bytes: Bytes) {
        let Ok(packet) = polypath_system::tun::parse(bytes.clone()) else {
            icmp::handle(self, &bytes.slice(polypath_system::tun::VNET_HEADER_BYTES.min(bytes.len())..));
            return;
        };
        match packet.transport {
            Transport::Tcp(_) => tcp::handle(self, packet),
            Transport::Udp(datagram) => udp::handle(self, &packet.ip, &datagram),
            Transport::Icmp(_) => self.state.borrow_mut().host.handle_packet(self.clock.now(), packet),
        }
    }

    /// Sends what the host wants to send, and tells its events, until there is neither.
    fn flush(&self) {
        let state = &mut *self.state.borrow_mut();
        loop {
            let now = self.clock.now();
            while let Some(packet) = state.host.poll_transmit(now) {
                state.give(packet);
            }
            let Some((id, event)) = state.host.poll() else { return };
            tcp::handle_event(state, id, event);
        }
    }

    /// Where a destination of the program really is: the host's loopback interface for the addresses that stand for it.
    fn outside(&self, destination: SocketAddr) -> (SocketAddr, bool) {
        if !self.host_loopback.contains(&destination.ip()) {
            return (destination, false);
        }
        let loopback: IpAddr = match destination {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        (SocketAddr::new(loopback, destination.port()), true)
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        tracing::info!("{what}");
    }
}
