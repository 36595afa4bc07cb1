//! The path MTU goes down and comes up again.

use std::boxed::Box;
use std::vec;

use polypath_units::Duration;

use super::super::Event;
use super::pair::{From, Pair, pass, pattern};
use crate::Config;

fn config() -> Config {
    Config { max_aggregate_bytes: 0, ..Config::default() }
}

/// A black hole for more than 1200 bytes was found.
fn lowered() -> Pair {
    let mut pair = Pair::established(config(), config(), 1);
    pair.meddle = Box::new(|_, segment| if segment.payload.len() > 1200 { vec![] } else { pass(segment) });
    pair.send(From::Client, pattern(0, 50_000));
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.at_server, pattern(0, 50_000));
    assert!(pair.client.info().pmtu_bytes <= 1280);
    pair
}

fn go_on(pair: &mut Pair) {
    let len = 200_000;
    let from = pair.at_server.len();
    pair.send(From::Client, pattern(from, len));
    pair.run_for(Duration::from_secs(5));
    assert!(pair.at_server == pattern(0, from + len));
}

#[test]
fn a_path_that_grew_is_used_again() {
    let mut pair = lowered();
    pair.run_for(Duration::from_secs(601));
    pair.meddle = Box::new(|_, segment| pass(segment));
    pair.client_events.clear();
    go_on(&mut pair);
    assert_eq!(pair.client.info().pmtu_bytes, 1500);
    assert!(pair.client_events.contains(&Event::MtuChanged));
    let before = pair.log.len();
    go_on(&mut pair);
    assert!(pair.sent(From::Client, before).iter().any(|(_, len)| *len == 1448));
}

#[test]
fn a_probe_that_is_lost_costs_one_segment_and_no_window() {
    let mut pair = lowered();
    pair.run_for(Duration::from_secs(601));
    let before = pair.client.info();
    let start = pair.log.len();
    go_on(&mut pair);
    let after = pair.client.info();
    assert_eq!(after.timeouts, before.timeouts);
    assert_eq!(after.ssthresh_bytes, before.ssthresh_bytes);
    assert_eq!(pair.sent(From::Client, start).iter().filter(|(_, len)| *len > 1200).count(), 1);
    assert_eq!(after.pmtu_bytes, before.pmtu_bytes);
    // And again only after another while.
    let start = pair.log.len();
    go_on(&mut pair);
    assert!(pair.sent(From::Client, start).iter().all(|(_, len)| *len <= 1200));
}
