//! A token bucket, as testbeds have them (`tc htb`): what comes below its rate is not delayed at all.

use std::collections::VecDeque;

use polypath_link::PacketLike;
use polypath_units::{BitRate, Duration, Instant};

/// Tokens of a bit: rates are whole bits, and times whole nanoseconds, so that nothing is rounded.
const TOKENS_PER_BIT: u128 = 1_000_000_000;

/// Lets packets pass as long as there are tokens, and makes the others wait.
#[derive(Debug)]
pub(super) struct TokenBucket<P> {
    rate: BitRate,
    most: u128,
    tokens: u128,
    at: Instant,
    waiting: VecDeque<P>,
    waiting_bytes: u64,
    most_waiting_bytes: u64,
    drops: u64,
}

impl<P: PacketLike> TokenBucket<P> {
    /// A full bucket for so many bytes, before which so many may wait.
    pub(super) fn new(rate: BitRate, burst_bytes: u64, most_waiting_bytes: u64) -> Self {
        let most = u128::from(burst_bytes) * 8 * TOKENS_PER_BIT;
        Self {
            rate,
            most,
            tokens: most,
            at: Instant::ZERO,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            most_waiting_bytes,
            drops: 0,
        }
    }

    /// Packets that found too many before them.
    pub(super) const fn drops(&self) -> u64 {
        self.drops
    }

    /// From now on tokens come at another rate.
    pub(super) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.fill(now);
        self.rate = rate;
    }

    pub(super) fn handle_packet(&mut self, packet: P) {
        let bytes = packet.len_bytes() as u64;
        if self.waiting_bytes + bytes > self.most_waiting_bytes {
            self.drops += 1;
            return;
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back(packet);
    }

    /// The next packet that passes.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<P> {
        self.fill(now);
        let price = price(self.waiting.front()?, self.most);
        self.tokens = self.tokens.checked_sub(price)?;
        let packet = self.waiting.pop_front()?;
        self.waiting_bytes -= packet.len_bytes() as u64;
        Some(packet)
    }

    /// When the next one does.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let missing = price(self.waiting.front()?, self.most).saturating_sub(self.tokens);
        let rate = u128::from(self.rate.as_bps());
        if missing == 0 {
            return Some(self.at);
        }
        let nanos = missing.checked_add(rate.saturating_sub(1))?.checked_div(rate)?;
        Some(self.at + Duration::from_nanos(u64::try_from(nanos).ok()?))
    }

    fn fill(&mut self, now: Instant) {
        let span = now.since(self.at);
        let came = u128::from(self.rate.as_bps()) * u128::from(span.as_nanos());
        self.tokens = self.most.min(self.tokens + came);
        self.at = self.at.max(now);
    }
}

/// What is longer than the whole bucket passes when that is full.
fn price(packet: &impl PacketLike, most: u128) -> u128 {
    most.min(packet.len_bytes() as u128 * 8 * TOKENS_PER_BIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::packet::OnPath;

    fn packet(bytes: usize) -> OnPath {
        OnPath { datagram: vec![0; bytes].into(), header_bytes: 0 }
    }

    /// When packets of 1000 bytes pass that come so many milliseconds apart.
    fn passed(bucket: &mut TokenBucket<OnPath>, spacing_ms: u64, count: u64) -> Vec<u64> {
        let mut passed = Vec::new();
        let mut now = Instant::ZERO;
        for number in 0..count {
            let comes = Instant::from_millis(spacing_ms * number);
            while let Some(at) = bucket.poll_timeout().filter(|at| *at <= comes) {
                now = now.max(at);
                passed.extend(bucket.poll_transmit(now).map(|_| now.as_millis()));
            }
            bucket.handle_packet(packet(1000));
            now = comes;
            passed.extend(bucket.poll_transmit(now).map(|_| now.as_millis()));
        }
        while let Some(at) = bucket.poll_timeout() {
            now = now.max(at);
            passed.extend(bucket.poll_transmit(now).map(|_| now.as_millis()));
        }
        passed
    }

    #[test]
    fn what_comes_below_the_rate_is_not_delayed() {
        // 8 ms a packet.
        let mut bucket = TokenBucket::new(BitRate::from_mbps(1), 1000, 5000);
        assert_eq!(passed(&mut bucket, 8, 4), [0, 8, 16, 24]);
        assert_eq!(bucket.drops(), 0);
    }

    #[test]
    fn what_comes_faster_waits_or_is_dropped() {
        let mut bucket = TokenBucket::new(BitRate::from_mbps(1), 2000, 3000);
        // Two pass, three wait, one is too many.
        assert_eq!(passed(&mut bucket, 0, 6), [0, 0, 8, 16, 24]);
        let mut bucket = TokenBucket::new(BitRate::from_mbps(1), 1000, 2000);
        assert_eq!(passed(&mut bucket, 1, 6), [0, 8, 16]);
        assert_eq!(bucket.drops(), 3);
    }

    #[test]
    fn a_new_rate_counts_from_now_on_and_without_one_nothing_passes() {
        let mut bucket = TokenBucket::new(BitRate::from_mbps(1), 1000, 5000);
        bucket.handle_packet(packet(1000));
        bucket.handle_packet(packet(1000));
        assert!(bucket.poll_transmit(Instant::ZERO).is_some());
        bucket.set_rate(Instant::from_millis(4), BitRate::from_mbps(2));
        assert_eq!(bucket.poll_timeout(), Some(Instant::from_millis(6)));
        bucket.set_rate(Instant::from_millis(5), BitRate::ZERO);
        assert_eq!(bucket.poll_timeout(), None);
        // A packet that is longer than the bucket passes a full one.
        let mut small = TokenBucket::new(BitRate::from_mbps(1), 500, 5000);
        small.handle_packet(packet(1000));
        assert!(small.poll_transmit(Instant::ZERO).is_some());
    }
}
