use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use polypath_mptcp::scheduler::Schedulers;
use polypath_mptcp::{CloseReason, ConnectionConfig, ConnectionId, ConnectionInfo, Event, Host, HostConfig};
use polypath_system::WallClock;
use polypath_tcp::ListenerId;
use polypath_units::Instant;
use polypath_units::named::Registry;
use polypath_wire::{Endpoint, Packet, Payload, Transport};
use tokio::sync::{Notify, broadcast};

use super::accepting::{Turn, Waiters};
use super::driver::Transmit;
use super::ended::StackEnded;
use super::figures::{Figures, PathFigures, Remains};
use super::path_limits::{PathLimits, Unsorted};
use super::path_names::PathNames;
use super::path_wishes::PathWishes;
use super::pool::BufferPool;
use super::timer::{Armed, Timer};
use super::underlay::{Underlay, lacks_family};
use crate::peer_list::PeerList;
use crate::tally::{Fallback, Tally};

/// Accepted connections that wait for the application; further ones are reset.
const ACCEPT_QUEUE: usize = 4096;

/// Events that a slow observer may lag behind.
const OBSERVED_EVENTS: usize = 1024;

/// Written data is copied into buffers of this size.
const WRITE_BUFFER_BYTES: usize = 65_536;

/// Writes up to this size get memory of their own instead of a buffer of the pool.
const SMALL_WRITE_BYTES: usize = 8192;

/// An event, as observers get it.
pub(super) type Observed = (Instant, ConnectionId, Event);

/// What all handles of a stack share.
#[derive(Debug)]
pub(super) struct StackShared {
    state: Mutex<State>,
    clock: WallClock,
    pub(super) timer: Timer,
    pub(super) stopping: Notify,
    handles: AtomicUsize,
    write_buffers: BufferPool,
    underlay: Mutex<Option<Box<dyn Underlay>>>,
    /// What was counted, for those who ask when the stack is gone.
    left: Arc<OnceLock<Remains>>,
}

/// The host, and what applications wait for.
pub(super) struct State {
    pub(super) host: Host,
    transmit: Box<dyn Transmit>,
    streams: Vec<Option<Box<StreamState>>>,
    listeners: HashMap<ListenerId, ListenerState>,
    /// Where open subflows are noted, if they are.
    peers: Option<PeerList>,
    /// What people have asked of paths.
    pub(super) wishes: PathWishes,
    /// Local addresses of subflows that a peer was asked not to use.
    pub(super) set_aside: Vec<IpAddr>,
    pub(super) path_names: PathNames,
    pub(super) path_limits: PathLimits,
    /// Those that can be chosen by name while it runs.
    pub(super) schedulers: Registry<Schedulers>,
    pub(super) tally: Tally,
    /// Connections that ended before their peers had everything, up to the last time that the program asked.
    pub(super) told_cut_short: u64,
    /// Who is told of events; nobody once the stack has ended, which ends what they read.
    observers: Option<broadcast::Sender<Observed>>,
    armed: Armed,
    /// Tasks to wake once the lock is open.
    woken: Vec<Waker>,
    /// Why nothing moves any more.
    ended: Option<StackEnded>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("host", &self.host).finish_non_exhaustive()
    }
}

/// What an application knows of a connection, and what it waits for.
#[derive(Debug)]
pub(super) struct StreamState {
    id: ConnectionId,
    reader: Option<Waker>,
    writer: Option<Waker>,
    pub(super) is_connected: bool,
    pub(super) has_peer_finished: bool,
    pub(super) closed: Option<CloseReason>,
    /// Received, and not yet read.
    pub(super) unread: Payload,
}

#[derive(Debug)]
struct ListenerState {
    local: SocketAddr,
    queue: VecDeque<ConnectionId>,
    waiters: Waiters,
}

impl StackShared {
    pub(super) fn new(config: HostConfig, transmit: Box<dyn Transmit>) -> io::Result<Self> {
        let mut seed = [0; 32];
        // SAFETY is not at stake, but secrecy is: keys and sequence numbers follow from this.
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
        let send_buffer_bytes = config.connection.tcp.send_buffer_bytes as usize;
        let state = State {
            host: Host::with_seed(config, seed),
            transmit,
            streams: Vec::new(),
            listeners: HashMap::new(),
            peers: None,
            wishes: PathWishes::default(),
            set_aside: Vec::new(),
            path_names: PathNames::default(),
            path_limits: PathLimits::default(),
            schedulers: Registry::default(),
            tally: Tally::default(),
            told_cut_short: 0,
            observers: Some(broadcast::Sender::new(OBSERVED_EVENTS)),
            armed: Armed::NEVER,
            woken: Vec::new(),
            ended: None,
        };
        Ok(Self {
            state: Mutex::new(state),
            clock: WallClock::starting_at(Instant::from_secs(1)),
            timer: Timer::new()?,
            stopping: Notify::new(),
            handles: AtomicUsize::new(0),
            underlay: Mutex::new(None),
            left: Arc::default(),
            write_buffers: BufferPool::new(WRITE_BUFFER_BYTES, 2 * send_buffer_bytes / WRITE_BUFFER_BYTES),
        })
    }

    /// Does something with the state, then everything that follows from it: packets leave, applications wake.
    ///
    /// Errors: a policy panicked meanwhile, which ends the stack.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> io::Result<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let acted = catch_unwind(AssertUnwindSafe(|| {
            let result = act(&mut state, now);
            state.settle(now, &self.timer);
            result
        }));
        let result = acted.map_err(|panic| state.handle_panic(now, &*panic));
        let woken = std::mem::take(&mut state.woken);
        let unsorted = state.take_unsorted();
        drop(state);
        self.wake(woken);
        if !unsorted.is_empty() {
            self.sort_into_limits(unsorted);
        }
        result
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// As [`StackShared::with`], for what has no answer: that the stack has ended, its streams and listeners tell.
    pub(super) fn tell(&self, act: impl FnOnce(&mut State, Instant)) {
        let _ = self.with(act);
    }

    /// Looks at the state without changing what the host wants.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wake(&self, mut woken: Vec<Waker>) {
        if woken.is_empty() {
            return;
        }
        woken.drain(..).for_each(Waker::wake);
        // The list keeps its memory.
        self.peek(|state| {
            if state.woken.is_empty() {
                state.woken = woken;
            }
        });
    }

    /// A copy of written data that can be kept until it is acknowledged.
    pub(super) fn copy_written(&self, data: &[u8]) -> Bytes {
        if data.len() <= SMALL_WRITE_BYTES {
            return Bytes::copy_from_slice(data);
        }
        let len = data.len().min(WRITE_BUFFER_BYTES);
        let mut buffer = self.write_buffers.take();
        buffer[..len].copy_from_slice(&data[..len]);
        buffer.freeze(len)
    }

    pub(super) fn set_underlay(&self, underlay: Box<dyn Underlay>) {
        *self.underlay.lock().unwrap_or_else(PoisonError::into_inner) = Some(underlay);
    }

    /// Asks the underlay, if the stack has any.
    pub(super) fn underlay<T>(&self, ask: impl FnOnce(&dyn Underlay) -> T) -> Option<T> {
        self.underlay.lock().unwrap_or_else(PoisonError::into_inner).as_deref().map(ask)
    }

    /// What was counted since the start, over connections that are open and those that have ended.
    pub(super) fn figures(&self) -> Figures {
        let carried = self.peek(|state| state.host.carried());
        // The underlay has a lock of its own.
        let name = |addr| self.underlay(|underlay| underlay.path_name(addr)).flatten();
        let named: Vec<_> = carried.into_iter().map(|(addr, carried)| (addr, name(addr), carried)).collect();
        self.peek(|state| {
            let paths = named.into_iter().map(|(address, name, carried)| PathFigures {
                address,
                name: state.path_names.name(address, name),
                carried,
            });
            let paths = paths.collect();
            Figures { paths, fallbacks: state.tally.fallbacks.clone() }
        })
    }

    /// What would be left if the stack were gone now.
    pub(super) fn remains(&self) -> Remains {
        let counters = self.peek(|state| state.host.counters());
        let of_driver = self.underlay(|underlay| underlay.counters()).unwrap_or_default();
        Remains { figures: self.figures(), counters: counters.iter().chain(of_driver).collect() }
    }

    /// Where that will be.
    pub(super) fn left(&self) -> &Arc<OnceLock<Remains>> {
        &self.left
    }

    pub(super) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_handle(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stopping.notify_waiters();
        }
    }

    /// Nobody holds the stack, and nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 0
            && self.peek(|state| state.host.population().connections == 0)
    }

    /// Nothing moves any more, and everybody is told: peers, too, as far as packets still leave.
    pub(super) fn end(&self, why: StackEnded) {
        self.tell(|state, now| {
            state.end(now, why);
            state.host.abort_undelivered(now);
        });
    }
}

impl Drop for StackShared {
    /// Its runtime is gone, as after an interruption: peers that wait for more are told, while the driver and the underlay are
    /// still there.
    fn drop(&mut self) {
        self.tell(|state, now| {
            state.path_limits.clear(now);
            state.host.abort_undelivered(now);
        });
        // It goes once.
        let _ = self.left.set(self.remains());
    }
}

impl State {
    fn settle(&mut self, now: Instant, timer: &Timer) {
        while let Some(packet) = self.path_limits.poll_received(now) {
            self.deliver(now, packet);
        }
        let mut sent = Ok(());
        while let Some(packet) = self.poll_transmit(now) {
            if sent.is_ok() {
                sent = self.transmit.transmit(packet);
            }
        }
        let sent = sent.and_then(|()| self.transmit.flush());
        while let Some((id, event)) = self.host.poll() {
            self.dispatch(now, id, event);
        }
        let deadlines = [self.host.poll_timeout(), self.path_limits.poll_timeout()];
        if let Some(deadline) = deadlines.into_iter().flatten().min()
            && self.armed.must_set(deadline)
            && let Err(error) = timer.set(deadline.since(now))
        {
            self.end(now, StackEnded::by_driver(&error));
        }
        if let Err(error) = sent {
            self.end(now, StackEnded::by_driver(&error));
        }
    }

    /// The next packet for the driver: what the host sends, unless a limit holds it back, then what limits let pass.
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        while let Some(packet) = self.host.poll_transmit(now) {
            self.tally.add(packet.ip.src, payload_bytes(&packet));
            if !self.path_limits.is_active() {
                return Some(packet);
            }
            let free = self.path_limits.handle_sent(now, packet);
            if free.is_some() {
                return free;
            }
        }
        self.path_limits.poll_sent(now)
    }

    /// A packet came from the driver.
    pub(super) fn receive(&mut self, now: Instant, packet: Packet) {
        if !self.path_limits.is_active() {
            return self.deliver(now, packet);
        }
        if let Some(free) = self.path_limits.handle_received(now, packet) {
            self.deliver(now, free);
        }
    }

    fn deliver(&mut self, now: Instant, packet: Packet) {
        self.tally.add(packet.ip.dst, payload_bytes(&packet));
        self.host.handle_packet(now, packet);
    }

    fn take_unsorted(&mut self) -> Vec<Unsorted> {
        if self.path_limits.is_active() { self.path_limits.take_unsorted(&mut self.host) } else { Vec::new() }
    }

    pub(super) fn timer_fired(&mut self) {
        self.armed.fired();
    }

    pub(super) fn keep_peers(&mut self, list: PeerList) {
        self.peers = Some(list);
    }

    fn note_peer(&mut self, id: ConnectionId, event: &Event) {
        let Some(peers) = &mut self.peers else { return };
        match event {
            Event::Connected | Event::Accepted { .. } => {
                let subflows = self.host.info(id).map(|info| info.subflows).unwrap_or_default();
                let key = self.host.fastclose_key(id);
                subflows.iter().for_each(|subflow| peers.add(subflow.tuple, key));
            }
            Event::SubflowEstablished { tuple, .. } => peers.add(*tuple, self.host.fastclose_key(id)),
            Event::SubflowClosed { tuple, .. } => peers.remove(tuple),
            _ => return,
        }
        // Connections that nobody holds any more end without a word.
        if peers.is_overgrown() {
            peers.retain(&self.host.subflow_tuples().collect());
        }
    }

    /// Keeps in mind which paths are set aside: at most as many as the host has addresses.
    fn note_set_aside(&mut self, id: ConnectionId, event: &Event) {
        let (addr, is_aside) = match *event {
            Event::SubflowSetAside { tuple, .. } => (tuple.local.addr, true),
            Event::SubflowTried { tuple, .. } => (tuple.local.addr, false),
            Event::SubflowEstablished { subflow, tuple, .. } => {
                let info = self.host.info(id);
                let is_aside = info.is_some_and(|info| {
                    let mut known = info.subflows.iter().filter_map(|other| other.multipath.as_ref());
                    known.any(|other| other.id == subflow && other.set_aside)
                });
                (tuple.local.addr, is_aside)
            }
            _ => return,
        };
        self.set_aside.retain(|known| *known != addr);
        if is_aside {
            self.set_aside.push(addr);
        }
    }

    fn dispatch(&mut self, now: Instant, id: ConnectionId, event: Event) {
        self.note_peer(id, &event);
        self.note_set_aside(id, &event);
        match event {
            Event::FellBack(reason) => self.tally.note_fallback(Fallback::Reason(reason)),
            Event::Connected | Event::Accepted { .. } => self.tally.connections += 1,
            _ => {}
        }
        if !matches!(event, Event::Readable | Event::Writable) {
            self.observe(now, id, event);
        }
        if let Event::Accepted { listener, .. } = event {
            return self.accept(now, id, listener);
        }
        let Some(stream) = self.stream(id) else { return };
        let (mut wakes_reader, mut wakes_writer) = (false, false);
        match event {
            Event::Readable => wakes_reader = true,
            Event::Writable => wakes_writer = true,
            Event::Connected => {
                stream.is_connected = true;
                wakes_writer = true;
            }
            Event::PeerFinished => {
                stream.has_peer_finished = true;
                wakes_reader = true;
            }
            Event::Closed(reason) => {
                stream.closed = Some(reason);
                (wakes_reader, wakes_writer) = (true, true);
            }
            _ => {}
        }
        let reader = if wakes_reader { stream.reader.take() } else { None };
        let writer = if wakes_writer { stream.writer.take() } else { None };
        self.woken.extend(reader.into_iter().chain(writer));
    }

    fn observe(&self, now: Instant, id: ConnectionId, event: Event) {
        if let Some(observers) = self.observers.as_ref().filter(|observers| observers.receiver_count() > 0) {
            // Nobody listens any more: no harm.
            let _ = observers.send((now, id, event));
        }
    }

    /// What happens from now on; that is at its end if the stack has ended.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Observed> {
        self.observers.as_ref().map_or_else(|| broadcast::channel(1).1, broadcast::Sender::subscribe)
    }

    fn accept(&mut self, now: Instant, id: ConnectionId, listener: Option<ListenerId>) {
        let listener = listener.and_then(|listener| self.listeners.get_mut(&listener));
        match listener.filter(|listener| listener.queue.len() < ACCEPT_QUEUE) {
            Some(listener) => {
                listener.queue.push_back(id);
                self.woken.extend(listener.waiters.next());
                self.open(id);
                if let Some(stream) = self.stream(id) {
                    stream.is_connected = true;
                }
            }
            None => {
                self.host.abort(now, id);
                self.host.release(now, id);
            }
        }
    }

    /// What panicked is in no state that could be relied on: peers are told if that goes well, and an empty host takes its place.
    fn handle_panic(&mut self, now: Instant, panic: &(dyn Any + Send)) -> io::Error {
        let why = StackEnded::by_panic(panic);
        self.end(now, why.clone());
        let config = self.host.config().clone();
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.host.abort_undelivered(now);
            while let Some(packet) = self.host.poll_transmit(now) {
                self.transmit.transmit(packet)?;
            }
            self.transmit.flush()
        }));
        // Nothing is opened any more, so nothing depends on its secret.
        let old = std::mem::replace(&mut self.host, Host::with_seed(config, [0; 32]));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(old)));
        why.into()
    }

    fn end(&mut self, now: Instant, why: StackEnded) {
        self.ended.get_or_insert(why);
        self.path_limits.clear(now);
        for stream in self.streams.iter().flatten().filter(|stream| stream.closed.is_none()) {
            self.observe(now, stream.id, Event::Closed(CloseReason::Aborted));
        }
        self.observers = None;
        for stream in self.streams.iter_mut().flatten() {
            self.woken.extend(stream.reader.take().into_iter().chain(stream.writer.take()));
        }
        for listener in self.listeners.values_mut() {
            self.woken.extend(listener.waiters.all());
        }
    }

    /// Errors when the stack has ended.
    pub(super) fn check(&self) -> io::Result<()> {
        self.ended.clone().map_or(Ok(()), |why| Err(why.into()))
    }

    // ---- streams

    /// Notes that an application holds a connection.
    pub(super) fn open(&mut self, id: ConnectionId) {
        let index = id.index();
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, || None);
        }
        self.streams[index] = Some(Box::new(StreamState {
            id,
            reader: None,
            writer: None,
            is_connected: false,
            has_peer_finished: false,
            closed: None,
            unread: Payload::EMPTY,
        }));
    }

    pub(super) fn stream(&mut self, id: ConnectionId) -> Option<&mut StreamState> {
        self.streams.get_mut(id.index())?.as_deref_mut().filter(|stream| stream.id == id)
    }

    /// The application let go.
    pub(super) fn close(&mut self, now: Instant, id: ConnectionId) {
        let Some(stream) = self.stream(id) else { return };
        if !stream.unread.is_empty() || !stream.is_connected {
            // As for a socket: data that nobody will read is lost, and the peer is told. Nor does anybody wait for a
            // connection that isn't open yet.
            self.host.abort(now, id);
        }
        self.host.release(now, id);
        self.streams[id.index()] = None;
    }

    pub(super) fn connections(&self) -> Vec<(ConnectionId, ConnectionInfo)> {
        let ids = self.streams.iter().flatten().map(|stream| stream.id);
        ids.filter_map(|id| Some((id, self.host.info(id)?))).collect()
    }

    /// The address from which a connection to `remote` starts: a path of its family, no backup if it can be avoided. Of equal ones it is that
    /// of the least identifier, also when it was gone for a while.
    pub(super) fn first_path(&self, remote: SocketAddr) -> io::Result<IpAddr> {
        let own = &self.host.config().endpoints;
        let of_family = own.iter().filter(|path| path.addr.is_ipv4() == remote.is_ipv4());
        of_family.min_by_key(|path| (path.backup, path.priority, path.id)).map(|path| path.addr).ok_or_else(
            || {
                let text = "this stack has no paths to connect over: it only listens";
                match own.is_empty() {
                    true => io::Error::new(io::ErrorKind::NetworkUnreachable, text),
                    false => lacks_family(remote),
                }
            },
        )
    }

    /// Settings that a program brings, with packets no larger than the stack's paths take.
    pub(super) fn fit(&self, mut config: Arc<ConnectionConfig>) -> Arc<ConnectionConfig> {
        let mtu_bytes = self.host.config().connection.tcp.mtu_bytes;
        if config.tcp.mtu_bytes > mtu_bytes {
            Arc::make_mut(&mut Arc::make_mut(&mut config).tcp).mtu_bytes = mtu_bytes;
        }
        config
    }

    // ---- listeners

    /// Listens at an address, or everywhere; at port 0, at the first free one from `first_free` on.
    pub(super) fn listen(
        &mut self,
        local: Option<SocketAddr>,
        first_free: u16,
        config: Option<Arc<ConnectionConfig>>,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        self.check()?;
        let everywhere = SocketAddr::from(([0_u16; 8], 0));
        let (id, local) = match local {
            None => (self.host.listen_everywhere(), everywhere),
            Some(local) if local.port() == 0 => self.listen_at_free_port(local, first_free),
            Some(local) => (self.host.listen(local.into()), local),
        };
        let id = id.map_err(|error| {
            io::Error::new(io::ErrorKind::AddrInUse, format!("can't listen at {local}: {error}"))
        })?;
        if let Some(config) = config {
            self.host.configure_listener(id, config);
        }
        self.listeners
            .insert(id, ListenerState { local, queue: VecDeque::new(), waiters: Waiters::default() });
        Ok((id, local))
    }

    /// Where it listens, how many connections wait there for the application, and how many may.
    pub(super) fn listeners(&self) -> Vec<(SocketAddr, usize, usize)> {
        self.listeners.values().map(|it| (it.local, it.queue.len(), ACCEPT_QUEUE)).collect()
    }

    fn listen_at_free_port(
        &mut self,
        local: SocketAddr,
        first: u16,
    ) -> (Result<ListenerId, polypath_tcp::ListenError>, SocketAddr) {
        let mut result = Err(polypath_tcp::ListenError::AddressInUse);
        let mut at = local;
        for port in first..=u16::MAX {
            at.set_port(port);
            result = self.host.listen(Endpoint::from(at));
            if result.is_ok() {
                break;
            }
        }
        (result, at)
    }

    /// The next connection; without one, `waker` is woken when it is its turn.
    pub(super) fn accepted(
        &mut self,
        id: ListenerId,
        turn: Turn,
        waker: &Waker,
    ) -> io::Result<Option<ConnectionId>> {
        self.check()?;
        let Some(listener) = self.listeners.get_mut(&id) else {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the listener is closed"));
        };
        let next = listener.queue.pop_front();
        match next {
            Some(_) => drop(listener.waiters.leave(turn)),
            None => listener.waiters.wait(turn, waker),
        }
        Ok(next)
    }

    /// A wait was given up. If it had been woken, what it was woken for is another's.
    pub(super) fn give_up_accepting(&mut self, id: ListenerId, turn: Turn) {
        let Some(listener) = self.listeners.get_mut(&id) else { return };
        if !listener.waiters.leave(turn) && !listener.queue.is_empty() {
            self.woken.extend(listener.waiters.next());
        }
    }

    pub(super) fn close_listener(&mut self, now: Instant, id: ListenerId) {
        self.host.close_listener(id);
        let Some(mut listener) = self.listeners.remove(&id) else { return };
        self.woken.extend(listener.waiters.all());
        for id in listener.queue {
            self.host.abort(now, id);
            self.close(now, id);
        }
    }
}

fn payload_bytes(packet: &Packet) -> u64 {
    match &packet.transport {
        Transport::Tcp(segment) => segment.payload.len() as u64,
        _ => 0,
    }
}

impl StreamState {
    pub(super) fn wait_to_read(&mut self, waker: &Waker) {
        replace(&mut self.reader, waker);
    }

    pub(super) fn wait_to_write(&mut self, waker: &Waker) {
        replace(&mut self.writer, waker);
    }
}

fn replace(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) if known.will_wake(waker) => {}
        _ => *slot = Some(waker.clone()),
    }
}
