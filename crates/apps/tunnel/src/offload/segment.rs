use polypath_wire::IncrementalSum;

use super::fields::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, TCP, TCP_CHECKSUM_AT, UDP, UDP_CHECKSUM_AT, double_word,
    finish_ipv4, set_word, word,
};
use super::flow::{CWR, FIN, PSH};
use super::vnet_header::{Gso, VNET_HEADER_BYTES, VnetHeader};

/// Why a frame of the device can't be cut into packets. It is dropped: no packet of it would make sense to anyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Not even a header.
    #[error("a frame of {0} bytes: expected a virtio header of {VNET_HEADER_BYTES} bytes and a packet")]
    Short(usize),
    /// The kernel was not told that it may leave this to us.
    #[error("a frame of GSO type {0}: expected TCP over IPv4 or IPv6, or UDP")]
    Kind(u8),
    /// What the virtio header says does not fit the packet.
    #[error("a frame whose virtio header and packet differ in {0}")]
    Mismatch(&'static str),
}

/// The packets of one frame that was read from the device, written one at a time into buffers of the caller.
///
/// Each has the headers of the frame with what belongs to it alone: lengths, the identification of IPv4, the sequence number and flags of TCP
/// (FIN and PSH on the last, CWR on the first), and complete checksums. Identifications count up from the frame's, as the kernel does it.
///
/// A frame of one packet comes out as it is, with its checksum finished if that was left to us, whatever protocol it has.
#[derive(Clone, Debug)]
pub struct Segmenter<'a> {
    packet: &'a [u8],
    work: Work,
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    /// One packet, and where its checksum begins to count and stands.
    Whole(Option<(usize, usize)>),
    Cut(Cut),
}

#[derive(Clone, Copy, Debug)]
struct Cut {
    is_v4: bool,
    is_tcp: bool,
    /// Bytes of the IP header, with options or extension headers.
    ip_bytes: usize,
    /// Bytes of all headers.
    header_bytes: usize,
    segment_bytes: usize,
    /// The sum over the pseudo header, but for the length.
    pseudo: IncrementalSum,
    /// Payload bytes and packets before the next one.
    payload_at: usize,
    index: u16,
}

impl<'a> Segmenter<'a> {
    /// Looks at a frame: virtio header and packet.
    pub fn new(frame: &'a [u8]) -> Result<Self, FrameError> {
        let (header, packet) = VnetHeader::split(frame).ok_or(FrameError::Short(frame.len()))?;
        if packet.is_empty() {
            return Err(FrameError::Short(frame.len()));
        }
        let start = usize::from(header.checksum_start);
        let checksum_at = start + usize::from(header.checksum_offset);
        if header.needs_checksum && checksum_at + 2 > packet.len() {
            return Err(FrameError::Mismatch("where the checksum is"));
        }
        let work = match header.gso {
            Gso::None => Work::Whole(header.needs_checksum.then_some((start, checksum_at))),
            _ => Work::Cut(Cut::of(&header, packet)?),
        };
        Ok(Self { packet, work, is_over: false })
    }

    /// The packet as it was read: its addresses are those of every packet that comes out.
    #[must_use]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// Bytes of the largest packet that comes out.
    #[must_use]
    pub fn max_len_bytes(&self) -> usize {
        match &self.work {
            Work::Whole(_) => self.packet.len(),
            Work::Cut(cut) => self.packet.len().min(cut.header_bytes + cut.segment_bytes),
        }
    }

    /// Bytes of the next packet; none if all are written.
    #[must_use]
    pub fn next_len_bytes(&self) -> Option<usize> {
        match &self.work {
            _ if self.is_over => None,
            Work::Whole(_) => Some(self.packet.len()),
            Work::Cut(cut) => Some(cut.header_bytes + cut.payload(self.packet).len()),
        }
    }

    /// Writes the next packet at the front of `into` and returns its length. None if all are written, or if `into` is shorter than
    /// [`Self::next_len_bytes`], and then nothing is changed.
    pub fn write_next(&mut self, into: &mut [u8]) -> Option<usize> {
        let len = self.next_len_bytes()?;
        let into = into.get_mut(..len)?;
        match &mut self.work {
            Work::Whole(checksum) => {
                into.copy_from_slice(self.packet);
                if let &mut Some((start, at)) = checksum {
                    let mut sum = IncrementalSum::new();
                    sum.push(&into[start..]);
                    set_word(into, at, never_zero(sum.finish()));
                }
                self.is_over = true;
            }
            Work::Cut(cut) => {
                cut.write(self.packet, into);
                self.is_over = cut.header_bytes + cut.payload_at >= self.packet.len();
            }
        }
        Some(len)
    }
}

impl Cut {
    fn of(header: &VnetHeader, packet: &[u8]) -> Result<Self, FrameError> {
        let differ = |what| Err(FrameError::Mismatch(what));
        let is_v4 = packet[0] >> 4 == 4;
        let (is_tcp, is_version_right) = match header.gso {
            Gso::TcpV4 => (true, is_v4),
            Gso::TcpV6 => (true, packet[0] >> 4 == 6),
            Gso::Udp => (false, is_v4 || packet[0] >> 4 == 6),
            Gso::None => return Err(FrameError::Kind(0)),
            Gso::Unknown(kind) => return Err(FrameError::Kind(kind)),
        };
        if !is_version_right {
            return differ("the version of IP");
        }
        // virtio 1.2 §5.1.6.2 has both always together. The field gives the sum over the pseudo header, whatever the extension headers.
        if !header.needs_checksum {
            return differ("the checksum, which is not left to be finished");
        }
        let (protocol, checksum_at, least_bytes) =
            if is_tcp { (TCP, TCP_CHECKSUM_AT, 20) } else { (UDP, UDP_CHECKSUM_AT, 8) };
        let ip_bytes = usize::from(header.checksum_start);
        let is_ip_whole = if is_v4 {
            packet.len() >= IPV4_HEADER_BYTES
                && ip_bytes >= IPV4_HEADER_BYTES
                && ip_bytes == usize::from(packet[0] & 15) * 4
                && packet[9] == protocol
                && word(packet, 6) & 0x3fff == 0
                && usize::from(word(packet, 2)) == packet.len()
        } else {
            packet.len() >= IPV6_HEADER_BYTES
                && ip_bytes >= IPV6_HEADER_BYTES
                && (ip_bytes > IPV6_HEADER_BYTES || packet[6] == protocol)
                && usize::from(word(packet, 4)) + IPV6_HEADER_BYTES == packet.len()
        };
        if !is_ip_whole {
            return differ("the IP header");
        }
        if usize::from(header.checksum_offset) != checksum_at || packet.len() < ip_bytes + least_bytes {
            return differ("the transport's header");
        }
        let transport = &packet[ip_bytes..];
        let transport_bytes = if is_tcp { usize::from(transport[12] >> 4) * 4 } else { 8 };
        if transport_bytes < least_bytes || transport_bytes > transport.len() {
            return differ("the length of the transport's header");
        }
        if header.segment_bytes == 0 {
            return differ("the size of a segment");
        }
        // The sum in the field counts the length of the whole, which is taken out: adding a complement subtracts.
        let mut pseudo = IncrementalSum::new();
        pseudo.push(&transport[checksum_at..checksum_at + 2]);
        pseudo.push(&(!(transport.len() as u16)).to_be_bytes());
        Ok(Self {
            is_v4,
            is_tcp,
            ip_bytes,
            header_bytes: ip_bytes + transport_bytes,
            segment_bytes: usize::from(header.segment_bytes),
            pseudo,
            payload_at: 0,
            index: 0,
        })
    }

    /// Of the next packet.
    fn payload<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        let rest = &packet[self.header_bytes + self.payload_at..];
        &rest[..rest.len().min(self.segment_bytes)]
    }

    /// Writes the next packet, which fills `into`.
    fn write(&mut self, packet: &[u8], into: &mut [u8]) {
        let payload = self.payload(packet);
        let is_last = self.header_bytes + self.payload_at + payload.len() == packet.len();
        into[..self.header_bytes].copy_from_slice(&packet[..self.header_bytes]);
        into[self.header_bytes..].copy_from_slice(payload);
        let (len, transport_len) = (into.len() as u16, (into.len() - self.ip_bytes) as u16);
        let (ip, transport) = into.split_at_mut(self.ip_bytes);
        if self.is_v4 {
            set_word(ip, 2, len);
            set_word(ip, 4, word(ip, 4).wrapping_add(self.index));
            finish_ipv4(ip);
        } else {
            set_word(ip, 4, len - IPV6_HEADER_BYTES as u16);
        }
        let checksum_at = if self.is_tcp {
            let sequence = double_word(transport, 4).wrapping_add(self.payload_at as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if !is_last {
                transport[13] &= !(FIN | PSH);
            }
            if self.index > 0 {
                transport[13] &= !CWR;
            }
            TCP_CHECKSUM_AT
        } else {
            set_word(transport, 4, transport_len);
            UDP_CHECKSUM_AT
        };
        set_word(transport, checksum_at, 0);
        let mut sum = self.pseudo;
        sum.push(&transport_len.to_be_bytes());
        sum.push(transport);
        let checksum = sum.finish();
        set_word(transport, checksum_at, if self.is_tcp { checksum } else { never_zero(checksum) });
        self.payload_at += payload.len();
        self.index = self.index.wrapping_add(1);
    }
}

/// Zero says of UDP that there is no checksum; the other zero of ones' complement is as right for every protocol.
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}
