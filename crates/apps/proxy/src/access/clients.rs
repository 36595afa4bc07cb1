//! How much one client may have at once, and all together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polypath_units::{Duration, Instant};

use super::client_key::ClientKey;
use crate::failure::ConnectFailure;

/// How much one may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Connections at once.
    pub connections: u32,
    /// New connections in a second, in the long run.
    pub new_per_second: u32,
    /// New connections at once, after a while without any.
    pub burst: u32,
}

/// How much clients may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Each of them.
    pub each: Allowance,
    /// All together.
    pub all: Allowance,
    /// Of how many clients it is known what they have. Who has nothing is forgotten for another; where all have something, no other comes in.
    pub clients: usize,
    /// Octets of memory of the process. As long as it has more, nobody else comes in.
    pub memory: Option<u64>,
}

/// Whose limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// The client's.
    Client,
    /// That of all together.
    All,
}

impl std::fmt::Display for Whose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client => "this client has",
            Self::All => "all clients together have",
        })
    }
}

/// Why a client gets no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Overload {
    /// Connections at once.
    #[error("{0} as many connections as may be")]
    Connections(Whose),
    /// Connections in a short time.
    #[error("{0} opened connections faster than may be")]
    Pace(Whose),
    /// Octets that the process has.
    #[error("the proxy has as much memory as it may have")]
    Memory,
    /// Clients that have something.
    #[error("as many clients are here as may be")]
    Clients,
}

impl From<Overload> for ConnectFailure {
    fn from(_: Overload) -> Self {
        Self::Overloaded
    }
}

/// How old a measurement of memory may be.
const FRESH: Duration = Duration::from_millis(100);

/// Memory of the process, where that is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Octets that it has, as they were measured last.
    pub octets: u64,
    /// Octets that it may have.
    pub most: u64,
}

impl Memory {
    /// Whether nobody comes in.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.octets > self.most
    }
}

/// A bucket of tokens, as the one time at which it was or will be full (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    full_at: Instant,
}

impl Pace {
    /// What the bucket is after one more, or nothing if that is too soon.
    fn after_one(self, now: Instant, allowance: &Allowance) -> Option<Self> {
        let between = Duration::from_secs(1) / u64::from(allowance.new_per_second);
        // No more is missing than there is room for, which may have become less.
        let full_at = self.full_at.max(now).min(now + between * u64::from(allowance.burst.max(1)));
        let is_soon = full_at - now > between * u64::from(allowance.burst.max(1) - 1);
        (allowance.new_per_second != 0 && !is_soon).then(|| Self { full_at: full_at + between })
    }
}

/// What one has, or all together.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    connections: u32,
    pace: Pace,
}

impl Account {
    fn after_one(self, whose: Whose, now: Instant, allowance: &Allowance) -> Result<Self, Overload> {
        let account = self.with_place(whose, allowance)?;
        let pace = self.pace.after_one(now, allowance).ok_or(Overload::Pace(whose))?;
        Ok(Self { pace, ..account })
    }

    /// The place of one connection more, whose pace is not asked.
    fn with_place(self, whose: Whose, allowance: &Allowance) -> Result<Self, Overload> {
        if self.connections >= allowance.connections {
            return Err(Overload::Connections(whose));
        }
        Ok(Self { connections: self.connections + 1, ..self })
    }
}

#[derive(Debug)]
struct Book {
    limits: ClientLimits,
    all: Account,
    clients: BTreeMap<ClientKey, (Account, Instant)>,
    /// Who has no connection, by when each came last.
    idle: BTreeSet<(Instant, ClientKey)>,
    /// Octets that the process had, and when.
    measured: Option<(u64, Instant)>,
    /// Threads look at the clock before they wait for the book: who comes next may have looked earlier.
    latest: Instant,
}

impl Book {
    fn memory(&self) -> Option<Memory> {
        Some(Memory { octets: self.measured?.0, most: self.limits.memory? })
    }

    fn admit(&mut self, now: Instant, key: ClientKey) -> Result<(), Overload> {
        if self.memory().is_some_and(|memory| memory.is_full()) {
            return Err(Overload::Memory);
        }
        let now = self.latest.max(now);
        self.latest = now;
        let known = self.clients.get(&key).copied();
        let (account, last) = known.unwrap_or_default();
        let account = account.after_one(Whose::Client, now, &self.limits.each)?;
        let all = self.all.after_one(Whose::All, now, &self.limits.all)?;
        if known.is_some() {
            self.idle.remove(&(last, key));
        } else {
            self.make_room()?;
        }
        self.clients.insert(key, (account, now));
        self.all = all;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Overload> {
        if self.memory().is_some_and(|memory| memory.is_full()) {
            return Err(Overload::Memory);
        }
        if self.all.connections >= self.limits.all.connections {
            return Err(Overload::Connections(Whose::All));
        }
        self.all.connections += 1;
        Ok(())
    }

    fn add_place(&mut self, key: ClientKey) -> Result<(), Overload> {
        let known = self.clients.get(&key).copied().filter(|(account, _)| account.connections > 0);
        let (account, last) = known.ok_or(Overload::Clients)?;
        let account = account.with_place(Whose::Client, &self.limits.each)?;
        self.all = self.all.with_place(Whose::All, &self.limits.all)?;
        self.clients.insert(key, (account, last));
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), Overload> {
        while self.clients.len() >= self.limits.clients {
            let (_, longest_gone) = self.idle.pop_first().ok_or(Overload::Clients)?;
            self.clients.remove(&longest_gone);
        }
        Ok(())
    }

    fn release(&mut self, key: ClientKey) {
        if let Some((account, last)) = self.clients.get_mut(&key) {
            account.connections -= 1;
            self.all.connections -= 1;
            if account.connections == 0 {
                self.idle.insert((*last, key));
            }
        }
    }
}

/// What clients have, and what they may have. Copies are of the same.
#[derive(Clone, Debug)]
pub struct Clients(Arc<Mutex<Book>>);

impl Clients {
    /// Nobody has anything yet.
    #[must_use]
    pub fn new(limits: ClientLimits) -> Self {
        let (all, clients, idle) = (Account::default(), BTreeMap::new(), BTreeSet::new());
        let book = Book { limits, all, clients, idle, measured: None, latest: Instant::ZERO };
        Self(Arc::new(Mutex::new(book)))
    }

    /// Other limits. Nothing is taken from those who have more.
    pub fn set_limits(&self, limits: ClientLimits) {
        self.book().limits = limits;
    }

    /// One more connection of a client. It lasts as long as what is given back.
    pub fn admit(&self, now: Instant, address: IpAddr) -> Result<Admission, Overload> {
        let key = address.into();
        self.book().admit(now, key)?;
        Ok(Admission { clients: self.clone(), key })
    }

    /// A connection of which it is yet to be said whose it is: it is one of all, and of no client. It lasts as long as what is given back.
    pub fn wait(&self) -> Result<Waiting, Overload> {
        self.book().wait()?;
        Ok(Waiting(self.clone()))
    }

    /// The place of one connection more for a client that is within, of whose connections one needs as much as two. How fast they come is not asked.
    /// It lasts as long as what is given back.
    pub fn admit_further(&self, address: IpAddr) -> Result<Admission, Overload> {
        let key = address.into();
        self.book().add_place(key)?;
        Ok(Admission { clients: self.clone(), key })
    }

    /// Whether somebody has to say how much memory the process has, before a client is admitted: that is limited, and was not said just now.
    #[must_use]
    pub fn wants_memory(&self, now: Instant) -> bool {
        let book = self.book();
        book.limits.memory.is_some() && book.measured.is_none_or(|(_, at)| now.since(at) >= FRESH)
    }

    /// The process has so many octets of memory now.
    pub fn set_memory(&self, now: Instant, octets: u64) {
        self.book().measured = Some((octets, now));
    }

    /// How much memory the process has, and may have, if that is limited and was ever said.
    #[must_use]
    pub fn memory(&self) -> Option<Memory> {
        self.book().memory()
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.book().all.connections
    }

    /// Whoever panicked with it left it whole: what changes it can't panic half way.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's connection, until it is dropped.
#[derive(Debug)]
pub struct Admission {
    clients: Clients,
    key: ClientKey,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.clients.book().release(self.key);
    }
}

/// A connection that is no client's yet, until it is dropped.
#[derive(Debug)]
pub struct Waiting(Clients);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.book().all.connections -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLENTY: Allowance = Allowance { connections: 1000, new_per_second: 1000, burst: 1000 };
    const LIMITS: ClientLimits = ClientLimits { each: PLENTY, all: PLENTY, clients: 1000, memory: None };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_at_once_are_limited_for_each_and_for_all() {
        let clients = Clients::new(ClientLimits {
            each: Allowance { connections: 2, ..PLENTY },
            all: Allowance { connections: 3, ..PLENTY },
            ..LIMITS
        });
        let admit = |address| clients.admit(Instant::ZERO, ip(address));
        let one = admit("192.0.2.1").unwrap();
        let _two = admit("::ffff:192.0.2.1").unwrap();
        assert_eq!(admit("192.0.2.1").unwrap_err(), Overload::Connections(Whose::Client));
        let _three = admit("192.0.2.2").unwrap();
        assert_eq!(admit("192.0.2.3").unwrap_err(), Overload::Connections(Whose::All));
        drop(one);
        assert_eq!(clients.connections(), 2);
        let again = admit("192.0.2.1").unwrap();
        assert_eq!(clients.connections(), 3);
        drop(again);
        assert_eq!(ConnectFailure::from(Overload::Clients), ConnectFailure::Overloaded);
    }

    #[test]
    fn who_is_not_known_yet_has_a_place_among_all_and_no_clients() {
        let each = Allowance { connections: 1, new_per_second: 1, burst: 1 };
        let all = Allowance { connections: 2, ..PLENTY };
        let clients = Clients::new(ClientLimits { each, all, ..LIMITS });
        let admit = |address| clients.admit(Instant::ZERO, ip(address));
        let one = clients.wait().unwrap();
        let _two = clients.wait().unwrap();
        assert_eq!(clients.wait().unwrap_err(), Overload::Connections(Whose::All));
        assert_eq!(admit("192.0.2.1").unwrap_err(), Overload::Connections(Whose::All));
        drop(one);
        let _admitted = admit("192.0.2.1").expect("nothing was counted against it");
        assert_eq!(clients.connections(), 2);
    }

    #[test]
    fn who_needs_as_much_as_two_has_two_places() {
        let each = Allowance { connections: 3, new_per_second: 1, burst: 2 };
        let all = Allowance { connections: 4, ..PLENTY };
        let clients = Clients::new(ClientLimits { each, all, ..LIMITS });
        let admit = |address| clients.admit(Instant::ZERO, ip(address));
        let further = |address| clients.admit_further(ip(address));
        assert_eq!(further("192.0.2.1").unwrap_err(), Overload::Clients, "nobody is within");
        let _one = admit("192.0.2.1").unwrap();
        // How fast they come is asked of connections alone.
        let more = further("192.0.2.1").unwrap();
        let _two = admit("192.0.2.1").unwrap();
        assert_eq!(further("192.0.2.1").unwrap_err(), Overload::Connections(Whose::Client));
        let _other = admit("192.0.2.2").unwrap();
        assert_eq!(further("192.0.2.2").unwrap_err(), Overload::Connections(Whose::All));
        drop(more);
        assert_eq!(clients.connections(), 3);
        let _more = further("192.0.2.2").unwrap();
        assert_eq!(clients.connections(), 4);
    }

    #[test]
    fn a_site_of_ipv6_is_one_client() {
        let clients = Clients::new(ClientLimits { each: Allowance { connections: 1, ..PLENTY }, ..LIMITS });
        let admit = |address| clients.admit(Instant::ZERO, ip(address));
        let _one = admit("2001:db8:0:100::1").unwrap();
        assert!(admit("2001:db8:0:1ff:1::2").is_err());
        let _other = admit("2001:db8:0:200::1").unwrap();
    }

    #[test]
    fn new_connections_come_as_fast_as_they_may_after_the_burst() {
        let each = Allowance { new_per_second: 10, burst: 3, ..PLENTY };
        let clients = Clients::new(ClientLimits { each, ..LIMITS });
        let came = |from: u64, to: u64| {
            (from..to).filter(|ms| clients.admit(Instant::from_millis(*ms), ip("192.0.2.1")).is_ok()).count()
        };
        assert_eq!(came(0, 1), 1);
        assert_eq!(came(1, 100), 2);
        assert_eq!(came(100, 1100), 10);
        assert_eq!(came(2000, 2001) + came(2001, 2099), 3);
        clients.set_limits(ClientLimits { all: Allowance { new_per_second: 0, ..PLENTY }, ..LIMITS });
        let refused = clients.admit(Instant::from_secs(9), ip("192.0.2.1"));
        assert_eq!(refused.unwrap_err(), Overload::Pace(Whose::All));
    }

    #[test]
    fn who_has_looked_at_the_clock_a_moment_before_another_is_not_too_soon() {
        let unlimited = Allowance { new_per_second: u32::MAX, burst: u32::MAX, ..PLENTY };
        let clients = Clients::new(ClientLimits { each: unlimited, all: unlimited, ..LIMITS });
        let admit = |nanos| clients.admit(Instant::from_nanos(nanos), ip("192.0.2.1"));
        let _within = [admit(2000).unwrap(), admit(1000).unwrap()];
    }

    #[test]
    fn a_limit_that_is_gone_holds_nobody_back() {
        let each = Allowance { new_per_second: 1, burst: 9, ..PLENTY };
        let clients = Clients::new(ClientLimits { each, ..LIMITS });
        let admit = || clients.admit(Instant::ZERO, ip("192.0.2.1"));
        let _within: Vec<_> = (0..9).map(|_| admit().unwrap()).collect();
        assert_eq!(admit().unwrap_err(), Overload::Pace(Whose::Client));
        let each = Allowance { new_per_second: u32::MAX, burst: u32::MAX, ..PLENTY };
        clients.set_limits(ClientLimits { each, ..LIMITS });
        admit().unwrap();
    }

    #[test]
    fn nobody_comes_in_while_the_process_has_too_much_memory() {
        let clients = Clients::new(ClientLimits { memory: Some(100), ..LIMITS });
        let ms = Instant::from_millis;
        let admit = |at| clients.admit(ms(at), ip("192.0.2.1"));
        let _one = admit(0).expect("nobody has said how much there is");
        assert!(clients.wants_memory(ms(0)) && clients.memory().is_none());
        clients.set_memory(ms(0), 101);
        assert!(!clients.wants_memory(ms(99)) && clients.wants_memory(ms(100)));
        assert_eq!(admit(50).unwrap_err(), Overload::Memory);
        assert_eq!(clients.connections(), 1, "those within stay");
        clients.set_memory(ms(100), 100);
        let _two = admit(100).unwrap();
        assert_eq!(clients.memory(), Some(Memory { octets: 100, most: 100 }));
        clients.set_limits(ClientLimits { memory: Some(99), ..LIMITS });
        assert_eq!(admit(101).unwrap_err(), Overload::Memory);
        clients.set_limits(LIMITS);
        let _three = admit(102).unwrap();
        assert!(!clients.wants_memory(ms(1000)) && clients.memory().is_none());
    }

    #[test]
    fn who_has_nothing_is_forgotten_for_another() {
        let each = Allowance { new_per_second: 1, burst: 1, ..PLENTY };
        let clients = Clients::new(ClientLimits { each, clients: 2, ..LIMITS });
        let admit = |address| clients.admit(Instant::ZERO, ip(address));
        let one = admit("192.0.2.1").unwrap();
        drop(admit("192.0.2.2").unwrap());
        assert_eq!(admit("192.0.2.2").unwrap_err(), Overload::Pace(Whose::Client));
        let _three = admit("192.0.2.3").unwrap();
        assert_eq!(admit("192.0.2.4").unwrap_err(), Overload::Clients);
        drop(one);
        let _four = admit("192.0.2.4").unwrap();
    }

    proptest! {
        #[test]
        fn what_is_counted_is_what_there_is(
            steps in prop::collection::vec((0u8..3, 0u8..6, 0u64..200), 0..200),
        ) {
            let each = Allowance { connections: 3, new_per_second: 100, burst: 5 };
            let all = Allowance { connections: 8, new_per_second: 1000, burst: 50 };
            let clients = Clients::new(ClientLimits { each, all, clients: 4, memory: None });
            let mut open: Vec<(u8, Admission)> = Vec::new();
            for (step, (what, who, which)) in steps.into_iter().enumerate() {
                let now = Instant::from_millis(step as u64 * 3);
                match what {
                    0 | 1 => open.extend(clients.admit(now, IpAddr::from([192, 0, 2, who])).ok().map(|new| (who, new))),
                    _ if !open.is_empty() => drop(open.swap_remove(which as usize % open.len())),
                    _ => {}
                }
                prop_assert_eq!(clients.connections() as usize, open.len());
                let book = clients.book();
                prop_assert!(book.clients.len() <= 4 && open.len() <= 8);
                let idle = book.clients.values().filter(|(account, _)| account.connections == 0).count();
                prop_assert_eq!(book.idle.len(), idle);
                for who in 0..6 {
                    let count = open.iter().filter(|(of, _)| *of == who).count();
                    let key = ClientKey::from(IpAddr::from([192, 0, 2, who]));
                    prop_assert_eq!(book.clients.get(&key).map_or(0, |(account, _)| account.connections as usize), count);
                }
            }
        }
    }
}
