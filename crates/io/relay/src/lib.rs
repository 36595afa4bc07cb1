//! Our stack for programs that know sockets of the kernel only, such as those in C: a runtime of its own, and for each of
//! its connections a TCP socket of the program that [`Relay`] joins with it over the loopback interface.
//!
//! Reading, writing, polling, half-close, resets and options work on such a socket as on any other. What tells of the
//! peer must ask the relay: the kernel knows of the loopback interface only.

mod arrivals;
mod automatic;
mod carried;
mod choices;
mod held;
mod join;
pub mod keeper;
mod lack;
mod pump;
mod settings;
mod wording;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrivals::Arrivals;
pub use carried::{CarriedConnection, errno};
pub use choices::{
    ChoiceError, Driver, EngineChoice, RelayChoices, congestion_named, scheduler_named, words,
};
use join::{Hub, Meeting};
pub use lack::Lack;
use polypath_control::{offer_as, process_name};
pub use polypath_netsetup::{DetachedGuardian, guard_detached};
use polypath_stack::engine::ConnectOptions;
use polypath_stack::stack::{Stack, StackListener, StackStream};
use polypath_system::{Namespace, runtime_directory};
use rustix::net::Shutdown;
use settings::Settings;
use socket2::SockRef;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
pub use wording::in_words_of_settings;
use wording::{into_io, without_interface};

/// How long the end of a relay waits for peers to acknowledge what was written.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long a peer that has everything may take to end its side, before it is reset.
const LINGER: Duration = Duration::from_secs(1);

/// Connections that are remembered before those that are over are forgotten.
const REMEMBERED: usize = 1024;

/// Our stack, with its runtime. Dropping it is [`Relay::finish`].
#[derive(Debug)]
pub struct Relay {
    /// Until it is finished.
    running: Option<Running>,
    shared: Arc<RelayShared>,
}

#[derive(Debug)]
struct Running {
    runtime: Runtime,
    stack: Stack,
    hub: Hub,
}

/// What the calls and the tasks share.
#[derive(Debug)]
struct RelayShared {
    /// By the kernel's cookie of the program's socket, which stays when a descriptor is copied and is never used again.
    carried: Mutex<HashMap<u64, Known>>,
    /// Connections on their way to programs' listeners.
    arrivals: Arrivals<Arc<CarriedConnection>>,
    /// By the cookie of the program's listening socket.
    listening: Mutex<HashMap<u64, Listening>>,
    /// Turns true at the end; each task that moves bytes holds a receiver.
    stopping: watch::Sender<bool>,
    /// Tells that nobody waits for connections that are not open yet.
    abandoned: Notify,
}

/// A connection, and its socket.
#[derive(Debug)]
struct Known {
    carried: Arc<CarriedConnection>,
    inode: u64,
}

#[derive(Debug)]
struct Listening {
    local: SocketAddr,
    inode: u64,
    listener: Arc<StackListener>,
    task: AbortHandle,
}

impl Listening {
    fn stop(self) {
        self.listener.close();
        self.task.abort();
    }

    /// The same, and whoever waits at the program's socket is told: no connection will come, so neither accepting nor polling
    /// may go on.
    fn end_for_program(self, cookie: u64) {
        if let Some(program) = held::own(self.inode, cookie) {
            // One that doesn't listen any more needs no end.
            let _ = rustix::net::shutdown(&program, Shutdown::Both);
        }
        self.stop();
    }
}

fn inode(program: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::fstat(program)?.st_ino)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// Starts a stack, and a thread for it that takes none of the program's signals.
    pub fn start(choices: &RelayChoices) -> io::Result<Self> {
        Self::start_for(choices, process_name())
    }

    /// As [`Relay::start`], for another program of this name: `polypath ss` shows the stack under it.
    pub fn start_for(choices: &RelayChoices, program: String) -> io::Result<Self> {
        let runtime = without_signals(|| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            polypath_system::build_runtime(builder.worker_threads(1).thread_name("polypath").enable_all())
        })?;
        let stack = {
            let _entered = runtime.enter();
            let namespace = Namespace::current()?;
            let stack = match choices.driver {
                Driver::Udp => {
                    let mut options = choices.udp();
                    if choices.wants_all_uplinks() {
                        options.use_uplinks(&namespace)?;
                    }
                    Stack::udp(&namespace, &options).map_err(without_interface)?
                }
                Driver::Tun => {
                    polypath_netsetup::uplinks::open(&namespace, choices.uplinks()).map_err(into_io)?
                }
            };
            // `polypath ss` shows it; what carries data need not be seen.
            if let Err(error) = runtime_directory()
                .and_then(|directory| offer_as(Arc::new(stack.downgrade()), &directory, program))
            {
                tracing::debug!(%error, "not shown by polypath ss");
            }
            stack
        };
        let shared = RelayShared {
            carried: Mutex::default(),
            arrivals: Arrivals::new(),
            listening: Mutex::default(),
            stopping: watch::Sender::new(false),
            abandoned: Notify::new(),
        };
        let running = Running { runtime, stack, hub: Hub::open()? };
        Ok(Self { running: Some(running), shared: Arc::new(shared) })
    }

    fn running(&self) -> io::Result<&Running> {
        self.running.as_ref().ok_or_else(|| io::Error::other("the engine has ended"))
    }

    /// The settings that connections get unless they bring their own.
    pub fn connection_config(&self) -> io::Result<Arc<polypath_mptcp::ConnectionConfig>> {
        Ok(self.running()?.stack.connection_config())
    }

    /// Connects a program's TCP socket. In nonblocking mode this is `EINPROGRESS`, and the socket becomes writable as
    /// soon as it is connected; if that fails it is reset, and [`CarriedConnection::error`] says why.
    pub fn connect(
        &self,
        program: BorrowedFd<'_>,
        remote: SocketAddr,
        options: ConnectOptions,
    ) -> io::Result<()> {
        let to = self.begin(program, remote, options)?;
        let socket = SockRef::from(&program);
        if socket.nonblocking()? {
            return Err(io::Error::from_raw_os_error(libc::EINPROGRESS));
        }
        join::wait(&socket, to).map_err(|error| {
            let reason = self.find(program).and_then(|carried| carried.failure());
            reason.filter(|_| error.kind() == io::ErrorKind::ConnectionReset).unwrap_or(error)
        })
    }

    /// Makes a program's TCP socket connecting, and says where to: sending nothing waits in blocking mode, as long as the
    /// socket's own time limit says, and connecting it there once more then tells the kernel that this was seen. If it fails the socket is reset, and [`CarriedConnection::error`] says why.
    pub fn begin(
        &self,
        program: BorrowedFd<'_>,
        remote: SocketAddr,
        options: ConnectOptions,
    ) -> io::Result<SocketAddr> {
        let Running { runtime, stack, hub } = self.running()?;
        let earlier = self.find(program).and_then(|carried| carried.failure());
        let socket = SockRef::from(&program);
        if let Some(earlier) = earlier
            && join::forget_refusal(&socket)
        {
            // It asks why the last attempt failed, as one may.
            return Err(earlier);
        }
        let meeting = hub.begin(&socket)?;
        let to = meeting.to();
        let carried = Arc::new(CarriedConnection::connecting(stack.downgrade(), remote));
        self.shared.remember(program, carried.clone())?;
        let settings = Settings::of(&socket)?;
        let config = options.config.unwrap_or_else(|| stack.connection_config());
        let options = ConnectOptions { config: Some(settings.choose(config)), ..options };
        runtime.spawn(self.shared.clone().open(carried, meeting, stack.clone(), remote, options));
        Ok(to)
    }

    /// Lets connections to `local` arrive at a program's socket, which listens in the kernel already, and says at which
    /// address the stack listens. With `has_port`, that socket has the port itself, and keeps it from others.
    pub fn listen(
        &self,
        program: BorrowedFd<'_>,
        local: SocketAddr,
        has_port: bool,
    ) -> io::Result<SocketAddr> {
        let Running { runtime, stack, .. } = self.running()?;
        let (cookie, inode) = (rustix::net::sockopt::socket_cookie(program)?, inode(program)?);
        let to = join::reached_at(&SockRef::from(&program))?;
        let listen = || if has_port { stack.listen_beside(local) } else { stack.listen(local) };
        let listener = listen().or_else(|error| match error.kind() {
            io::ErrorKind::AddrInUse if self.shared.stop_for_closed()? => listen(),
            _ => Err(error),
        })?;
        let local = SocketAddr::new(local.ip(), listener.local_addr().port());
        let listener = Arc::new(listener);
        let (shared, for_program) = (self.shared.clone(), listener.clone());
        let task = runtime.spawn(async move {
            // It ends with the program's listener, or the stack.
            while let Ok((stream, peer)) = for_program.accept().await {
                // A task of its own: the program may have accepted it, and stop listening, before this task is told.
                let delivering = tokio::spawn(shared.clone().deliver(stream, peer, to));
                // Anything else is the failure of one connection.
                if delivering.await.is_ok_and(|done| done.is_err_and(|error| is_over(&error))) {
                    break;
                }
            }
            lock(&shared.listening).remove(&cookie);
        });
        lock(&self.shared.listening)
            .insert(cookie, Listening { local, inode, listener, task: task.abort_handle() });
        Ok(local)
    }

    /// Where a program's listening socket is reached by the stack's peers, if it is one.
    pub fn listens_at(&self, program: BorrowedFd<'_>) -> Option<SocketAddr> {
        let cookie = rustix::net::sockopt::socket_cookie(program).ok()?;
        lock(&self.shared.listening).get(&cookie).map(|listening| listening.local)
    }

    /// The connection behind a socket that a program's listener has just accepted; none if it came from this machine.
    pub fn accepted(&self, program: BorrowedFd<'_>) -> Option<Arc<CarriedConnection>> {
        let peer = SockRef::from(&program).peer_addr().ok()?.as_socket()?;
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let carried = self.shared.arrivals.remove(peer)?;
        self.shared.remember(program, carried.clone()).ok()?;
        // Without them, those of the stack hold.
        let _ = carried.follow(&SockRef::from(&program));
        Some(carried)
    }

    /// Gives the program a descriptor that was kept for it to accept a connection with at this listener of its, where it has run
    /// out of others: true if it should try again.
    pub fn make_room(&self, listener: BorrowedFd<'_>) -> bool {
        let at = join::reached_at(&SockRef::from(&listener));
        at.is_ok_and(|at| self.shared.arrivals.make_room(at))
    }

    /// The connection behind a program's socket, if there is or was one.
    pub fn find(&self, program: BorrowedFd<'_>) -> Option<Arc<CarriedConnection>> {
        let cookie = rustix::net::sockopt::socket_cookie(program).ok()?;
        lock(&self.shared.carried).get(&cookie).map(|known| known.carried.clone())
    }

    /// An option of a program's socket was set: the connection behind it, if there is one, follows.
    pub fn options_changed(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let carried = self.find(program);
        carried.map_or(Ok(()), |carried| carried.follow(&SockRef::from(&program)))
    }

    /// Stops listening for a program's socket, which is about to be closed.
    pub fn close_listener(&self, program: BorrowedFd<'_>) {
        let cookie = rustix::net::sockopt::socket_cookie(program).ok();
        let Some(cookie) = cookie else { return };
        let closed = lock(&self.shared.listening).remove(&cookie);
        if let Some(listening) = closed {
            listening.stop();
            let _ = rustix::net::shutdown(program, Shutdown::Both);
        }
    }

    /// Whether a process still has one of the sockets, or what was written to one is not all with the stack yet. Sockets
    /// that are still connecting do not count.
    pub fn is_in_use(&self) -> io::Result<bool> {
        // Before the system is asked: what comes later would seem to be closed.
        let (listening, carried) = (lock(&self.shared.listening), lock(&self.shared.carried));
        let held = held::inodes()?;
        let is_live = |known: &Known| {
            let carried = &known.carried;
            carried.is_open() && (!carried.is_finished() || held.contains(&known.inode))
        };
        Ok(listening.values().any(|listening| held.contains(&listening.inode))
            || carried.values().any(is_live))
    }

    /// Gives up connections that are not open yet: nobody waits for them any more.
    pub fn abandon(&self) {
        self.shared.abandoned.notify_waiters();
    }

    /// Ends the stack: what programs have written is delivered, as long as peers take some of it within each five seconds, for a
    /// minute at most. What was set up is taken down.
    pub fn finish(&mut self) {
        self.finish_within(FAREWELL);
    }

    /// As [`Relay::finish`], with another time for peers to take what was written.
    pub fn finish_within(&mut self, limit: Duration) {
        let Some(Running { runtime, stack, hub }) = self.running.take() else { return };
        drop(hub);
        for (cookie, listening) in lock(&self.shared.listening).drain() {
            listening.end_for_program(cookie);
        }
        self.shared.stopping.send_replace(true);
        runtime.block_on(async {
            // What is not delivered by then is lost, as with a crash.
            stack.finish_after(self.shared.stopping.closed(), limit, LINGER).await;
        });
        drop(stack);
        runtime.shutdown_timeout(FAREWELL);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.finish();
    }
}

impl RelayShared {
    /// Stops listening for programs' sockets that every process has closed; true if there were some.
    fn stop_for_closed(&self) -> io::Result<bool> {
        // Before the system is asked: one that comes later would seem to be closed.
        let mut listening = lock(&self.listening);
        let held = held::inodes()?;
        let closed: Vec<u64> = listening
            .iter()
            .filter(|(_, listening)| !held.contains(&listening.inode))
            .map(|(cookie, _)| *cookie)
            .collect();
        closed.iter().filter_map(|cookie| listening.remove(cookie)).for_each(Listening::stop);
        Ok(!closed.is_empty())
    }

    fn remember(&self, program: BorrowedFd<'_>, connection: Arc<CarriedConnection>) -> io::Result<()> {
        let cookie = rustix::net::sockopt::socket_cookie(program)?;
        let known = Known { carried: connection, inode: inode(program)? };
        let mut carried = lock(&self.carried);
        if carried.len() == carried.capacity() && carried.len() >= REMEMBERED {
            carried.retain(|_, known| !known.carried.is_over());
        }
        carried.insert(cookie, known);
        Ok(())
    }

    /// Opens a connection for a program's socket that is connecting, and carries it to its end.
    async fn open(
        self: Arc<Self>,
        carried: Arc<CarriedConnection>,
        meeting: Meeting,
        stack: Stack,
        remote: SocketAddr,
        options: ConnectOptions,
    ) {
        let mut stopping = self.stopping.subscribe();
        let opened = tokio::select! {
            opened = stack.connect(remote, &options) => opened,
            () = self.abandoned.notified() => Err(io::ErrorKind::ConnectionAborted.into()),
            _ = stopping.wait_for(|stops| *stops) => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        // Before the program can see that something has happened.
        match &opened {
            Ok(stream) => {
                carried.opened(stream);
                // Without them, those of the stack hold.
                let _ = carried.follow(&meeting.program());
            }
            Err(error) => carried.failed(error),
        }
        match opened {
            Ok(stream) => match meeting.complete().await {
                Ok(ours) => {
                    // The program's socket is its own again.
                    drop(meeting);
                    pump::pump(&carried, stream, ours, stopping).await;
                }
                // Such as when descriptors have run out.
                Err(error) => {
                    carried.failed(&error);
                    stream.abort();
                    meeting.refuse().await.unwrap_or_default();
                }
            },
            // If it can't be told now, its own time limit tells it.
            Err(_) => meeting.refuse().await.unwrap_or_default(),
        }
    }

    /// Hands an accepted connection to the program's listener; an error if there is none any more.
    async fn deliver(
        self: Arc<Self>,
        stream: StackStream,
        peer: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<()> {
        let mut stopping = self.stopping.subscribe();
        let carried = Arc::new(CarriedConnection::connecting(stream.stack().downgrade(), peer));
        carried.opened(&stream);
        let called = tokio::select! {
            called = join::when_there_is_room(|| self.arrivals.call(to, carried.clone())) => called,
            _ = stopping.wait_for(|stops| *stops) => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let (socket, at) = match called {
            Ok(caller) => caller,
            Err(error) => {
                // Dropped, it would end in order, and the peer would take that for all there is.
                stream.abort();
                return Err(error);
            }
        };
        let ours = match socket.connect(to).await {
            Ok(ours) => ours,
            Err(error) => {
                self.arrivals.remove(at);
                stream.abort();
                return Err(error);
            }
        };
        // If it can't be set, small writes are late.
        let _ = ours.set_nodelay(true);
        tokio::spawn(async move {
            pump::pump(&carried, stream, ours, stopping).await;
            // In case that nobody has accepted it.
            self.arrivals.remove(at);
        });
        Ok(())
    }
}

/// Whether nothing listens any more where a connection was to be delivered.
fn is_over(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Runs `work`, whose threads get no signals: those are the program's business, and its handlers expect its threads.
#[allow(unsafe_code)]
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a signal set of zeros is a valid one, which `sigfillset` overwrites; both sets live through the calls, and
    // the thread's own mask is what it was when this function returns.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}
