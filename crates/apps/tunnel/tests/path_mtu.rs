//! How long datagrams may be on each path, and what becomes of packets that are longer.

mod network;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use network::{Delivered, Network, PathConfig, packet};
use polypath_units::{Duration, Instant};

/// A packet that may not be cut.
fn whole(number: u32, len_bytes: usize) -> Vec<u8> {
    let mut packet = packet(1, 2, 1, number, len_bytes);
    packet[6] = 0x40;
    packet
}

/// Path 0 carries packets of so many bytes, and path 1 of all.
fn narrow(network: &mut Network, most: usize) -> Arc<AtomicUsize> {
    let limit = Arc::new(AtomicUsize::new(most));
    let there = Arc::clone(&limit);
    network.filter = Some(Box::new(move |_, path, bytes, _| {
        path == 1 || bytes.len() + 28 <= there.load(Ordering::Relaxed)
    }));
    limit
}

fn mtus(network: &Network) -> Vec<usize> {
    let status = network.ends[0].peer_status(network.now, network.peers[0]).unwrap();
    status.paths.iter().map(|path| path.mtu_bytes).collect()
}

/// The length that an answer of ICMP tells.
fn told(delivered: &[Delivered]) -> Option<usize> {
    let answer = &delivered.last()?.packet;
    (answer[9] == 1).then(|| usize::from(u16::from_be_bytes([answer[26], answer[27]])))
}

#[test]
fn the_inside_is_told_what_fits() {
    let mut network = Network::new(&[PathConfig::new(20, 10)]);
    narrow(&mut network, 1_400);
    network.run_until(Instant::from_secs(20));
    let [mtu] = mtus(&network)[..] else { panic!("one path") };
    assert!((1_392..=1_400).contains(&mtu), "{mtu}");
    network.send_at(network.now, 0, whole(1, 1_390));
    network.run_until(Instant::from_secs(21));
    let fits = told(&network.delivered[0]).expect("an answer");
    assert_eq!(fits, mtu - 28 - 35);
    network.send_at(network.now, 0, whole(2, fits));
    // What may be cut is cut.
    network.send_at(network.now, 0, packet(1, 2, 1, 3, 1_390));
    network.run_until(Instant::from_secs(22));
    let lengths: Vec<_> = network.delivered[1].iter().map(|one| one.packet.len()).collect();
    assert_eq!(lengths[0], fits);
    assert_eq!(lengths[1..].iter().sum::<usize>(), 1_390 + 20, "{lengths:?}");
}

#[test]
fn a_path_takes_what_fits_it() {
    let mut network = Network::new(&[PathConfig::new(10, 10), PathConfig::new(10, 12)]);
    narrow(&mut network, 1_350);
    network.run_until(Instant::from_secs(20));
    let before = network.ends[0].peer_status(network.now, network.peers[0]).unwrap().paths;
    // Three of four are short: both paths are needed for them.
    let count = 4_000;
    for number in 0..count {
        let len = if number % 4 == 0 { 1_390 } else { 1_200 };
        let at = Instant::from_secs(20) + Duration::from_micros(800) * u64::from(number);
        network.send_at(at, 0, whole(number, len));
    }
    network.run_until(Instant::from_secs(26));
    let after = network.ends[0].peer_status(network.now, network.peers[0]).unwrap().paths;
    let sent: Vec<_> = (0..2).map(|at| after[at].sent.1 - before[at].sent.1).collect();
    assert!(network.delivered[1].len() as u32 >= count * 995 / 1_000, "{}", network.delivered[1].len());
    assert!(sent.iter().all(|&bytes| bytes > 1_000_000), "{sent:?}");
}

#[test]
fn a_black_hole_is_found() {
    let mut network = Network::new(&[PathConfig::new(20, 10)]);
    let limit = narrow(&mut network, 1_500);
    network.run_until(Instant::from_secs(5));
    assert_eq!(mtus(&network), [1_435 + 28]);
    for number in 0..1_500_u32 {
        let at = Instant::from_secs(5) + Duration::from_millis(10) * u64::from(number);
        network.send_at(at, 0, whole(number, if number % 5 == 0 { 300 } else { 1_390 }));
    }
    network.run_until(Instant::from_secs(8));
    limit.store(1_380, Ordering::Relaxed);
    network.run_until(Instant::from_secs(13));
    assert!(told(&network.delivered[0]).is_some_and(|fits| fits < 1_330), "{:?}", mtus(&network));
    network.run_until(Instant::from_secs(20));
    assert!((1_372..=1_380).contains(&mtus(&network)[0]), "{:?}", mtus(&network));
    // Ten minutes later it is looked for again.
    limit.store(1_500, Ordering::Relaxed);
    network.run_until(Instant::from_secs(640));
    assert_eq!(mtus(&network), [1_435 + 28]);
}
