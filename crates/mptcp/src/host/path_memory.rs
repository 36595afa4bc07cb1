//! What a host remembers of paths, to open the next connection over the one that answers soonest with the most.

use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};

/// What a subflow, when it ended, knew of its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathQuality {
    pub(crate) min_rtt: Duration,
    /// Congestion window over round-trip time, if losses or a queue showed that the path carries no more.
    pub(crate) bytes_per_s: Option<f64>,
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
const MUCH_WORSE: f64 = 1.5;
const INITIAL_WINDOW_BYTES: f64 = 14_600.0;

impl PathMemory {
    pub(super) fn remember(&mut self, now: Instant, local: IpAddr, remote: IpAddr, quality: PathQuality) {
        self.known.retain(|known| (known.local, known.remote) != (local, remote));
        if self.known.len() >= MOST_PATHS {
            self.known.remove(0);
        }
        self.known.push(Known { local, remote, quality, at: now });
    }

    /// False if the path from `rival` is remembered as so much worse than that from `asked` that it should not carry the
    /// initial subflow even where it answers first.
    pub(super) fn may_race(&self, now: Instant, rival: IpAddr, asked: IpAddr, remote: IpAddr) -> bool {
        match (self.recent(now, rival, remote), self.recent(now, asked, remote)) {
            (Some(rival), Some(asked)) => {
                // One with a longer round trip wins only where the other's handshake is lost, and is welcome then.
                rival.min_rtt >= asked.min_rtt || rival.exchange_s() <= MUCH_WORSE * asked.exchange_s()
            }
            _ => true,
        }
    }

    fn recent(&self, now: Instant, local: IpAddr, remote: IpAddr) -> Option<PathQuality> {
        let is_this = |known: &&Known| (known.local, known.remote) == (local, remote);
        let known = self.known.iter().find(is_this)?;
        (now.since(known.at) < FORGET_AFTER).then_some(known.quality)
    }

    /// Which of `candidates` to open a connection to `remote` over; nothing unless all of them are known.
    pub(super) fn best(
        &self,
        now: Instant,
        candidates: impl Iterator<Item = IpAddr>,
        remote: IpAddr,
    ) -> Option<IpAddr> {
        let mut best: Option<(f64, IpAddr)> = None;
        for local in candidates {
            let time_s = self.recent(now, local, remote)?.exchange_s();
            if best.is_none_or(|(least, _)| time_s < least) {
                best = Some((time_s, local));
            }
        }
        best.map(|(_, local)| local)
    }
}

impl PathQuality {
    /// A handshake, slow start, and the bytes at the path's rate.
    fn exchange_s(&self) -> f64 {
        let rounds = 1.5 + libm::log2(EXCHANGE_BYTES / INITIAL_WINDOW_BYTES + 1.0);
        let by_rate = self.bytes_per_s.map_or(0.0, |rate| EXCHANGE_BYTES / rate.max(1.0));
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
        PathQuality { min_rtt: Duration::from_millis(rtt_ms), bytes_per_s }
    }

    #[test]
    fn a_thin_path_is_passed_over_however_soon_it_answers() {
        let mut memory = PathMemory::default();
        let best = |memory: &PathMemory| memory.best(Instant::ZERO, [addr(1), addr(2)].into_iter(), addr(9));
        memory.remember(Instant::ZERO, addr(1), addr(9), quality(20, Some(10_000.0)));
        assert_eq!(best(&memory), None, "the other is not known");
        memory.remember(Instant::ZERO, addr(2), addr(9), quality(300, None));
        assert_eq!(best(&memory), Some(addr(2)));
        let may_race = |rival, asked| memory.may_race(Instant::ZERO, addr(rival), addr(asked), addr(9));
        assert!(!may_race(1, 2) && may_race(2, 1) && may_race(3, 1) && may_race(1, 3));
        memory.remember(Instant::ZERO, addr(1), addr(9), quality(20, Some(1e6)));
        assert_eq!(best(&memory), Some(addr(1)), "what was learnt last counts");
    }

    #[test]
    fn paths_are_forgotten_with_time_and_when_there_are_many() {
        let mut memory = PathMemory::default();
        for number in 0..100 {
            memory.remember(Instant::from_secs(number.into()), addr(number), addr(200), quality(20, None));
        }
        assert_eq!(memory.known.len(), MOST_PATHS);
        let best = |now, local| memory.best(Instant::from_secs(now), [addr(local)].into_iter(), addr(200));
        assert_eq!(best(100, 10), None);
        assert_eq!(best(100, 99), Some(addr(99)));
        assert_eq!(best(800, 99), None);
    }
}
