//! The process that keeps the connections of unmodified programs: it has the stack, and outlives them.
//!
//! A program's sockets are the kernel's, over the loopback interface to its keeper. So when the program ends in whatever
//! way, is killed, or becomes another one by `exec`, the kernel does with them what it does with all sockets, and the
//! keeper passes it on: an end after all that was written, or a reset if something was left unread. The keeper ends, and
//! takes down what it set up, when no process that has asked it lives, none has a socket of its any more, and what was
//! written is delivered.

mod address;
mod client;
mod clients;
mod launch;
mod protocol;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use address::KeeperAddress;
pub use client::KeeperClient;
use clients::{Clients, Newcomer};
pub use launch::{launch, tell_ready};
use polypath_control::{process_name, process_name_of};
use polypath_stack::engine::ConnectOptions;
pub use protocol::Seen;
use protocol::{Answer, Asked, Question};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::{CarriedConnection, Relay, RelayChoices, errno};

/// Programs that are answered at a time; others wait.
const THREADS: usize = 4;
/// How long a program may take to ask once it is connected.
const ASKING: Duration = Duration::from_secs(1);
/// How long a keeper waits for the first program.
const FIRST_CLIENT: Duration = Duration::from_secs(10);
/// How often is looked, when all programs have ended, whether their connections have.
const LOOKING: Duration = Duration::from_millis(50);
/// How long peers may take for what programs wrote before they ended. Retransmissions give up sooner.
const DELIVERY: Duration = Duration::from_secs(600);
/// How long a keeper that ends may have the name that its successor wants.
const SUCCESSION: Duration = Duration::from_secs(2);

/// Keeps the connections of the programs that ask it.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<KeeperShared>,
    threads: Vec<JoinHandle<()>>,
    newcomers: UnboundedReceiver<Newcomer>,
}

#[derive(Debug)]
struct KeeperShared {
    address: KeeperAddress,
    socket: OwnedFd,
    choices: RelayChoices,
    /// From the first question on that needs it. If it can't be started, so it stays: each process is told why.
    relay: OnceLock<Result<Relay, (i32, String)>>,
    clients: Clients,
}

impl Keeper {
    /// A keeper at this address; none if there is one already.
    pub fn start(address: KeeperAddress, choices: RelayChoices) -> io::Result<Option<Self>> {
        let Some(socket) = listen(&address)? else { return Ok(None) };
        // The program that started it may have kept few descriptors for itself; each of its connections needs one here.
        polypath_system::process::raise_descriptor_limit();
        let (clients, newcomers) = Clients::new();
        let shared = Arc::new(KeeperShared { address, socket, choices, relay: OnceLock::new(), clients });
        let spawn = || {
            let shared = shared.clone();
            std::thread::Builder::new().name("keeper".to_string()).spawn(move || shared.answer_all())
        };
        let threads = (0..THREADS).map(|_| spawn()).collect::<io::Result<_>>()?;
        Ok(Some(Self { shared, threads, newcomers }))
    }

    /// Waits until no program is left, and nothing of what they did.
    ///
    /// Must be called within a tokio runtime.
    pub async fn wait(&mut self) {
        let began = Instant::now();
        let mut living = JoinSet::new();
        loop {
            tokio::select! {
                Some(newcomer) = self.newcomers.recv() => {
                    living.spawn(wait_for_end(newcomer));
                }
                Some(ended) = living.join_next() => {
                    ended.into_iter().for_each(|pid| self.shared.clients.leave(pid));
                    if living.is_empty() && self.shared.is_over(began) {
                        return;
                    }
                }
                () = tokio::time::sleep(LOOKING), if living.is_empty() => {
                    if self.shared.is_over(began) {
                        return;
                    }
                }
            }
        }
    }

    /// Ends: what was written is delivered, peers are told, and what was set up is taken down. Whoever asks from now on finds
    /// nobody, and starts another one.
    ///
    /// Must not be called within a tokio runtime.
    pub fn finish(self) {
        self.shared.clients.end();
        // Wakes the threads.
        let _ = rustix::net::shutdown(&self.shared.socket, Shutdown::Both);
        for thread in self.threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
        // The name is free from here on.
        let relay = Arc::into_inner(self.shared).and_then(|shared| shared.relay.into_inner());
        if let Some(Ok(mut relay)) = relay {
            relay.finish_within(DELIVERY);
        }
    }
}

/// A socket of that name; none if somebody answers there already.
fn listen(address: &KeeperAddress) -> io::Result<Option<OwnedFd>> {
    let open = || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
    };
    let at = address.socket()?;
    let began = Instant::now();
    loop {
        let socket = open()?;
        match rustix::net::bind(&socket, &at) {
            Ok(()) => {
                rustix::net::listen(&socket, 128)?;
                return Ok(Some(socket));
            }
            Err(rustix::io::Errno::ADDRINUSE) if began.elapsed() < SUCCESSION => {}
            Err(error) => return Err(error.into()),
        }
        if rustix::net::connect(&open()?, &at).is_ok() {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn wait_for_end(Newcomer { pid, process }: Newcomer) -> rustix::process::Pid {
    // SAFETY: the descriptor stays open and the same as long as the `AsyncFd`, which owns it.
    #[allow(unsafe_code)]
    let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
    if let Ok(process) = process {
        let _ = process.readable().await;
    }
    pid
}

impl KeeperShared {
    /// No program is left, and nothing of what they did. If so, no more are taken.
    fn is_over(&self, began: Instant) -> bool {
        if !self.clients.is_empty() || !self.clients.has_had_one() && began.elapsed() < FIRST_CLIENT {
            return false;
        }
        if let Some(Ok(relay)) = self.relay.get() {
            relay.abandon();
            // If it can't be known, they would be kept for ever.
            if relay.is_in_use().unwrap_or(false) {
                return false;
            }
        }
        self.clients.end_if_empty()
    }

    fn answer_all(&self) {
        loop {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                // It asked wrongly, or is gone.
                Ok(program) => self.answer(&program).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::INVAL) => return,
                // Out of descriptors, most likely; others may be closed soon.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn answer(&self, program: &OwnedFd) -> io::Result<()> {
        set_socket_timeout(program, Timeout::Recv, Some(ASKING))?;
        let (asked, socket) = protocol::receive::<Asked>(program.as_fd())?;
        let Some(socket) = socket.filter(|_| self.address.has_secret(&asked.secret)) else {
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        let Some(_asking) = self.clients.enter(program.as_fd())? else { return Ok(()) };
        let answer = self
            .act(&asked.question, socket, program.as_fd())
            .unwrap_or_else(|error| Answer::Failed { errno: errno(&error), message: error.to_string() });
        protocol::send(program.as_fd(), &answer, None)
    }

    /// Does what is asked. The socket is let go of before the answer, after which it is the program's alone.
    fn act(&self, question: &Question, socket: OwnedFd, asking: BorrowedFd<'_>) -> io::Result<Answer> {
        let program = socket.as_fd();
        Ok(match question {
            Question::Connect(remote) => {
                Answer::Begun(self.relay(asking)?.begin(program, *remote, ConnectOptions::default())?)
            }
            Question::Listen(local) => {
                let relay = self.relay(asking)?;
                if relay.listens_at(program).is_none() {
                    relay.listen(program, *local, true)?;
                }
                Answer::Done
            }
            Question::Accepted => {
                Answer::Found(self.running().and_then(|relay| relay.accepted(program)).map(seen))
            }
            Question::Find => Answer::Found(self.running().and_then(|relay| relay.find(program)).map(seen)),
            Question::OptionsChanged => {
                if let Some(relay) = self.running() {
                    relay.options_changed(program)?;
                }
                Answer::Done
            }
        })
    }

    /// The relay, which has the name of the program that needs it first.
    fn relay(&self, asking: BorrowedFd<'_>) -> io::Result<&Relay> {
        let start = || {
            let relay = Relay::start_for(&self.choices, name_of(asking));
            relay.map_err(|error| (errno(&error), error.to_string()))
        };
        self.relay.get_or_init(start).as_ref().map_err(|(number, message)| {
            io::Error::new(io::Error::from_raw_os_error(*number).kind(), message.clone())
        })
    }

    fn running(&self) -> Option<&Relay> {
        self.relay.get()?.as_ref().ok()
    }
}

/// What the program at the other end of a socket is called.
fn name_of(asking: BorrowedFd<'_>) -> String {
    let pid = rustix::net::sockopt::socket_peercred(asking).ok().map(|peer| peer.pid.as_raw_nonzero().get());
    let name = pid.and_then(|pid| process_name_of(u32::try_from(pid).ok()?));
    name.unwrap_or_else(process_name)
}

fn seen(carried: Arc<CarriedConnection>) -> Seen {
    Seen { remote: carried.remote(), local: carried.seen_local().ok(), error: carried.error() }
}
