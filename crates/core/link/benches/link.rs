//! What a packet costs on its way through a link.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use polypath_link::{Link, LinkConfig, QueueLimit};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::{Dss, Endpoint, FourTuple, Options, Packet, Segment, TcpFlags, Timestamps};

const PACKETS: u64 = 1000;
/// 1448 bytes at 100 Mbit/s with all headers, and some time to spare.
const INTERVAL: Duration = Duration::from_micros(125);

fn packet() -> Packet {
    let addr = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let tuple = FourTuple { local: Endpoint::new(addr(1), 40000), remote: Endpoint::new(addr(2), 80) };
    Packet::tcp(
        tuple,
        Segment {
            flags: TcpFlags::ACK,
            options: Options {
                timestamps: Some(Timestamps { value: 1, echo: 2 }),
                dss: Some(Dss::default()),
                ..Options::default()
            },
            payload: vec![0; 1400].into(),
            ..Segment::default()
        },
    )
}

fn link() -> Link {
    let rate = BitRate::from_mbps(100);
    Link::new(
        LinkConfig::new(rate, Duration::from_millis(10), QueueLimit::Delay(Duration::from_millis(40))),
        1,
    )
}

/// Passes `PACKETS` packets, one each `interval`, round and round, so that none is built anew.
fn pass(link: &mut Link, now: &mut Instant, spare: &mut Vec<Packet>, interval: Duration) {
    for _ in 0..PACKETS {
        *now += interval;
        if let Some(packet) = spare.pop() {
            link.handle_packet(*now, packet);
        }
        while black_box(link.poll_timeout()).is_some_and(|at| at <= *now) {
            while let Some(packet) = link.poll_transmit(*now) {
                spare.push(packet);
            }
        }
    }
}

fn benchmark(c: &mut Criterion) {
    let mut group = c.benchmark_group("link");
    group.throughput(Throughput::Elements(PACKETS));
    for (name, interval, filled) in [("idle", INTERVAL, 0), ("queued", INTERVAL, 100)] {
        let mut link = link();
        let mut now = Instant::ZERO;
        let mut spare: Vec<Packet> = (0..100).map(|_| packet()).collect();
        for _ in 0..filled {
            link.handle_packet(now, packet());
        }
        let interval = if filled > 0 {
            BitRate::from_mbps(100).time_to_send(packet().len_bytes() as u64)
        } else {
            interval
        };
        group.bench_function(name, |b| b.iter(|| pass(&mut link, &mut now, &mut spare, interval)));
    }
    // What two moves of a packet through a ring cost by themselves, for comparison.
    let mut ring: std::collections::VecDeque<(Instant, Packet)> =
        (0..80).map(|_| (Instant::ZERO, packet())).collect();
    let mut spare: Vec<Packet> = (0..20).map(|_| packet()).collect();
    group.bench_function("bare ring", |b| {
        b.iter(|| {
            for _ in 0..PACKETS {
                if let Some(packet) = spare.pop() {
                    ring.push_back((Instant::ZERO, packet));
                }
                if let Some((_, packet)) = black_box(&mut ring).pop_front() {
                    spare.push(packet);
                }
            }
        });
    });
    group.bench_function("cut an aggregate of 44 segments", |b| {
        let mut aggregate = packet();
        let polypath_wire::Transport::Tcp(segment) = &mut aggregate.transport else { return };
        segment.payload = vec![0; 44 * 1400].into();
        segment.segment_size = 1400;
        b.iter_batched_ref(
            || (link(), Some(aggregate.clone())),
            |(link, aggregate)| aggregate.take().map(|packet| link.handle_packet(Instant::ZERO, packet)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
