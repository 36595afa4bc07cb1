use alloc::collections::{BTreeMap, VecDeque};

use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, Packet, Segment, TcpFlags};

use super::flows::{flow_of, segment, segment_mut};
use super::{Direction, Middlebox, Outputs};

/// Settings of a [`Coalesce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalesceConfig {
    /// How long a segment waits for the next. Default 2 ms.
    pub hold: Duration,
    /// Most bytes of payload in a merged segment. Default 4380: three of 1460.
    pub max_payload_bytes: usize,
}

impl Default for CoalesceConfig {
    fn default() -> Self {
        Self { hold: Duration::from_millis(2), max_payload_bytes: 4380 }
    }
}

/// Merges segments that follow each other, as receive offload and some firewalls do (P 2.3.1).
///
/// The merged segment has the options of the first one; those of the others, mappings included, are gone. A
/// segment leaves when it is full, with PSH or FIN, after the holding time, and ahead of anything else of its
/// flow.
#[derive(Debug)]
pub struct Coalesce {
    config: CoalesceConfig,
    held: BTreeMap<Key, Held>,
    /// Deadlines in order; those of segments that have left are skipped when they come to the front.
    deadlines: VecDeque<(Instant, Key, u64)>,
    count: u64,
}

type Key = (Direction, Endpoint, Endpoint);

#[derive(Debug)]
struct Held {
    packet: Packet,
    /// Number of the deadline that counts for it.
    number: u64,
}

impl Coalesce {
    /// The box.
    pub const fn new(config: CoalesceConfig) -> Self {
        Self { config, held: BTreeMap::new(), deadlines: VecDeque::new(), count: 0 }
    }

    fn release(&mut self, key: &Key, out: &mut Outputs) {
        if let Some(held) = self.held.remove(key) {
            out.push(key.0, held.packet);
        }
    }

    fn skip_stale_deadlines(&mut self) {
        let held = &self.held;
        while self
            .deadlines
            .pop_front_if(|(_, key, number)| held.get(key).is_none_or(|held| held.number != *number))
            .is_some()
        {}
    }

    /// Holds or merges a data segment.
    fn take(&mut self, now: Instant, key: Key, mut packet: Packet, out: &mut Outputs) {
        let Some(segment) = segment_mut(&mut packet) else { return };
        let ends = segment.flags.contains(TcpFlags::PSH) || segment.flags.fin();
        let mut full = segment.payload.len() >= self.config.max_payload_bytes;
        let room = self.config.max_payload_bytes;
        let first = self.held.get_mut(&key).and_then(|held| segment_mut(&mut held.packet)).filter(|first| {
            first.seq_end() == segment.seq && first.payload.len() + segment.payload.len() <= room
        });
        if let Some(first) = first {
            first.payload.append(core::mem::take(&mut segment.payload));
            first.flags = first.flags.with(segment.flags);
            first.ack = segment.ack;
            first.window = segment.window;
            full = first.payload.len() >= room;
        } else {
            self.release(&key, out);
            self.count += 1;
            self.held.insert(key, Held { packet, number: self.count });
            self.deadlines.push_back((now + self.config.hold, key, self.count));
        }
        if ends || full {
            self.release(&key, out);
        }
    }
}

/// Data, and no flag but those that a merged segment can have.
fn can_merge(segment: &Segment) -> bool {
    let plain = TcpFlags::ACK.with(TcpFlags::PSH).with(TcpFlags::FIN);
    !segment.payload.is_empty() && segment.flags.without(plain) == TcpFlags::default() && segment.flags.ack()
}

impl Middlebox for Coalesce {
    fn name(&self) -> &'static str {
        "coalesce"
    }

    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        match flow_of(direction, &packet) {
            Some(flow) => {
                let key = (direction, flow.local, flow.remote);
                if segment(&packet).is_some_and(can_merge) {
                    self.take(now, key, packet, out);
                } else {
                    self.release(&key, out);
                    out.push(direction, packet);
                }
                self.skip_stale_deadlines();
            }
            None => out.push(direction, packet),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, ..)| *at)
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outputs) {
        while let Some((_, key, _)) = self.deadlines.pop_front_if(|(at, ..)| *at <= now) {
            self.release(&key, out);
            self.skip_stale_deadlines();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::testing::{segment_of, stream};

    fn path() -> Path<Coalesce> {
        let mut path =
            Path::new(Coalesce::new(CoalesceConfig { max_payload_bytes: 300, ..Default::default() }));
        path.handshake();
        path
    }

    #[test]
    fn what_follows_is_merged_under_the_first_ones_options() {
        let mut path = path();
        assert_eq!(path.client(with_dss(seg(101, 501, 100), 1, 100)), []);
        assert_eq!(path.client(with_dss(seg(201, 502, 100), 101, 100)), []);
        let merged = path.client(with_dss(seg(301, 503, 100), 201, 100));
        assert_eq!(shapes(&merged), [(101, 300, true)]);
        let merged = segment_of(&merged[0]);
        assert_eq!(merged.payload.to_vec(), stream(101, 300));
        assert_eq!(merged.options.dss.unwrap().mapping.unwrap().subflow_offset, 1);
        assert_eq!(merged.ack.0, 503);
        assert_eq!(path.middlebox.poll_timeout(), None);
    }

    #[test]
    fn a_lone_segment_leaves_after_the_holding_time() {
        let mut path = path();
        path.client(seg(101, 501, 100));
        path.wait(Duration::from_millis(1));
        path.server(seg(501, 101, 50));
        let out = path.wait(Duration::from_millis(10));
        let when: alloc::vec::Vec<_> = out.iter().map(|(at, to, _)| (at.as_millis(), *to)).collect();
        assert_eq!(when, [(1, Direction::Forward), (2, Direction::Backward)]);
    }

    #[test]
    fn ends_gaps_and_other_segments_push_out_what_is_held() {
        let mut path = path();
        path.client(seg(101, 501, 100));
        let out = path.client(flagged(seg(201, 501, 100), TcpFlags::FIN));
        assert_eq!(shapes(&out), [(101, 200, false)]);
        assert!(segment_of(&out[0]).flags.fin());

        path.client(seg(301, 501, 100));
        assert_eq!(shapes(&path.client(seg(501, 501, 100))), [(301, 100, false)], "a gap");
        assert_eq!(shapes(&path.client(seg(601, 501, 0))), [(501, 100, false), (601, 0, false)], "an ACK");
        path.client(seg(601, 501, 200));
        assert_eq!(shapes(&path.client(seg(801, 501, 200))), [(601, 200, false)], "no room");
        let out = path.client(flagged(seg(1001, 501, 10), TcpFlags::RST));
        assert_eq!(shapes(&out), [(801, 200, false), (1001, 10, false)]);
        assert_eq!(path.wait(Duration::from_secs(1)), []);
    }
}
