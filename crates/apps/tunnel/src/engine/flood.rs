//! Whether handshakes come faster than honest peers begin them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use polypath_units::{Duration, Instant};

use crate::allowed_ips::Network;

/// Handshakes that are answered without cookies, in a period.
const MOST_IN_PERIOD: u32 = 50;
const PERIOD: Duration = Duration::from_secs(1);
/// An initiation takes some 100 µs: of those with a cookie, so many in a period are looked at.
const MOST_PROVEN_IN_PERIOD: u32 = 1_000;
/// And so many of one address, or one network of 64 bits (WireGuard §5.3).
const MOST_OF_ONE: u32 = 20;

/// How many handshakes came of late.
#[derive(Debug, Default)]
pub(super) struct Flood {
    since: Instant,
    count: u32,
    proven: u32,
    /// No more than are looked at.
    proven_of: BTreeMap<Option<Network>, u32>,
}

impl Flood {
    pub(super) fn note(&mut self, now: Instant) {
        if now.since(self.since) >= PERIOD {
            *self = Self { since: now, ..Self::default() };
        }
        self.count += 1;
    }

    pub(super) fn is_one(&self) -> bool {
        self.count > MOST_IN_PERIOD
    }

    /// Whether one with a good cookie is looked at.
    pub(super) fn takes_proven(&mut self, from: IpAddr) -> bool {
        if self.proven >= MOST_PROVEN_IN_PERIOD {
            return false;
        }
        let network = Network::new(from, if from.is_ipv4() { 32 } else { 64 });
        let count = self.proven_of.entry(network).or_default();
        *count += 1;
        let takes = *count <= MOST_OF_ONE;
        self.proven += u32::from(takes);
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_shuts_out_no_other() {
        let mut flood = Flood::default();
        let taken = (0..5_000).filter(|_| flood.takes_proven([192, 0, 2, 1].into())).count();
        assert_eq!(taken, 20);
        assert!(flood.takes_proven([192, 0, 2, 2].into()));
        for last in 0..2_000_u32 {
            flood.takes_proven(IpAddr::from((0x0a00_0000 + last).to_be_bytes()));
        }
        assert!(flood.proven <= MOST_PROVEN_IN_PERIOD && flood.proven_of.len() <= 1_001);
        flood.note(Instant::from_secs(5));
        assert!(flood.takes_proven([192, 0, 2, 1].into()));
    }
}
