//! Both ends of NAMA with two paths between them, without a network.

use std::collections::BTreeMap;

use bytes::Bytes;
use polypath_tunnel::aggregator::{Aggregator, Transmit};
use polypath_tunnel::aggregators::Aggregation;
use polypath_tunnel::reordering::ReorderDensity;
use polypath_tunnel::split::PathView;
use polypath_units::{BitRate, Duration, Instant};

const PACKET_BYTES: usize = 1480;

/// Paths that carry up to a rate and drop the rest, as a policer does, in both directions.
struct Paths {
    delays: [Duration; 2],
    rates: [BitRate; 2],
    free_at: [[Instant; 2]; 2],
    /// By time of arrival and number: to which end, over which path.
    under_way: BTreeMap<(Instant, u64), (usize, usize, Bytes)>,
    count: u64,
}

impl Paths {
    fn send(&mut self, now: Instant, to: usize, leaving: Transmit) {
        let Transmit { path, datagram, header_bytes } = leaving;
        let free_at = &mut self.free_at[to][path];
        // Five packets may wait.
        let time = |bytes: usize| self.rates[path].time_to_send(bytes as u64);
        if free_at.since(now) > time(5 * PACKET_BYTES) {
            return;
        }
        *free_at = now.max(*free_at) + time(datagram.len() + usize::from(header_bytes));
        let at = now.max(*free_at) + self.delays[path];
        self.count += 1;
        self.under_way.insert((at, self.count), (to, path, datagram));
    }
}

/// What arrives of a stream of 6 Mbit/s that lasts so long, with the times of arrival.
fn receive(name: &str, delays: [u64; 2], kbps: [u64; 2], seconds: u64) -> Vec<(Instant, u64)> {
    let views = [0, 1].map(|path| PathView {
        rate: BitRate::from_kbps(kbps[path]),
        delay: Duration::from_millis(delays[path]),
    });
    let aggregation: Aggregation = name.parse().expect("an aggregator");
    let mut ends: [Box<dyn Aggregator>; 2] = [0, 1].map(|_| aggregation.build_for(&views));
    let mut paths = Paths {
        delays: delays.map(Duration::from_millis),
        rates: kbps.map(BitRate::from_kbps),
        free_at: [[Instant::ZERO; 2]; 2],
        under_way: BTreeMap::new(),
        count: 0,
    };
    let spacing = BitRate::from_mbps(6).time_to_send(PACKET_BYTES as u64);
    let (mut next, mut sequence) = (Instant::ZERO, 0_u64);
    let end = Instant::from_secs(seconds);
    let mut arrived = Vec::new();
    loop {
        let arrival = paths.under_way.first_key_value().map(|((at, _), _)| *at);
        let timeouts = ends.iter().filter_map(|end| end.poll_timeout());
        let Some(now) = timeouts.chain(arrival).chain([next]).min().filter(|at| *at < end) else { break };
        if next == now {
            let mut packet = vec![0x45; PACKET_BYTES];
            packet[28..36].copy_from_slice(&sequence.to_be_bytes());
            ends[0].handle_packet(now, packet.into());
            (sequence, next) = (sequence + 1, next + spacing);
        }
        while let Some(entry) = paths.under_way.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to, path, datagram) = entry.remove();
            ends[to].handle_datagram(now, path, datagram);
        }
        for (number, end) in ends.iter_mut().enumerate() {
            while let Some(leaving) = end.poll_transmit(now) {
                paths.send(now, 1 - number, leaving);
            }
            while let Some(packet) = end.poll_packet(now) {
                assert_eq!((number, packet.len(), packet[0]), (1, PACKET_BYTES, 0x45));
                let sequence = packet[28..36].first_chunk().expect("eight bytes");
                arrived.push((now, u64::from_be_bytes(*sequence)));
            }
        }
    }
    arrived
}

fn displaced(arrived: &[(Instant, u64)], from: Instant) -> f64 {
    let mut density = ReorderDensity::new(200);
    let later = arrived.iter().filter(|(at, _)| *at >= from);
    later.for_each(|(_, sequence)| density.handle_arrival(*sequence));
    density.finish();
    1.0 - density.density(0)
}

/// The share of the packets of the last second that arrived.
fn share(arrived: &[(Instant, u64)], seconds: u64) -> f64 {
    let all = 6e6 / 8.0 / PACKET_BYTES as f64;
    let last = arrived.iter().filter(|(at, _)| *at >= Instant::from_secs(seconds - 1));
    last.count() as f64 / all
}

#[test]
fn delays_are_measured_and_made_equal() {
    let wide = [100_000, 100_000];
    assert!(displaced(&receive("round-robin", [10, 50], wide, 3), Instant::from_secs(1)) > 0.9);
    for name in ["equalized-round-robin", "delayed-round-robin:40"] {
        let arrived = receive(name, [10, 50], wide, 3);
        assert!(displaced(&arrived, Instant::from_secs(1)) < 0.01, "{name}");
        assert!(share(&arrived, 3) > 0.99, "{name}");
    }
}

#[test]
fn packets_follow_what_arrives() {
    let narrow = [1500, 5000];
    assert!(share(&receive("round-robin", [5, 5], narrow, 6), 6) < 0.8);
    for name in ["nama", "nama:128", "send-vector"] {
        let share = share(&receive(name, [5, 5], narrow, 6), 6);
        assert!(share > 0.97, "{name}: {share}");
    }
}
