use alloc::vec::Vec;

use bytes::Bytes;

use super::{Datagram, IpHeader, Packet, Segment, Transport, icmp, ip, protocol};
use crate::checksum::pseudo_header;
use crate::{MAX_OPTIONS_BYTES, Payload};

const TCP_HEADER_BYTES: usize = 20;
/// Where the checksum is in a TCP and in a UDP header.
const TCP_CHECKSUM_AT: usize = 16;
const UDP_CHECKSUM_AT: usize = 6;

/// What stands in the checksum field of a TCP or UDP header. IP header and ICMP always have theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checksum {
    /// The checksum over header and payload.
    #[default]
    Full,
    /// The sum of the pseudo header, not complemented, over which a device completes the checksum (the
    /// convention of virtio-net and of Linux's `CHECKSUM_PARTIAL`).
    Partial,
}

impl Packet {
    /// Appends the packet, with all checksums. An aggregate is written as one packet; see
    /// [`Packet::segments`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.reserve(self.len_bytes());
        self.emit_header(out, Checksum::Full);
        for slice in self.payload_slices() {
            out.extend_from_slice(slice);
        }
    }

    /// Appends everything but the payload, which the caller writes after it: for drivers that gather slices
    /// or leave checksum and segmentation to a device.
    pub fn emit_header(&self, out: &mut Vec<u8>, checksum: Checksum) {
        match &self.transport {
            Transport::Tcp(segment) => emit_tcp(&self.ip, segment, checksum, out),
            Transport::Udp(datagram) => emit_udp(&self.ip, datagram, checksum, out),
            Transport::Icmp(message) => {
                ip::emit(&self.ip, ip::icmp_protocol(&self.ip), message.len_bytes(), 0, out);
                icmp::emit(&self.ip, message, out);
            }
        }
    }

    /// The slices of the payload, which follow what [`Packet::emit_header`] appends; none for ICMP.
    #[must_use]
    pub fn payload_slices(&self) -> &[Bytes] {
        match &self.transport {
            Transport::Tcp(segment) => segment.payload.slices(),
            Transport::Udp(datagram) => datagram.payload.slices(),
            Transport::Icmp(_) => &[],
        }
    }
}

/// RFC 9293 §3.1.
fn emit_tcp(ip: &IpHeader, segment: &Segment, checksum: Checksum, out: &mut Vec<u8>) {
    let options_len = segment.options.len_bytes().min(MAX_OPTIONS_BYTES);
    let header_len = TCP_HEADER_BYTES + options_len;
    let len = header_len + segment.payload.len();
    // Any sixteen bits that differ between nearby segments do.
    ip::emit(ip, protocol::TCP, len, (segment.seq.0 ^ segment.seq.0 >> 16) as u16, out);
    let start = out.len();
    out.extend_from_slice(&segment.src_port.to_be_bytes());
    out.extend_from_slice(&segment.dst_port.to_be_bytes());
    out.extend_from_slice(&segment.seq.0.to_be_bytes());
    let ack = if segment.flags.ack() { segment.ack.0 } else { 0 };
    out.extend_from_slice(&ack.to_be_bytes());
    out.extend_from_slice(&[(header_len as u8) << 2, segment.flags.0]);
    out.extend_from_slice(&segment.window.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&segment.urgent.to_be_bytes());
    segment.options.emit(out);
    // Options that did not fit leave less than was announced: end of options, then zeros.
    out.resize(start + header_len, 0);
    let sum = transport_checksum(ip, protocol::TCP, len, checksum, out.get(start..), &segment.payload);
    patch(out, start + TCP_CHECKSUM_AT, sum);
}

/// RFC 768.
fn emit_udp(ip: &IpHeader, datagram: &Datagram, checksum: Checksum, out: &mut Vec<u8>) {
    let len = 8 + datagram.payload.len();
    ip::emit(ip, protocol::UDP, len, 0, out);
    let start = out.len();
    out.extend_from_slice(&datagram.src_port.to_be_bytes());
    out.extend_from_slice(&datagram.dst_port.to_be_bytes());
    out.extend_from_slice(&u16::try_from(len).unwrap_or(0).to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    let sum = transport_checksum(ip, protocol::UDP, len, checksum, out.get(start..), &datagram.payload);
    // Zero would say that there is no checksum.
    patch(out, start + UDP_CHECKSUM_AT, if sum == 0 { 0xffff } else { sum });
}

fn transport_checksum(
    ip: &IpHeader,
    protocol: u8,
    len: usize,
    checksum: Checksum,
    header: Option<&[u8]>,
    payload: &Payload,
) -> u16 {
    let mut sum = pseudo_header(ip.src, ip.dst, protocol, len);
    match checksum {
        Checksum::Partial => sum.folded(),
        Checksum::Full => {
            sum.push(header.unwrap_or_default());
            sum.push_payload(payload);
            sum.finish()
        }
    }
}

fn patch(out: &mut [u8], at: usize, value: u16) {
    if let Some(field) = out.get_mut(at..).and_then(|field| field.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}
