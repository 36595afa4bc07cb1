use super::{Packet, Segment, TcpFlags, Transport};

/// The segments of an aggregate, cut as segmentation offload cuts them: the same options on each, PSH and FIN
/// on the last only, CWR on the first only.
#[derive(Debug)]
pub struct Segments {
    rest: Option<Packet>,
}

impl Packet {
    /// This packet as packets of [`Segment::segment_size`]; itself if it is no aggregate.
    #[must_use]
    pub fn segments(self) -> Segments {
        Segments { rest: Some(self) }
    }
}

impl Iterator for Segments {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        let mut packet = self.rest.take()?;
        let Transport::Tcp(segment) = &mut packet.transport else { return Some(packet) };
        let size = usize::from(segment.segment_size);
        if size == 0 || segment.payload.len() <= size {
            segment.segment_size = 0;
            return Some(packet);
        }
        let payload = segment.payload.split_to(size);
        let remaining = core::mem::take(&mut segment.payload);
        let mut head = Segment { payload, segment_size: 0, ..segment.clone() };
        head.flags = head.flags.without(TcpFlags::PSH.with(TcpFlags::FIN));
        segment.payload = remaining;
        segment.seq = segment.seq.add(size as u32);
        segment.flags = segment.flags.without(TcpFlags::CWR);
        let ip = packet.ip;
        self.rest = Some(packet);
        Some(Packet { ip, transport: Transport::Tcp(head) })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;

    use super::*;
    use crate::{Endpoint, FourTuple};

    #[test]
    fn an_aggregate_is_cut_as_offload_cuts_it() {
        let end = |last, port| Endpoint::new(Ipv4Addr::new(10, 0, 0, last).into(), port);
        let all: Vec<u8> = (0..250).collect();
        let flags = TcpFlags::ACK.with(TcpFlags::PSH).with(TcpFlags::FIN).with(TcpFlags::CWR);
        let segment = Segment { flags, payload: all.clone().into(), segment_size: 100, ..Segment::default() };
        let packet = Packet::tcp(FourTuple { local: end(1, 1), remote: end(2, 2) }, segment);
        let mut bytes = Vec::new();
        let mut letters = Vec::new();
        for part in packet.segments() {
            let Transport::Tcp(segment) = part.transport else { continue };
            assert_eq!((segment.seq.0 as usize, segment.segment_size), (bytes.len(), 0));
            bytes.extend(segment.payload.to_vec());
            letters.push(alloc::format!("{:?}", segment.flags));
        }
        assert_eq!(bytes, all);
        assert_eq!(letters, ["W.", ".", "FP."]);
    }
}
