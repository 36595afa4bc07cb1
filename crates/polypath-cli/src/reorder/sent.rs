//! What was sent, in its order, so that it is found again by what it is: 32 bytes are remembered for each packet.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;

use polypath_units::Instant;

use super::flow::FlowId;
use super::ip::{IpPacket, TCP, UDP};

/// More than so many packets are not remembered: 1.6 GB.
pub(super) const MOST_PACKETS: usize = 50_000_000;
/// So many flows are told apart.
const MOST_FLOWS: usize = 65_536;
/// So much of a packet is looked at.
const MOST_BYTES: usize = 2048;
/// Before the IP header stands no more.
const LINK_LAYER_BYTES: usize = 24;

/// What of a packet is the same at both ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sameness {
    /// From the IP header on.
    most_bytes: usize,
    /// Addresses and ports are changed on the way, and what is in TCP's options.
    is_translated: bool,
}

impl Sameness {
    /// Of captures that keep so many bytes of each packet at most; zero if they keep all.
    pub(super) fn new(kept_bytes: impl IntoIterator<Item = u32>, is_translated: bool) -> Self {
        let kept = kept_bytes.into_iter().filter(|kept| *kept > 0).min().unwrap_or(u32::MAX) as usize;
        Self { most_bytes: kept.saturating_sub(LINK_LAYER_BYTES).min(MOST_BYTES), is_translated }
    }

    /// What a packet is, in 64 bits.
    pub(super) fn hash(self, packet: &IpPacket<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(packet.protocol);
        let most = self.most_bytes.saturating_sub(packet.header_len).min(packet.transport.len());
        let transport = &packet.transport[..most];
        if self.is_translated {
            write_untranslated(&mut hasher, packet.protocol, transport);
            return hasher.finish();
        }
        write_address(&mut hasher, packet.src);
        write_address(&mut hasher, packet.dst);
        hasher.write_u16(packet.identification.unwrap_or(0));
        hasher.write_usize(packet.transport_len);
        // The network card of the sender fills in checksums after packets were captured.
        let checksum = match packet.protocol {
            TCP => 16,
            UDP => 6,
            _ => transport.len(),
        };
        let (before, rest) = transport.split_at(checksum.min(transport.len()));
        hasher.write(before);
        hasher.write(rest.get(2..).unwrap_or_default());
        hasher.finish()
    }
}

fn write_address(hasher: &mut DefaultHasher, address: IpAddr) {
    match address {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
}

/// What a network address translator leaves alone.
fn write_untranslated(hasher: &mut DefaultHasher, protocol: u8, transport: &[u8]) {
    match protocol {
        TCP => {
            let header_len = transport.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
            // Sequence number and acknowledgment, flags, and data.
            hasher.write(transport.get(4..12).unwrap_or_default());
            hasher.write(transport.get(13..14).unwrap_or_default());
            hasher.write(transport.get(header_len..).unwrap_or_default());
        }
        UDP => hasher.write(transport.get(8..).unwrap_or_default()),
        _ => hasher.write(transport),
    }
}

/// A flow by its place in the list.
type FlowNumber = u32;

/// Packets by what they are.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// What each is, and its position; in the order of the former once all are there.
    packets: Vec<(u64, u32)>,
    /// At the first of those that are alike: how many of them have come.
    come: Vec<u32>,
    /// By position.
    at: Vec<Instant>,
    flow_of: Vec<FlowNumber>,
    flows: Vec<FlowId>,
    numbers: HashMap<FlowId, FlowNumber>,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) position: u32,
    pub(super) flow: FlowNumber,
    pub(super) sent_at: Instant,
    /// All that are like it have come already.
    pub(super) is_copy: bool,
    /// Others are like it.
    pub(super) has_likes: bool,
}

impl Sent {
    /// The next packet that was sent. False if there is no room.
    pub(super) fn push(&mut self, hash: u64, flow: FlowId, at: Instant) -> bool {
        let known = self.numbers.get(&flow).copied();
        if self.packets.len() >= MOST_PACKETS || (known.is_none() && self.flows.len() >= MOST_FLOWS) {
            return false;
        }
        let number = known.unwrap_or_else(|| {
            let number = self.flows.len() as FlowNumber;
            self.flows.push(flow);
            self.numbers.insert(flow, number);
            number
        });
        self.packets.push((hash, self.packets.len() as u32));
        self.at.push(at);
        self.flow_of.push(number);
        true
    }

    /// All are there; now, or once more, they come.
    pub(super) fn begin(&mut self) {
        self.packets.sort_unstable();
        self.come.clear();
        self.come.resize(self.packets.len(), 0);
    }

    /// A packet came that is this one. Those that are alike are taken to come in the order in which they were sent.
    pub(super) fn take(&mut self, hash: u64) -> Option<Found> {
        let first = self.packets.partition_point(|(known, _)| *known < hash);
        let is_alike = |index: usize| self.packets.get(index).is_some_and(|(known, _)| *known == hash);
        if !is_alike(first) {
            return None;
        }
        let next = first + self.come[first] as usize;
        let (is_copy, has_likes) = (!is_alike(next), is_alike(first + 1));
        let (_, position) = self.packets[if is_copy { first } else { next }];
        if !is_copy {
            self.come[first] += 1;
        }
        let (flow, sent_at) = (self.flow_of[position as usize], self.at[position as usize]);
        Some(Found { position, flow, sent_at, is_copy, has_likes })
    }

    pub(super) fn flows(&self) -> &[FlowId] {
        &self.flows
    }

    pub(super) fn number(&self, flow: FlowId) -> Option<FlowNumber> {
        self.numbers.get(&flow).copied()
    }

    /// The flow of each packet, in the order of sending.
    pub(super) fn flow_of(&self) -> &[FlowNumber] {
        &self.flow_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> FlowId {
        let addr = "192.0.2.1:7".parse().expect("an address");
        FlowId { from: addr, to: addr, protocol: 17 }
    }

    #[test]
    fn each_is_found_once_and_then_as_a_copy() {
        let mut sent = Sent::default();
        for hash in [7, 5, 7, 9] {
            assert!(sent.push(hash, flow(), Instant::ZERO));
        }
        sent.begin();
        let found =
            [9, 7, 7, 7, 8].map(|hash| sent.take(hash).map(|it| (it.position, it.is_copy, it.has_likes)));
        let expected = [
            Some((3, false, false)),
            Some((0, false, true)),
            Some((2, false, true)),
            Some((0, true, true)),
            None,
        ];
        assert_eq!(found, expected);
        sent.begin();
        assert_eq!(sent.take(5).map(|it| it.position), Some(1));
    }

    #[test]
    fn checksums_do_not_count_and_translated_packets_have_other_ports() {
        let packet = |transport: &'static [u8]| IpPacket {
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
            protocol: UDP,
            identification: Some(1),
            header_len: 20,
            transport,
            transport_len: transport.len(),
        };
        let (sent, other) = (packet(b"PpQq\0\x0aCcab"), packet(b"PpQq\0\x0aCcax"));
        let (filled, moved) = (packet(b"PpQq\0\x0aDdab"), packet(b"XxQq\0\x0aCcab"));
        let whole = Sameness::new([0, 0], false);
        assert_eq!(whole.hash(&sent), whole.hash(&filled));
        assert_ne!(whole.hash(&sent), whole.hash(&other));
        assert_ne!(whole.hash(&sent), whole.hash(&moved));
        let translated = Sameness::new([0, 0], true);
        assert_eq!(translated.hash(&sent), translated.hash(&moved));
        // What the shorter capture does not have is not looked at: 20 bytes of IP, 8 of UDP and one more.
        let cut = Sameness::new([65_536, 24 + 29], false);
        assert_eq!(cut.hash(&sent), cut.hash(&other));
    }
}
