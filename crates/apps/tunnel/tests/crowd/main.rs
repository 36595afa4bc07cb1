//! A hundred peers whose paths fail, come back, and change their addresses: nothing is lost for longer than a change takes, and nothing
//! grows.

mod world;

use allocation_counter::measure;
use polypath_units::{Duration, Instant};
use world::World;

const PEERS: usize = 100;
/// Datagrams that a client sends in a second, at most: for three packets of data, their acknowledgments and two paths' probes.
const MOST_DATAGRAMS: u64 = 20;

#[test]
fn ten_minutes_with_a_hundred_peers() {
    let mut world = None;
    let early = measure(|| {
        let mut fresh = World::new(PEERS, 1);
        // Queues have been as long as they get by then.
        fresh.run_until(Instant::from_secs(300));
        world = Some(fresh);
    });
    let mut world = world.unwrap();
    let later = measure(|| world.run_until(Instant::from_secs(600)));
    let (held, more) = (early.bytes_current, later.bytes_current);
    println!("{held} bytes after five minutes, {more} more after ten; {} changes", world.changes);
    assert!(more * 33 <= held, "{held} bytes after five minutes, {more} more after ten");

    for client in &world.clients {
        let at_server = world.server.peer_status(world.now, client.at_server).unwrap();
        let here = client.engine.peer_status(world.now, client.server).unwrap();
        for status in [&at_server, &here] {
            assert!(status.keys_age.is_some_and(|age| age < Duration::from_secs(180)), "{status:#?}");
            assert!(status.knows_paths && status.counts.malformed == 0, "{status:#?}");
            let datagrams = status.paths.iter().map(|path| path.sent.0).sum::<u64>();
            assert!(datagrams < 600 * MOST_DATAGRAMS, "{status:#?}");
        }
        for way in 0..2 {
            let (sent, came) = (client.sent[way], client.came[way]);
            assert!(sent > 200 && f64::from(came) >= 0.93 * f64::from(sent), "{came} of {sent}");
        }
    }
    assert!(world.changes > 2_000);
}
