//! What a path's bottleneck carries, as its queue shows: a rate that rises as soon as more is delivered, and falls when a queue that
//! this connection keeps lets out less.
//!
//! The least round trip says how much a path holds without a queue. What waits longer stood before the bottleneck, so the bottleneck
//! was busy all the time between two such acknowledgments: what they brought is what it carries, over however short a time.
//! A stretch of such acknowledgments is measured each least round trip. A rate falls when two stretches one after the other stay well
//! below it: a path that stalls, and then brings all at once, has not become slower.

use alloc::boxed::Box;

use polypath_units::{Duration, Instant};

/// A sample of less may have waited for a delayed acknowledgment instead of in a queue.
const QUEUED_BYTES: u64 = 3 * 1460;
/// A stretch is not shorter: links deliver in bursts, and machines take turns.
const LEAST_STRETCH: Duration = Duration::from_millis(20);
/// A rate that holds brings at least this share in one of two stretches.
const HOLDS: f64 = 0.75;
/// Until two stretches have said so, only silence and much less than this share count.
const HOLDS_SO_FAR: f64 = 0.5;
/// The queue is this connection's if so much is in flight, in what the path holds without a queue.
const OWN_QUEUE: f64 = 1.25;

/// See the module. Nothing but a pointer until a queue is seen: most connections never fill their path.
#[derive(Debug, Default)]
pub(crate) struct Bottleneck(Option<Box<Measured>>);

#[derive(Debug)]
struct Measured {
    /// Zero before a reliable sample.
    bytes_per_s: u64,
    /// The stretch that goes on: since when, and what had been delivered by then.
    since: Instant,
    from: u64,
    /// The one before, if it led up to this one.
    before: Option<Stretch>,
    /// What is delivered until here was given to the path before its rate fell.
    fell_until: u64,
    /// What left before this was delivered measures the path as it was.
    fell_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Instant,
    from: u64,
    bytes_per_s: u64,
}

/// What an acknowledgment tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    /// Everything that has been delivered.
    pub(crate) delivered: u64,
    /// In flight before it came.
    pub(crate) in_flight_bytes: u64,
    /// Of the latest piece that it covers.
    pub(crate) round_trip: Duration,
    pub(crate) min_rtt: Duration,
    /// A reliable sample: so many bytes in so long.
    pub(crate) sample: Option<(u64, Duration)>,
}

impl Bottleneck {
    /// What it carries, if a queue showed that.
    pub(crate) fn bytes_per_s(&self) -> Option<u64> {
        self.0.as_ref().map(|measured| measured.bytes_per_s).filter(|rate| *rate > 0)
    }

    #[inline]
    pub(crate) fn on_acknowledged(&mut self, now: Instant, ack: &Acknowledged) {
        let is_queued = ack.round_trip > ack.min_rtt + ack.min_rtt / 2;
        match &mut self.0 {
            Some(measured) => measured.on_acknowledged(now, ack, is_queued),
            None if is_queued => {
                self.0.insert(Box::new(Measured::new(now, ack.delivered))).take(ack, is_queued)
            }
            None => {}
        }
    }

    /// Nothing stands before the bottleneck, as far as is known.
    pub(crate) fn restart(&mut self, now: Instant, delivered: u64) {
        if let Some(measured) = &mut self.0 {
            measured.restart(now, delivered);
        }
    }

    /// What it carries by now, where what did not come tells that it carries much less. `oldest_age` is for how long the oldest piece has
    /// been in flight.
    #[inline]
    pub(crate) fn falls_to(
        &self,
        now: Instant,
        delivered: u64,
        oldest_age: impl FnOnce() -> Duration,
        min_rtt: Duration,
    ) -> Option<u64> {
        let measured = self.0.as_ref()?;
        let before = measured.before?;
        let most_bytes = (delivered - before.from + QUEUED_BYTES) as f64;
        let time_s = now.since(before.since).as_secs_f64();
        let falls = most_bytes < HOLDS_SO_FAR * measured.bytes_per_s as f64 * time_s;
        (falls && oldest_age() > min_rtt + min_rtt / 2).then(|| (most_bytes / time_s).max(1.0) as u64)
    }

    /// What is under way was given to it when it carried more.
    pub(crate) fn has_fallen(&self, delivered: u64) -> bool {
        self.0.as_ref().is_some_and(|measured| delivered < measured.fell_until)
    }
}

impl Measured {
    fn new(now: Instant, delivered: u64) -> Self {
        Self { bytes_per_s: 0, since: now, from: delivered, before: None, fell_until: 0, fell_at: 0 }
    }

    #[inline]
    fn on_acknowledged(&mut self, now: Instant, ack: &Acknowledged, is_queued: bool) {
        self.take(ack, is_queued);
        let held_bytes = || self.bytes_per_s as f64 * ack.min_rtt.as_secs_f64();
        if is_queued && ack.in_flight_bytes as f64 > OWN_QUEUE * held_bytes() {
            if now.since(self.since) >= ack.min_rtt.max(LEAST_STRETCH) {
                self.end_stretch(now, ack);
            }
        } else {
            self.restart(now, ack.delivered);
        }
    }

    /// A sample, if it came with one.
    #[inline]
    fn take(&mut self, ack: &Acknowledged, is_queued: bool) {
        let Some((bytes, span)) = ack.sample else { return };
        let is_since_fall = ack.delivered - bytes >= self.fell_at;
        // Without a queue it is the least that the path carries.
        if is_since_fall && (is_queued && bytes >= QUEUED_BYTES || self.bytes_per_s > 0) {
            self.bytes_per_s = self.bytes_per_s.max(rate(bytes, span));
        }
    }

    fn restart(&mut self, now: Instant, delivered: u64) {
        (self.since, self.from, self.before) = (now, delivered, None);
    }

    fn end_stretch(&mut self, now: Instant, ack: &Acknowledged) {
        let bytes_per_s = rate(ack.delivered - self.from, now.since(self.since));
        if let Some(before) = self.before {
            let most = before.bytes_per_s.max(bytes_per_s);
            if (most as f64) < HOLDS * self.bytes_per_s as f64 {
                self.bytes_per_s = most.max(1);
                self.fell_at = ack.delivered;
                self.fell_until = ack.delivered + ack.in_flight_bytes;
            }
        }
        self.before = Some(Stretch { since: self.since, from: self.from, bytes_per_s });
        (self.since, self.from) = (now, ack.delivered);
    }
}

fn rate(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 / time.as_secs_f64().max(1e-9)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RTT: Duration = Duration::from_millis(40);

    /// A path with the same in flight all the time; acknowledgments of 1000 bytes each.
    struct Path {
        bottleneck: Bottleneck,
        now: Instant,
        delivered: u64,
        in_flight_bytes: u64,
    }

    impl Path {
        /// One acknowledgment, so long after the one before, of a piece that took so long.
        fn acknowledge(&mut self, after: Duration, round_trip: Duration) {
            self.now += after;
            self.delivered += 1000;
            let ack = Acknowledged {
                delivered: self.delivered,
                in_flight_bytes: self.in_flight_bytes,
                round_trip,
                min_rtt: MIN_RTT,
                sample: Some((self.in_flight_bytes.min(self.delivered), round_trip)),
            };
            self.bottleneck.on_acknowledged(self.now, &ack);
        }

        /// So many acknowledgments at the pace of a bottleneck, pieces waiting as the queue before it has it.
        fn carry(&mut self, count: u64, bytes_per_s: u64, round_trip: Duration) {
            for _ in 0..count {
                self.acknowledge(Duration::from_micros(1_000_000_000 / bytes_per_s), round_trip);
            }
        }

        /// At 1 MB/s, which 100 ms of round trip hold.
        fn steady() -> Self {
            let bottleneck = Bottleneck::default();
            let mut path = Self { bottleneck, now: Instant::ZERO, delivered: 0, in_flight_bytes: 100_000 };
            path.carry(500, 1_000_000, Duration::from_millis(100));
            assert_eq!(path.bottleneck.bytes_per_s(), Some(1_000_000));
            path
        }

        fn falls_to(&self, after: Duration) -> Option<u64> {
            let oldest_age = || Duration::from_millis(100) + after;
            self.bottleneck.falls_to(self.now + after, self.delivered, oldest_age, MIN_RTT)
        }
    }

    #[test]
    fn a_rate_falls_when_its_queue_lets_out_less() {
        let mut path = Path::steady();
        // Two stretches of 40 ms, after the one that it began in. What waits was sent at the old rate, so samples of a round trip
        // show more for as long.
        path.carry(13, 100_000, Duration::from_millis(150));
        assert_eq!(path.bottleneck.bytes_per_s(), Some(100_000));
        assert!(path.bottleneck.has_fallen(path.delivered));
        path.carry(100, 100_000, Duration::from_secs(1));
        assert!(!path.bottleneck.has_fallen(path.delivered), "it was given this since");
        assert_eq!(path.bottleneck.bytes_per_s(), Some(100_000));
        path.carry(200, 1_000_000, Duration::from_millis(100));
        assert_eq!(path.bottleneck.bytes_per_s(), Some(1_000_000), "it rises as before");
    }

    #[test]
    fn a_path_that_stalls_and_then_brings_all_at_once_has_not_become_slower() {
        let mut path = Path::steady();
        for _ in 0..10 {
            path.acknowledge(Duration::from_millis(100), Duration::from_millis(200));
            path.carry(99, 100_000_000, Duration::from_millis(150));
            path.carry(100, 1_000_000, Duration::from_millis(150));
        }
        assert_eq!(path.bottleneck.bytes_per_s().map(|rate| rate >= 1_000_000), Some(true));
    }

    #[test]
    fn what_an_application_sends_slowly_is_no_rate_of_the_path() {
        let mut path = Path::steady();
        // Without a queue.
        path.in_flight_bytes = 4_000;
        path.carry(500, 100_000, MIN_RTT);
        assert_eq!(path.bottleneck.bytes_per_s(), Some(1_000_000));
        // In a queue that others keep.
        path.in_flight_bytes = 10_000;
        path.carry(500, 100_000, Duration::from_millis(100));
        assert_eq!(path.bottleneck.bytes_per_s(), Some(1_000_000));
    }

    #[test]
    fn silence_tells_before_an_acknowledgment_does() {
        let path = Path::steady();
        assert_eq!(path.falls_to(Duration::from_millis(40)), None);
        let later = path.falls_to(Duration::from_millis(200));
        assert!(later.is_some_and(|rate| (200_000..400_000).contains(&rate)), "{later:?}");
        let at = path.now + Duration::from_millis(200);
        let unheard = path.bottleneck.falls_to(at, path.delivered, || MIN_RTT, MIN_RTT);
        assert_eq!(unheard, None, "nothing waits long enough to say so");
    }
}
