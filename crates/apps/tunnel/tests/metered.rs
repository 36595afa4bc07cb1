//! A metered path costs little while it carries nothing, and carries data when no other works.

mod network;

use network::{Network, PathConfig, engine_with, numbers, packet};
use polypath_tunnel::{FlowPolicy, PathSettings, Rule, Rules};
use polypath_units::{Duration, Instant};

/// Two paths, of which the second is a backup; data over the first for a minute, and then ten minutes of silence.
struct Run {
    network: Network,
    number: u32,
}

impl Run {
    fn new(metered: bool, policy: FlowPolicy) -> Self {
        let mut network = Network::new(&[PathConfig::new(50, 10), PathConfig::new(20, 30)]);
        let rules = Rules::new(vec![Rule::all(policy)]);
        network.restart(0, engine_with(1, 2, 11, rules), 2);
        let settings = PathSettings { backup: true, metered, ..PathSettings::default() };
        let (now, peer, path) = (network.now, network.peers[0], network.ids[1]);
        network.ends[0].set_path_settings(now, peer, path, settings);
        network.run_until(Instant::from_secs(2));
        Self { network, number: 0 }
    }

    fn send(&mut self, duration: Duration) {
        let (begin, end) = (self.network.now, self.network.now + duration);
        let mut at = begin;
        while at < end {
            self.network.send_at(at, 0, packet(1, 2, 1_000, self.number, 500));
            self.number += 1;
            at += Duration::from_millis(50);
        }
        self.network.run_until(end);
    }

    /// Bytes over the backup so far, both ways, with the headers of UDP and IPv4.
    fn backup_bytes(&self) -> u64 {
        let status =
            self.network.ends[0].peer_status(self.network.now, self.network.peers[0]).expect("a peer");
        let path = status.paths.iter().find(|path| path.is_backup).expect("a backup");
        path.sent.1 + path.received.1 + 28 * (path.sent.0 + path.received.0)
    }
}

#[test]
fn a_metered_path_is_asked_rarely() {
    let cost = |metered| {
        let mut run = Run::new(metered, FlowPolicy::Aggregate);
        // What it costs to begin, as the lengths that pass.
        run.send(Duration::from_secs(20));
        let begin = run.backup_bytes();
        run.send(Duration::from_secs(60));
        let busy = run.backup_bytes() - begin;
        let end = run.network.now + Duration::from_secs(600);
        run.network.run_until(end);
        (busy, run.backup_bytes() - begin - busy)
    };
    let ((busy, idle), (metered_busy, metered_idle)) = (cost(false), cost(true));
    println!(
        "backup: {busy} bytes in a busy minute, {idle} in ten idle ones; metered: {metered_busy}, {metered_idle}"
    );
    assert!(metered_busy <= 500 && metered_idle <= 3_000, "{metered_busy}, {metered_idle}");
    assert!(busy > 10 * metered_busy && idle > 3 * metered_idle, "{busy}, {idle}");
}

#[test]
fn a_metered_path_takes_over() {
    for policy in [FlowPolicy::Aggregate, FlowPolicy::Redundant] {
        let mut run = Run::new(true, policy);
        run.send(Duration::from_secs(5));
        let end = run.network.now + Duration::from_secs(300);
        run.network.run_until(end);
        let before = run.number;
        run.network.set_up(0, false);
        run.send(Duration::from_secs(5));
        let end = run.network.now + Duration::from_secs(2);
        run.network.run_until(end);
        let came = numbers(&run.network.delivered[1]);
        assert!((0..before).all(|number| came.contains(&number)), "{policy:?}");
        // A copy that went over the first path alone is not sent again.
        let late = came.iter().filter(|number| **number >= before).count();
        assert!(late >= 90, "{policy:?}: {late} of 100 came behind the failure");
    }
}

#[test]
fn copies_do_not_go_over_backups() {
    let mut run = Run::new(false, FlowPolicy::Redundant);
    run.send(Duration::from_secs(20));
    let begin = run.backup_bytes();
    run.send(Duration::from_secs(60));
    let bytes = run.backup_bytes() - begin;
    assert!(bytes < 30_000, "{bytes} bytes, and one copy of all packets would be 700 kB");
}
