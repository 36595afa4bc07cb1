//! A stock WireGuard at the other end: it knows nothing of paths, so this end alone says which one is used.

mod network;

use network::{Network, PathConfig, numbers, packet};
use polypath_tunnel::{PACKET_ROOM_BYTES, PathSettings, PeerStatus};
use polypath_units::{Duration, Instant};

/// Length of a hello, which a stock WireGuard drops.
const HELLO_BYTES: usize = 43;

/// The second path is a backup, and quicker.
fn network() -> Network {
    let mut network = Network::with_backups(&[PathConfig::new(20, 30), PathConfig::new(20, 2)], &[1]);
    network.filter = Some(Box::new(|_, _, bytes, _| bytes.len() != HELLO_BYTES));
    network.wire = Some(Vec::new());
    network
}

fn send(network: &mut Network, first: u32) {
    for number in 0..200 {
        let at = network.now + Duration::from_millis(20) * u64::from(number);
        network.send_at(at, 0, packet(1, 2, 4_000, first + number, 600));
        network.send_at(at, 1, packet(2, 1, 4_000, first + number, 600));
    }
}

fn status(network: &Network) -> PeerStatus {
    network.ends[0].peer_status(network.now, network.peers[0]).unwrap()
}

/// Datagrams that this end has sent over each path since.
fn went(network: &mut Network) -> [usize; 2] {
    let wire = network.wire.replace(Vec::new()).unwrap();
    [0, 1].map(|path| wire.iter().filter(|(end, over, _)| *end == 0 && *over == path).count())
}

#[test]
fn a_backup_is_used_only_while_the_other_is_away() {
    let mut network = network();
    network.run_until(Instant::from_secs(3));
    send(&mut network, 0);
    network.run_until(Instant::from_secs(8));
    let [first, backup] = went(&mut network);
    assert!(first >= 200 && backup == 0, "{first} {backup}");
    let paths = status(&network).paths;
    // Headers of IP, the tunnel and its tag.
    assert!(paths[0].sent.1 >= 200 * 632 && paths[0].received.1 >= 200 * 632, "{:?}", paths[0]);
    assert_eq!((paths[1].sent.1, paths[1].received.1), (0, 0));

    let (peer, ids) = (network.peers[0], network.ids.clone());
    network.set_up(0, false);
    network.ends[0].set_path_up(network.now, peer, ids[0], false);
    network.run_until(Instant::from_secs(10));
    went(&mut network);
    send(&mut network, 1_000);
    network.run_until(Instant::from_secs(15));
    let [first, backup] = went(&mut network);
    assert!(first == 0 && backup >= 200, "{first} {backup}");
    assert!(status(&network).paths[1].sent.1 >= 200 * 632);

    network.set_up(0, true);
    network.ends[0].set_path_up(network.now, peer, ids[0], true);
    network.run_until(Instant::from_secs(16));
    went(&mut network);
    send(&mut network, 2_000);
    network.run_until(Instant::from_secs(21));
    let [first, backup] = went(&mut network);
    assert!(first >= 200 && backup == 0, "{first} {backup}");
    for end in 0..2 {
        // The other end learns with the first packet where to answer.
        assert!(numbers(&network.delivered[end]).len() >= 598);
    }
}

#[test]
fn a_path_that_is_silent_is_left_for_the_backup() {
    let mut network = network();
    network.run_until(Instant::from_secs(3));
    send(&mut network, 0);
    network.run_until(Instant::from_secs(8));
    // Its interface does not tell.
    network.set_up(0, false);
    for round in 1..20 {
        send(&mut network, 1_000 * round);
        network.run_until(network.now + Duration::from_secs(4));
    }
    went(&mut network);
    send(&mut network, 50_000);
    network.run_until(network.now + Duration::from_secs(4));
    let [_, backup] = went(&mut network);
    assert!(backup >= 200, "{backup}");
}

#[test]
fn a_closed_path_carries_nothing_at_all() {
    let mut network = network();
    let closed = PathSettings { closed: true, ..PathSettings::default() };
    network.ends[0].set_path_settings(network.now, network.peers[0], network.ids[1], closed);
    network.run_until(Instant::from_secs(3));
    send(&mut network, 0);
    network.run_until(Instant::from_secs(8));
    network.ends[0].set_path_settings(network.now, network.peers[0], network.ids[0], closed);
    let [first, other] = went(&mut network);
    assert!(first >= 200 && other == 0, "{first} {other}");
    send(&mut network, 1_000);
    network.run_until(Instant::from_secs(60));
    let wire = network.wire.take().unwrap();
    let sent: Vec<_> = wire
        .iter()
        .filter(|(end, ..)| *end == 0)
        .map(|(_, path, bytes)| (path, bytes[0], bytes.len()))
        .collect();
    assert_eq!(sent, []);
    let counts = status(&network).counts;
    assert!(counts.dropped > 0, "{counts:?}");
}

#[test]
fn what_may_be_too_long_for_a_path_may_be_cut() {
    let mut network = network();
    network.run_until(Instant::from_secs(5));
    for (len_bytes, may_fragment) in [(600, false), (1_400, true)] {
        let mut frame = vec![0; PACKET_ROOM_BYTES];
        frame.extend(packet(1, 2, 4_000, 1, len_bytes));
        network.ends[0].handle_packet(network.now, frame.into());
        let mut datagram = Vec::new();
        let transmit = network.ends[0].poll_transmit(network.now, &mut datagram).unwrap();
        assert_eq!((transmit.may_fragment, datagram[0]), (may_fragment, 4), "{len_bytes}");
    }
}

#[test]
fn hellos_go_on_after_a_bad_beginning() {
    for known in [false, true] {
        let mut network = Network::new(&[PathConfig::new(20, 10)]);
        if known {
            // The hellos behind the second handshake are lost, and not those of the first.
            network.run_until(Instant::from_secs(110));
        }
        let begin = network.now;
        network.filter = Some(Box::new(move |_, _, bytes, now| {
            bytes.len() != HELLO_BYTES || now > begin + Duration::from_secs(if known { 20 } else { 3 })
        }));
        network.run_until(begin + Duration::from_secs(40));
        assert!(status(&network).keys_age.unwrap() < Duration::from_secs(41), "{known}");
        // In a session whose peer has said hello, paths are asked and answer.
        network.run_until(begin + Duration::from_secs(81));
        network.wire = Some(Vec::new());
        send(&mut network, 0);
        network.run_until(begin + Duration::from_secs(86));
        let wire = network.wire.take().unwrap();
        let plain = wire.iter().filter(|(_, _, bytes)| bytes[0] == 4).count();
        assert_eq!(plain, 0, "{known}");
        assert!(status(&network).knows_paths);
    }
}
