//! Peers and paths that go and come back: what is numbered anew is not taken for what was before.

mod network;

use network::{Network, PathConfig, address, numbers, packet, private_key};
use polypath_tunnel::{LocalId, PathSettings, PeerConfig, PeerStatus};
use polypath_units::{Duration, Instant};

/// So many packets each way, 10 ms apart, from now on, numbered from `first` on.
fn send_both_ways(network: &mut Network, first: u32, count: u32) {
    for number in 0..count {
        let at = network.now + Duration::from_millis(10) * u64::from(number);
        network.send_at(at, 0, packet(1, 2, 4_000, first + number, 600));
        network.send_at(at, 1, packet(2, 1, 4_000, first + number, 600));
    }
}

fn status(network: &Network, end: usize) -> PeerStatus {
    network.ends[end].peer_status(network.now, network.peers[end]).unwrap()
}

#[test]
fn a_peer_that_is_added_again_is_heard_at_once() {
    for end in [0, 1] {
        let mut network = Network::new(&[PathConfig::new(20, 10), PathConfig::new(10, 30)]);
        network.run_until(Instant::from_secs(2));
        // Few enough for all of them to be remembered.
        send_both_ways(&mut network, 0, 2_000);
        network.run_until(Instant::from_secs(23));
        let other = 2 - end as u8;
        let mut config = PeerConfig::new(private_key(other).public_key());
        config.allowed_ips.push(format!("10.0.0.{other}/32").parse().unwrap());
        network.peers[end] = network.ends[end].add_peer(config);
        if end == 0 {
            for path in 0..2 {
                let to = address(1, path);
                let local = LocalId(path as u16);
                let settings = PathSettings::default();
                network.ends[0].add_path(network.now, network.peers[0], local, to, settings).unwrap();
            }
        }
        // Who has no paths waits until the other one finds that nobody answers.
        network.run_until(Instant::from_secs(40));
        for end in 0..2 {
            network.delivered[end].clear();
        }
        send_both_ways(&mut network, 10_000, 500);
        network.run_until(Instant::from_secs(46));
        for to in 0..2 {
            assert_eq!(numbers(&network.delivered[to]).len(), 500, "end {end} came again, to {to}");
            assert_eq!(status(&network, to).order.copies, 0);
        }
    }
}

#[test]
fn a_path_that_was_forgotten_is_used_again_once_it_is_back() {
    let mut network = Network::new(&[PathConfig::new(20, 10), PathConfig::new(10, 30)]);
    network.run_until(Instant::from_secs(2));
    // So that the keys are in use on both paths before it goes.
    network.run_until(Instant::from_secs(130));
    send_both_ways(&mut network, 0, 500);
    network.run_until(Instant::from_secs(136));
    network.set_up(0, false);
    send_both_ways(&mut network, 1_000, 500);
    network.run_until(Instant::from_secs(136 + 185));
    assert_eq!(status(&network, 1).paths.len(), 1, "it is forgotten");
    network.set_up(0, true);
    network.run_until(Instant::from_secs(136 + 195));
    let back = &status(&network, 1).paths[0];
    assert!(back.is_usable && back.min_rtt.is_some(), "{back:?}");
    let before = back.sent;
    send_both_ways(&mut network, 2_000, 500);
    network.run_until(Instant::from_secs(136 + 205));
    let after = status(&network, 1).paths[0].sent;
    assert!(after.1 > before.1 + 50_000, "{before:?} {after:?}");
    assert_eq!(after.2, before.2, "none was taken for lost");
}

#[test]
fn a_path_that_is_taken_away_and_added_again_is_used() {
    let mut network = Network::new(&[PathConfig::new(20, 10)]);
    network.run_until(Instant::from_secs(2));
    send_both_ways(&mut network, 0, 500);
    network.run_until(Instant::from_secs(8));
    network.ends[0].remove_path(network.now, network.peers[0], network.ids[0]);
    let to = address(1, 0);
    let path =
        network.ends[0].add_path(network.now, network.peers[0], LocalId(0), to, PathSettings::default());
    assert_eq!(path, Some(network.ids[0]));
    // The handshake that a new path begins is lost: the keys are those from before.
    network.filter = Some(Box::new(|_, _, datagram, _| datagram[0] != 1));
    network.run_until(Instant::from_secs(9));
    send_both_ways(&mut network, 1_000, 500);
    network.run_until(Instant::from_secs(16));
    let path = &status(&network, 0).paths[0];
    assert!(path.is_usable && path.min_rtt.is_some() && path.in_flight_bytes < 3_000, "{path:?}");
    for end in 0..2 {
        assert_eq!(numbers(&network.delivered[end]).len(), 1_000);
    }
}
