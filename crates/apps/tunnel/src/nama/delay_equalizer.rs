use std::collections::VecDeque;

use polypath_units::{Duration, Instant};

/// Holds packets of faster paths at the sender for so long that they arrive with those of the slowest one (Kaspar 2011, 4.2.1).
///
/// Packets of one path keep their order. If more are held than may be, the one that would leave next leaves at once.
///
/// ```
/// # mod polypath { pub use polypath_tunnel as tunnel; pub use polypath_units as units; }
/// use polypath::tunnel::nama::DelayEqualizer;
/// use polypath::units::{Duration, Instant};
///
/// let (slow, fast) = (0, 1);
/// let mut equalizer = DelayEqualizer::new(100);
/// equalizer.handle_delay(slow, Duration::from_millis(80));
/// equalizer.handle_delay(fast, Duration::from_millis(43));
///
/// let now = Instant::from_millis(1000);
/// equalizer.handle_packet(now, fast, "second");
/// equalizer.handle_packet(now, slow, "first");
/// assert_eq!(equalizer.poll_transmit(now), Some((slow, "first")));
/// assert_eq!(equalizer.poll_transmit(now), None);
///
/// let later = now + Duration::from_millis(37);
/// assert_eq!(equalizer.poll_timeout(), Some(later));
/// assert_eq!(equalizer.poll_transmit(later), Some((fast, "second")));
/// ```
#[derive(Clone, Debug)]
pub struct DelayEqualizer<P> {
    paths: Vec<Path<P>>,
    most_packets: usize,
    /// How many packets came.
    entered: u64,
}

#[derive(Clone, Debug)]
struct Path<P> {
    /// One way. None before it is measured, and after the path is lost.
    delay: Option<Duration>,
    held: VecDeque<Held<P>>,
}

#[derive(Clone, Debug)]
struct Held<P> {
    since: Instant,
    /// Which packet it was among all.
    number: u64,
    packet: P,
}

impl<P> DelayEqualizer<P> {
    /// One that holds no more than so many packets.
    #[must_use]
    pub fn new(most_packets: usize) -> Self {
        Self { paths: Vec::new(), most_packets, entered: 0 }
    }

    /// How many packets are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.paths.iter().map(|path| path.held.len()).sum()
    }

    /// For how long packets of a path are held: the delay of the slowest path less its own. Not at all as long as its own is not known.
    #[must_use]
    pub fn hold(&self, path: usize) -> Duration {
        let slowest = self.paths.iter().filter_map(|path| path.delay).max();
        let own = self.paths.get(path).and_then(|path| path.delay);
        match (slowest, own) {
            (Some(slowest), Some(own)) => slowest.saturating_sub(own),
            _ => Duration::ZERO,
        }
    }

    /// A path's one-way delay was measured. That is heeded by the packets that are held, too.
    pub fn handle_delay(&mut self, path: usize, delay: Duration) {
        self.path(path).delay = Some(delay);
    }

    /// A path is gone: no packet is held for its sake, and its own leave at once.
    pub fn handle_path_lost(&mut self, path: usize) {
        self.path(path).delay = None;
    }

    /// A packet is to leave over a path.
    pub fn handle_packet(&mut self, now: Instant, path: usize, packet: P) {
        let held = Held { since: now, number: self.entered, packet };
        self.entered += 1;
        self.path(path).held.push_back(held);
    }

    /// The next packet that leaves by now, and its path. To be asked until it says none.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(usize, P)> {
        let (_, path) = self.next().filter(|(due, _)| *due <= now)?;
        self.paths[path].held.pop_front().map(|held| (path, held.packet))
    }

    /// When [`poll_transmit`](Self::poll_transmit) is to be asked next, unless more packets or delays come before. None if no packet is held.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next().map(|(due, _)| due)
    }

    /// Which path's packet leaves next, and when: long ago if there are too many. Of two that leave together, the one that came first.
    fn next(&self) -> Option<(Instant, usize)> {
        let first = self.paths.iter().enumerate().filter_map(|(place, path)| {
            let held = path.held.front()?;
            Some((held.since + self.hold(place), held.number, place))
        });
        let (due, _, place) = first.min()?;
        let is_full = self.held() > self.most_packets;
        Some((if is_full { Instant::ZERO } else { due }, place))
    }

    fn path(&mut self, path: usize) -> &mut Path<P> {
        if self.paths.len() <= path {
            self.paths.resize_with(path + 1, || Path { delay: None, held: VecDeque::new() });
        }
        &mut self.paths[path]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Everything that leaves by then.
    fn leave(equalizer: &mut DelayEqualizer<u32>, millis: u64) -> Vec<u32> {
        std::iter::from_fn(|| equalizer.poll_transmit(at(millis))).map(|(_, packet)| packet).collect()
    }

    fn with_delays(most_packets: usize, delays: &[u64]) -> DelayEqualizer<u32> {
        let mut equalizer = DelayEqualizer::new(most_packets);
        for (path, delay) in delays.iter().enumerate() {
            equalizer.handle_delay(path, Duration::from_millis(*delay));
        }
        equalizer
    }

    #[test]
    fn nothing_waits_for_paths_that_are_not_known() {
        let mut equalizer = DelayEqualizer::new(10);
        equalizer.handle_packet(at(0), 3, 1);
        equalizer.handle_packet(at(0), 1, 2);
        assert_eq!((equalizer.poll_timeout(), leave(&mut equalizer, 0)), (Some(at(0)), vec![1, 2]));
        equalizer.handle_delay(0, Duration::from_millis(50));
        equalizer.handle_packet(at(1), 1, 3);
        assert_eq!(leave(&mut equalizer, 1), [3]);
        assert_eq!(equalizer.poll_timeout(), None);
    }

    #[test]
    fn a_new_delay_counts_for_what_is_held() {
        let mut equalizer = with_delays(10, &[80, 40]);
        equalizer.handle_packet(at(0), 1, 1);
        equalizer.handle_packet(at(5), 1, 2);
        assert_eq!(equalizer.poll_timeout(), Some(at(40)));
        equalizer.handle_delay(0, Duration::from_millis(60));
        assert_eq!(leave(&mut equalizer, 20), [1]);
        equalizer.handle_delay(0, Duration::from_millis(100));
        assert_eq!((equalizer.poll_timeout(), leave(&mut equalizer, 64)), (Some(at(65)), vec![]));
        assert_eq!(leave(&mut equalizer, 65), [2]);
    }

    #[test]
    fn a_path_that_is_lost_holds_nobody() {
        let mut equalizer = with_delays(10, &[80, 40, 50]);
        equalizer.handle_packet(at(0), 1, 1);
        equalizer.handle_packet(at(1), 2, 2);
        equalizer.handle_path_lost(0);
        assert_eq!(leave(&mut equalizer, 9), [2]);
        equalizer.handle_path_lost(1);
        assert_eq!(leave(&mut equalizer, 9), [1]);
    }

    #[test]
    fn no_more_are_held_than_may_be() {
        let mut equalizer = with_delays(3, &[80, 40, 60]);
        for (path, packet) in [(1, 1), (2, 2), (1, 3)] {
            equalizer.handle_packet(at(0), path, packet);
        }
        assert!(leave(&mut equalizer, 0).is_empty());
        equalizer.handle_packet(at(1), 1, 4);
        assert!(equalizer.poll_timeout() <= Some(at(1)));
        // Path 2 is the slower one of those whose packets are held: its packet leaves first.
        assert_eq!((leave(&mut equalizer, 1), equalizer.held()), (vec![2], 3));
        assert_eq!(leave(&mut equalizer, 41), [1, 3, 4]);
    }
}
