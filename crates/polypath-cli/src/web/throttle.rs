//! How fast answers may leave: who may send how much, and when. Time is what has passed since some beginning.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a connection that has been silent for [`SILENCE`] may send before it waits behind others: small answers need no more.
const EARLY_BYTES: u64 = 32 << 10;
const SILENCE: Duration = Duration::from_secs(1);
/// The part of a rate that those may have who come early.
const EARLY_SHARE: u64 = 4;
/// Who waits is granted what the rate brings in so long.
const GRANT: Duration = Duration::from_millis(10);
/// And no more than a connection's own rate brings in so long, if it takes turns with others: grants are of one size for most.
const OWN_GRANT: Duration = Duration::from_millis(250);
/// Within these bounds: fewer bytes make needless packets, and more keep others waiting.
const LEAST_GRANT_BYTES: u64 = 1 << 10;
const MOST_GRANT_BYTES: u64 = 64 << 10;
/// Timers are late, and what was not sent meanwhile is made up for.
const LATE: Duration = Duration::from_millis(20);

/// A rate in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRate(u64);

impl ByteRate {
    /// None of nothing.
    pub(crate) fn new(bytes_per_second: u64) -> Option<Self> {
        (bytes_per_second > 0).then_some(Self(bytes_per_second))
    }

    fn time_of(self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn grant_bytes(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0) * time.as_millis() / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(LEAST_GRANT_BYTES, MOST_GRANT_BYTES)
    }
}

/// A bucket of tokens that may owe some: whoever takes what it has not got learns from when on it has.
#[derive(Clone, Debug)]
struct Bucket {
    rate: ByteRate,
    /// The time in which it fills up.
    full_in: Duration,
    /// When it was full, or will be.
    full_at: Duration,
}

impl Bucket {
    /// A full one.
    fn new(rate: ByteRate, least_bytes: u64) -> Self {
        let full_in = rate.time_of(least_bytes).max(LATE);
        Self { rate, full_in, full_at: Duration::ZERO }
    }

    /// From when on so many bytes may leave. They may as soon as there is anything, and the next one waits for the rest.
    fn take(&mut self, bytes: u64, now: Duration) -> Duration {
        let before = self.full_at.max(now);
        self.full_at = before.saturating_add(self.rate.time_of(bytes));
        before.saturating_sub(self.full_in).max(now)
    }

    /// The same only if they may leave now.
    fn take_now(&mut self, bytes: u64, now: Duration) -> bool {
        let has_any = self.full_at <= now + self.full_in;
        if has_any {
            self.take(bytes, now);
        }
        has_any
    }

    fn give_back(&mut self, bytes: u64) {
        self.full_at = self.full_at.saturating_sub(self.rate.time_of(bytes));
    }
}

/// The rate of all connections together. Each takes one grant at a time and waits for it before it takes the next, so that they
/// take turns.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Buckets>);

#[derive(Debug)]
struct Buckets {
    all: Bucket,
    /// What those had who came early; it is in the other, too.
    early: Bucket,
}

impl Shared {
    pub(super) fn new(rate: ByteRate) -> Self {
        let early = ByteRate((rate.0 / EARLY_SHARE).max(1));
        let all = Bucket::new(rate, 2 * rate.grant_bytes(GRANT));
        Self(Mutex::new(Buckets { all, early: Bucket::new(early, EARLY_BYTES) }))
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: u64, is_early: bool, now: Duration) -> Duration {
        let mut buckets = self.lock();
        let may_now = is_early && buckets.early.take_now(bytes, now);
        let from = buckets.all.take(bytes, now);
        if may_now { now } else { from }
    }
}

/// What has been taken and has not left yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    None,
    /// From its own bucket: it may ask the shared one then.
    Own {
        bytes: u64,
        is_early: bool,
        from: Duration,
    },
    /// From both.
    All {
        bytes: u64,
        from: Duration,
    },
}

/// What one connection sends.
#[derive(Debug)]
pub(super) struct Flow {
    own: Option<Bucket>,
    grant_bytes: u64,
    grant: Grant,
    early_left: u64,
    asked_at: Duration,
}

impl Flow {
    /// At most by its own rate, if there is one, and by one that it shares.
    pub(super) fn new(own: Option<ByteRate>, shared: Option<ByteRate>) -> Self {
        let of_shared = shared.map(|rate| rate.grant_bytes(GRANT));
        let of_own = own.map(|rate| rate.grant_bytes(if shared.is_some() { OWN_GRANT } else { GRANT }));
        Self {
            own: own.map(|rate| Bucket::new(rate, EARLY_BYTES)),
            grant_bytes: of_shared.into_iter().chain(of_own).min().unwrap_or(MOST_GRANT_BYTES),
            grant: Grant::None,
            early_left: EARLY_BYTES,
            asked_at: Duration::ZERO,
        }
    }

    /// How much of so many bytes may leave now, or from when on some may.
    pub(super) fn ask(
        &mut self,
        wanted: u64,
        shared: Option<&Shared>,
        now: Duration,
    ) -> Result<u64, Duration> {
        let silence = now.saturating_sub(std::mem::replace(&mut self.asked_at, now));
        loop {
            self.grant = match self.grant {
                Grant::None => {
                    let bytes = wanted.min(self.grant_bytes);
                    let is_early = self.is_early(bytes, silence);
                    let from = self.own.as_mut().map_or(now, |own| own.take(bytes, now));
                    Grant::Own { bytes, is_early, from }
                }
                Grant::Own { from, .. } | Grant::All { from, .. } if from > now => return Err(from),
                Grant::Own { bytes, is_early, .. } => {
                    let from = shared.map_or(now, |shared| shared.take(bytes, is_early, now));
                    Grant::All { bytes, from }
                }
                Grant::All { bytes, .. } => return Ok(bytes.min(wanted)),
            };
        }
    }

    /// `silence` is how long it has asked for nothing. Who waits for a grant asks again when it is due.
    fn is_early(&mut self, bytes: u64, silence: Duration) -> bool {
        if silence >= SILENCE {
            self.early_left = EARLY_BYTES;
        }
        let left = self.early_left.checked_sub(bytes);
        self.early_left = left.unwrap_or(0);
        left.is_some()
    }

    /// So many bytes have left.
    pub(super) fn sent(&mut self, sent: u64) {
        if let Grant::All { bytes, from } = self.grant {
            let left = bytes.saturating_sub(sent);
            self.grant = if left == 0 { Grant::None } else { Grant::All { bytes: left, from } };
        }
    }

    /// Nothing more will leave, and others may have what was taken.
    pub(super) fn end(&mut self, shared: &Shared) {
        if let Grant::All { bytes, .. } = std::mem::replace(&mut self.grant, Grant::None) {
            shared.lock().all.give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000_000;

    fn rate(bytes: u64) -> ByteRate {
        ByteRate::new(bytes).expect("a rate")
    }

    fn flow() -> Flow {
        Flow::new(None, Some(rate(RATE)))
    }

    /// Connections that always have more to send.
    struct Busy {
        flows: Vec<Flow>,
        due: Vec<Duration>,
    }

    impl Busy {
        fn new(flows: impl IntoIterator<Item = Flow>) -> Self {
            let flows: Vec<Flow> = flows.into_iter().collect();
            Self { due: vec![Duration::ZERO; flows.len()], flows }
        }

        /// Who sends how much when, until then.
        fn run(&mut self, shared: Option<&Shared>, until: Duration) -> Vec<(Duration, usize, u64)> {
            let mut sent = Vec::new();
            loop {
                let next = (0..self.flows.len()).min_by_key(|number| self.due[*number]).expect("a flow");
                let now = self.due[next];
                if now >= until {
                    return sent;
                }
                match self.flows[next].ask(u64::MAX, shared, now) {
                    Ok(bytes) => {
                        self.flows[next].sent(bytes);
                        sent.push((now, next, bytes));
                    }
                    Err(from) => {
                        assert!(from > now, "busy waiting");
                        self.due[next] = from;
                    }
                }
            }
        }
    }

    fn bytes_of(sent: &[(Duration, usize, u64)], flow: usize) -> u64 {
        sent.iter().filter(|(_, of, _)| *of == flow).map(|(_, _, bytes)| bytes).sum()
    }

    #[test]
    fn all_together_have_the_rate_and_take_turns() {
        let shared = Shared::new(rate(RATE));
        let sent = Busy::new((0..5).map(|_| flow())).run(Some(&shared), Duration::from_secs(10));
        let total: u64 = sent.iter().map(|(_, _, bytes)| bytes).sum();
        let most = 10 * RATE + 2 * (5 * EARLY_BYTES + RATE / 10);
        assert!((10 * RATE..most).contains(&total), "{total}");
        let late: Vec<_> = sent.iter().filter(|(at, ..)| at.as_secs() > 1).copied().collect();
        for turn in late.windows(5) {
            let mut who: Vec<usize> = turn.iter().map(|(_, who, _)| *who).collect();
            who.sort_unstable();
            assert_eq!(who, [0, 1, 2, 3, 4], "{turn:?}");
        }
    }

    #[test]
    fn a_small_answer_waits_for_nobody() {
        let shared = Shared::new(rate(RATE));
        Busy::new((0..100).map(|_| flow())).run(Some(&shared), Duration::from_secs(10));
        let now = Duration::from_secs(10);
        let mut newcomer = flow();
        for _ in 0..3 {
            let bytes = newcomer.ask(5000, Some(&shared), now).expect("at once");
            newcomer.sent(bytes);
        }
        // One that goes on waits like others: a grant of each of them, and no more.
        let mut waited = Duration::ZERO;
        while let Ok(bytes) = newcomer.ask(u64::MAX, Some(&shared), now) {
            newcomer.sent(bytes);
            assert!(waited < Duration::from_secs(1));
            waited += Duration::from_millis(1);
        }
        let from = newcomer.ask(u64::MAX, Some(&shared), now).expect_err("it waits");
        let turn = rate(RATE).time_of(101 * rate(RATE).grant_bytes(GRANT));
        assert!(from - now <= turn + Duration::from_millis(100), "{:?}", from - now);
        // After some silence it is early again.
        let later = from + Duration::from_millis(1);
        let left = newcomer.ask(u64::MAX, Some(&shared), later).expect("its grant");
        newcomer.sent(left);
        let later = later + SILENCE;
        assert!(newcomer.ask(5000, Some(&shared), later).is_ok());
    }

    #[test]
    fn whoever_comes_early_without_end_has_a_part_of_the_rate() {
        let shared = Shared::new(rate(RATE));
        let mut busy = Busy::new((0..50).map(|_| flow()));
        busy.run(Some(&shared), Duration::from_secs(2));
        let (mut early, mut others) = (0, 0);
        for milli in 2000..12_000 {
            let now = Duration::from_millis(milli);
            let sent = busy.run(Some(&shared), now);
            others += sent.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
            // A new connection each millisecond, and each goes again if it has to wait.
            let mut newcomer = flow();
            match newcomer.ask(5000, Some(&shared), now) {
                Ok(bytes) => {
                    newcomer.sent(bytes);
                    early += bytes;
                }
                Err(_) => newcomer.end(&shared),
            }
        }
        let part = 10 * RATE / EARLY_SHARE;
        assert!((part - EARLY_BYTES..part + 2 * EARLY_BYTES).contains(&early), "{early}");
        assert!((95 * RATE / 10..105 * RATE / 10).contains(&(early + others)), "{early} + {others}");
    }

    #[test]
    fn a_connection_has_its_own_rate() {
        let shared = Shared::new(rate(RATE));
        let flows = [100_000, 100_000, 5_000_000].map(|own| Flow::new(Some(rate(own)), Some(rate(RATE))));
        let sent = Busy::new(flows).run(Some(&shared), Duration::from_secs(10));
        for slow in [0, 1] {
            let bytes = bytes_of(&sent, slow);
            assert!((900_000..1_000_000 + 2 * EARLY_BYTES).contains(&bytes), "{bytes}");
        }
        let bytes = bytes_of(&sent, 2);
        assert!((7_700_000..8_400_000).contains(&bytes), "{bytes}");
        let mut alone = Busy::new([Flow::new(Some(rate(100_000)), None)]);
        let bytes = bytes_of(&alone.run(None, Duration::from_secs(10)), 0);
        assert!((1_000_000..1_000_000 + 2 * EARLY_BYTES).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_one_that_goes_has_taken_is_for_others() {
        let shared = Shared::new(rate(RATE));
        Busy::new([flow()]).run(Some(&shared), Duration::from_secs(1));
        let now = Duration::from_secs(1);
        let before = shared.lock().all.full_at;
        let mut others: Vec<Flow> = (0..50).map(|_| flow()).collect();
        for other in &mut others {
            other.early_left = 0;
            other.asked_at = now;
            assert!(other.ask(u64::MAX, Some(&shared), now).is_err());
        }
        assert!(shared.lock().all.full_at > before);
        others.iter_mut().for_each(|other| other.end(&shared));
        assert_eq!(shared.lock().all.full_at, before);
    }

    #[test]
    fn rates_of_any_size_have_no_overflow() {
        assert_eq!(ByteRate::new(0), None);
        for bytes in [1, 1000, u64::MAX] {
            let shared = Shared::new(rate(bytes));
            let mut flow = Flow::new(Some(rate(bytes)), Some(rate(bytes)));
            let mut now = Duration::ZERO;
            for _ in 0..100 {
                match flow.ask(u64::MAX, Some(&shared), now) {
                    Ok(bytes) => flow.sent(bytes),
                    Err(from) => now = from,
                }
            }
        }
    }
}
