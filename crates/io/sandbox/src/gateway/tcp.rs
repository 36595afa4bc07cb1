//! TCP: each connection of the program is joined with one of the engine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use polypath_stack::engine::{ConnectOptions, KernelEngine, Listener, Stream};
use polypath_tcp::{CloseReason, ConnectionId, HostEvent, reset_in_reply};
use polypath_wire::{Endpoint, FourTuple, IcmpMessage, Packet, Payload, Segment, Transport};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::{Gateway, State, outer};
use crate::{GATEWAY_V4, GATEWAY_V6, PROGRAM_V4, PROGRAM_V6};

/// Connections of the program at a time; beyond them its kernel asks in vain, until others have ended.
const MAX_OPENED: usize = 32_768;
/// How long the program's kernel may take to answer.
const ACCEPT_LIMIT: Duration = Duration::from_secs(20);
/// Ports of the gateway's own address that connections to the program may come from.
const EPHEMERAL_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// A connection that the program opens, from its SYN on.
pub(super) enum Opened {
    /// The engine connects; the SYN waits.
    Connecting,
    /// The host has the SYN.
    Accepting(oneshot::Sender<ConnectionId>),
    /// It is the business of the host and the connection's task.
    Joined,
}

/// What is known of a connection of the host, and who waits for it.
#[derive(Default)]
pub(super) struct Slot {
    is_connected: bool,
    is_peer_finished: bool,
    closed: Option<CloseReason>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    watcher: Option<Waker>,
}

/// A TCP packet came from the program.
pub(super) fn handle(gateway: &Rc<Gateway>, packet: Packet) {
    let Transport::Tcp(segment) = &packet.transport else { return };
    let is_syn = segment.flags.syn() && !segment.flags.ack() && !segment.flags.rst();
    let mut state = gateway.state.borrow_mut();
    let Some(tuple) = packet.receiver_tuple() else { return };
    if !is_syn {
        state.host.handle_packet(gateway.clock.now(), packet);
        return;
    }
    match state.opened.get(&tuple) {
        Some(Opened::Connecting) => {}
        Some(_) => state.host.handle_packet(gateway.clock.now(), packet),
        None if state.opened.len() < MAX_OPENED => {
            state.opened.insert(tuple, Opened::Connecting);
            spawn_local(open(gateway.clone(), packet, tuple));
        }
        None => {}
    }
}

/// What the host tells of a connection.
pub(super) fn handle_event(state: &mut State, id: ConnectionId, event: HostEvent) {
    if let HostEvent::Accepted { .. } = event {
        make_slot(state, id);
        let opened = state.host.tuple(id).and_then(|tuple| state.opened.get_mut(&tuple));
        let task = match opened.map(|opened| std::mem::replace(opened, Opened::Joined)) {
            Some(Opened::Accepting(task)) => task.send(id).is_ok(),
            _ => false,
        };
        if !task {
            state.host.abort(id);
            state.host.release(id);
        }
        return;
    }
    let Some(slot) = state.slots.get_mut(id.index()) else { return };
    match event {
        HostEvent::Readable => wake(&mut slot.reader),
        HostEvent::Writable => wake(&mut slot.writer),
        HostEvent::PeerFinished => {
            slot.is_peer_finished = true;
            wake(&mut slot.reader);
        }
        HostEvent::Connected => {
            slot.is_connected = true;
            wake(&mut slot.watcher);
        }
        HostEvent::Closed(reason) => {
            slot.closed = Some(reason);
            wake(&mut slot.reader);
            wake(&mut slot.writer);
            wake(&mut slot.watcher);
        }
        HostEvent::Accepted { .. } => {}
    }
}

fn make_slot(state: &mut State, id: ConnectionId) {
    if state.slots.len() <= id.index() {
        state.slots.resize_with(id.index() + 1, Slot::default);
    }
    state.slots[id.index()] = Slot::default();
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// A connection from the program's SYN to its end.
async fn open(gateway: Rc<Gateway>, syn: Packet, tuple: FourTuple) {
    let destination = SocketAddr::new(tuple.local.addr, tuple.local.port);
    let outer = match connect(&gateway, destination).await {
        Ok(outer) => outer,
        Err(error) => {
            gateway.say(format_args!("{destination}: {error}"));
            let mut state = gateway.state.borrow_mut();
            state.opened.remove(&tuple);
            if let Some(answer) = refusal(&syn, tuple, &error) {
                state.give(answer);
            }
            return;
        }
    };
    let (task, accepted) = oneshot::channel();
    {
        let state = &mut *gateway.state.borrow_mut();
        state.opened.insert(tuple, Opened::Accepting(task));
        state.host.handle_packet(gateway.clock.now(), syn);
    }
    gateway.kick.notify_one();
    match tokio::time::timeout(ACCEPT_LIMIT, accepted).await {
        Ok(Ok(id)) => join(&gateway, id, outer, destination).await,
        // The program has given up meanwhile.
        _ => outer.abort(),
    }
    gateway.state.borrow_mut().opened.remove(&tuple);
}

async fn connect(gateway: &Gateway, destination: SocketAddr) -> io::Result<Stream> {
    let (destination, is_local) = gateway.outside(destination);
    let options = ConnectOptions::default();
    if is_local {
        return KernelEngine::plain_tcp().connect(destination, &options).await.map(Stream::Kernel);
    }
    gateway.engine.connect(destination, &options).await
}

/// What the program's kernel is told of a connection that could not be opened: what it would have seen itself.
fn refusal(syn: &Packet, tuple: FourTuple, error: &io::Error) -> Option<Packet> {
    use io::ErrorKind::{
        AddrNotAvailable, HostUnreachable, InvalidInput, NetworkUnreachable, PermissionDenied, TimedOut,
    };
    let Transport::Tcp(segment) = &syn.transport else { return None };
    let code = match error.kind() {
        NetworkUnreachable | AddrNotAvailable | InvalidInput => 0,
        HostUnreachable | TimedOut => 1,
        PermissionDenied => 13,
        _ => return reset_in_reply(segment).map(|reset| Packet::tcp(tuple, reset)),
    };
    let message = IcmpMessage::Unreachable { code, flow: tuple.reversed(), seq: segment.seq };
    let header = Packet::tcp(tuple, Segment::default()).ip;
    Some(Packet { ip: header, transport: Transport::Icmp(message) })
}

/// Connections from outside to a port of the program.
pub(super) async fn publish(gateway: Rc<Gateway>, listener: Listener, port: u16) {
    loop {
        match listener.accept().await {
            Ok((outer, peer)) => {
                spawn_local(dial_in(gateway.clone(), outer, peer, port));
            }
            Err(error) => {
                gateway.say(format_args!("can't accept for port {port}: {error}"));
                // Out of descriptors, most likely; others may be closed soon.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn dial_in(gateway: Rc<Gateway>, outer: Stream, peer: SocketAddr, port: u16) {
    let Some(id) = dial(&gateway, peer, port) else {
        outer.abort();
        return;
    };
    gateway.kick.notify_one();
    let is_connected = std::future::poll_fn(|cx| {
        let slot = &mut gateway.state.borrow_mut().slots[id.index()];
        if slot.is_connected || slot.closed.is_some() {
            return Poll::Ready(slot.is_connected);
        }
        slot.watcher = Some(cx.waker().clone());
        Poll::Pending
    });
    if is_connected.await {
        join(&gateway, id, outer, peer).await;
    } else {
        gateway.say(format_args!("{peer}: the program refuses connections to port {port}"));
        gateway.state.borrow_mut().host.release(id);
        outer.abort();
    }
}

/// Opens a connection to the program, from the peer's own address so that the program sees who it is.
fn dial(gateway: &Gateway, peer: SocketAddr, port: u16) -> Option<ConnectionId> {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let is_v4 = peer.is_ipv4();
    let program: IpAddr = if is_v4 { PROGRAM_V4.into() } else { PROGRAM_V6.into() };
    let own: IpAddr = if is_v4 { GATEWAY_V4.into() } else { GATEWAY_V6.into() };
    let to = Endpoint::new(program, port);
    let state = &mut *gateway.state.borrow_mut();
    let now = gateway.clock.now();
    // The program's kernel would not answer to its own or a loopback address.
    let is_usable = !peer.ip().is_loopback() && peer.ip() != program;
    let source = Endpoint::new(if is_usable { peer.ip() } else { own }, peer.port());
    let id = state.host.connect(now, source, to).or_else(|_| {
        // The peer's port is taken, by one whose connection ends or who can't be answered either. The host chooses none
        // itself: it listens at all of them.
        let mut ports = EPHEMERAL_PORTS.map(|port| Endpoint::new(own, port));
        ports.find_map(|source| state.host.connect(now, source, to).ok()).ok_or(())
    });
    let id = id.ok()?;
    make_slot(state, id);
    Some(id)
}

/// Why two connections end together at once.
enum Broken {
    /// The program's was reset or died.
    Inner,
    /// The engine's was.
    Outer(io::Error),
}

/// Carries bytes both ways until both directions have ended, or one connection breaks and takes the other along.
async fn join(gateway: &Rc<Gateway>, id: ConnectionId, outer: Stream, peer: SocketAddr) {
    gateway.say(format_args!("{peer}: connected"));
    let (mut reader, mut writer) = outer::split(outer);
    let result = {
        let out = async {
            let _sending = Sending::new(gateway);
            while let Some(payload) = next_payload(gateway, id).await? {
                for slice in payload {
                    writer.write(slice).await.map_err(Broken::Outer)?;
                }
            }
            writer.finish().await.map_err(Broken::Outer)
        };
        let back = async {
            loop {
                let payload = reader.read().await.map_err(Broken::Outer)?;
                if payload.is_empty() {
                    gateway.state.borrow_mut().host.shutdown(id);
                    gateway.kick.notify_one();
                    return Ok(());
                }
                for slice in payload {
                    send_all(gateway, id, slice).await?;
                }
            }
        };
        tokio::select! {
            result = async { tokio::try_join!(out, back) } => result.map(|_| ()),
            () = broken(gateway, id) => Err(Broken::Inner),
        }
    };
    if let Err(broken) = result {
        match broken {
            Broken::Inner => gateway.say(format_args!("{peer}: reset by the program")),
            Broken::Outer(error) => gateway.say(format_args!("{peer}: {error}")),
        }
        gateway.state.borrow_mut().host.abort(id);
        outer::abort(reader, writer);
    } else {
        gateway.say(format_args!("{peer}: closed"));
    }
    gateway.state.borrow_mut().host.release(id);
    gateway.kick.notify_one();
}

/// Counts a direction out of the program for as long as it may carry something.
struct Sending<'a>(&'a Gateway);

impl<'a> Sending<'a> {
    fn new(gateway: &'a Gateway) -> Self {
        gateway.state.borrow_mut().sending += 1;
        Self(gateway)
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().sending -= 1;
        self.0.drained.notify_one();
    }
}

/// What the program has sent; `None` when it sends no more.
async fn next_payload(gateway: &Gateway, id: ConnectionId) -> Result<Option<Payload>, Broken> {
    let payload = std::future::poll_fn(|cx| {
        let state = &mut *gateway.state.borrow_mut();
        if let Some(payload) = state.host.recv(id) {
            return Poll::Ready(Ok(Some(payload)));
        }
        let slot = &mut state.slots[id.index()];
        match slot.closed {
            _ if slot.is_peer_finished => Poll::Ready(Ok(None)),
            Some(CloseReason::Finished) => Poll::Ready(Ok(None)),
            Some(_) => Poll::Ready(Err(Broken::Inner)),
            None => {
                slot.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await?;
    // The window has opened.
    gateway.kick.notify_one();
    Ok(payload)
}

/// Sends to the program; waits while its buffer is full.
async fn send_all(gateway: &Gateway, id: ConnectionId, mut data: Bytes) -> Result<(), Broken> {
    std::future::poll_fn(|cx| {
        let state = &mut *gateway.state.borrow_mut();
        // Taking less than all makes the host tell when there is room again.
        let taken = match state.host.send(id, data.clone()) {
            Ok(taken) => taken,
            Err(_) => return Poll::Ready(Err(Broken::Inner)),
        };
        data.advance(taken);
        gateway.kick.notify_one();
        if data.is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.slots[id.index()].writer = Some(cx.waker().clone());
        Poll::Pending
    })
    .await
}

/// Ends when the program's connection breaks.
async fn broken(gateway: &Gateway, id: ConnectionId) {
    std::future::poll_fn(|cx| {
        let slot = &mut gateway.state.borrow_mut().slots[id.index()];
        match slot.closed {
            Some(reason) if reason != CloseReason::Finished => Poll::Ready(()),
            _ => {
                slot.watcher = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
}
