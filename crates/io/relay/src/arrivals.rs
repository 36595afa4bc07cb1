//! Connections on their way to programs' listeners, each with room for the descriptor that the program accepts it with.
//!
//! A listener that is readable while its program has no descriptor left would make that program go round and round: it is
//! told of a connection that it can't accept. So a descriptor is kept for each, and no more connections come than that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    connections: HashMap<SocketAddr, Arrival<C>>,
    /// By the listener: what is kept for one would leave another's connections without.
    rooms: HashMap<SocketAddr, Room>,
}

#[derive(Debug)]
struct Arrival<C> {
    listener: SocketAddr,
    connection: C,
}

/// What a listener has to accept, and to accept it with.
#[derive(Debug, Default)]
struct Room {
    connections: usize,
    /// As many, but for those that the program has been given.
    kept: Vec<OwnedFd>,
}

impl<C> Arrivals<C> {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::new(Waiting { connections: HashMap::new(), rooms: HashMap::new() }) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<C>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A socket that is to connect to a program's listener, where it is known again by its address. An error where there
    /// is no descriptor for either side.
    pub(super) fn call(&self, listener: SocketAddr, connection: C) -> io::Result<(TcpSocket, SocketAddr)> {
        // Until it is done: nothing is taken for a moment that the program has just been given, at any listener.
        let mut waiting = self.waiting();
        if waiting.rooms.values().any(|room| room.kept.len() < room.connections) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let (socket, at) = caller(listener)?;
        let kept = eventfd(0, EventfdFlags::CLOEXEC)?;
        let room = waiting.rooms.entry(listener).or_default();
        room.kept.push(kept);
        room.connections += 1;
        waiting.connections.insert(at, Arrival { listener, connection });
        Ok((socket, at))
    }

    /// One that was accepted, or won't be.
    pub(super) fn remove(&self, at: SocketAddr) -> Option<C> {
        let mut waiting = self.waiting();
        let Arrival { listener, connection } = waiting.connections.remove(&at)?;
        if let Entry::Occupied(mut room) = waiting.rooms.entry(listener) {
            let left = room.get().connections.saturating_sub(1);
            room.get_mut().connections = left;
            room.get_mut().kept.truncate(left);
            if left == 0 {
                room.remove();
            }
        }
        Some(connection)
    }

    /// Gives the program a descriptor that was kept for it to accept with at a listener; false if there is none.
    pub(super) fn make_room(&self, listener: SocketAddr) -> bool {
        self.waiting().rooms.get_mut(&listener).and_then(|room| room.kept.pop()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("an address");
        let at = listener.local_addr().expect("it");
        (listener, at)
    }

    #[tokio::test]
    async fn what_the_program_was_given_is_not_taken_from_it() {
        let (_listener, to) = listener();
        let arrivals = Arrivals::new();
        assert!(!arrivals.make_room(to), "nothing has arrived");
        let (_first, at) = arrivals.call(to, ()).expect("room");
        assert!(arrivals.make_room(to) && !arrivals.make_room(to));
        let refused = arrivals.call(to, ()).expect_err("the program is accepting");
        assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
        assert!(arrivals.remove(at).is_some() && arrivals.remove(at).is_none());
        let (_second, at) = arrivals.call(to, ()).expect("it has accepted");
        arrivals.remove(at).expect("the second");
        assert!(!arrivals.make_room(to), "nothing is kept for what was accepted");
    }

    #[tokio::test]
    async fn what_is_kept_for_one_listener_is_not_given_to_another() {
        let ((_one, one), (_other, other)) = (listener(), listener());
        let arrivals = Arrivals::new();
        let (_first, at) = arrivals.call(one, ()).expect("room");
        assert!(!arrivals.make_room(other), "nothing has arrived there");
        assert!(arrivals.make_room(one), "that of the other is still kept");
        let refused = arrivals.call(other, ()).expect_err("the program is accepting");
        assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
        arrivals.remove(at).expect("the first");
        arrivals.call(other, ()).expect("it has accepted");
    }
}
