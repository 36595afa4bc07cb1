//! What forgers, replayers, odd peers and bad networks do to a tunnel. The network panics where an end's timer spins.

mod network;

use network::{Network, PathConfig, address, engine, engine_with, numbers, packet};
use polypath_tunnel::{FlowPolicy, LocalId, PathSettings, Rule, Rules};
use polypath_units::{Duration, Instant};

fn two() -> Network {
    Network::new(&[PathConfig::new(20, 10), PathConfig::new(10, 30)])
}

fn secs(s: u64) -> Instant {
    Instant::from_secs(s)
}
fn millis(s: u64) -> Instant {
    Instant::from_millis(s)
}

fn redundant() -> Rules {
    Rules::new(vec![Rule { ports: Some(5_000..=5_000), ..Rule::all(FlowPolicy::Redundant) }])
}

#[test]
fn copies_for_a_path_that_died_do_not_spin() {
    let mut network = two();
    let here = engine_with(1, 2, 11, redundant());
    network.restart(0, here, 2);
    network.run_until(secs(2));
    for number in 0..3_000 {
        network.send_at(
            secs(2) + Duration::from_micros(800) * number,
            0,
            packet(1, 2, 5_000, number as u32, 1_200),
        );
    }
    network.run_until(secs(3));
    network.set_up(1, false);
    network.run_until(secs(8));
}

#[test]
fn a_stock_peer_may_be_idle() {
    let mut network = two();
    // No hello passes.
    network.filter = Some(Box::new(|_, _, bytes, _| bytes.len() != 43));
    network.send_at(secs(6), 0, packet(1, 2, 1, 7, 600));
    network.send_at(secs(6), 1, packet(2, 1, 1, 8, 600));
    network.run_until(secs(400));
    assert_eq!(numbers(&network.delivered[1]), [7]);
    assert_eq!(numbers(&network.delivered[0]), [8]);
}

/// The path over which the handshake came goes right after it: the other path still works.
#[test]
fn hellos_survive_their_path() {
    let mut network = two();
    network.run_until(millis(1_022));
    network.set_up(0, false);
    for number in 0..1_000 {
        network.send_at(
            secs(2) + Duration::from_millis(100) * number,
            0,
            packet(1, 2, 1, number as u32, 600),
        );
    }
    network.run_until(secs(20));
    let status = network.ends[0].peer_status(network.now, network.peers[0]).unwrap();
    assert!(!network.delivered[1].is_empty(), "{status:#?}");
}

/// A path of 1400 bytes works for short packets at once, and long ones are not sent to it for ever.
#[test]
fn a_path_of_less_mtu() {
    let mut network = Network::new(&[PathConfig::new(20, 10)]);
    network.filter = Some(Box::new(|_, _, bytes, _| bytes.len() + 28 <= 1_400));
    network.run_until(secs(3));
    for number in 0..300 {
        network.send_at(
            secs(3) + Duration::from_millis(100) * number,
            0,
            packet(1, 2, 1, number as u32, 600),
        );
    }
    network.run_until(secs(40));
    let first = network.delivered[1].first().map(|one| one.at);
    assert!(
        network.delivered[1].len() == 300 && first < Some(secs(4)),
        "{} {first:?}",
        network.delivered[1].len()
    );
}

#[test]
fn long_packets_take_the_path_that_carries_them() {
    let mut network = two();
    network.filter = Some(Box::new(|_, path, bytes, _| path == 1 || bytes.len() + 28 <= 1_400));
    for number in 0..3_000 {
        network.send_at(
            secs(3) + Duration::from_millis(20) * number,
            0,
            packet(1, 2, 1, number as u32, 1_390),
        );
    }
    network.run_until(secs(80));
    let status = network.ends[0].peer_status(network.now, network.peers[0]).unwrap();
    assert!(network.delivered[1].len() >= 2_950, "{} {:#?}", network.delivered[1].len(), status);
}

/// A server does not call a client that left for ever.
#[test]
fn a_departed_client_is_left_alone() {
    let mut network = two();
    network.run_until(secs(5));
    let now = network.now;
    network.ends[0].leave(now);
    network.run_until(secs(6));
    // It is gone.
    let (nobody, peer) = engine(1, 2, 99);
    (network.ends[0], network.peers[0]) = (nobody, peer);
    (0..2).for_each(|path| network.set_up(path, false));
    network.most_spins = 10_000_000;
    network.run_until(secs(170));
    network.wire = Some(Vec::new());
    let mut hour = 0;
    for at in 17..190 {
        network.run_until(secs(at * 10));
        hour += network.wire.replace(Vec::new()).unwrap().iter().filter(|sent| sent.0 == 1).count();
    }
    assert!(hour < 20, "{hour} datagrams");
}

#[test]
fn what_is_late_is_not_delivered_twice() {
    let mut network = two();
    for number in 0..4_000 {
        network.send_at(secs(2) + Duration::from_millis(1) * number, 0, packet(1, 2, 1, number as u32, 600));
    }
    network.run_until(millis(3_500));
    let slow = PathConfig { delay: Duration::from_millis(400), ..PathConfig::new(20, 10) };
    network.set_config(0, slow);
    network.run_until(secs(9));
    let mut seen = numbers(&network.delivered[1]);
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(count, seen.len());
}

fn restart_of(end: usize, rules: fn() -> Rules, port: u16) -> (usize, usize) {
    let mut network = two();
    let here = engine_with(1, 2, 11, rules());
    network.restart(0, here, 2);
    network.run_until(secs(2));
    for number in 0..10_000 {
        network.send_at(
            secs(2) + Duration::from_millis(2) * number,
            0,
            packet(1, 2, port, number as u32, 1_200),
        );
    }
    network.run_until(secs(10));
    let fresh = if end == 0 { engine_with(1, 2, 77, rules()) } else { engine(2, 1, 78) };
    network.restart(end, fresh, if end == 0 { 2 } else { 0 });
    network.run_until(secs(16));
    let before = network.delivered[1].len();
    network.run_until(secs(21));
    (before, network.delivered[1].len() - before)
}

#[test]
fn server_restarts_redundant() {
    let (_, after) = restart_of(1, redundant, 5_000);
    assert!(after > 2_300, "{after}");
}
#[test]
fn client_restarts_redundant() {
    let (_, after) = restart_of(0, redundant, 5_000);
    assert!(after > 2_300, "{after}");
}
#[test]
fn server_restarts_kept() {
    let (_, after) = restart_of(1, redundant, 4_000);
    assert!(after > 2_300, "{after}");
}
#[test]
fn client_restarts_kept() {
    let (_, after) = restart_of(0, redundant, 4_000);
    assert!(after > 2_300, "{after}");
}

/// Someone who sees what passes and is faster sends a copy from elsewhere.
#[test]
fn a_copied_datagram_does_not_stop_the_path() {
    let mut network = Network::new(&[PathConfig::new(20, 10)]);
    network.run_until(secs(40));
    network.wire = Some(Vec::new());
    // An idle probe at some time.
    network.filter = Some(Box::new(|_, _, _, _| true));
    let mut at = 40;
    let stolen = loop {
        at += 1;
        // The link is stopped so that the original is late.
        network.filter = Some(Box::new(|end, _, _, _| end == 1));
        network.run_until(secs(at));
        let wire = network.wire.replace(Vec::new()).unwrap();
        if let Some((_, _, bytes)) =
            wire.into_iter().find(|(end, _, bytes)| *end == 0 && bytes[0] & 0xf0 == 0x10)
        {
            break bytes;
        }
    };
    let stranger = "203.0.113.9:4444".parse().unwrap();
    network.inject(1, 0, stranger, stolen);
    // The stranger gets what is sent to him, and it is lost.
    network.filter = None;
    let start = network.now;
    for number in 0..200 {
        network.send_at(
            start + Duration::from_millis(500) + Duration::from_millis(50) * number,
            1,
            packet(2, 1, 1, number as u32, 600),
        );
    }
    network.run_until(start + Duration::from_secs(12));
    let first = network.delivered[0].first().map(|one| one.at.since(start));
    assert!(first < Some(Duration::from_secs(1)), "{first:?} {}", network.delivered[0].len());
}

#[test]
fn both_call_each_other() {
    let mut network = two();
    let now = network.now;
    let peer = network.peers[1];
    for at in 0..2 {
        network.ends[1]
            .add_path(now, peer, LocalId(at as u16), address(0, at), PathSettings::default())
            .unwrap();
    }
    for number in 0..600 {
        network.send_at(secs(2) + Duration::from_secs(1) * number, 0, packet(1, 2, 1, number as u32, 600));
        network.send_at(secs(2) + Duration::from_secs(1) * number, 1, packet(2, 1, 1, number as u32, 600));
    }
    network.run_until(secs(610));
    assert_eq!(network.delivered[0].len(), 600);
    assert_eq!(network.delivered[1].len(), 600);
}

#[test]
fn both_restart_again_and_again() {
    let mut network = two();
    for round in 0..20_u64 {
        let at = secs(2 + round * 15);
        network.run_until(at);
        network.restart(
            (round % 2) as usize,
            engine(1 + (round % 2) as u8, 2 - (round % 2) as u8, 100 + round),
            if round % 2 == 0 { 2 } else { 0 },
        );
        network.delivered = [Vec::new(), Vec::new()];
        for number in 0..100 {
            network.send_at(at + Duration::from_millis(100 * number), 0, packet(1, 2, 1, number as u32, 600));
        }
        network.run_until(at + Duration::from_secs(14));
        let came = network.delivered[1].len();
        assert!(came > 20, "round {round}: {came}");
    }
}

/// A TCP-like mix: short packets keep the path alive, long ones are lost on it for ever.
#[test]
fn long_packets_among_short_ones() {
    let mut network = two();
    network.filter = Some(Box::new(|_, path, bytes, _| path == 1 || bytes.len() + 28 <= 1_400));
    network.run_until(secs(60));
    for number in 0..2_000 {
        let len = if number % 2 == 0 { 100 } else { 1_390 };
        network.send_at(secs(60) + Duration::from_millis(5) * number, 0, packet(1, 2, 1, number as u32, len));
    }
    network.run_until(secs(75));
    let long = network.delivered[1].iter().filter(|one| one.packet.len() > 1_000).count();
    assert!(long > 950);
}

/// Strangers flood the end that called (end 0's own public key is known to them): it still gets new keys.
#[test]
fn a_flood_at_the_initiator() {
    let mut network = two();
    let mut config = polypath_tunnel::EngineConfig::new(network::private_key(201));
    config.peers.push(polypath_tunnel::PeerConfig::new(network::private_key(1).public_key()));
    let mut stranger = polypath_tunnel::Engine::new(
        config,
        Duration::from_secs(1),
        Box::new(|bytes: &mut [u8]| bytes.fill(7)),
    );
    let peer = stranger.peer_ids().next().unwrap();
    stranger.add_path(secs(1), peer, LocalId(0), address(1, 0), PathSettings::default()).unwrap();
    let mut bytes = Vec::new();
    stranger.poll_transmit(secs(1), &mut bytes).unwrap();
    for step in 0..1_500_u64 {
        // 60 a second. The client begins under way.
        for _ in 0..(if step % 100 == 0 { 60 } else { 0 }) {
            network.inject(0, 0, "203.0.113.1:9".parse().unwrap(), bytes.clone());
        }
        network.run_until(secs(1) + Duration::from_millis(10 * step));
        if step == 100 {
            network.restart(0, engine(1, 2, 55), 2);
            for _ in 0..60 {
                network.inject(0, 0, "203.0.113.1:9".parse().unwrap(), bytes.clone());
            }
        }
    }
    let status = network.ends[0].peer_status(network.now, network.peers[0]).unwrap();
    assert!(status.counts.handshakes > 0);
}

/// A stock peer that restarts is called again within 15 s or so (WireGuard: keepalive and rekey timeouts).
#[test]
fn a_stock_server_restarts() {
    let mut network = two();
    network.filter = Some(Box::new(|_, _, bytes, _| bytes.len() != 43));
    for number in 0..1_200 {
        network.send_at(
            secs(6) + Duration::from_millis(100) * number,
            0,
            packet(1, 2, 1, number as u32, 600),
        );
    }
    network.run_until(secs(10));
    network.restart(1, engine(2, 1, 78), 0);
    network.delivered[1].clear();
    network.run_until(secs(129));
    let first = network.delivered[1].first().map(|one| one.at);
    assert!(first.is_some_and(|at| at < secs(40)), "{first:?}");
}

/// Paths come and go at random, processes restart, time jumps, datagrams are forged and replayed: nothing spins, and all works afterwards.
/// Copies of the process that ended come after the hello of the one that began, over a slow path.
#[test]
fn copies_of_the_process_before() {
    let mut network = Network::new(&[PathConfig::new(20, 10), PathConfig::new(20, 250)]);
    network.restart(0, engine_with(1, 2, 11, redundant()), 2);
    network.run_until(secs(3));
    for number in 0..8_500_u64 {
        network.send_at(
            secs(3) + Duration::from_millis(2) * number,
            0,
            packet(1, 2, 5_000, number as u32, 600),
        );
    }
    network.run_until(secs(10));
    network.restart(0, engine_with(1, 2, 77, redundant()), 2);
    network.run_until(secs(12));
    let before = network.delivered[1].len();
    network.run_until(secs(17));
    let after = network.delivered[1].len() - before;
    assert!(after > 2_300, "{after} of 2500");
}

/// A loss on the fast path is made good by the slow one, however far behind that is.
/// The hello, or the answer, is slow: it must not bring the process before back.
#[test]
fn a_hello_of_the_process_before() {
    let mut network = Network::new(&[PathConfig::new(20, 10), PathConfig::new(20, 10)]);
    network.wire = Some(Vec::new());
    network.restart(0, engine_with(1, 2, 11, redundant()), 2);
    // The first hello is held back by someone.
    let held = std::sync::Arc::new(std::sync::Mutex::new(None));
    let there = std::sync::Arc::clone(&held);
    network.filter = Some(Box::new(move |end, _, bytes, _| {
        if end == 0 && bytes.len() == 43 && there.lock().unwrap().is_none() {
            *there.lock().unwrap() = Some(bytes.to_vec());
            return false;
        }
        end != 0 || bytes.len() != 43 || there.lock().unwrap().as_deref() != Some(bytes)
    }));
    network.run_until(secs(3));
    for number in 0..8_500_u64 {
        network.send_at(
            secs(3) + Duration::from_millis(2) * number,
            1,
            packet(2, 1, 5_000, number as u32, 600),
        );
    }
    network.run_until(secs(6));
    network.restart(0, engine_with(1, 2, 77, redundant()), 2);
    network.run_until(secs(12));
    let hello = held.lock().unwrap().clone().unwrap();
    let before = network.ends[0].peer_status(network.now, network.peers[0]).unwrap().order;
    network.inject(1, 0, address(0, 0), hello);
    network.run_until(secs(17));
    let after = network.ends[0].peer_status(network.now, network.peers[0]).unwrap().order;
    assert!(after.late < before.late + 50, "{before:?} {after:?}");
}
