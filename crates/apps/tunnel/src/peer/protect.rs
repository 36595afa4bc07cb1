//! Repair packets: which packets they cover, and which path they take.

use polypath_units::{Duration, Instant};

use super::receive::Source;
use super::state::Peer;
use crate::fec::{FecOutcome, FecReceiver, FecSender};
use crate::frame::{DataHeader, Esi, Frame, RepairHeader, TAKES_FEC};
use crate::noise::{PATH_HEADER_BYTES, PathId, TAG_BYTES};

/// A repair packet takes another path than most of what it covers if that is slower by no more than a round trip, and this.
const MOST_DETOUR: Duration = Duration::from_millis(10);

impl Peer {
    /// Whether a packet that takes this path is protected: the path loses something, and the peer knows repair packets.
    pub(super) fn protects_on(&self, at: usize, frame: &[u8]) -> bool {
        let loss = self.links[at].as_deref().map_or(0.0, |link| link.loss.share());
        self.peer_flags & TAKES_FEC != 0 && FecSender::protects(loss, frame.len())
    }

    /// The number of the next protected packet.
    pub(super) fn next_esi(&mut self) -> Option<Esi> {
        if self.fec_sender.is_none() {
            self.fec_sender = FecSender::new().map(Box::new);
        }
        self.fec_sender.as_ref().map(|fec| fec.next_esi())
    }

    /// A protected packet, with its header written, leaves over a path.
    pub(super) fn handle_protected(&mut self, now: Instant, at: usize, frame: &[u8]) {
        let loss = self.links[at].as_deref().map_or(0.0, |link| link.loss.share());
        if let Some(fec) = &mut self.fec_sender {
            fec.handle_sent(now, frame, at, loss);
        }
        self.poll_repair(now);
    }

    /// Repair packets that are due wait for their path.
    pub(super) fn poll_repair(&mut self, now: Instant) {
        let Some(mut fec) = self.fec_sender.take() else { return };
        while let Some(frame) = fec.poll_repair(now) {
            let path = self.path_for_repair(&fec);
            let _ =
                path.and_then(|at| self.links[at].as_deref_mut()).is_some_and(|link| link.push_own(frame));
        }
        self.fec_sender = Some(fec);
    }

    /// Of the paths that are fast enough, the one that took the fewest of the packets that are covered.
    fn path_for_repair(&self, fec: &FecSender) -> Option<usize> {
        let usable = self.usable_for(PATH_HEADER_BYTES + fec.repair_bytes() + TAG_BYTES);
        let fastest = usable.clone().map(|(_, link)| link.sender.srtt()).min()?;
        let is_fast = |srtt: Duration| srtt / 2 <= fastest / 2 + fastest + MOST_DETOUR;
        usable
            .filter(|(_, link)| is_fast(link.sender.srtt()))
            .min_by_key(|(at, link)| (fec.covered_on(*at), link.sender.srtt()))
            .map(|(at, _)| at)
    }

    /// A packet came that repair packets cover.
    pub(super) fn handle_protected_data(
        &mut self,
        now: Instant,
        path: PathId,
        (esi, header): (Esi, &DataHeader),
        packet: &[u8],
        source: &Source<'_>,
        deliver: &mut dyn FnMut(&[u8]),
    ) {
        let fec = self.fec_receiver.take().or_else(|| FecReceiver::new(esi).map(Box::new));
        let Some(mut fec) = fec else { return };
        let outcome = fec.handle_source(esi, header, packet, &mut |frame| {
            self.handle_rebuilt(now, path, frame, source, deliver);
        });
        self.finish_fec(fec, outcome);
    }

    /// A repair packet came.
    pub(super) fn handle_repair(
        &mut self,
        now: Instant,
        path: PathId,
        header: &RepairHeader,
        combination: &[u8],
        source: &Source<'_>,
        deliver: &mut dyn FnMut(&[u8]),
    ) {
        self.counts.repairs_received += 1;
        let fec = self.fec_receiver.take().or_else(|| FecReceiver::new(header.first).map(Box::new));
        let Some(mut fec) = fec else { return };
        let outcome = fec.handle_repair(header, combination, &mut |frame| {
            self.handle_rebuilt(now, path, frame, source, deliver);
        });
        self.finish_fec(fec, outcome);
    }

    fn finish_fec(&mut self, fec: Box<FecReceiver>, outcome: FecOutcome) {
        self.fec_receiver = Some(fec);
        self.counts.rebuilt += outcome.rebuilt;
        self.counts.not_rebuilt += outcome.missing;
    }

    /// A frame that was rebuilt is treated as if it had come. It is no more trusted.
    fn handle_rebuilt(
        &mut self,
        now: Instant,
        path: PathId,
        frame: &[u8],
        source: &Source<'_>,
        deliver: &mut dyn FnMut(&[u8]),
    ) {
        let Some(Frame::Data(header, at)) = Frame::parse(frame) else {
            self.counts.malformed += 1;
            return;
        };
        let header = DataHeader::new(header.order, header.flow, header.sequence);
        match source.len_of(&frame[at..]).map(|len| &frame[at..at + len]) {
            Some(packet) => self.handle_data(now, path, &header, packet, deliver),
            None => self.counts.foreign += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::key::PrivateKey;
    use crate::{
        Engine, EngineConfig, FlowPolicy, LocalId, PathSettings, PeerConfig, PeerCounts, Rule, Rules,
    };

    /// Two ends, whose datagrams are there at once.
    struct Two {
        now: Instant,
        ends: [Engine; 2],
        paths: Vec<PathId>,
        /// To which end, of which path, from where.
        wire: Vec<(usize, LocalId, SocketAddr, Vec<u8>)>,
        came: Vec<u8>,
        sent: u8,
    }

    impl Two {
        fn new() -> Self {
            let key = |end: u8| PrivateKey::from_random([end + 1; 32]);
            let ends = [0, 1].map(|end| {
                let mut peer = PeerConfig::new(key(1 - end).public_key());
                peer.allowed_ips.push(crate::Network::host([10, 0, 0, 2 - end].into()));
                peer.rules = Rules::new(vec![Rule { fec: true, ..Rule::all(FlowPolicy::LowLatency) }]);
                let config = EngineConfig { peers: vec![peer], ..EngineConfig::new(key(end)) };
                let mut state = u64::from(end);
                let random = move |bytes: &mut [u8]| {
                    for byte in bytes {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
                        *byte = (state >> 56) as u8;
                    }
                };
                Engine::new(config, Duration::from_secs(1_700_000_000), Box::new(random))
            });
            let mut two = Self {
                now: Instant::from_secs(1),
                ends,
                paths: Vec::new(),
                wire: Vec::new(),
                came: Vec::new(),
                sent: 0,
            };
            let peer = two.ends[0].peer_ids().next().unwrap();
            for path in 0..2 {
                let remote = ([192, 0, 2, path], 2).into();
                let local = LocalId(path.into());
                let id = two.ends[0].add_path(two.now, peer, local, remote, PathSettings::default());
                two.paths.extend(id);
            }
            (0..20).for_each(|_| two.run(Duration::from_millis(50), |_| true));
            two
        }

        fn peer(&mut self, end: usize) -> &mut Peer {
            let id = self.ends[end].peer_ids().next().unwrap();
            self.ends[end].peer_mut(id).unwrap()
        }

        /// What was sent before arrives; what is sent now is on its way if it passes, by its number; then time goes on.
        fn run(&mut self, span: Duration, passes: impl Fn(usize) -> bool) {
            for (to, local, from, mut bytes) in std::mem::take(&mut self.wire) {
                let came = &mut self.came;
                let mut deliver = |packet: &[u8]| came.push(packet[20]);
                self.ends[to].handle_datagram(self.now, local, from, &mut bytes, &mut deliver);
            }
            for end in 0..2 {
                self.ends[end].handle_timeout(self.now, &mut |_| ());
            }
            let (mut buffer, mut number) = (Vec::new(), 0);
            for end in 0..2 {
                while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buffer) {
                    let from = ([192, 0, 2, transmit.local.0 as u8], 1 + end as u16).into();
                    for datagram in buffer.chunks(transmit.segment_bytes.unwrap_or(transmit.len_bytes)) {
                        if passes(number) {
                            self.wire.push((1 - end, transmit.local, from, datagram.to_vec()));
                        }
                        number += 1;
                    }
                    buffer.clear();
                }
            }
            self.now += span;
        }

        /// One packet of so many bytes enters at the first end.
        fn send(&mut self, len_bytes: u16) {
            let mut frame = vec![0xff; crate::PACKET_ROOM_BYTES + usize::from(len_bytes)];
            let packet = &mut frame[crate::PACKET_ROOM_BYTES..];
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&len_bytes.to_be_bytes());
            packet[6..8].fill(0);
            (packet[8], packet[9]) = (64, 6);
            packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
            packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
            packet[20] = self.sent;
            self.sent += 1;
            self.ends[0].handle_packet(self.now, frame.into());
        }

        fn note_loss(&mut self) {
            for path in self.paths.clone() {
                self.peer(0).link_mut(path).unwrap().loss.handle(900, 100, 0);
            }
        }

        fn counts(&mut self, end: usize) -> PeerCounts {
            self.peer(end).counts()
        }
    }

    #[test]
    fn a_packet_of_any_length_is_rebuilt() {
        for len_bytes in [21, 700, 1_400] {
            let mut two = Two::new();
            two.note_loss();
            for number in 0..10 {
                two.send(len_bytes);
                two.run(Duration::from_millis(5), |datagram| number != 3 || datagram != 0);
            }
            (0..4).for_each(|_| two.run(Duration::from_millis(25), |_| true));
            two.came.sort_unstable();
            assert_eq!(two.came, (0..10).collect::<Vec<_>>(), "{len_bytes}");
            assert_eq!(two.counts(1).rebuilt, 1);
        }
    }

    #[test]
    fn a_peer_that_does_not_know_repair_packets_gets_none() {
        let mut two = Two::new();
        two.note_loss();
        two.send(500);
        (0..4).for_each(|_| two.run(Duration::from_millis(25), |_| true));
        let repairs_sent = two.counts(0).repairs_sent;
        assert_eq!(repairs_sent, 1);
        // The hello of a version without them, which began just now.
        let id = two.ends[1].peer_ids().next().unwrap();
        two.ends[1].send_plain(id, &[0xf0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 0]);
        let ends = two.peer(1).places(0)[0];
        two.peer(1).set_plain_ends(ends);
        (0..2).for_each(|_| two.run(Duration::from_millis(5), |_| true));
        assert!(two.peer(0).peer_flags & TAKES_FEC == 0 && two.peer(0).fec_sender.is_none());
        two.note_loss();
        two.send(500);
        (0..4).for_each(|_| two.run(Duration::from_millis(25), |_| true));
        assert_eq!((two.counts(0).repairs_sent, two.came.len()), (repairs_sent, 2));
    }

    #[test]
    fn what_is_rebuilt_is_no_more_trusted_than_what_comes() {
        let mut two = Two::new();
        let id = two.ends[0].peer_ids().next().unwrap();
        let path = two.paths[0];
        // Of one packet, so that it is known at once: from an address that the peer does not have, and none at all.
        let mut foreign =
            vec![1, 5, 0, 0, 0, 0x45, 0, 0, 21, 0, 0, 0, 0, 64, 6, 0, 0, 10, 7, 7, 7, 10, 0, 0, 2, 1];
        for (first, malformed) in [(0_u8, false), (1, true)] {
            if malformed {
                foreign.fill(0xee);
            }
            let header = RepairHeader { first: Esi::new(first.into()), count: 1, key: 1 };
            let mut frame = vec![0; RepairHeader::BYTES];
            header.write(&mut frame);
            frame.extend_from_slice(&foreign);
            two.ends[0].send_frame(two.now, id, path, &frame);
            (0..2).for_each(|_| two.run(Duration::from_millis(5), |_| true));
        }
        // A coefficient changes the bytes, so what it says is as good as random; that it was looked at counts.
        let counts = two.counts(1);
        assert_eq!((counts.rebuilt, counts.foreign + counts.malformed), (2, 2), "{counts:?}");
        assert!(two.came.is_empty());
        // Cut off, of nothing, of too many, and longer than any.
        for frame in
            [vec![3, 0, 0, 1, 0], vec![3, 0, 0, 0, 1, 1, 7], vec![3, 9, 0, 200, 1, 1, 7], vec![3; 1_600]]
        {
            two.ends[0].send_frame(two.now, id, path, &frame);
            two.run(Duration::from_millis(5), |_| true);
        }
        two.note_loss();
        two.send(500);
        (0..4).for_each(|_| two.run(Duration::from_millis(25), |_| true));
        assert_eq!(two.came, [0]);
    }
}
