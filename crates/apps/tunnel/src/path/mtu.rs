//! How long datagrams may be on a path: a search with probes (RFC 8899, Datagram Packetization Layer PMTU Discovery).
//!
//! The longest datagram that the tunnel has is tried first, and data may be as long from the beginning: nearly every path carries it. If
//! three probes of it stay unanswered, while the short ones behind them are answered, the path is believed to carry [`BASE_BYTES`], and
//! the search halves what lies between. It looks upwards again a few seconds later, then after twice as long each time, up to ten
//! minutes: a path that was overloaded for a moment, and dropped what is long, is not narrow for good. Long data that is lost while
//! nothing long arrives tells of a black hole: the length is probed again, and the search begins from below if it does not come through.
//!
//! What fits no path is answered to the inside as a router does (RFC 1191, RFC 8201), or cut into fragments where IPv4 allows it.

use polypath_units::{Duration, Instant};

/// The base length (RFC 8899 §5.1.2), which every path of IPv6 carries (RFC 8200 §5) with its header and that of UDP.
pub(crate) const BASE_BYTES: usize = 1_280 - 48;
/// MAX_PROBES (RFC 8899 §5.1.2).
const MOST_TRIES: u32 = 3;
/// PMTU_RAISE_TIMER (RFC 8899 §5.1.1): at first, and at most.
const RAISE_FIRST: Duration = Duration::from_secs(5);
const RAISE_LAST: Duration = Duration::from_secs(600);
/// The search ends when it is so close.
const CLOSE_BYTES: usize = 8;
/// Long datagrams lost in a row, without one that came, that are a reason to look.
const SUSPICIOUS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The longest is tried, and not refuted.
    Untested,
    Searching,
    /// Soon after a search, or another of these, only the longest is asked for.
    Raising,
    /// Until the search begins again.
    Complete {
        raise_at: Option<Instant>,
    },
    /// The length that came through before is looked at. If it does again, the search goes on when it would have.
    Doubted {
        raise_at: Option<Instant>,
    },
}

/// A probe that is under way.
#[derive(Debug)]
struct Asked {
    bytes: usize,
    /// The short one that left behind it was answered.
    is_overtaken: bool,
}

#[derive(Debug)]
pub(crate) struct PathMtu {
    phase: Phase,
    /// The longest that the tunnel has.
    most_bytes: usize,
    /// Came through.
    confirmed_bytes: usize,
    /// Did not.
    failed_bytes: usize,
    asked: Option<Asked>,
    tries: u32,
    due_at: Instant,
    raise_after: Duration,
}

impl PathMtu {
    pub(crate) fn new(now: Instant, most_bytes: usize) -> Self {
        Self {
            phase: Phase::Untested,
            most_bytes,
            confirmed_bytes: BASE_BYTES.min(most_bytes),
            failed_bytes: most_bytes + 1,
            asked: None,
            tries: 0,
            due_at: now,
            raise_after: RAISE_FIRST,
        }
    }

    /// The path has another address: it may be another path.
    pub(crate) fn reset(&mut self, now: Instant) {
        *self = Self::new(now, self.most_bytes);
    }

    /// Datagrams up to this length may go.
    pub(crate) const fn limit_bytes(&self) -> usize {
        if matches!(self.phase, Phase::Untested) { self.most_bytes } else { self.confirmed_bytes }
    }

    /// The longest that came through.
    pub(crate) const fn confirmed_bytes(&self) -> usize {
        self.confirmed_bytes
    }

    /// When the next probe is due. `lost` long datagrams in a row were lost.
    pub(crate) fn due_at(&self, lost: u32) -> Option<Instant> {
        match self.phase {
            Phase::Complete { .. } if self.is_suspicious(lost) => Some(self.due_at),
            Phase::Complete { raise_at } => raise_at,
            _ => Some(self.due_at),
        }
    }

    fn is_suspicious(&self, lost: u32) -> bool {
        lost >= SUSPICIOUS && self.confirmed_bytes > BASE_BYTES
    }

    /// The length to probe, if it is due.
    pub(crate) fn poll(&mut self, now: Instant, lost: u32, patience: Duration) -> Option<usize> {
        if self.due_at(lost).is_none_or(|at| at > now) {
            return None;
        }
        if let Phase::Complete { raise_at } = self.phase {
            self.phase = if self.is_suspicious(lost) {
                Phase::Doubted { raise_at }
            } else if self.raise_after < RAISE_LAST {
                Phase::Raising
            } else {
                self.failed_bytes = self.most_bytes + 1;
                Phase::Searching
            };
        }
        // A path that is silent altogether says nothing about lengths.
        if let Some(asked) = self.asked.take().filter(|asked| asked.is_overtaken) {
            self.tries += 1;
            if self.tries >= MOST_TRIES {
                self.handle_failed(now, asked.bytes);
            }
        }
        let bytes = self.wanted_bytes()?;
        self.asked = Some(Asked { bytes, is_overtaken: false });
        self.due_at = now + patience;
        Some(bytes)
    }

    fn wanted_bytes(&self) -> Option<usize> {
        match self.phase {
            Phase::Untested | Phase::Raising => Some(self.most_bytes),
            Phase::Doubted { .. } => Some(self.confirmed_bytes),
            // The longest first: the path may have become another.
            Phase::Searching if self.failed_bytes > self.most_bytes => Some(self.most_bytes),
            Phase::Searching => Some(self.confirmed_bytes.midpoint(self.failed_bytes)),
            Phase::Complete { .. } => None,
        }
    }

    fn handle_failed(&mut self, now: Instant, bytes: usize) {
        self.tries = 0;
        match self.phase {
            Phase::Raising => return self.complete(now),
            Phase::Doubted { .. } => {
                self.confirmed_bytes = BASE_BYTES.min(self.most_bytes);
                self.raise_after = RAISE_FIRST;
            }
            Phase::Untested | Phase::Searching | Phase::Complete { .. } => {}
        }
        self.phase = Phase::Searching;
        self.failed_bytes = bytes;
        self.look_whether_complete(now);
    }

    /// The short probe was answered that left behind the one that is under way.
    pub(crate) fn handle_overtaken(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.is_overtaken = true;
        }
    }

    /// A probe of this length was answered.
    pub(crate) fn handle_answered(&mut self, now: Instant, bytes: usize) {
        if bytes > self.most_bytes || bytes < self.confirmed_bytes {
            return;
        }
        self.confirmed_bytes = bytes;
        self.failed_bytes = self.failed_bytes.max(bytes + 1);
        (self.tries, self.asked, self.due_at) = (0, None, now);
        match self.phase {
            Phase::Untested | Phase::Raising => self.phase = Phase::Searching,
            Phase::Doubted { raise_at } => return self.phase = Phase::Complete { raise_at },
            Phase::Searching | Phase::Complete { .. } => {}
        }
        self.look_whether_complete(now);
    }

    fn look_whether_complete(&mut self, now: Instant) {
        let is_close = self.failed_bytes <= self.confirmed_bytes + CLOSE_BYTES;
        if self.confirmed_bytes == self.most_bytes || is_close {
            self.complete(now);
        }
    }

    fn complete(&mut self, now: Instant) {
        let mut raise_at = None;
        if self.confirmed_bytes < self.most_bytes {
            raise_at = Some(now + self.raise_after);
            self.raise_after = (self.raise_after * 2).min(RAISE_LAST);
        }
        self.phase = Phase::Complete { raise_at };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1_433;

    /// Lets probes go for so long over a path that carries `carried`; how many left.
    fn run(mtu: &mut PathMtu, from: Instant, secs: u64, carried: usize, lost: u32) -> u32 {
        let mut probes = 0;
        for step in 0..secs * 10 {
            let now = from + Duration::from_millis(100 * step);
            if let Some(bytes) = mtu.poll(now, lost, Duration::from_millis(250)) {
                probes += 1;
                mtu.handle_overtaken();
                if bytes <= carried {
                    mtu.handle_answered(now, bytes);
                }
            }
        }
        probes
    }

    #[test]
    fn a_usual_path_takes_one_probe() {
        let mut mtu = PathMtu::new(Instant::ZERO, MOST);
        assert_eq!(mtu.limit_bytes(), MOST);
        assert_eq!(run(&mut mtu, Instant::ZERO, 2_000, MOST, 0), 1);
        assert_eq!((mtu.limit_bytes(), mtu.due_at(0)), (MOST, None));
    }

    #[test]
    fn each_length_is_found_and_looked_for_again() {
        for carried in [BASE_BYTES, 1_240, 1_300, 1_372, 1_425, 1_432] {
            let mut mtu = PathMtu::new(Instant::ZERO, MOST);
            let probes = run(&mut mtu, Instant::ZERO, 10, carried, 0);
            assert!(mtu.limit_bytes() <= carried && mtu.limit_bytes() + CLOSE_BYTES >= carried, "{carried}");
            assert!(probes < 40, "{probes}");
            // The way is wider some day.
            run(&mut mtu, Instant::from_secs(30), 700, MOST, 0);
            assert_eq!(mtu.limit_bytes(), MOST);
        }
    }

    #[test]
    fn a_path_that_was_in_trouble_is_wide_soon_and_a_narrow_one_is_asked_ever_less() {
        let mut mtu = PathMtu::new(Instant::ZERO, MOST);
        run(&mut mtu, Instant::ZERO, 2, BASE_BYTES, 0);
        assert_eq!(mtu.limit_bytes(), BASE_BYTES);
        run(&mut mtu, Instant::from_secs(2), 15, MOST, 0);
        assert_eq!(mtu.limit_bytes(), MOST);

        let mut mtu = PathMtu::new(Instant::ZERO, MOST);
        run(&mut mtu, Instant::ZERO, 1_200, BASE_BYTES, 0);
        assert!(run(&mut mtu, Instant::from_secs(1_200), 1_200, BASE_BYTES, 0) < 60);
    }

    #[test]
    fn a_black_hole_is_found_and_a_burst_of_losses_is_none() {
        let mut mtu = PathMtu::new(Instant::ZERO, MOST);
        run(&mut mtu, Instant::ZERO, 5, MOST, 0);
        run(&mut mtu, Instant::from_secs(5), 1, MOST, SUSPICIOUS);
        assert_eq!(mtu.limit_bytes(), MOST);
        // Nor is there anything to search for on a path that is narrow, and known.
        let mut narrow = PathMtu::new(Instant::ZERO, MOST);
        run(&mut narrow, Instant::ZERO, 4, 1_372, 0);
        let due_at = narrow.due_at(0);
        assert_eq!(
            narrow.poll(Instant::from_secs(4), SUSPICIOUS, Duration::from_millis(250)),
            Some(narrow.limit_bytes())
        );
        narrow.handle_answered(Instant::from_secs(4), narrow.limit_bytes());
        assert_eq!(narrow.due_at(0), due_at);
        run(&mut mtu, Instant::from_secs(10), 10, 1_372, SUSPICIOUS);
        assert!((1_364..=1_372).contains(&mtu.limit_bytes()), "{}", mtu.limit_bytes());
    }

    #[test]
    fn a_path_that_was_wide_again_and_becomes_narrow_is_searched() {
        let mut mtu = PathMtu::new(Instant::ZERO, MOST);
        run(&mut mtu, Instant::ZERO, 2, BASE_BYTES, 0);
        run(&mut mtu, Instant::from_secs(2), 15, MOST, 0);
        assert_eq!(mtu.limit_bytes(), MOST);
        run(&mut mtu, Instant::from_secs(20), 4, 1_372, SUSPICIOUS);
        assert!((1_364..=1_372).contains(&mtu.limit_bytes()), "{}", mtu.limit_bytes());
    }

    #[test]
    fn a_silent_path_says_nothing() {
        let mut mtu = PathMtu::new(Instant::ZERO, MOST);
        for step in 0..100 {
            mtu.poll(Instant::from_secs(step), 0, Duration::from_millis(250));
        }
        assert_eq!(mtu.limit_bytes(), MOST);
    }
}
