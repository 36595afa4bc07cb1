//! The path MTU goes down and comes up again.

use std::boxed::Box;
use std::vec;

use polypath_units::Duration;

use super::super::{CloseReason, Event, State};
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

/// Cut from `from_s` to `until_s` seconds after the start; `too_long` never passes.
fn cut(pair: &mut Pair, outages_ms: &'static [(u64, u64)], too_long: usize) {
    let start = pair.now;
    pair.clocked = Some(Box::new(move |now, _, segment| {
        let at = now.since(start);
        let is_out = outages_ms
            .iter()
            .any(|(from, until)| at >= Duration::from_millis(*from) && at < Duration::from_millis(*until));
        if is_out || segment.payload.len() > too_long { vec![] } else { pass(segment) }
    }));
}

#[test]
fn an_outage_is_no_black_hole() {
    for outages in [&[(25, 10_000)][..], &[(25, 3_000), (3_500, 12_000)], &[(25, 1_000), (1_700, 12_000)]] {
        let mut pair = Pair::established(config(), config(), 3);
        cut(&mut pair, outages, usize::MAX);
        pair.send(From::Client, pattern(0, 2_000_000));
        pair.run_for(Duration::from_secs(8));
        assert!(pair.client.info().pmtu_bytes < 1500, "suspected, as nothing else is known");
        pair.run_for(Duration::from_secs(52));
        assert!(pair.at_server == pattern(0, 2_000_000));
        assert_eq!(pair.client.info().pmtu_bytes, 1500, "{outages:?}");
    }
}

#[test]
fn a_black_hole_is_told_from_an_outage_by_one_probe() {
    let mut pair = Pair::established(config(), config(), 1);
    cut(&mut pair, &[], 1200);
    pair.send(From::Client, pattern(0, 50_000));
    // Three timeouts for 1500 bytes and three for 1280.
    pair.run_for(Duration::from_secs(6));
    assert!(pair.at_server == pattern(0, 50_000), "{}", pair.at_server.len());
    let probes = |pair: &Pair| pair.sent(From::Client, 0).iter().filter(|(_, len)| *len > 1200).count();
    let before = probes(&pair);
    go_on(&mut pair);
    pair.run_for(Duration::from_secs(300));
    go_on(&mut pair);
    assert_eq!(probes(&pair), before, "ten minutes pass before the next");
}

#[test]
fn a_size_that_icmp_told_of_comes_back_after_an_outage_and_no_larger_one() {
    let mut pair = Pair::established(config(), config(), 3);
    pair.send(From::Client, pattern(0, 100_000));
    pair.flush();
    let seq = pair.client.send.wire(pair.client.send.una());
    let flow = pair.client.tuple();
    let message = polypath_wire::IcmpMessage::PacketTooBig { flow, seq, mtu: 1400 };
    pair.client.handle_icmp(pair.now, &message);
    cut(&mut pair, &[(25, 10_000)], 1360);
    pair.run_for(Duration::from_secs(40));
    pair.send(From::Client, pattern(100_000, 100_000));
    pair.run_for(Duration::from_secs(10));
    assert!(pair.at_server == pattern(0, 200_000));
    assert_eq!(pair.client.info().pmtu_bytes, 1400);
}

#[test]
fn probes_come_between_timeouts_that_have_backed_off_and_count_for_nothing() {
    let mut pair = Pair::established(config(), config(), 4);
    cut(&mut pair, &[(5, 30_500)], usize::MAX);
    pair.send(From::Client, pattern(0, 50_000));
    pair.run_for(Duration::from_secs(10));
    pair.client.probe_every(pair.now, Some(Duration::from_secs(1)));
    let (before, start) = (pair.client.info(), pair.log.len());
    pair.run_for(Duration::from_secs(20));
    let info = pair.client.info();
    let sent = pair.sent(From::Client, start).len() as u64;
    let timeouts = info.timeouts.unwrap() - before.timeouts.unwrap();
    assert!((19..=20 + timeouts).contains(&sent), "{sent} segments, {timeouts} timeouts");
    assert!(timeouts < 8, "{timeouts}");
    assert_eq!(info.cwnd_bytes, before.cwnd_bytes.min(info.cwnd_bytes));
    pair.run_for(Duration::from_millis(1600));
    assert!(pair.at_server == pattern(0, 50_000), "{}", pair.at_server.len());
    assert_eq!(pair.client.consecutive_timeouts(), 0);
}

#[test]
fn an_outage_of_minutes_is_survived_though_it_looks_like_a_black_hole() {
    let mut pair = Pair::established(Config::default(), Config::default(), 1);
    pair.loss_percent = 100;
    pair.send(From::Client, pattern(0, 5_000));
    pair.run_for(Duration::from_secs(300));
    assert_eq!(pair.client.state(), State::Established);
    pair.loss_percent = 0;
    pair.run_for(Duration::from_secs(130));
    assert_eq!(pair.at_server, pattern(0, 5_000));
    // For good, it is given up.
    pair.loss_percent = 100;
    pair.send(From::Client, pattern(5_000, 5_000));
    pair.run_for(Duration::from_secs(1800));
    assert_eq!(pair.client_events.last(), Some(&Event::Closed(CloseReason::TimedOut)));
}
