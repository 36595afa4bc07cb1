//! What a packet costs from the inside of one end to the inside of the other, without any system call: numbering, encryption, queues,
//! congestion control, acknowledgments, order.

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use polypath_tunnel::key::PrivateKey;
use polypath_tunnel::{
    Engine, EngineConfig, LocalId, PACKET_ROOM_BYTES, PathSettings, PeerConfig, Random, Transmit,
};
use polypath_units::{Duration, Instant};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// As many as a frame of 64 KB is cut into.
const PACKETS: usize = 45;
const PACKET_BYTES: usize = 1_400;
/// How long those take at 4 Gbit/s.
const STEP: Duration = Duration::from_micros(128);

fn address(end: usize, path: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, path as u8, end as u8 + 1], 51_820))
}

fn engine(own: u8, other: u8, paths: usize, has_fast_aes: bool) -> Engine {
    let key = |number| PrivateKey::from_random([number; 32]);
    let mut peer = PeerConfig::new(key(other).public_key());
    peer.allowed_ips.push(format!("10.0.0.{other}/32").parse().expect("a network"));
    let mut config = EngineConfig::new(key(own));
    config.peers.push(peer);
    config.has_fast_aes = has_fast_aes;
    let mut random = Pcg64Mcg::seed_from_u64(own.into());
    let random: Random = Box::new(move |bytes| random.fill_bytes(bytes));
    let mut engine = Engine::new(config, Duration::from_secs(1_700_000_000), random);
    let peer = engine.peer_ids().next().expect("a peer");
    for path in 0..paths {
        let (local, remote) = (LocalId(path as u16), address(1, path));
        engine.add_path(Instant::from_secs(1), peer, local, remote, PathSettings::default());
    }
    engine
}

/// Two ends; what one sends is with the other a step later.
struct Pair {
    now: Instant,
    ends: [Engine; 2],
    /// To each end, with the buffers that are free.
    on_the_way: [VecDeque<(Transmit, Vec<u8>)>; 2],
    free: Vec<Vec<u8>>,
    delivered: u64,
}

impl Pair {
    fn new(paths: usize, has_fast_aes: bool) -> Self {
        let ends = [engine(1, 2, paths, has_fast_aes), engine(2, 1, 0, has_fast_aes)];
        let mut pair = Self {
            now: Instant::from_secs(1),
            ends,
            on_the_way: [VecDeque::new(), VecDeque::new()],
            free: Vec::new(),
            delivered: 0,
        };
        for _ in 0..20_000 {
            pair.step(0);
        }
        pair
    }

    fn step(&mut self, packets: usize) {
        self.now += STEP;
        (0..2).for_each(|end| self.receive(end));
        for _ in 0..packets {
            let mut frame = vec![0; PACKET_ROOM_BYTES + PACKET_BYTES];
            let packet = &mut frame[PACKET_ROOM_BYTES..];
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&(PACKET_BYTES as u16).to_be_bytes());
            (packet[8], packet[9]) = (64, 6);
            packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
            packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
            self.ends[0].handle_packet(self.now, frame.into());
        }
        (0..2).for_each(|end| self.send(end));
        for end in &mut self.ends {
            if end.poll_timeout().is_some_and(|at| at <= self.now) {
                end.handle_timeout(self.now, &mut |_| ());
            }
        }
    }

    fn send(&mut self, from: usize) {
        loop {
            let mut buffer = self.free.pop().unwrap_or_else(|| Vec::with_capacity(1 << 16));
            buffer.clear();
            let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut buffer) else {
                self.free.push(buffer);
                return;
            };
            self.on_the_way[1 - from].push_back((transmit, buffer));
        }
    }

    fn receive(&mut self, to: usize) {
        while let Some((transmit, mut buffer)) = self.on_the_way[to].pop_front() {
            let size = transmit.segment_bytes.unwrap_or(transmit.len_bytes);
            let remote = address(1 - to, usize::from(transmit.local.0));
            for datagram in buffer.chunks_mut(size) {
                let delivered = &mut self.delivered;
                let mut deliver = |packet: &[u8]| {
                    *delivered += 1;
                    black_box(packet);
                };
                self.ends[to].handle_datagram(self.now, transmit.local, remote, datagram, &mut deliver);
            }
            self.free.push(buffer);
        }
    }
}

fn benchmark(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(PACKETS as u64));
    for (paths, has_fast_aes) in [(1, false), (1, true), (2, true)] {
        let mut pair = Pair::new(paths, has_fast_aes);
        for _ in 0..20_000 {
            pair.step(PACKETS);
        }
        let (before, mut sent) = (pair.delivered, 0);
        let cipher = if has_fast_aes { "AES" } else { "ChaCha20" };
        group.bench_function(format!("packet over {paths}, {cipher}"), |bencher| {
            bencher.iter(|| {
                pair.step(PACKETS);
                sent += PACKETS as u64;
            });
        });
        assert!((pair.delivered - before) * 10 >= sent * 9, "{} of {sent} arrived", pair.delivered - before);
    }
    group.finish();
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
