use alloc::sync::Arc;

use polypath_units::Duration;

use super::network::{CLIENT, Faults, Network, SERVER, pattern};
use crate::{Config, HostConfig};

#[test]
fn bytes_arrive_both_ways_over_a_bad_wire() {
    for seed in 0..10 {
        let mut network = Network::new(seed, Faults { loss: 30, duplication: 10, reordering: 50 });
        network.listen(10);
        let (request, answer) = (pattern(300_000), pattern(200_001));
        network.apps[SERVER].answer = answer.clone();
        network.connect(request.clone());
        network.run_to_end();
        for (host, expected) in [(CLIENT, &answer), (SERVER, &request)] {
            let [stream] = &network.apps[host].finished[..] else { panic!("seed {seed}: one connection") };
            assert!(stream.received == expected[..], "seed {seed}: {} bytes", stream.received.len());
        }
        network.assert_nothing_left();
    }
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let run = |seed| {
        let mut network = Network::new(seed, Faults { loss: 20, duplication: 5, reordering: 20 });
        network.listen(10);
        for _ in 0..5 {
            network.connect(pattern(50_000));
        }
        network.run_to_end();
        (network.packets, network.digest)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).1, run(2).1);
}

#[test]
fn many_connections_share_a_wire_and_leave_nothing() {
    let mut network = Network::new(3, Faults { loss: 10, ..Faults::default() });
    network.listen(1000);
    for i in 0..200 {
        network.connect(pattern(i * 100));
    }
    network.run_to_end();
    let finished = &network.apps[SERVER].finished;
    assert_eq!(finished.len(), 200);
    assert!(finished.iter().all(|stream| stream.received == pattern(stream.received.len())[..]));
    let received: usize = finished.iter().map(|stream| stream.received.len()).sum();
    assert_eq!(received, (0..200).map(|i| i * 100).sum::<usize>());
    network.assert_nothing_left();
    let [client, server] = [CLIENT, SERVER].map(|host| network.hosts[host].counters());
    assert_eq!((client.active_opens, server.passive_opens), (200, 200));
    assert!(client.retrans_segs > 0 && client.out_segs > 0 && server.in_segs > 0);
    assert_eq!((client.curr_estab, client.out_rsts, client.estab_resets), (0, 0, 0));
}

#[test]
fn a_full_send_buffer_stops_the_writer_and_wakes_it() {
    let connection =
        Arc::new(Config { send_buffer_bytes: 4 << 20, max_aggregate_bytes: 0, ..Config::default() });
    let config = HostConfig { connection, ..HostConfig::default() };
    let mut network = Network::with_config(4, Faults::default(), config);
    network.listen(10);
    // More than the send buffer, so that `Writable` must tell when to go on.
    let request = pattern(12 << 20);
    network.connect(request.clone());
    network.run_to_end();
    assert!(network.apps[SERVER].finished[0].received == request[..]);
    let wake_ups = network.apps[CLIENT]
        .events
        .iter()
        .filter(|(_, event)| *event == super::super::HostEvent::Writable)
        .count();
    assert!((2..=20).contains(&wake_ups), "{wake_ups}");
    network.assert_nothing_left();
}

#[test]
fn connections_take_turns() {
    let mut network = Network::new(5, Faults::default());
    network.listen(100);
    network.apps[CLIENT].finishes_first = false;
    let ids: alloc::vec::Vec<_> = (0..10).map(|_| network.connect(pattern(0))).collect();
    network.run_for(Duration::from_secs(1));
    let now = network.now;
    for &id in &ids {
        network.hosts[CLIENT].send(id, pattern(100)).unwrap();
        network.hosts[CLIENT].send(id, pattern(100_000)).unwrap();
    }
    let mut ports = alloc::vec::Vec::new();
    for _ in 0..10 {
        let packet = network.hosts[CLIENT].poll_transmit(now).unwrap();
        ports.push(packet.receiver_tuple().unwrap().remote.port);
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 10, "the first ten packets come from ten connections");
}
