//! A hash over everything that happened in a run: equal hashes mean equal traces.

use std::fmt::{self, Write};
use std::net::IpAddr;

use polypath_units::Instant;
use polypath_wire::{Dss, Packet, Segment, Transport, WireDataSeq};

/// A running 64-bit hash. Not cryptographic; it depends on neither platform nor process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl TraceHash {
    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }

    /// Adds a number.
    pub fn add(&mut self, value: u64) {
        // Both multipliers are odd, so that each step is a bijection of the state for any value.
        let mixed = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }

    /// Adds bytes and their number.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
        self.add(bytes.len() as u64);
    }

    /// Adds the sight of a packet at a place: time, headers, options and payload length. Payload bytes are
    /// checked by the receiving application and left out here.
    pub(crate) fn add_packet(&mut self, at: Instant, place: u64, packet: &Packet) {
        self.add(at.as_nanos());
        self.add(place << 8 | u64::from(packet.ip.ttl));
        self.add_addr(packet.ip.src);
        self.add_addr(packet.ip.dst);
        self.add(packet.ip.ecn as u64);
        match &packet.transport {
            Transport::Tcp(segment) => self.add_segment(segment),
            Transport::Udp(datagram) => {
                self.add(u64::from(datagram.src_port) << 16 | u64::from(datagram.dst_port));
                self.add(datagram.payload.len() as u64);
            }
            Transport::Icmp(message) => self.add_debug(message),
        }
    }

    fn add_addr(&mut self, addr: IpAddr) {
        match addr {
            IpAddr::V4(addr) => self.add(u64::from(addr.to_bits())),
            IpAddr::V6(addr) => {
                self.add((addr.to_bits() >> 64) as u64);
                self.add(addr.to_bits() as u64);
            }
        }
    }

    fn add_segment(&mut self, segment: &Segment) {
        let ports = u64::from(segment.src_port) << 16 | u64::from(segment.dst_port);
        self.add(ports << 32 | u64::from(segment.flags.0) << 16 | u64::from(segment.window));
        self.add(u64::from(segment.seq.0) << 32 | u64::from(segment.ack.0));
        self.add((segment.payload.len() as u64) << 16 | u64::from(segment.segment_size));
        if let Some(timestamps) = segment.options.timestamps {
            self.add(u64::from(timestamps.value) << 32 | u64::from(timestamps.echo));
        }
        for block in &segment.options.sack {
            self.add(u64::from(block.start.0) << 32 | u64::from(block.end.0));
        }
        if let Some(dss) = &segment.options.dss {
            self.add_dss(dss);
        }
        for option in &segment.options.rest {
            self.add_debug(option);
        }
    }

    fn add_dss(&mut self, dss: &Dss) {
        let seq = |seq: WireDataSeq| match seq {
            WireDataSeq::Low(low) => u64::from(low),
            WireDataSeq::Full(full) => full.0,
        };
        self.add(dss.data_ack.map_or(1, seq));
        self.add(u64::from(dss.data_fin));
        if let Some(mapping) = dss.mapping {
            self.add(seq(mapping.data_seq));
            self.add(u64::from(mapping.subflow_offset) << 16 | u64::from(mapping.len));
            self.add(mapping.checksum.map_or(u64::MAX, u64::from));
        }
    }

    /// Adds what is too rare to deserve code of its own.
    fn add_debug(&mut self, value: &dyn fmt::Debug) {
        struct Sink<'a>(&'a mut TraceHash);
        impl Write for Sink<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.add_bytes(text.as_bytes());
                Ok(())
            }
        }
        // The sink never fails.
        let _ = write!(Sink(self), "{value:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_order_and_on_every_bit() {
        let of = |values: &[u64]| {
            let mut hash = TraceHash::default();
            for value in values {
                hash.add(*value);
            }
            hash.value()
        };
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[0, 0]));
        assert_ne!(of(&[5]), of(&[5 ^ 1 << 63]));
        assert_eq!(of(&[7, 8]), of(&[7, 8]));
    }
}
