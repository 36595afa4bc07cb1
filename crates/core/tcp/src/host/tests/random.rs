use alloc::vec::Vec;

use polypath_units::Duration;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::super::*;
use super::network::{CLIENT, Faults, Network, PORT, SERVER, endpoint, pattern};

/// Applications that do anything at any time, over a wire that loses, doubles and cuts: nothing panics, every
/// byte that arrives is right, and in the end nothing is left.
#[test]
fn random_applications_leave_nothing() {
    for seed in 0..60 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = move |bound: u32| random.next_u32() % bound;
        let mut network = Network::new(seed, Faults { loss: 20, duplication: 20, reordering: 50 });
        network.apps[CLIENT].finishes_first = below(2) == 0;
        network.apps[SERVER].finishes_first = below(2) == 0;
        network.apps[SERVER].answer = pattern(below(20_000) as usize);
        let mut listener = network.listen(8);
        for _ in 0..60 {
            act(&mut network, &mut below, &mut listener);
            let span = Duration::from_nanos(u64::from(below(400_000_000)));
            network.run_for(span);
        }
        network.connected = true;
        for host in [CLIENT, SERVER] {
            let ids: Vec<ConnectionId> = network.apps[host].streams.keys().copied().collect();
            for id in ids {
                network.hosts[host].release(id);
            }
            let app = &mut network.apps[host];
            app.finished.extend(core::mem::take(&mut app.streams).into_values());
        }
        network.hosts[SERVER].close_listener(listener);
        network.run_to_end();
        network.assert_nothing_left();
        for app in &network.apps {
            for stream in &app.finished {
                assert!(stream.received == pattern(stream.received.len())[..], "seed {seed}");
            }
        }
    }
}

fn act(network: &mut Network, below: &mut impl FnMut(u32) -> u32, listener: &mut ListenerId) {
    let host = below(2) as usize;
    let ids: Vec<ConnectionId> = network.apps[host].streams.keys().copied().collect();
    let id = ids.get(below(1 + ids.len() as u32) as usize).copied();
    match (below(10), id) {
        (0..3, _) => {
            let len = below(50_000) as usize;
            network.connect(pattern(len));
        }
        (3, Some(id)) => network.hosts[host].abort(id),
        (4, Some(id)) => network.hosts[host].shutdown(id),
        (5, Some(id)) => {
            network.hosts[host].release(id);
            network.apps[host].streams.remove(&id);
        }
        (6, _) => network.connected = !network.connected,
        (7, _) => {
            network.hosts[SERVER].close_listener(*listener);
            let config = ListenConfig { backlog: below(8) as usize, ..ListenConfig::default() };
            *listener = network.hosts[SERVER].listen(endpoint(SERVER, PORT), config).expect("it is free");
        }
        _ => {}
    }
}
