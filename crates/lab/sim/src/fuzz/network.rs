//! What is under way between the hosts, and what befalls it.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::{Checksums, FourTuple, Packet, Transport};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::op::Kind;
use super::setup::{Faults, LinkPlan, Setup, Side};

/// Packets that an attacker remembers, to send them again.
const HISTORY_PACKETS: usize = 512;
/// Packets of a flow that a fair network loses in a row.
const MOST_LOST_IN_A_ROW: u8 = 2;
/// What stands before a link of limited rate.
const QUEUE: Duration = Duration::from_millis(300);
/// Most that all cuts of a run take from a fair network.
const MOST_CUT: Duration = Duration::from_secs(8);

#[derive(Debug)]
struct Link {
    plan: LinkPlan,
    /// Until when each direction is busy.
    busy_until: [Instant; 2],
    cut_until: Instant,
}

/// Packets under way, and the faults of the paths.
#[derive(Debug)]
pub(super) struct Network {
    links: Vec<Link>,
    transit: BTreeMap<(Instant, u64), (Side, Packet)>,
    serial: u64,
    random: ChaCha8Rng,
    faults: Faults,
    is_fair: bool,
    splits: bool,
    drop_next: Vec<(Side, Kind, u8)>,
    lost_in_a_row: BTreeMap<FourTuple, u8>,
    history: VecDeque<(Side, Packet)>,
    cut_in_all: Duration,
    duplicated_packets: u64,
}

impl Network {
    pub(super) fn new(setup: &Setup) -> Self {
        let link =
            |plan: &LinkPlan| Link { plan: *plan, busy_until: [Instant::ZERO; 2], cut_until: Instant::ZERO };
        Self {
            links: setup.links.iter().map(link).collect(),
            transit: BTreeMap::new(),
            serial: 0,
            random: ChaCha8Rng::seed_from_u64(setup.seed),
            faults: setup.faults,
            is_fair: setup.fair,
            splits: setup.split,
            drop_next: Vec::new(),
            lost_in_a_row: BTreeMap::new(),
            history: VecDeque::new(),
            cut_in_all: Duration::ZERO,
            duplicated_packets: 0,
        }
    }

    // ---- what befalls it

    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    pub(super) fn drop_next(&mut self, from: Side, kind: Kind, count: u8) {
        if self.drop_next.len() < 8 {
            self.drop_next.push((from, kind, count));
        }
    }

    pub(super) fn cut(&mut self, now: Instant, link: u8, lasts: Duration) {
        let lasts = if self.is_fair { lasts.min(MOST_CUT.saturating_sub(self.cut_in_all)) } else { lasts };
        self.cut_in_all += lasts;
        let count = self.links.len();
        self.links[usize::from(link) % count].cut_until = now + lasts;
    }

    /// Packets that it delivered twice.
    pub(super) fn duplicated_packets(&self) -> u64 {
        self.duplicated_packets
    }

    /// Nothing is lost from now on.
    pub(super) fn mend(&mut self, now: Instant) {
        self.faults = Faults::default();
        self.drop_next.clear();
        for link in &mut self.links {
            link.cut_until = link.cut_until.min(now);
        }
    }

    /// Bits of the TCP part of a packet under way change.
    pub(super) fn flip(&mut self, number: u8, bits: [u16; 3]) {
        let at = usize::from(number) % self.transit.len().max(1);
        let Some((_, packet)) = self.transit.values_mut().nth(at) else { return };
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        let header_bytes = packet.ip.len_bytes();
        // The first is mostly in the header and its options, where most happens.
        let area = (bytes.len() - header_bytes) * 8;
        for (bit, area) in bits.into_iter().zip([area.min(60 * 8), area, area.min(60 * 8)]) {
            let bit = header_bytes * 8 + usize::from(bit) % area.max(1);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if let Ok(changed) = Packet::parse_with(bytes.into(), Checksums::Ignore) {
            *packet = changed;
        }
    }

    pub(super) fn replay(&mut self, now: Instant, back: u8, count: u8) {
        let len = self.history.len();
        let first = len.saturating_sub(1 + usize::from(back) * 2);
        let again: Vec<_> = self.history.iter().skip(first).take(count.into()).cloned().collect();
        for (to, packet) in again {
            self.insert(now + Duration::from_micros(10), to, packet);
        }
    }

    // ---- packets

    /// A host sends.
    pub(super) fn send(&mut self, now: Instant, from: Side, packet: Packet) {
        if self.history.len() >= HISTORY_PACKETS {
            self.history.pop_front();
        }
        self.history.push_back((from.other(), packet.clone()));
        if self.splits {
            for part in packet.segments() {
                self.carry(now, from, part);
            }
        } else {
            self.carry(now, from, packet);
        }
    }

    fn carry(&mut self, now: Instant, from: Side, packet: Packet) {
        if self.is_lost(now, from, &packet) {
            return;
        }
        let Some(mut at) = self.arrival(now, from, &packet) else { return };
        let dice = self.random.next_u32().to_le_bytes();
        if dice[0] < self.faults.delay {
            at += Duration::from_micros(u64::from(dice[1]) * 800);
        }
        if dice[2] < self.faults.duplicate {
            let later = at + Duration::from_micros(u64::from(dice[3]) * 400);
            self.duplicated_packets += 1;
            self.insert(later, from.other(), packet.clone());
        }
        self.insert(at, from.other(), packet);
    }

    fn is_lost(&mut self, now: Instant, from: Side, packet: &Packet) -> bool {
        let link = self.link(packet);
        if self.links[link].cut_until > now {
            return true;
        }
        let named = self.drop_next.iter_mut().find(|(side, kind, _)| *side == from && kind.is_of(packet));
        let is_named = named.map(|(_, _, count)| *count -= 1).is_some();
        self.drop_next.retain(|(_, _, count)| *count > 0);
        let is_unlucky = (self.random.next_u32() as u8) < self.faults.drop;
        if !self.is_fair {
            return is_named || is_unlucky;
        }
        let Some(tuple) = packet.receiver_tuple() else { return is_unlucky };
        let in_a_row = self.lost_in_a_row.entry(tuple).or_default();
        let is_lost = (is_named || is_unlucky) && *in_a_row < MOST_LOST_IN_A_ROW;
        *in_a_row = if is_lost { *in_a_row + 1 } else { 0 };
        is_lost
    }

    /// When it arrives; never, if the queue is full.
    fn arrival(&mut self, now: Instant, from: Side, packet: &Packet) -> Option<Instant> {
        let number = self.link(packet);
        let link = &mut self.links[number];
        let busy_until = &mut link.busy_until[from.index()];
        let mut leaves = now;
        if let Some(rate) = link.plan.rate {
            let start = (*busy_until).max(now);
            if start.since(now) > QUEUE {
                return None;
            }
            leaves = start + rate.time_to_send(packet.len_bytes() as u64);
            *busy_until = leaves;
        }
        Some(leaves + link.plan.delay)
    }

    fn link(&self, packet: &Packet) -> usize {
        let client = if last_octet(packet.ip.src) == 1 { packet.ip.src } else { packet.ip.dst };
        link_of(client) % self.links.len()
    }

    /// A packet from nowhere.
    pub(super) fn insert(&mut self, at: Instant, to: Side, packet: Packet) {
        self.serial += 1;
        self.transit.insert((at, self.serial), (to, packet));
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.transit.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn arrive(&mut self, now: Instant) -> Option<(Side, Packet)> {
        let entry = self.transit.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}

fn last_octet(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(addr) => addr.octets()[3],
        IpAddr::V6(_) => 0,
    }
}

fn link_of(addr: IpAddr) -> usize {
    match addr {
        IpAddr::V4(addr) => addr.octets()[2].into(),
        IpAddr::V6(_) => 0,
    }
}

impl Kind {
    fn is_of(self, packet: &Packet) -> bool {
        let Transport::Tcp(segment) = &packet.transport else { return self == Self::Any };
        let flags = segment.flags;
        let ends = flags.fin() || flags.rst() || segment.options.dss.is_some_and(|dss| dss.data_fin);
        match self {
            Self::Acknowledgment => segment.payload.is_empty() && !flags.syn() && !ends,
            Self::Data => !segment.payload.is_empty(),
            Self::Syn => flags.syn(),
            Self::End => ends,
            Self::Any => true,
        }
    }
}
