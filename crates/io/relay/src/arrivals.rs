//! Connections on their way to programs' listeners, each with room for the descriptor that the program accepts it with.
//!
//! A listener that is readable while its program has no descriptor left would make that program go round and round: it is
//! told of a connection that it can't accept. So a descriptor is kept for each, and no more connections come than that.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use tokio::net::TcpSocket;

use crate::join::caller;

/// All that were not accepted yet.
#[derive(Debug)]
pub(super) struct Arrivals<C> {
    waiting: Mutex<Waiting<C>>,
}

#[derive(Debug)]
struct Waiting<C> {
    /// By the address of our socket.
    connections: HashMap<SocketAddr, C>,
    /// As many, but for those that the program has been given.
    kept: Vec<OwnedFd>,
}

impl<C> Arrivals<C> {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::new(Waiting { connections: HashMap::new(), kept: Vec::new() }) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<C>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A socket that is to connect to a program's listener, where it is known again by its address. An error where there
    /// is no descriptor for either side.
    pub(super) fn call(&self, listener: SocketAddr, connection: C) -> io::Result<(TcpSocket, SocketAddr)> {
        // Until it is done: nothing is taken for a moment that the program has just been given.
        let mut waiting = self.waiting();
        if waiting.kept.len() < waiting.connections.len() {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let (socket, at) = caller(listener)?;
        waiting.kept.push(eventfd(0, EventfdFlags::CLOEXEC)?);
        waiting.connections.insert(at, connection);
        Ok((socket, at))
    }

    /// One that was accepted, or won't be.
    pub(super) fn remove(&self, at: SocketAddr) -> Option<C> {
        let mut waiting = self.waiting();
        let removed = waiting.connections.remove(&at);
        let count = waiting.connections.len();
        waiting.kept.truncate(count);
        removed
    }

    /// Gives the program a descriptor that was kept for it; false if there is none.
    pub(super) fn make_room(&self) -> bool {
        self.waiting().kept.pop().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn what_the_program_was_given_is_not_taken_from_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("an address");
        let to = listener.local_addr().expect("it");
        let arrivals = Arrivals::new();
        assert!(!arrivals.make_room(), "nothing has arrived");
        let (_first, at) = arrivals.call(to, ()).expect("room");
        assert!(arrivals.make_room() && !arrivals.make_room());
        let refused = arrivals.call(to, ()).expect_err("the program is accepting");
        assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
        assert!(arrivals.remove(at).is_some() && arrivals.remove(at).is_none());
        let (_second, at) = arrivals.call(to, ()).expect("it has accepted");
        arrivals.remove(at).expect("the second");
        assert!(!arrivals.make_room(), "nothing is kept for what was accepted");
    }
}
