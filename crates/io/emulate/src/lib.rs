//! Links in real time between real interfaces: what comes in at one leaves by the other as the `link` crate would have it.
//!
//! Every Ethernet frame is carried, whatever it holds, and leaves as it came; only middleboxes change packets, and they see
//! TCP, UDP and ICMP errors alone. Two stations (hosts or routers) face each other over a link, one at each interface.

mod frame;
mod port;
mod worker;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use polypath_link::middlebox::{self, Direction};
use polypath_link::queue::Discipline;
use polypath_link::{Change, LinkConfig, LinkStats};
use polypath_system::Namespace;
use polypath_units::Duration;
pub use port::PortStatistics;
use rustix::event::{EventfdFlags, eventfd};
use worker::{Line, Worker};

/// A link to be emulated.
#[derive(Clone, Debug)]
pub struct EmulatedLink {
    /// The interface at one end. Nothing else should use it: an address on it would make the kernel answer, too.
    pub a: String,
    /// The interface at the other end.
    pub b: String,
    /// From `a` to `b`. Times of the schedule count from the start of the emulation.
    pub forward: LinkConfig,
    /// From `b` to `a`.
    pub backward: LinkConfig,
    /// From `a` to `b`; packets meet them before the link itself.
    pub middleboxes: Vec<middlebox::Kind>,
    /// Source of everything random.
    pub seed: u64,
}

/// What a direction of a link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStatistics {
    /// The link itself.
    pub link: LinkStats,
    /// How late a frame left at most: how far the emulation was from what was asked.
    pub max_lateness: Duration,
    /// How often frames left more than 0.2 ms late.
    pub late_batches: u64,
}

/// What an emulated link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// From `a` to `b`.
    pub forward: DirectionStatistics,
    /// From `b` to `a`.
    pub backward: DirectionStatistics,
    /// The interface `a`.
    pub a: PortStatistics,
    /// The interface `b`.
    pub b: PortStatistics,
}

/// Why links can't be emulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulateError {
    /// Raw sockets need a privilege.
    #[error("frames can't be read and written: this needs the capability CAP_NET_RAW; run as root")]
    Permission,
    /// There is no such interface.
    #[error("{name}: no such interface; expected one that `ip link` lists")]
    Missing {
        /// The interface.
        name: String,
    },
    /// The interface is not up.
    #[error("{name}: the interface is down; bring it up with `ip link set {name} up`")]
    Down {
        /// The interface.
        name: String,
    },
    /// Frames of other networks have other headers.
    #[error("{name}: no Ethernet interface; expected one such as eth0 or a veth")]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// An interface can be the end of one link.
    #[error("{name}: the end of two links; expected interfaces of their own for each")]
    Twice {
        /// The interface.
        name: String,
    },
    /// Only drop-tail queues hold frames.
    #[error("queue discipline {name}: not for real interfaces; expected drop-tail")]
    Discipline {
        /// The discipline.
        name: &'static str,
    },
    /// The system refused something about an interface.
    #[error("{name}: {what}: {error}")]
    Interface {
        /// The interface.
        name: String,
        /// What was refused.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The system refused something else.
    #[error("links can't be emulated: {0}")]
    Io(#[from] io::Error),
}

impl From<EmulateError> for io::Error {
    fn from(error: EmulateError) -> Self {
        match error {
            EmulateError::Io(error) => error,
            EmulateError::Permission => Self::new(io::ErrorKind::PermissionDenied, error),
            EmulateError::Missing { .. } => Self::new(io::ErrorKind::NotFound, error),
            other => Self::other(other),
        }
    }
}

/// What the emulating thread is asked.
#[derive(Debug)]
enum Request {
    Change(usize, Direction, Change),
    Statistics(Sender<Vec<LinkStatistics>>),
    Stop,
}

/// Links that are being emulated, by a thread of their own, until this is dropped.
#[derive(Debug)]
pub struct Emulation {
    requests: Sender<Request>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    links: usize,
    failure: Arc<Mutex<Option<String>>>,
}

impl Emulation {
    /// Starts to emulate links between interfaces of a namespace. Needs CAP_NET_RAW there.
    ///
    /// # Errors
    /// What is wrong with an interface.
    pub fn start(namespace: &Namespace, links: Vec<EmulatedLink>) -> Result<Self, EmulateError> {
        let mut names: Vec<&str> = Vec::new();
        for link in &links {
            for name in [&link.a, &link.b] {
                if names.contains(&name.as_str()) {
                    return Err(EmulateError::Twice { name: name.clone() });
                }
                names.push(name);
            }
            for config in [&link.forward, &link.backward] {
                if !matches!(config.discipline, Discipline::DropTail) {
                    return Err(EmulateError::Discipline { name: config.discipline.name() });
                }
            }
        }
        let links_count = links.len();
        let lines = namespace.run(|| links.into_iter().map(Line::open).collect::<Result<Vec<_>, _>>())??;
        let wake =
            Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?);
        let (requests, inbox): (Sender<Request>, Receiver<Request>) = channel();
        let failure = Arc::new(Mutex::new(None));
        let mut worker = Worker::new(lines, inbox, wake.clone());
        let report = failure.clone();
        let thread = std::thread::Builder::new().name("emulation".into()).spawn(move || {
            // Why it ended is there before the worker, and the inbox with it, is gone: who asks then looks for it.
            if let Err(error) = worker.run() {
                *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        })?;
        Ok(Self { requests, wake, thread: Some(thread), links: links_count, failure })
    }

    /// Number of links.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links
    }

    /// True without any link.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links == 0
    }

    /// Changes both directions of a link, by its number, now.
    pub fn change(&self, link: usize, change: Change) -> io::Result<()> {
        self.change_direction(link, Direction::Forward, change)?;
        self.change_direction(link, Direction::Backward, change)
    }

    /// Changes one direction of a link, by its number, now.
    pub fn change_direction(&self, link: usize, direction: Direction, change: Change) -> io::Result<()> {
        if link >= self.links {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no link number {link}")));
        }
        self.ask(Request::Change(link, direction, change))
    }

    /// What the links have done so far, in their order.
    ///
    /// # Errors
    /// Why the emulation has ended, if it has.
    pub fn statistics(&self) -> io::Result<Vec<LinkStatistics>> {
        let (answer, answers) = channel();
        self.ask(Request::Statistics(answer))?;
        answers.recv().map_err(|_| self.ended())
    }

    fn ask(&self, request: Request) -> io::Result<()> {
        self.requests.send(request).map_err(|_| self.ended())?;
        rustix::io::write(self.wake.as_fd(), &1u64.to_ne_bytes())?;
        Ok(())
    }

    fn ended(&self) -> io::Error {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        io::Error::other(failure.unwrap_or_else(|| "the emulation has ended".into()))
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.ask(Request::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
