//! What a frame of 64 KB costs: cut into packets of 1420 bytes, and joined again.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use polypath_tunnel::offload::{Coalescer, Gso, Segmenter, VnetHeader};

/// A frame of TCP over IPv4 as the kernel hands it over.
fn frame() -> Vec<u8> {
    let len_bytes = 65_000_u16;
    let header = VnetHeader {
        needs_checksum: true,
        gso: Gso::TcpV4,
        has_cwr: false,
        header_len_bytes: 40,
        segment_bytes: 1380,
        checksum_start: 20,
        checksum_offset: 16,
    };
    let mut frame = header.to_bytes().to_vec();
    frame.extend([0x45, 0]);
    frame.extend(len_bytes.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 100, 0, 0, 0, 5, 0x50, 0x10, 1, 0]);
    // The sum over the pseudo header, whose carry comes back in.
    let (sum, carry) = (2 * 0x0a00 + 1 + 2 + 6_u16).overflowing_add(len_bytes - 20);
    let pseudo = sum + u16::from(carry);
    frame.extend(pseudo.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..len_bytes - 40).map(|at| at as u8));
    frame
}

fn benchmark(criterion: &mut Criterion) {
    let frame = frame();
    let mut group = criterion.benchmark_group("offload");
    group.throughput(Throughput::Bytes(frame.len() as u64));
    let mut into = vec![0; 1500];
    group.bench_function("segment", |bencher| {
        bencher.iter(|| {
            let mut segmenter = Segmenter::new(black_box(&frame)).expect("a frame");
            while let Some(len) = segmenter.write_next(&mut into) {
                black_box(&into[..len]);
            }
        });
    });
    let mut packets = Vec::new();
    let mut segmenter = Segmenter::new(&frame).expect("a frame");
    while let Some(len) = segmenter.write_next(&mut into) {
        packets.push(into[..len].to_vec());
    }
    let mut coalescer = Coalescer::new(true);
    let mut frames = 0;
    coalescer.coalesce(&packets, |_| frames += 1);
    assert_eq!(frames, 1);
    group.bench_function("coalesce", |bencher| {
        bencher.iter(|| {
            coalescer.coalesce(black_box(&packets), |parts| {
                black_box(parts);
            });
        });
    });
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
