//! What a host remembers of paths, to open the next connection over the one that answers soonest with the most.

use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};

/// What a subflow, when it ended, knew of its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathQuality {
    pub(crate) min_rtt: Duration,
    /// Congestion window over round-trip time, if losses bounded the window.
    pub(crate) window_bytes_per_s: Option<f64>,
    /// What the bottleneck carries, if a queue showed that.
    pub(crate) bottleneck_bytes_per_s: Option<u64>,
    /// Data packets sent. Of earlier subflows half as many count as of the next.
    pub(crate) packets: f64,
    /// Among them, times that something was lost.
    pub(crate) loss_events: f64,
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
/// What a first exchange brings: the time for it is what the initial path decides, for more than that all paths carry.
const EXCHANGE_BYTES: f64 = 65_536.0;
const INITIAL_WINDOW_BYTES: f64 = 14_600.0;
const PACKET_BYTES: f64 = 1460.0;
/// So many losses are no accident.
const MANY_LOSSES: f64 = 2.0;
/// The handshake over the best path is overdue after this share of its round-trip time, and [`JITTER`].
const PATIENCE: f64 = 1.25;
const JITTER: Duration = Duration::from_millis(20);

impl PathMemory {
    pub(super) fn remember(&mut self, now: Instant, local: IpAddr, remote: IpAddr, quality: PathQuality) {
        let mut quality = quality;
        if let Some(before) = self.recent(now, local, remote) {
            // A short connection does not learn what a path carries, and forgets nothing.
            quality.window_bytes_per_s = quality.window_bytes_per_s.or(before.window_bytes_per_s);
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

    /// Which of `candidates` to open a connection to `remote` over, and how long its handshake may take before the others
    /// are tried too; nothing unless all of them are known.
    pub(super) fn best(
        &self,
        now: Instant,
        candidates: &[IpAddr],
        remote: IpAddr,
    ) -> Option<(IpAddr, Duration)> {
        let known = self.comparable(now, candidates, remote)?;
        let mut best: Option<(f64, IpAddr, Duration)> = None;
        for local in candidates {
            let quality = self.recent(now, *local, known)?;
            let time_s = quality.exchange_s();
            if best.is_none_or(|(least, ..)| time_s < least) {
                best = Some((time_s, *local, quality.min_rtt));
            }
        }
        best.map(|(_, local, rtt)| (local, Duration::from_secs_f64(PATIENCE * rtt.as_secs_f64()) + JITTER))
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
    /// A handshake, slow start, and the bytes at the path's rate.
    fn exchange_s(&self) -> f64 {
        let rounds = 1.5 + libm::log2(EXCHANGE_BYTES / INITIAL_WINDOW_BYTES + 1.0);
        let mut rate = self.window_bytes_per_s.unwrap_or(f64::INFINITY);
        if let Some(bottleneck) = self.bottleneck_bytes_per_s {
            rate = rate.min(bottleneck as f64);
        }
        if self.loss_events >= MANY_LOSSES {
            rate = rate.min(self.rate_by_losses());
        }
        self.min_rtt.as_secs_f64() * rounds + EXCHANGE_BYTES / rate.max(1.0)
    }

    /// What TCP carries with that much loss: a window of the square root of 3/2 over the share of packets at whose loss it
    /// is halved (Mathis et al. 1997).
    fn rate_by_losses(&self) -> f64 {
        let window_packets = libm::sqrt(1.5 * self.packets.max(1.0) / self.loss_events);
        window_packets * PACKET_BYTES / self.min_rtt.as_secs_f64().max(1e-4)
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
            window_bytes_per_s: None,
            bottleneck_bytes_per_s,
            packets: 0.0,
            loss_events: 0.0,
        }
    }

    #[test]
    fn a_thin_path_is_passed_over_however_soon_it_answers() {
        let mut memory = PathMemory::default();
        let best = |memory: &PathMemory| {
            memory.best(Instant::ZERO, &[addr(1), addr(2)], addr(9)).map(|(local, _)| local)
        };
        memory.remember(Instant::ZERO, addr(1), addr(9), quality(20, Some(10_000.0)));
        assert_eq!(best(&memory), None, "the other is not known");
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(300, None));
        assert_eq!(best(&memory), Some(addr(2)));
        let patience = memory.best(Instant::ZERO, &[addr(1), addr(2)], addr(9)).map(|(_, patience)| patience);
        assert_eq!(patience, Some(Duration::from_millis(395)));
        memory.remember(Instant::ZERO, addr(1), addr(9), quality(20, Some(1e6)));
        assert_eq!(best(&memory), Some(addr(1)), "what was learnt last counts");
    }

    #[test]
    fn a_stranger_is_met_over_the_uplink_that_was_the_better_one_to_the_peer_met_last() {
        let mut memory = PathMemory::default();
        memory.remember(Instant::ZERO, addr(1), addr(9), quality(20, Some(10_000.0)));
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(300, None));
        memory.remember(Instant::ZERO, addr(1), addr(8), quality(5, None));
        let best = |now, remote| memory.best(now, &[addr(1), addr(2)], remote).map(|(local, _)| local);
        assert_eq!(best(Instant::ZERO, addr(7)), Some(addr(2)), "only to 9 are both paths known");
        assert_eq!(best(Instant::ZERO, "::1".parse().unwrap()), None);
        assert_eq!(best(Instant::from_secs(601), addr(7)), None);
    }

    #[test]
    fn a_lossy_path_is_passed_over_and_one_loss_is_an_accident() {
        let mut memory = PathMemory::default();
        let lossy = |loss_events| PathQuality { packets: 200.0, loss_events, ..quality(344, Some(1e6)) };
        let best = |memory: &PathMemory| {
            memory.best(Instant::ZERO, &[addr(1), addr(2)], addr(9)).map(|(local, _)| local)
        };
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(397, None));
        memory.remember(Instant::ZERO, addr(1), addr(9), lossy(1.0));
        assert_eq!(best(&memory), Some(addr(1)));
        // With the half of the one before: 4.5 in 300 packets, a window of 10 packets, 42 KB/s.
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
            memory.best(Instant::from_secs(now), &[addr(local)], addr(200)).map(|(local, _)| local)
        };
        assert_eq!(best(100, 10), None);
        assert_eq!(best(100, 99), Some(addr(99)));
        assert_eq!(best(800, 99), None);
    }
}
