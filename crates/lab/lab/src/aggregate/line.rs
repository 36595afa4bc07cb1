//! One direction of a path: a link, with a token bucket before it where the experiment says so.

use polypath_link::{Change, Jitter, Link, LinkConfig, QueueLimit};
use polypath_units::{BitRate, Instant};

use super::bucket::TokenBucket;
use super::packet::OnPath;
use crate::run::{PathOutcome, PathSet};

#[derive(Debug)]
pub(super) struct OneWay {
    bucket: Option<TokenBucket<OnPath>>,
    link: Link<OnPath>,
    delivered: PathOutcome,
}

impl OneWay {
    /// One direction of path number `path` of a set.
    pub(super) fn new(set: &PathSet, path: usize, burst_bytes: Option<u64>, seed: u64) -> Self {
        let spec = &set.paths[path];
        let config = set.link(spec);
        let jitter = set.line.jitters.get(path).copied().unwrap_or(Jitter::NONE);
        let mut config = LinkConfig { jitter, ..config };
        let bucket = burst_bytes.map(|burst_bytes| {
            let QueueLimit::Bytes(queue_bytes) = config.queue else {
                unreachable!("a set's queue is in bytes")
            };
            config.rate = None;
            // The packet that waits for tokens is at the head of the queue, and not on a transmitter.
            TokenBucket::new(spec.rate, burst_bytes, queue_bytes)
        });
        Self { bucket, link: Link::drop_tail(config, seed), delivered: PathOutcome::default() }
    }

    pub(super) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        match &mut self.bucket {
            Some(bucket) => bucket.set_rate(now, rate),
            None => self.link.apply(now, Change::Rate(Some(rate))),
        }
    }

    pub(super) fn handle_packet(&mut self, now: Instant, packet: OnPath) {
        match &mut self.bucket {
            Some(bucket) => bucket.handle_packet(packet),
            None => self.link.handle_packet(now, packet),
        }
        self.pass(now);
    }

    /// The next packet that has arrived.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<OnPath> {
        self.pass(now);
        let packet = self.link.poll_transmit(now)?;
        self.delivered.delivered_packets += 1;
        self.delivered.delivered_bytes += polypath_link::PacketLike::len_bytes(&packet) as u64;
        Some(packet)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let bucket = self.bucket.as_ref().and_then(TokenBucket::poll_timeout);
        [bucket, self.link.poll_timeout()].into_iter().flatten().min()
    }

    /// What went over it.
    pub(super) fn outcome(&self) -> PathOutcome {
        let stats = self.link.stats();
        PathOutcome {
            queue_drops: stats.queue_drops + self.bucket.as_ref().map_or(0, TokenBucket::drops),
            lost_packets: stats.lost_packets,
            ..self.delivered
        }
    }

    fn pass(&mut self, now: Instant) {
        let Some(bucket) = &mut self.bucket else { return };
        while let Some(packet) = bucket.poll_transmit(now) {
            self.link.handle_packet(now, packet);
        }
    }
}
