//! Packets to bytes.

use alloc::vec::Vec;

use super::{Datagram, Packet, Segment, Transport, icmp, ip, protocol};
use crate::MAX_OPTIONS_BYTES;
use crate::checksum::{IncrementalSum, pseudo_header};

/// What to put in the transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum.
    Full,
    /// The sum of the pseudo header only, not complemented: what checksum offload completes.
    Partial,
}

impl Packet {
    /// Appends the whole packet, with all checksums.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.emit_header(out, Checksum::Full);
        if let Transport::Tcp(Segment { payload, .. }) | Transport::Udp(Datagram { payload, .. }) =
            &self.transport
        {
            for slice in payload.slices() {
                out.extend_from_slice(slice);
            }
        }
    }

    /// Appends everything but the payload, which the caller appends.
    pub fn emit_header(&self, out: &mut Vec<u8>, checksum: Checksum) {
        match &self.transport {
            Transport::Tcp(segment) => self.emit_tcp(segment, out, checksum),
            Transport::Udp(datagram) => self.emit_udp(datagram, out, checksum),
            Transport::Icmp(message) => {
                let is_v6 = self.ip.src.is_ipv6();
                let number = if is_v6 { protocol::ICMPV6 } else { protocol::ICMP };
                let mut body = Vec::with_capacity(message.len_bytes());
                icmp::emit(message, is_v6, &mut body);
                ip::emit(&self.ip, number, body.len(), out);
                let mut sum = if is_v6 {
                    pseudo_header(self.ip.src, self.ip.dst, number, body.len() as u32)
                } else {
                    IncrementalSum::new()
                };
                sum.push(&body);
                body[2..4].copy_from_slice(&sum.finish().to_be_bytes());
                out.extend_from_slice(&body);
            }
        }
    }

    fn emit_tcp(&self, segment: &Segment, out: &mut Vec<u8>, checksum: Checksum) {
        let mut options = Vec::with_capacity(MAX_OPTIONS_BYTES);
        segment.options.emit(&mut options);
        options.truncate(MAX_OPTIONS_BYTES);
        let header_len = 20 + options.len();
        let len = header_len + segment.payload.len();
        ip::emit(&self.ip, protocol::TCP, len, out);
        let start = out.len();
        out.extend_from_slice(&segment.src_port.to_be_bytes());
        out.extend_from_slice(&segment.dst_port.to_be_bytes());
        out.extend_from_slice(&segment.seq.0.to_be_bytes());
        let ack = if segment.flags.ack() { segment.ack.0 } else { 0 };
        out.extend_from_slice(&ack.to_be_bytes());
        out.extend_from_slice(&[((header_len / 4) << 4) as u8, segment.flags.0]);
        out.extend_from_slice(&segment.window.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&segment.urgent.to_be_bytes());
        out.extend_from_slice(&options);
        let mut sum = pseudo_header(self.ip.src, self.ip.dst, protocol::TCP, len as u32);
        let value = match checksum {
            Checksum::Partial => sum.folded(),
            Checksum::Full => {
                sum.push(&out[start..]);
                sum.push_payload(&segment.payload);
                sum.finish()
            }
        };
        out[start + 16..start + 18].copy_from_slice(&value.to_be_bytes());
    }

    fn emit_udp(&self, datagram: &Datagram, out: &mut Vec<u8>, checksum: Checksum) {
        let len = 8 + datagram.payload.len();
        ip::emit(&self.ip, protocol::UDP, len, out);
        let start = out.len();
        out.extend_from_slice(&datagram.src_port.to_be_bytes());
        out.extend_from_slice(&datagram.dst_port.to_be_bytes());
        out.extend_from_slice(&(len as u16).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        let mut sum = pseudo_header(self.ip.src, self.ip.dst, protocol::UDP, len as u32);
        let value = match checksum {
            Checksum::Partial => sum.folded(),
            Checksum::Full => {
                sum.push(&out[start..]);
                sum.push_payload(&datagram.payload);
                // Zero would mean "no checksum" (RFC 768).
                match sum.finish() {
                    0 => 0xffff,
                    value => value,
                }
            }
        };
        out[start + 6..start + 8].copy_from_slice(&value.to_be_bytes());
    }
}
