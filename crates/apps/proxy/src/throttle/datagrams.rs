//! Datagrams of a client in limits: each passes whole, waits in a short queue, or is dropped.
//!
//! Who sends datagrams, such as a call, a game or QUIC, paces them by what is lost and how late the rest comes. A long queue would make all of them
//! late, and none would lose the few that leave together. So few wait, and none for long.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

use polypath_units::{Duration, Instant};

use super::flow::{Flow, Grant, Throttle};
use super::limit::{Direction, FlowKey, Moment};
use crate::target::{Host, Target};

/// How long a datagram waits, at most. It is as long as a limit may have one wait that asks.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// What may wait each way of a client, of all that it talks to. One that is longer waits alone.
const MOST_WAITING: usize = 32;
const MOST_WAITING_OCTETS: usize = 64 << 10;
/// Places that a client talks to at once, each of which is a flow each way. Of those that it talked to longer ago, nothing waits any more.
const MOST_PLACES: usize = 64;

/// Datagrams of a client both ways. Sans-IO: who has a datagram asks whether it goes now, and polls for those that waited.
#[derive(Debug)]
pub struct DatagramFlows<T> {
    throttle: Throttle,
    client: IpAddr,
    user: Option<Box<str>>,
    /// The one that something went to or came from last is the last.
    places: Vec<Place<T>>,
    held: [Held; 2],
    retry: Option<Instant>,
}

/// What waits one way.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    datagrams: usize,
    octets: usize,
}

/// Where datagrams go, and whence answers come.
#[derive(Debug)]
struct Place<T> {
    target: Target,
    address: IpAddr,
    ways: [Line<T>; 2],
}

/// Those that go one way to or from a place.
#[derive(Debug)]
struct Line<T> {
    flow: Flow,
    waiting: VecDeque<Waiting<T>>,
    /// Octets that limits have given to the first that waits.
    granted: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    datagram: T,
    octets: usize,
    came: Instant,
}

const WAYS: [Direction; 2] = [Direction::Up, Direction::Down];

impl<T> DatagramFlows<T> {
    /// Of a client, who may have said who it is.
    #[must_use]
    pub fn new(throttle: &Throttle, client: IpAddr, user: Option<Box<str>>) -> Self {
        let (places, held) = (Vec::new(), Default::default());
        Self { throttle: throttle.clone(), client, user, places, held, retry: None }
    }

    /// Whether a datagram of so many octets goes now to that address of its target. Else `copy` is called for what is to wait, if it may. The time is
    /// asked for only where there are limits.
    pub fn goes_up(
        &mut self,
        moment: impl FnOnce() -> Moment,
        (target, address): (&Target, IpAddr),
        octets: usize,
        copy: impl FnOnce() -> T,
    ) -> bool {
        let is_it = |place: &Place<T>| place.address == address && place.target == *target;
        let at = self.place(is_it, || (target.clone(), address));
        self.goes(at, Direction::Up, moment, octets, copy)
    }

    /// The same of one from this address to the client. To limits it comes from what the client called that when it sent something there.
    pub fn goes_down(
        &mut self,
        moment: impl FnOnce() -> Moment,
        source: SocketAddr,
        octets: usize,
        copy: impl FnOnce() -> T,
    ) -> bool {
        let is_it = |place: &Place<T>| place.address == source.ip() && place.target.port == source.port();
        let at = self.place(is_it, || {
            let target = Target { host: Host::Address(source.ip()), port: source.port() };
            (target, source.ip())
        });
        self.goes(at, Direction::Down, moment, octets, copy)
    }

    /// The next that has waited long enough, and which way it goes. A change of limits wakes, while any waits.
    pub fn poll(&mut self, moment: Moment, waker: &Waker) -> Option<(Direction, T)> {
        self.retry = None;
        for place in &mut self.places {
            for direction in WAYS {
                let (line, held) = (&mut place.ways[direction as usize], &mut self.held[direction as usize]);
                match line.poll(moment, held, waker) {
                    Some(Next::Goes(datagram)) => return Some((direction, datagram)),
                    Some(Next::At(at)) => self.retry = Some(self.retry.map_or(at, |retry| retry.min(at))),
                    None => {}
                }
            }
        }
        None
    }

    /// When to poll again, once there was none.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.retry
    }

    /// Whether any waits.
    #[must_use]
    pub fn are_waiting(&self) -> bool {
        self.held.iter().any(|held| held.datagrams > 0)
    }

    /// The place that is meant, which is the last from now on.
    fn place(
        &mut self,
        is_it: impl FnMut(&Place<T>) -> bool,
        what: impl FnOnce() -> (Target, IpAddr),
    ) -> usize {
        if let Some(at) = self.places.iter().rposition(is_it) {
            let last = self.places.len() - 1;
            // Most often it was the last already.
            if at < last {
                self.places[at..].rotate_left(1);
            }
            return last;
        }
        if self.places.len() >= MOST_PLACES {
            let gone = self.places.remove(0);
            for (line, held) in gone.ways.iter().zip(&mut self.held) {
                for waiting in &line.waiting {
                    held.take_out(waiting.octets);
                    line.flow.drops();
                }
            }
        }
        let (target, address) = what();
        let line = |direction| {
            let key = FlowKey {
                client: self.client,
                user: self.user.clone(),
                target: target.clone(),
                address,
                interface: None,
                local: None,
                direction,
            };
            Line { flow: self.throttle.open(key), waiting: VecDeque::new(), granted: 0 }
        };
        let ways = WAYS.map(line);
        self.places.push(Place { target, address, ways });
        self.places.len() - 1
    }

    fn goes(
        &mut self,
        at: usize,
        direction: Direction,
        moment: impl FnOnce() -> Moment,
        octets: usize,
        copy: impl FnOnce() -> T,
    ) -> bool {
        let (line, held) =
            (&mut self.places[at].ways[direction as usize], &mut self.held[direction as usize]);
        if line.waiting.is_empty() && !line.flow.is_limited() {
            line.granted = 0;
            return true;
        }
        let moment = moment();
        let asks = line.waiting.is_empty();
        if asks && line.ask(moment, octets, Waker::noop()).is_none() {
            return true;
        }
        if held.has_room(octets) {
            held.datagrams += 1;
            held.octets += octets;
            line.waiting.push_back(Waiting { datagram: copy(), octets, came: moment.now });
        } else {
            line.flow.drops();
            if asks {
                line.flow.gives_up();
            }
        }
        false
    }
}

/// What a line has.
enum Next<T> {
    Goes(T),
    /// Nothing before this time.
    At(Instant),
}

impl<T> Line<T> {
    fn poll(&mut self, moment: Moment, held: &mut Held, waker: &Waker) -> Option<Next<T>> {
        while let Some(first) = self.waiting.front() {
            let (octets, leaves_at) = (first.octets, first.came + MOST_WAIT);
            if leaves_at <= moment.now {
                self.waiting.pop_front();
                held.take_out(octets);
                self.flow.drops();
                if self.waiting.is_empty() {
                    self.flow.gives_up();
                }
                continue;
            }
            if let Some(at) = self.ask(moment, octets, waker) {
                return Some(Next::At(at.min(leaves_at)));
            }
            held.take_out(octets);
            return self.waiting.pop_front().map(|first| Next::Goes(first.datagram));
        }
        None
    }

    /// When to ask again for the octets of a datagram, unless it may go now. What is given before it has all is kept for it, or for the next.
    fn ask(&mut self, moment: Moment, octets: usize, waker: &Waker) -> Option<Instant> {
        // An empty one is something, too.
        let octets = octets.max(1) as u64;
        while self.granted < octets {
            match self.flow.poll_grant(moment, octets - self.granted, waker) {
                Grant::Octets(more) => self.granted += more,
                Grant::Wait(at) => return Some(at),
            }
        }
        self.granted -= octets;
        None
    }
}

impl Held {
    fn has_room(&self, octets: usize) -> bool {
        self.datagrams == 0
            || self.datagrams < MOST_WAITING && self.octets.saturating_add(octets) <= MOST_WAITING_OCTETS
    }

    fn take_out(&mut self, octets: usize) {
        self.datagrams -= 1;
        self.octets -= octets;
    }
}

#[cfg(test)]
#[path = "datagram_tests.rs"]
mod tests;
