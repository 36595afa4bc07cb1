//! Which of a host's addresses is tried next (RFC 8305).

use std::collections::VecDeque;
use std::net::IpAddr;

use polypath_units::{Duration, Instant};

/// How long addresses of IPv4 wait for those of IPv6 (RFC 8305 §3, Resolution Delay).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// How long an attempt has before the next one begins beside it (RFC 8305 §5, Connection Attempt Delay).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// A name that has more addresses than that is not tried at the rest.
const MOST_ADDRESSES: usize = 16;

/// A kind of address, and of lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4, by A records.
    V4,
    /// IPv6, by AAAA records.
    V6,
}

/// The attempts to reach one host: those of IPv6 first, then by turns, each beside the ones before it once they take long. The first that
/// succeeds ends the race; that is for the caller to do.
#[derive(Debug)]
pub struct Race {
    v4: Waiting,
    v6: Waiting,
    /// What the next attempt is of, if there is one.
    next: Family,
    under_way: usize,
    left: usize,
    /// The next attempt begins then, if those under way have not ended before.
    next_at: Option<Instant>,
    /// Until then IPv4 waits for IPv6.
    waits_until: Option<Instant>,
}

/// Addresses of one family.
#[derive(Debug, Default)]
struct Waiting {
    addresses: VecDeque<IpAddr>,
    is_looked_up: bool,
}

impl Race {
    /// A race in which both families are still looked up.
    #[must_use]
    pub fn new() -> Self {
        Self {
            v4: Waiting::default(),
            v6: Waiting::default(),
            next: Family::V6,
            under_way: 0,
            left: MOST_ADDRESSES,
            next_at: None,
            waits_until: None,
        }
    }

    /// A lookup has ended, with no address if it failed.
    pub fn handle_addresses(&mut self, now: Instant, family: Family, addresses: &[IpAddr]) {
        let waiting = self.of(family);
        waiting.is_looked_up = true;
        waiting.addresses.extend(addresses.iter().take(MOST_ADDRESSES));
        if family == Family::V4 && !self.v6.is_looked_up && !addresses.is_empty() {
            self.waits_until = Some(now + RESOLUTION_DELAY);
        }
    }

    /// An attempt has failed: the next one need not wait.
    pub fn handle_failed(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        self.next_at = None;
    }

    /// The address to try now, if one is to be tried.
    pub fn poll_attempt(&mut self, now: Instant) -> Option<IpAddr> {
        if self.left == 0 || self.next_at.is_some_and(|at| now < at) {
            return None;
        }
        let waits = !self.v6.is_looked_up && self.waits_until.is_none_or(|until| now < until);
        let address = match self.next {
            Family::V6 => self.v6.addresses.pop_front().or_else(|| self.pop_v4(waits)),
            Family::V4 => self.pop_v4(waits).or_else(|| self.v6.addresses.pop_front()),
        }?;
        self.next = if address.is_ipv6() { Family::V4 } else { Family::V6 };
        self.under_way += 1;
        self.left -= 1;
        self.next_at = Some(now + ATTEMPT_DELAY);
        Some(address)
    }

    fn pop_v4(&mut self, waits: bool) -> Option<IpAddr> {
        if waits { None } else { self.v4.addresses.pop_front() }
    }

    /// When [`Race::poll_attempt`] has to be asked again, if nothing happens before.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.left == 0 || (self.v4.addresses.is_empty() && self.v6.addresses.is_empty()) {
            return None;
        }
        let waits = self.waits_until.filter(|_| !self.v6.is_looked_up && self.v6.addresses.is_empty());
        waits.max(self.next_at)
    }

    /// Whether nothing is left that could succeed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let has_more = !self.v4.addresses.is_empty() || !self.v6.addresses.is_empty();
        let looks_up = !self.v4.is_looked_up || !self.v6.is_looked_up;
        self.under_way == 0 && (self.left == 0 || !(has_more || looks_up))
    }

    fn of(&mut self, family: Family) -> &mut Waiting {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

impl Default for Race {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::ZERO;

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn v6(last: u16) -> IpAddr {
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last])
    }

    #[test]
    fn families_take_turns_and_each_attempt_has_its_time() {
        let mut race = Race::new();
        race.handle_addresses(START, Family::V6, &[v6(1), v6(2)]);
        assert_eq!(race.poll_attempt(START), Some(v6(1)));
        race.handle_addresses(START, Family::V4, &[v4(1)]);
        assert_eq!(race.poll_attempt(START), None);
        let second = race.next_timeout().expect("a further attempt");
        assert_eq!(second, START + ATTEMPT_DELAY);
        assert_eq!(race.poll_attempt(second), Some(v4(1)));
        race.handle_failed();
        assert_eq!(race.poll_attempt(second), Some(v6(2)), "a failure leads on at once");
        assert!(!race.is_lost());
        race.handle_failed();
        race.handle_failed();
        assert!(race.is_lost());
        assert_eq!(race.next_timeout(), None);
    }

    #[test]
    fn ipv4_waits_a_little_for_ipv6() {
        let mut race = Race::new();
        race.handle_addresses(START, Family::V4, &[v4(1)]);
        assert_eq!(race.poll_attempt(START), None);
        let end = race.next_timeout().expect("an end of the wait");
        assert_eq!(end, START + RESOLUTION_DELAY);
        assert_eq!(race.poll_attempt(end), Some(v4(1)));

        let mut race = Race::new();
        race.handle_addresses(START, Family::V4, &[v4(1)]);
        race.handle_addresses(START, Family::V6, &[]);
        assert_eq!(race.poll_attempt(START), Some(v4(1)), "there is no IPv6 to wait for");
    }

    #[test]
    fn a_name_with_no_address_is_lost_and_one_with_very_many_is_not_tried_for_ever() {
        let mut race = Race::new();
        race.handle_addresses(START, Family::V4, &[]);
        assert!(!race.is_lost());
        race.handle_addresses(START, Family::V6, &[]);
        assert!(race.is_lost());

        let mut race = Race::new();
        let many: Vec<IpAddr> = (0..200).map(v4).collect();
        race.handle_addresses(START, Family::V6, &[]);
        race.handle_addresses(START, Family::V4, &many);
        let mut tried = 0;
        while race.poll_attempt(START).is_some() {
            tried += 1;
            race.handle_failed();
        }
        assert_eq!(tried, MOST_ADDRESSES);
        assert!(race.is_lost());
    }
}
