//! What an acknowledgment costs, with little and with 48 MB outstanding.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use polypath_congestion::Unlimited;
use polypath_tcp::{Config, Connection, Setup};
use polypath_units::{Duration, Instant};
use polypath_wire::{
    Endpoint, FourTuple, Packet, Payload, SackBlock, Segment, SeqNumber, TcpFlags, TcpOption, Transport,
};

const ISN: SeqNumber = SeqNumber(1000);
const SEGMENT_BYTES: u32 = 1460;

struct Sender {
    tcp: Connection,
    now: Instant,
    sent_bytes: u32,
}

impl Sender {
    fn new() -> Self {
        let one = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1).into(), 40_000);
        let other = Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80);
        let config = Config { max_aggregate_bytes: 0, pacing: false, timestamps: false, ..Config::default() };
        let setup = Setup {
            tuple: FourTuple { local: one, remote: other },
            isn: ISN,
            timestamp_offset: 0,
            config: Arc::new(config),
            congestion: Unlimited::ALGORITHM,
        };
        let now = Instant::from_secs(1);
        let mut sender = Self { tcp: Connection::connect(now, setup), now, sent_bytes: 0 };
        assert!(sender.tcp.poll_transmit(now, &mut ()).is_some());
        let mut syn_ack = sender.segment(0, &[]);
        syn_ack.flags = TcpFlags::SYN.with(TcpFlags::ACK);
        syn_ack.options.rest.push(TcpOption::SackPermitted);
        syn_ack.options.rest.push(TcpOption::Mss(1460));
        syn_ack.options.rest.push(TcpOption::WindowScale(14));
        sender.handle(syn_ack);
        sender.send(0);
        let ack = Segment { seq: SeqNumber(1), ..sender.segment(0, &[]) };
        sender.handle(ack);
        sender
    }

    /// With so many segments outstanding.
    fn with(segments: u32) -> Self {
        let mut sender = Self::new();
        sender.send(segments);
        sender
    }

    fn segment(&self, acked_bytes: u32, blocks: &[(u32, u32)]) -> Segment {
        let at = |bytes: u32| ISN.add(1).add(bytes);
        let mut segment =
            Segment { flags: TcpFlags::ACK, ack: at(acked_bytes), window: u16::MAX, ..Segment::default() };
        for (start, end) in blocks {
            segment.options.sack.push(SackBlock { start: at(*start), end: at(*end) });
        }
        segment
    }

    fn handle(&mut self, mut segment: Segment) {
        self.now += Duration::from_micros(10);
        black_box(self.tcp.handle_segment(self.now, &mut segment, &mut ()));
    }

    fn acknowledge(&mut self, acked: u32, blocks: &[(u32, u32)]) {
        let blocks: Vec<_> =
            blocks.iter().map(|(from, until)| (from * SEGMENT_BYTES, until * SEGMENT_BYTES)).collect();
        // Sequence numbers wrap.
        let segment = self.segment(acked.wrapping_mul(SEGMENT_BYTES), &blocks);
        self.handle(Segment { seq: SeqNumber(1), ..segment });
    }

    fn send(&mut self, segments: u32) {
        for _ in 0..segments {
            self.tcp.enqueue(Payload::from(&[0; SEGMENT_BYTES as usize][..]), ());
        }
        while let Some(Packet { transport: Transport::Tcp(segment), .. }) =
            self.tcp.poll_transmit(self.now, &mut ())
        {
            self.sent_bytes = self.sent_bytes.wrapping_add(segment.payload.len() as u32);
        }
    }
}

const MANY: u32 = (48 << 20) / SEGMENT_BYTES;

fn benchmark(c: &mut Criterion) {
    let mut group = c.benchmark_group("acknowledge");
    group.sample_size(10);
    group.bench_function("in order, 10 of 20 segments", |b| {
        let (mut sender, mut acked) = (Sender::with(20), 0_u32);
        b.iter(|| {
            acked = acked.wrapping_add(10);
            sender.acknowledge(acked, &[]);
            sender.send(10);
        });
    });
    group.bench_function("one lost in 100 segments", |b| {
        b.iter_batched(
            || Sender::with(100),
            |mut sender| {
                for at in 2..100 {
                    sender.acknowledge(0, &[(1, at)]);
                    sender.send(1);
                }
                sender.acknowledge(100, &[]);
                sender
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("48 MB, all by one block", |b| {
        b.iter_batched(
            || Sender::with(MANY),
            |mut sender| {
                sender.acknowledge(0, &[(1, MANY)]);
                sender
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("48 MB, all at once", |b| {
        b.iter_batched(
            || Sender::with(MANY),
            |mut sender| {
                sender.acknowledge(MANY, &[]);
                sender
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("48 MB, 1000 blocks with gaps", |b| {
        b.iter_batched(
            || Sender::with(MANY),
            |mut sender| {
                for at in 0..1000 {
                    let from = if at % 2 == 0 { MANY / 2 + at * 4 } else { MANY / 2 - at * 4 };
                    sender.acknowledge(0, &[(from, from + 1)]);
                }
                sender
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
