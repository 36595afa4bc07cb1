//! The lines that limits are. Sans-IO: time comes in, and packets come out of `poll_transmit`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use polypath_link::{Change, Link, LinkConfig, LinkStats, PacketLike, QueueLimit};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Packet;

use super::descent::Descent;
use super::limit::{LimitFigures, LimitId, Way};

/// What may wait, as time at the line's rate.
const QUEUE: Duration = Duration::from_millis(100);
/// Packets that may wait at least, so that a slow line lets a window through that recovers by fast retransmit.
const LEAST_PACKETS: u64 = 20;
/// Packets that may wait at most. Each may hold the 64 KB in which it was received.
const MOST_PACKETS: u64 = 1000;
/// The packets that this counts.
const PACKET_BYTES: u64 = 1500;
/// Lines are looked at no more often than this, so that a fast one costs no timer for each packet.
const GRAIN: Duration = Duration::from_micros(500);

/// A packet in a line, with those that it passes after it.
#[derive(Clone, Debug)]
struct Passing {
    packet: Packet,
    hops: Arc<[LimitId]>,
    next: usize,
}

impl PacketLike for Passing {
    fn len_bytes(&self) -> usize {
        self.packet.len_bytes()
    }

    fn is_aggregate(&self) -> bool {
        self.packet.is_aggregate()
    }

    fn segments(self) -> impl Iterator<Item = Self> {
        let Self { packet, hops, next } = self;
        packet.segments().map(move |packet| Self { packet, hops: hops.clone(), next })
    }

    fn dont_fragment(&self) -> bool {
        PacketLike::dont_fragment(&self.packet)
    }

    fn too_big(&self, _: u32, _: Option<std::net::IpAddr>) -> Option<Self> {
        // No packet is too long for a line.
        None
    }
}

/// One way of a limit.
#[derive(Debug)]
struct Line {
    link: Link<Passing>,
    descent: Descent,
}

impl Line {
    fn new(now: Instant, rate: BitRate) -> Self {
        let config = LinkConfig { queue: queue(rate), ..LinkConfig::default() };
        Self { link: Link::drop_tail(config, 0), descent: Descent::from_unknown(now, rate) }
    }

    fn set(&mut self, now: Instant, rate: BitRate) {
        self.descent = match self.descent.rate() {
            Some(before) => Descent::from(now, before, rate),
            None => Descent::from_unknown(now, rate),
        };
        self.follow(now);
    }

    /// Takes the steps that are due.
    fn follow(&mut self, now: Instant) {
        if self.descent.step(now)
            && let Some(rate) = self.descent.rate()
        {
            self.link.apply(now, Change::Queue(queue(rate)));
            self.link.apply(now, Change::Rate(Some(rate)));
        }
    }

    fn handle_packet(&mut self, now: Instant, passing: Passing) {
        self.follow(now);
        self.descent.count(passing.len_bytes() as u64);
        self.link.handle_packet(now, passing);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Passing> {
        self.follow(now);
        self.link.poll_transmit(now)
    }
}

/// A line for each way, by limit.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<LimitId, [Line; 2]>,
    /// What has passed all.
    passed: [VecDeque<Packet>; 2],
    looked_at: Instant,
}

impl Lines {
    /// Whether something waits to be taken out.
    pub(super) fn has_passed(&self) -> bool {
        self.passed.iter().any(|packets| !packets.is_empty())
    }

    /// A line comes down, or up, to this rate. What waits there goes at it, too.
    pub(super) fn set(&mut self, now: Instant, id: LimitId, rate: BitRate) {
        match self.lines.get_mut(&id) {
            Some(line) => line.iter_mut().for_each(|way| way.set(now, rate)),
            None => _ = self.lines.insert(id, [Line::new(now, rate), Line::new(now, rate)]),
        }
    }

    /// A line is gone. What waits there goes on at once.
    pub(super) fn remove(&mut self, now: Instant, id: LimitId) {
        let Some(mut line) = self.lines.remove(&id) else { return };
        for way in [Way::Sent, Way::Received] {
            let link = &mut line[way as usize].link;
            link.apply(now, Change::Rate(None));
            while let Some(passing) = link.poll_transmit(now) {
                self.enter(now, way, passing);
            }
        }
    }

    /// A packet is to pass these lines, one after the other.
    pub(super) fn handle_packet(&mut self, now: Instant, way: Way, hops: Arc<[LimitId]>, packet: Packet) {
        self.enter(now, way, Passing { packet, hops, next: 0 });
    }

    /// Into the next line that is still there.
    fn enter(&mut self, now: Instant, way: Way, mut passing: Passing) {
        while let Some(id) = passing.hops.get(passing.next) {
            let line = self.lines.get_mut(id);
            passing.next += 1;
            if let Some(line) = line {
                line[way as usize].handle_packet(now, passing);
                return;
            }
        }
        self.passed[way as usize].push_back(passing.packet);
    }

    /// The next packet that has passed all its lines.
    pub(super) fn poll_transmit(&mut self, now: Instant, way: Way) -> Option<Packet> {
        if self.passed[way as usize].is_empty() {
            self.advance(now, way);
        }
        self.passed[way as usize].pop_front()
    }

    fn advance(&mut self, now: Instant, way: Way) {
        self.looked_at = now;
        let mut after = Bound::Unbounded;
        // Each passes lines in their order, so what leaves one enters one that is still to come.
        while let Some((&id, line)) = self.lines.range_mut((after, Bound::Unbounded)).next() {
            match line[way as usize].poll_transmit(now) {
                Some(passing) => self.enter(now, way, passing),
                None => after = Bound::Excluded(id),
            }
        }
    }

    /// When the next packet leaves a line.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let next = self.lines.values().flatten().filter_map(|line| line.link.poll_timeout()).min();
        next.map(|next| next.max(self.looked_at + GRAIN))
    }

    /// What a line has done: with what was sent, and with what was received.
    pub(super) fn figures(&self, id: LimitId) -> [LimitFigures; 2] {
        let line = self.lines.get(&id);
        line.map_or_else(Default::default, |line| line.each_ref().map(|line| figures(&line.link.stats())))
    }
}

fn queue(rate: BitRate) -> QueueLimit {
    QueueLimit::Packets((rate.bytes_in(QUEUE) / PACKET_BYTES).clamp(LEAST_PACKETS, MOST_PACKETS))
}

fn figures(stats: &LinkStats) -> LimitFigures {
    LimitFigures {
        passed_bytes: stats.delivered_bytes,
        passed_packets: stats.delivered_packets,
        dropped_packets: stats.dropped_packets(),
        waiting_packets: stats.inside_packets(),
        waiting_bytes: stats.queue_bytes,
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
