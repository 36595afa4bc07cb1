//! TCP flows that are carried by Multipath TCP, among all else that goes between the two ends.

use std::sync::Arc;

use bytes::Bytes;
use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, IcmpMessage, Packet, Transport};

use super::departure::Departure;
use super::link::Link;
use super::receive::Source;
use super::state::Peer;
use crate::frame::{DATA_HEADER_BYTES, DataHeader, Order, SPLITS_TCP, Sequence};
use crate::inner_packet::{ICMP, ICMP_V6, InnerPacket, TCP};
use crate::noise::PATHS;
use crate::rules::{FlowPolicy, Rules};
use crate::tcp_split::{Carried, SplitPath, TcpSplit};

/// Whether a packet, behind its room, begins a flow that is to be split.
pub(super) fn begins_split(rules: &Rules, frame: &[u8]) -> bool {
    let packet = frame.get(DATA_HEADER_BYTES..).unwrap_or_default();
    InnerPacket::parse(packet).is_some_and(|inner| {
        inner.protocol == TCP && rules.find(&inner).0 == FlowPolicy::SplitTcp && is_syn(&inner, packet)
    })
}

/// Whether a packet of TCP begins a flow.
fn is_syn(inner: &InnerPacket, packet: &[u8]) -> bool {
    const FLAGS_AT: usize = 13;
    const SYN: u8 = 0x02;
    const ACK_OR_RST: u8 = 0x14;
    // What has extension headers is left alone.
    let header_bytes = if inner.source.is_ipv4() { usize::from(packet[0] & 0x0f) * 4 } else { 40 };
    packet.get(header_bytes + FLAGS_AT).is_some_and(|flags| flags & (SYN | ACK_OR_RST) == SYN)
}

/// Whether it is a part of a packet of IPv4.
fn is_fragment(packet: &[u8]) -> bool {
    const MORE_AND_OFFSET: u8 = 0x3f;
    packet[0] >> 4 == 4 && (packet[6] & MORE_AND_OFFSET != 0 || packet[7] != 0)
}

/// Whether split flows may use it.
fn may_split(link: &Link) -> bool {
    link.is_up() && link.is_believed() && !link.settings.closed
}

impl Peer {
    /// A packet from inside, if it is of a flow that is split.
    pub(super) fn handle_split(
        &mut self,
        now: Instant,
        inner: &InnerPacket,
        policy: FlowPolicy,
        frame: Box<[u8]>,
    ) -> Result<(), Box<[u8]>> {
        if matches!(inner.protocol, ICMP | ICMP_V6) {
            return self.handle_split_icmp(now, frame);
        }
        let (TCP, Some((from, to))) = (inner.protocol, inner.ports) else { return Err(frame) };
        if is_fragment(&frame[DATA_HEADER_BYTES..]) {
            return Err(frame);
        }
        let may_begin = self.shared.split_memory.is_some() && self.peer_flags & SPLITS_TCP != 0;
        let wants = policy == FlowPolicy::SplitTcp && may_begin;
        let flow = FourTuple {
            local: Endpoint::new(inner.destination, to),
            remote: Endpoint::new(inner.source, from),
        };
        let is_known = self.split.as_ref().is_some_and(|split| split.has_flow(&flow));
        // A flow that began without us goes on without us.
        let begins = wants && !is_known && is_syn(inner, &frame[DATA_HEADER_BYTES..]);
        if !is_known && !begins {
            return Err(frame);
        }
        self.follow_paths(now, true);
        let Some(split) = &mut self.split else { return Err(frame) };
        if begins && !split.has_room() {
            return Err(frame);
        }
        split.handle_inside(now, Bytes::from(frame).slice(DATA_HEADER_BYTES..));
        Ok(())
    }

    /// What the network says of a packet of ours to a host of a split flow.
    fn handle_split_icmp(&mut self, now: Instant, frame: Box<[u8]>) -> Result<(), Box<[u8]>> {
        let Some(split) = self.split.as_mut().filter(|split| split.flow_count() > 0) else {
            return Err(frame);
        };
        let packet = Bytes::copy_from_slice(&frame[DATA_HEADER_BYTES..]);
        let flow = match Packet::parse(packet.clone()) {
            Ok(Packet { transport: Transport::Icmp(message), .. }) => match message {
                IcmpMessage::PacketTooBig { flow, .. } | IcmpMessage::Unreachable { flow, .. } => flow,
            },
            _ => return Err(frame),
        };
        if !split.has_flow(&flow) {
            return Err(frame);
        }
        split.handle_inside(now, packet);
        Ok(())
    }

    /// Flows that are split now.
    pub(crate) fn split_flows(&self) -> usize {
        self.split.as_ref().map_or(0, |split| split.flow_count())
    }

    /// Made when it is first wanted, by this end or by the other.
    fn split_mut(&mut self, by_us: bool) -> Option<&mut TcpSplit> {
        if self.split.is_none() {
            let memory = Arc::clone(self.shared.split_memory.as_ref()?);
            let (mtu_bytes, mut seed) = (self.shared.mtu_bytes, self.secrets.split_seed);
            // In a laboratory the random numbers of both ends may be alike, and keys that are alike are taken for an echo.
            seed[0] ^= u8::from(by_us);
            // One that follows another has keys of its own.
            self.splits_made += 1;
            for (byte, more) in seed[16..].iter_mut().zip(self.splits_made.to_le_bytes()) {
                *byte ^= more;
            }
            self.split = Some(Box::new(TcpSplit::new(mtu_bytes, seed, memory)));
        }
        self.split.as_deref_mut()
    }

    /// Frees what is left once there have been no flows for long.
    pub(super) fn forget_split(&mut self, now: Instant) {
        if self.split.as_ref().is_some_and(|split| split.is_over(now)) {
            self.split = None;
        }
    }

    /// A packet from the peer's counterpart.
    pub(super) fn handle_across(
        &mut self,
        now: Instant,
        packet: &[u8],
        source: &Source<'_>,
        deliver: &mut dyn FnMut(&[u8]),
    ) {
        if self.split.is_none() {
            // The first connection, too, is to know how long its packets may be.
            self.follow_paths(now, false);
        }
        let Some(split) = &mut self.split else {
            self.counts.dropped += 1;
            return;
        };
        split.handle_across(now, Bytes::copy_from_slice(packet), &|address| source.owns(address));
        self.deliver_split(now, deliver);
    }

    /// Hands on what the split flows have for inside.
    pub(super) fn deliver_split(&mut self, now: Instant, deliver: &mut dyn FnMut(&[u8])) {
        let Some(split) = &mut self.split else { return };
        while let Some(packet) = split.poll_inside(now) {
            deliver(&packet);
        }
    }

    /// Tells the split flows which paths there are, and how long their packets may be. Whether one is silent, Multipath TCP finds out.
    ///
    /// `by_us` as for [`Peer::split_mut`].
    fn follow_paths(&mut self, now: Instant, by_us: bool) {
        let links = || self.links.iter().enumerate().filter_map(|(at, link)| Some((at, link.as_deref()?)));
        let links = || links().filter(|(_, link)| may_split(link));
        // A backup costs something by being there: only while no better path works.
        let of_working = self.usable().map(|(_, link)| link.settings.rank()).min();
        let links = || links().filter(|(_, link)| of_working.is_none_or(|most| link.settings.rank() <= most));
        let best = links().map(|(_, link)| link.settings.rank()).min();
        let limit = links().map(|(_, link)| link.limit_bytes()).min();
        let (mut paths, mut count) = ([SplitPath::default(); PATHS], 0);
        for (slot, (number, link)) in paths.iter_mut().zip(links()) {
            *slot = SplitPath { number, is_backup: Some(link.settings.rank()) != best };
            count += 1;
        }
        let around = self.shared.long_bytes() - self.shared.mtu_bytes;
        let mtu_bytes = limit.map_or(self.shared.mtu_bytes, |limit| limit.saturating_sub(around));
        if let Some(split) = self.split_mut(by_us) {
            split.set_paths(now, &paths[..count], mtu_bytes);
        }
    }

    /// The next packet of a split flow. It leaves at once: Multipath TCP controls what it has on each path.
    pub(super) fn split_departure(&mut self, now: Instant) -> Option<Departure> {
        self.split.as_ref()?;
        // One look at the paths is good for all that leaves at a moment.
        if self.paths_followed_at != Some(now) {
            self.paths_followed_at = Some(now);
            self.follow_paths(now, true);
        }
        let Self { split, links, counts, .. } = self;
        loop {
            let Carried { path, flow, frame } = split.as_mut()?.poll_across(now)?;
            if links[path.index()].as_deref().is_some_and(may_split) {
                let header = DataHeader::new(Order::Across, flow, Sequence::default());
                return Some(Departure::new(path.index(), header, frame));
            }
            counts.dropped += 1;
        }
    }
}
