//! Links in real time between real interfaces: what comes in at one leaves by the other as the `link` crate would have it.
//!
//! Every Ethernet frame is carried, whatever it holds, and leaves as it came; only middleboxes change packets, and they see
//! TCP, UDP and ICMP errors alone. Two stations (hosts or routers) face each other over a link, one at each interface.

mod emulated_link;
mod error;
mod frame;
mod port;
mod worker;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub use emulated_link::{DirectionStatistics, EmulatedLink, LinkStatistics};
pub use error::EmulateError;
use polypath_link::Change;
use polypath_link::middlebox::Direction;
use polypath_link::queue::DROP_TAIL;
use polypath_system::Namespace;
pub use port::PortStatistics;
use rustix::event::{EventfdFlags, eventfd};
use worker::{Line, Request, Worker};

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
                if config.discipline != DROP_TAIL {
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
        self.change_direction(link, Direction::Forward, change.clone())?;
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
