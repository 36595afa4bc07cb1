use std::io::IoSlice;

use super::flow::Kind;
use super::super_packet::{Joined, SuperPacket};
use super::vnet_header::VNET_HEADER_BYTES;

/// Packets that are joined at most.
pub const MAX_PACKETS: usize = 64;

/// Super packets that still grow at the same time; with more flows in a batch, the oldest is ended.
const MAX_OPEN: usize = 8;

const PLAIN: [u8; VNET_HEADER_BYTES] = [0; VNET_HEADER_BYTES];

/// The end of a chain of packets.
const NONE: usize = usize::MAX;

/// Joins the packets of a batch, as they came out of the tunnel, into frames for the device: one write each.
///
/// Packets of TCP are joined that follow each other in their flow and differ in nothing but sequence number, checksum and identification, all of the same size but
/// the last one, which FIN or PSH end too; packets of UDP likewise. A checksum is verified before the kernel is asked to form it anew.
/// All others pass unchanged behind a virtio header of zeros: also those with wrong checksums, and whatever is no packet of IP.
/// An empty packet is left out.
///
/// Within a flow the order is that of the batch. Flows may change places with each other.
#[derive(Clone, Debug)]
pub struct Coalescer {
    joins_udp: bool,
    frames: Vec<Frame>,
    /// Of each packet, the one after it in its frame.
    next: Vec<usize>,
    /// The frames that still grow, by place in `frames`, oldest first.
    open: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Frame {
    Plain(usize),
    Super(SuperPacket),
}

impl Coalescer {
    /// Joins TCP, and UDP if the device takes it (Linux 6.2).
    #[must_use]
    pub fn new(joins_udp: bool) -> Self {
        Self { joins_udp, frames: Vec::new(), next: Vec::new(), open: Vec::with_capacity(MAX_OPEN) }
    }

    /// Calls `write` once for each frame, with its parts in order: virtio header and headers, then payloads by reference, at most
    /// [`MAX_PACKETS`] of them.
    pub fn coalesce<P: AsRef<[u8]>>(&mut self, packets: &[P], mut write: impl FnMut(&[IoSlice<'_>])) {
        self.frames.clear();
        self.open.clear();
        self.next.clear();
        self.next.resize(packets.len(), NONE);
        for at in 0..packets.len() {
            self.take(packets, at);
        }
        for frame in &self.frames {
            match frame {
                Frame::Super(joined) if joined.packets > 1 => {
                    write_joined(joined, &self.next, packets, &mut write)
                }
                Frame::Plain(at) | Frame::Super(SuperPacket { first: at, .. }) => {
                    write(&[IoSlice::new(&PLAIN), IoSlice::new(packets[*at].as_ref())]);
                }
            }
        }
    }

    fn take<P: AsRef<[u8]>>(&mut self, packets: &[P], at: usize) {
        let packet = packets[at].as_ref();
        let layout = match Kind::of(packet) {
            _ if packet.is_empty() => return,
            Kind::Flow(layout) if layout.is_tcp || self.joins_udp => layout,
            Kind::Flow(_) | Kind::Apart => return self.frames.push(Frame::Plain(at)),
            Kind::Unclear => {
                // Whichever flow it belongs to, no later packet of it may overtake it.
                self.open.clear();
                return self.frames.push(Frame::Plain(at));
            }
        };
        for place in 0..self.open.len() {
            let Frame::Super(open) = &mut self.frames[self.open[place]] else { continue };
            let first = packets[open.first].as_ref();
            if !open.layout.is_same_flow(first, &layout, packet) {
                continue;
            }
            let last = open.last;
            let joined = open.join(first, &layout, at, packet);
            if joined != Joined::No {
                self.next[last] = at;
            }
            if joined != Joined::Yes || usize::from(open.packets) == MAX_PACKETS {
                self.open.remove(place);
            }
            if joined != Joined::No {
                return;
            }
            break;
        }
        if !layout.may_begin(packet) {
            return self.frames.push(Frame::Plain(at));
        }
        if self.open.len() == MAX_OPEN {
            self.open.remove(0);
        }
        self.open.push(self.frames.len());
        self.frames.push(Frame::Super(SuperPacket::of(layout, at, packet)));
    }
}

fn write_joined<P: AsRef<[u8]>>(
    joined: &SuperPacket,
    next: &[usize],
    packets: &[P],
    write: &mut impl FnMut(&[IoSlice<'_>]),
) {
    let headers = joined.headers(packets[joined.first].as_ref());
    let mut parts = [IoSlice::new(&[]); 1 + MAX_PACKETS];
    parts[0] = IoSlice::new(headers.as_slice());
    let mut at = joined.first;
    let mut used = 1;
    while let (Some(packet), Some(part)) = (packets.get(at), parts.get_mut(used)) {
        *part = IoSlice::new(&packet.as_ref()[joined.layout.header_bytes..]);
        at = next[at];
        used += 1;
    }
    write(&parts[..used]);
}
