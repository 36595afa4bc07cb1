//! Who is served when more come than can be.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polypath_tcp::source_prefix;
use tokio::task::AbortHandle;

/// Whom an address belongs to, which a handshake has proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// Whole networks of IPv4 belong to few.
    Host(Ipv4Addr),
    /// A household has an IPv6 network ([`source_prefix`]).
    Network(u64),
}

impl Client {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::Host(address),
            address @ IpAddr::V6(_) => Self::Network(source_prefix(address)),
        }
    }
}

/// How many requests of a connection are being answered. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<AtomicUsize>);

impl Requests {
    /// One more, until this is dropped.
    pub(crate) fn begin(&self) -> Request {
        self.0.fetch_add(1, Ordering::Relaxed);
        Request(self.clone())
    }

    /// How many there are now.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Request(Requests);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Held {
    client: Client,
    requests: Requests,
    /// None until the task runs.
    task: Option<AbortHandle>,
}

/// The connections that are served: a bounded number, shared fairly. When all places are taken, a connection that waits for a
/// request makes room before one that is being answered, and one of the client that has the most before others.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    most_of_client: usize,
    next: u64,
    held: HashMap<u64, Held>,
    of_client: HashMap<Client, usize>,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, most_of_client: usize::MAX, next: 0, held: HashMap::new(), of_client: HashMap::new() }
    }

    /// The same, where no client has more than so many.
    pub(crate) fn with_most_of_client(self, most: Option<usize>) -> Self {
        Self { most_of_client: most.unwrap_or(usize::MAX), ..self }
    }

    /// A place for a connection; none if others have more right to theirs.
    pub(crate) fn take(&mut self, address: IpAddr) -> Option<(u64, Requests)> {
        let client = Client::of(address);
        if self.of_client.get(&client).is_some_and(|count| *count >= self.most_of_client) {
            return None;
        }
        while self.is_full() {
            let victim = self.victim(client)?;
            if let Some(task) = self.release(victim).and_then(|held| held.task) {
                task.abort();
            }
        }
        let (number, requests) = (self.next, Requests::default());
        self.next += 1;
        self.held.insert(number, Held { client, requests: requests.clone(), task: None });
        *self.of_client.entry(client).or_default() += 1;
        Some((number, requests))
    }

    /// Names the task, so that it can make room.
    pub(crate) fn set_task(&mut self, number: u64, task: AbortHandle) {
        if let Some(held) = self.held.get_mut(&number) {
            held.task = Some(task);
        }
    }

    /// Whether nobody gets a place unless another makes room.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= self.most
    }

    /// Whether a connection still has its place.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.held.contains_key(&number)
    }

    /// Gives a place back.
    pub(crate) fn give_back(&mut self, number: u64) {
        self.release(number);
    }

    fn release(&mut self, number: u64) -> Option<Held> {
        let held = self.held.remove(&number)?;
        if let Some(count) = self.of_client.get_mut(&held.client) {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(&held.client);
            }
        }
        Some(held)
    }

    /// The oldest of those that wait for a request, among those of the client with the most connections; if there is none,
    /// the newest of a client that has at least two more than the one that comes would have.
    fn victim(&self, newcomer: Client) -> Option<u64> {
        let count = |client| self.of_client.get(&client).copied().unwrap_or(0);
        let is_idle = |held: &Held| held.requests.count() == 0;
        let idle = self.held.iter().filter(|(_, held)| is_idle(held));
        let idle = idle.max_by_key(|(number, held)| (count(held.client), std::cmp::Reverse(**number)));
        if let Some((number, _)) = idle {
            return Some(*number);
        }
        let busy = self.held.iter().max_by_key(|(number, held)| (count(held.client), **number));
        let (number, held) = busy?;
        (count(held.client) >= count(newcomer) + 2).then_some(*number)
    }

    #[cfg(test)]
    fn count(&self, address: &str) -> usize {
        let client = Client::of(address.parse().expect("an address"));
        self.of_client.get(&client).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn nobody_takes_all_places() {
        let mut places = Places::new(10);
        let hog: Vec<_> = (0..10).map(|_| places.take(at("192.0.2.1")).expect("room")).collect();
        let answered: Vec<_> = hog.iter().map(|(_, requests)| requests.begin()).collect();
        // All of them are being answered, and yet others get their share.
        for other in 2..=5 {
            let (_, requests) = places.take(at(&format!("192.0.2.{other}"))).expect("a share");
            std::mem::forget(requests.begin());
        }
        assert_eq!(places.count("192.0.2.1"), 6);
        for _ in 0..20 {
            if let Some((_, requests)) = places.take(at("192.0.2.6")) {
                std::mem::forget(requests.begin());
            }
        }
        assert_eq!((places.count("192.0.2.1"), places.count("192.0.2.6")), (3, 3));
        // The one with the most does not drive out others.
        assert!(places.take(at("192.0.2.1")).is_none());
        assert_eq!((2..=5).map(|other| places.count(&format!("192.0.2.{other}"))).sum::<usize>(), 4);
        drop(answered);
    }

    #[test]
    fn who_waits_for_a_request_makes_room() {
        let mut places = Places::new(3);
        let (first, _) = places.take(at("192.0.2.1")).expect("room");
        let (_, busy) = places.take(at("192.0.2.2")).expect("room");
        let request = busy.begin();
        places.take(at("192.0.2.3")).expect("room");
        // As many clients as places, and a flood of further ones: whoever asks at once is answered.
        for other in 4..200 {
            places.take(at(&format!("192.0.2.{other}"))).expect("the place of an idle one");
        }
        assert_eq!((places.count("192.0.2.2"), places.held.len()), (1, 3));
        drop(request);
        places.give_back(first);
        assert_eq!(places.held.len(), 3, "it was gone before");
    }

    #[test]
    fn a_client_has_no_more_than_it_may() {
        let mut places = Places::new(10).with_most_of_client(Some(2));
        let held: Vec<_> = (0..3).map(|_| places.take(at("192.0.2.1"))).collect();
        assert!(held[1].is_some() && held[2].is_none());
        assert!(places.take(at("192.0.2.2")).is_some());
        places.give_back(held[0].as_ref().expect("a place").0);
        assert!(places.take(at("192.0.2.1")).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let mut places = Places::new(10);
        places.take(at("2001:db8::1")).expect("room");
        places.take(at("2001:db8::ffff:0:0:1")).expect("room");
        places.take(at("2001:db8:0:100::1")).expect("room");
        places.take(at("::ffff:192.0.2.1")).expect("room");
        assert_eq!((places.count("2001:db8::2"), places.count("192.0.2.1")), (2, 1));
    }
}
