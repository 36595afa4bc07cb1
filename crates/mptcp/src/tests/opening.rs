//! Over which path a connection begins.

use std::string::String;
use std::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::MptcpVersion;

use super::network::Network;
use super::{MINUTE, assert_exchanged, network};
use crate::Event;

/// The paths of the first SYNs that have left after the first `since` packets, in order.
fn asked(network: &Network, since: usize) -> Vec<char> {
    let is_syn = |line: &&String| line.contains("> S 0 capable");
    network.log[since..]
        .iter()
        .filter(is_syn)
        .filter_map(|line| line.split(' ').nth(1)?.chars().next())
        .collect()
}

/// When the client was connected, if it was.
fn connected_by(network: &mut Network, limit: Duration) -> Option<Duration> {
    let (from, events) = (network.now, network.client_events.len());
    network.connect();
    let end = from + limit;
    while network.now < end {
        if network.client_events[events..].iter().any(|(_, event)| *event == Event::Connected) {
            return Some(network.now.since(from));
        }
        if !network.step() {
            break;
        }
    }
    None
}

/// Two hosts that have talked over both of two paths.
fn acquainted(delays_ms: &[u64]) -> Network {
    let mut network = network(delays_ms, MptcpVersion::V1, false, 1);
    assert_exchanged(&mut network, 500_000, 0, MINUTE);
    network
}

#[test]
fn strangers_are_asked_over_all_paths_and_the_first_answer_counts() {
    let mut network = network(&[100, 10], MptcpVersion::V1, false, 1);
    assert_eq!(connected_by(&mut network, MINUTE), Some(Duration::from_millis(20)));
    assert_eq!(asked(&network, 0), ['0', '1']);
}

#[test]
fn the_path_that_is_remembered_as_the_best_begins_alone() {
    // The connection is asked for from the address on the first path.
    let mut network = acquainted(&[40, 10]);
    let since = network.log.len();
    assert_eq!(connected_by(&mut network, MINUTE), Some(Duration::from_millis(20)));
    network.run_until(network.now + Duration::from_millis(200));
    assert_eq!(asked(&network, since), ['1'], "{}", network.log[since..].join("\n"));
}

#[test]
fn when_the_best_path_does_not_answer_the_others_are_asked_at_once() {
    let mut network = acquainted(&[40, 10]);
    network.cut[1] = true;
    // 5/4 of 20 ms and 20 ms for the best, 80 ms for the other.
    let connected = connected_by(&mut network, MINUTE);
    let log: String = network.log.join("\n");
    assert_eq!(connected, Some(Duration::from_millis(125)), "{log}");
}

#[test]
fn what_is_remembered_is_forgotten() {
    let mut network = acquainted(&[40, 10]);
    network.now = Instant::from_secs(3600);
    let since = network.log.len();
    connected_by(&mut network, MINUTE);
    assert_eq!(asked(&network, since), ['0', '1']);
}
