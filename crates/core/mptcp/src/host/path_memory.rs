//! What a host remembers of paths, to open the next connection over the one that answers soonest with the most.

use alloc::vec::Vec;
use core::net::IpAddr;

use arrayvec::ArrayVec;
use polypath_units::{Duration, Instant};

/// What a subflow, when it ended, knew of its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathQuality {
    pub(crate) min_rtt: Duration,
    /// What the bottleneck carries, if a queue showed that.
    pub(crate) bottleneck_bytes_per_s: Option<u64>,
    /// Data packets sent. Of earlier subflows half as many count as of the next.
    pub(crate) packets: f64,
    /// Among them, times that something was lost.
    pub(crate) loss_events: f64,
}

/// Paths that are compared for one connection.
pub(super) const MOST_CANDIDATES: usize = 4;

/// How to open a connection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Advice {
    /// From this address.
    pub(super) best: IpAddr,
    /// From these only once the others have been silent for [`Advice::patience`].
    pub(super) worse: ArrayVec<IpAddr, MOST_CANDIDATES>,
    pub(super) patience: Duration,
}

/// Paths to peers, by local and remote address.
#[derive(Debug, Default)]
pub(super) struct PathMemory {
    known: Vec<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    local: IpAddr,
    remote: IpAddr,
    quality: PathQuality,
    at: Instant,
}

/// More are not remembered; the oldest go first.
const MOST_PATHS: usize = 64;
/// After this long a path may have become another.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// What may be sent: for more than the least of it the other paths join, and the initial one decides how soon.
const EXCHANGES_BYTES: [f64; 2] = [65_536.0, 4_194_304.0];
/// A handshake costs a round trip, and the last byte half a one more.
const HANDSHAKE_ROUNDS: f64 = 1.5;
/// The initial path's handshake and first acknowledgment come before another path can join (RFC 8684 §3.1), whose first data
/// waits for one round trip more than that of TCP.
const JOIN_ROUNDS: f64 = 2.0;
/// A loss is found out and repaired.
const ROUNDS_OF_A_LOSS: f64 = 1.0;
const INITIAL_WINDOW_BYTES: f64 = 14_600.0;
const PACKET_BYTES: f64 = 1460.0;
/// So many losses are no accident.
const MANY_LOSSES: f64 = 2.0;
/// A path that makes an exchange so many times as long is not to begin it, even where it answers first.
const WORSE: f64 = 1.15;
/// The handshake over the best path is overdue after this share of its round-trip time, and [`JITTER`].
const PATIENCE: f64 = 1.25;
const JITTER: Duration = Duration::from_millis(20);

impl PathMemory {
    pub(super) fn remember(&mut self, now: Instant, local: IpAddr, remote: IpAddr, quality: PathQuality) {
        let mut quality = quality;
        if let Some(before) = self.recent(now, local, remote) {
            // A short connection does not learn what a path carries, and forgets nothing.
            quality.bottleneck_bytes_per_s = quality.bottleneck_bytes_per_s.or(before.bottleneck_bytes_per_s);
            quality.packets += before.packets / 2.0;
            quality.loss_events += before.loss_events / 2.0;
        }
        self.known.retain(|known| (known.local, known.remote) != (local, remote));
        if self.known.len() >= MOST_PATHS {
            self.known.remove(0);
        }
        self.known.push(Known { local, remote, quality, at: now });
    }

    fn recent(&self, now: Instant, local: IpAddr, remote: IpAddr) -> Option<PathQuality> {
        let is_this = |known: &&Known| (known.local, known.remote) == (local, remote);
        let known = self.known.iter().find(is_this)?;
        (now.since(known.at) < FORGET_AFTER).then_some(known.quality)
    }

    /// Over which of `candidates` to open a connection to `remote`; nothing unless all of them are known.
    pub(super) fn advise(&self, now: Instant, candidates: &[IpAddr], remote: IpAddr) -> Option<Advice> {
        let known = self.comparable(now, candidates, remote)?;
        let qualities: ArrayVec<PathQuality, MOST_CANDIDATES> =
            candidates.iter().filter_map(|local| self.recent(now, *local, known)).collect();
        let regrets: ArrayVec<f64, MOST_CANDIDATES> =
            qualities.iter().map(|quality| quality.regret(&qualities)).collect();
        let least = regrets.iter().copied().fold(f64::INFINITY, f64::min);
        let at = regrets.iter().position(|regret| *regret <= least)?;
        let patience = Duration::from_secs_f64(PATIENCE * qualities.get(at)?.min_rtt.as_secs_f64()) + JITTER;
        let is_worse = |(_, regret): &(&IpAddr, &f64)| **regret > WORSE * least;
        let worse = candidates.iter().zip(&regrets).filter(is_worse).map(|(local, _)| *local).collect();
        Some(Advice { best: *candidates.get(at)?, worse, patience })
    }

    /// What the bottleneck on the path to `remote` carries in bytes per second, if a queue showed that.
    pub(super) fn bottleneck_bytes_per_s(&self, now: Instant, local: IpAddr, remote: IpAddr) -> Option<u64> {
        self.recent(now, local, remote)?.bottleneck_bytes_per_s
    }

    /// A peer to which the paths from all of `locals` are known: `remote`, or the one met last of its family, for what paths
    /// from different uplinks differ in is mostly the uplinks.
    fn comparable(&self, now: Instant, locals: &[IpAddr], remote: IpAddr) -> Option<IpAddr> {
        let met = self.known.iter().rev().map(|known| known.remote);
        core::iter::once(remote)
            .chain(met.filter(|other| other.is_ipv4() == remote.is_ipv4()))
            .find(|peer| locals.iter().all(|local| self.recent(now, *local, *peer).is_some()))
    }
}

impl PathQuality {
    /// How many times as long an exchange takes that begins here as one that begins over the path which suits it, for whichever
    /// exchange that is worst.
    fn regret(&self, all: &[Self]) -> f64 {
        let of = |bytes: f64| {
            let joins_s = JOIN_ROUNDS * self.min_rtt.as_secs_f64();
            let by_others =
                all.iter().map(|other| joins_s + other.min_rtt.as_secs_f64() + other.exchange_s(bytes));
            let here_s = by_others.fold(self.exchange_s(bytes), f64::min);
            let least_s = all.iter().map(|path| path.exchange_s(bytes)).fold(f64::INFINITY, f64::min);
            here_s / least_s.max(1e-6)
        };
        EXCHANGES_BYTES.into_iter().map(of).fold(0.0, f64::max)
    }

    /// A handshake, slow start, losses, and the bytes at the bottleneck's rate.
    fn exchange_s(&self, bytes: f64) -> f64 {
        let mut rounds = HANDSHAKE_ROUNDS + libm::log2(bytes / INITIAL_WINDOW_BYTES + 1.0);
        if self.loss_events >= MANY_LOSSES {
            rounds += ROUNDS_OF_A_LOSS * bytes / PACKET_BYTES * self.loss_events / self.packets.max(1.0);
        }
        let by_rate = self.bottleneck_bytes_per_s.map_or(0.0, |rate| bytes / rate.max(1) as f64);
        self.min_rtt.as_secs_f64() * rounds + by_rate
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn addr(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn quality(rtt_ms: u64, bytes_per_s: Option<f64>) -> PathQuality {
        let bottleneck_bytes_per_s = bytes_per_s.map(|rate| rate as u64);
        PathQuality {
            min_rtt: Duration::from_millis(rtt_ms),
            bottleneck_bytes_per_s,
            packets: 0.0,
            loss_events: 0.0,
        }
    }

    #[test]
    fn a_thin_path_is_passed_over_however_soon_it_answers() {
        let mut memory = PathMemory::default();
        let best = |memory: &PathMemory| {
            memory.advise(Instant::ZERO, &[addr(1), addr(2)], addr(9)).map(|advice| advice.best)
        };
        memory.remember(Instant::ZERO, addr(1), addr(9), quality(20, Some(10_000.0)));
        assert_eq!(best(&memory), None, "the other is not known");
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(300, None));
        assert_eq!(best(&memory), Some(addr(2)));
        let advice = memory.advise(Instant::ZERO, &[addr(1), addr(2)], addr(9)).expect("both are known");
        assert_eq!(advice.patience, Duration::from_millis(395));
        assert_eq!(advice.worse[..], [addr(1)]);
        memory.remember(Instant::ZERO, addr(1), addr(9), quality(20, Some(1e6)));
        assert_eq!(best(&memory), Some(addr(1)), "what was learnt last counts");
    }

    #[test]
    fn a_stranger_is_met_over_the_uplink_that_was_the_better_one_to_the_peer_met_last() {
        let mut memory = PathMemory::default();
        memory.remember(Instant::ZERO, addr(1), addr(9), quality(20, Some(10_000.0)));
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(300, None));
        memory.remember(Instant::ZERO, addr(1), addr(8), quality(5, None));
        let best = |now, remote| memory.advise(now, &[addr(1), addr(2)], remote).map(|advice| advice.best);
        assert_eq!(best(Instant::ZERO, addr(7)), Some(addr(2)), "only to 9 are both paths known");
        assert_eq!(best(Instant::ZERO, "::1".parse().unwrap()), None);
        assert_eq!(best(Instant::from_secs(601), addr(7)), None);
    }

    #[test]
    fn a_lossy_path_is_passed_over_and_one_loss_is_an_accident() {
        let mut memory = PathMemory::default();
        let lossy = |loss_events| PathQuality { packets: 200.0, loss_events, ..quality(344, None) };
        let best = |memory: &PathMemory| {
            memory.advise(Instant::ZERO, &[addr(1), addr(2)], addr(9)).map(|advice| advice.best)
        };
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(397, None));
        memory.remember(Instant::ZERO, addr(1), addr(9), lossy(1.0));
        assert_eq!(best(&memory), Some(addr(1)));
        // With the half of the one before 4.5 in 300 packets: of 45 for 64 KB every other time one, which costs a round.
        memory.remember(Instant::ZERO, addr(1), addr(9), lossy(4.0));
        assert_eq!(best(&memory), Some(addr(2)));
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(397, Some(10_000.0)));
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(397, None));
        assert_eq!(best(&memory), Some(addr(1)), "a connection that learns no rate forgets none");
    }

    #[test]
    fn paths_are_forgotten_with_time_and_when_there_are_many() {
        let mut memory = PathMemory::default();
        for number in 0..100 {
            memory.remember(Instant::from_secs(number.into()), addr(number), addr(200), quality(20, None));
        }
        assert_eq!(memory.known.len(), MOST_PATHS);
        let best = |now, local| {
            memory.advise(Instant::from_secs(now), &[addr(local)], addr(200)).map(|advice| advice.best)
        };
        assert_eq!(best(100, 10), None);
        assert_eq!(best(100, 99), Some(addr(99)));
        assert_eq!(best(800, 99), None);
    }
}
