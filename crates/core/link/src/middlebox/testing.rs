//! Exchanges for the tests of boxes: what a client and a server say, and what the other side hears.

use alloc::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::{
    Dss, DssMapping, MpCapable, MpCapableKeys, MptcpOption, Options, Packet, Segment, SeqNumber, TcpFlags,
    TcpOption, WireDataSeq,
};

use super::{Direction, Middlebox, Outputs};
use crate::testing::{CLIENT, FLOW, data_segment, segment_of};

/// A way with one box on it, and a clock.
pub(super) struct Path<M> {
    pub(super) middlebox: M,
    pub(super) now: Instant,
    /// What came out on the side that the last packet came from, or after a wait on either side.
    pub(super) back: Vec<Packet>,
}

impl<M: Middlebox> Path<M> {
    pub(super) fn new(middlebox: M) -> Self {
        Self { middlebox, now: Instant::from_secs(1), back: Vec::new() }
    }

    /// The client sends; what the server hears. The packet is turned around if it is a server's.
    pub(super) fn client(&mut self, packet: Packet) -> Vec<Packet> {
        self.pass(Direction::Forward, packet)
    }

    /// The server sends; what the client hears. The packet is one that the client would send, ends exchanged
    /// here.
    pub(super) fn server(&mut self, packet: Packet) -> Vec<Packet> {
        self.pass(Direction::Backward, turned(packet))
    }

    /// A packet passes as it is.
    pub(super) fn pass(&mut self, direction: Direction, packet: Packet) -> Vec<Packet> {
        let mut out = Outputs::new();
        self.middlebox.handle_packet(self.now, direction, packet, &mut out);
        let mut ahead = Vec::new();
        self.back.clear();
        while let Some((to, packet)) = out.pop() {
            if to == direction { ahead.push(packet) } else { self.back.push(packet) }
        }
        ahead
    }

    /// Time passes: what comes out, from deadline to deadline, and when.
    pub(super) fn wait(&mut self, span: Duration) -> Vec<(Duration, Direction, Packet)> {
        let (start, end) = (self.now, self.now + span);
        let mut all = Vec::new();
        let mut out = Outputs::new();
        while let Some(at) = self.middlebox.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.middlebox.handle_timeout(self.now, &mut out);
            while let Some((to, packet)) = out.pop() {
                all.push((self.now - start, to, packet));
            }
            assert!(self.middlebox.poll_timeout().is_none_or(|next| next > self.now), "no progress");
        }
        self.now = end;
        all
    }

    /// The three packets of a handshake, with Multipath TCP: the client's numbers start at 101, the server's
    /// at 501.
    pub(super) fn handshake(&mut self) {
        assert_eq!(self.client(syn(100)).len(), 1);
        assert_eq!(self.server(syn_ack(500, 101)).len(), 1);
        assert_eq!(self.client(seg(101, 501, 0)).len(), 1);
    }
}

/// The same packet from the server to the client.
pub(super) fn turned(mut packet: Packet) -> Packet {
    if packet.ip.src == CLIENT.addr {
        core::mem::swap(&mut packet.ip.src, &mut packet.ip.dst);
        if let polypath_wire::Transport::Tcp(segment) = &mut packet.transport {
            core::mem::swap(&mut segment.src_port, &mut segment.dst_port);
        }
    }
    packet
}

fn capable(keys: MpCapableKeys) -> TcpOption {
    TcpOption::Mptcp(MptcpOption::Capable(MpCapable { version: 1, flags: MpCapable::HMAC, keys }))
}

fn handshake(seq: u32, ack: Option<u32>, mptcp: Option<TcpOption>) -> Packet {
    let options = [TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::WindowScale(7)];
    let flags = if ack.is_some() { TcpFlags::SYN.with(TcpFlags::ACK) } else { TcpFlags::SYN };
    Packet::tcp(
        FLOW,
        Segment {
            seq: SeqNumber(seq),
            ack: SeqNumber(ack.unwrap_or(0)),
            flags,
            window: 65_000,
            options: Options { rest: options.into_iter().chain(mptcp).collect(), ..Options::default() },
            ..Segment::default()
        },
    )
}

/// A SYN with MP_CAPABLE.
pub(super) fn syn(seq: u32) -> Packet {
    handshake(seq, None, Some(capable(MpCapableKeys::None)))
}

/// A SYN without.
pub(super) fn plain_syn(seq: u32) -> Packet {
    handshake(seq, None, None)
}

/// A SYN/ACK with MP_CAPABLE.
pub(super) fn syn_ack(seq: u32, ack: u32) -> Packet {
    handshake(seq, Some(ack), Some(capable(MpCapableKeys::Sender(0x0123_4567_89ab_cdef))))
}

/// A segment with `len` bytes of the test stream.
pub(super) fn seg(seq: u32, ack: u32, len: usize) -> Packet {
    Packet::tcp(FLOW, Segment { ack: SeqNumber(ack), window: 1000, ..data_segment(seq, len) })
}

/// The same with more flags.
pub(super) fn flagged(mut packet: Packet, flags: TcpFlags) -> Packet {
    if let polypath_wire::Transport::Tcp(segment) = &mut packet.transport {
        segment.flags = segment.flags.with(flags);
    }
    packet
}

/// The same with a mapping.
pub(super) fn with_dss(mut packet: Packet, subflow_offset: u32, len: u16) -> Packet {
    if let polypath_wire::Transport::Tcp(segment) = &mut packet.transport {
        let data_seq = WireDataSeq::Low(9000 + subflow_offset);
        let mapping = Some(DssMapping { data_seq, subflow_offset, len, checksum: Some(0x1234) });
        segment.options.dss = Some(Dss { mapping, ..Dss::default() });
    }
    packet
}

/// Sequence number, length, and whether there is a DSS.
pub(super) fn shapes(packets: &[Packet]) -> Vec<(u32, usize, bool)> {
    packets
        .iter()
        .map(segment_of)
        .map(|segment| (segment.seq.0, segment.payload.len(), segment.options.dss.is_some()))
        .collect()
}
