//! Data in order: windows, small segments, acknowledgments.

use std::boxed::Box;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use polypath_congestion::{self as congestion, Mock};
use polypath_units::{BitRate, Duration};

use super::super::State;
use super::pair::{From, Pair, pass, pattern};
use crate::Config;

fn config() -> Config {
    Config { max_aggregate_bytes: 0, ..Config::default() }
}

#[test]
fn bulk_arrives_across_the_wrap_in_full_segments() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.send(From::Client, pattern(0, 1_000_000));
    pair.run_for(Duration::from_secs(10));
    assert!(pair.at_server == pattern(0, 1_000_000));
    let sizes: Vec<usize> =
        pair.sent(From::Client, 3).into_iter().map(|(_, len)| len).filter(|len| *len > 0).collect();
    assert!(sizes[..sizes.len() - 1].iter().all(|len| *len == 1448));
    assert_eq!(pair.client.info().bytes_retrans, 0);
}

#[test]
fn aggregates_are_whole_segments_and_arrive_whole() {
    let big = Config::default();
    let mut pair = Pair::established(big.clone(), big, 1);
    pair.send(From::Client, pattern(0, 60_000));
    pair.send(From::Client, pattern(60_000, 940_000));
    pair.run_for(Duration::from_secs(10));
    assert!(pair.at_server == pattern(0, 1_000_000));
    let large = pair.log.iter().filter(|(_, _, s)| s.payload.len() > 1448);
    assert!(large.clone().count() > 5);
    for (_, _, segment) in large {
        assert_eq!(segment.segment_size, 1448);
        assert!(segment.payload.len() <= 65_000);
    }
}

#[test]
fn the_initial_window_is_ten_segments() {
    let slow_start = Config { pacing: false, ..config() };
    let mut pair = Pair::established(slow_start.clone(), slow_start, 1);
    let before = pair.log.len();
    pair.send(From::Client, pattern(0, 100_000));
    pair.flush();
    assert_eq!(pair.sent(From::Client, before).len(), 10);
}

#[test]
fn pacing_spreads_a_window_over_the_round_trip() {
    let mut pair = Pair::established(config(), config(), 1);
    let before = pair.log.len();
    let start = pair.now;
    pair.send(From::Client, pattern(0, 14_480));
    pair.run_for(Duration::from_millis(19));
    let times: Vec<Duration> = pair.log[before..]
        .iter()
        .filter(|(_, from, _)| *from == From::Client)
        .map(|(at, _, _)| *at - start)
        .collect();
    assert_eq!(times.len(), 10);
    assert!(times[2] > Duration::ZERO, "more than a burst at once: {times:?}");
    assert!(times[9] > Duration::from_millis(5) && times[9] < Duration::from_millis(12), "{times:?}");
}

#[test]
fn every_second_segment_is_acknowledged_after_the_quick_start() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.send(From::Client, pattern(0, 500_000));
    pair.run_for(Duration::from_secs(5));
    let data = pair.sent(From::Client, 3).into_iter().filter(|(_, len)| *len > 0).count();
    let acks = pair.sent(From::Server, 3).len();
    assert!(acks >= data / 2 && acks <= data / 2 + 20, "{acks} acknowledgments of {data} segments");
}

#[test]
fn a_lone_segment_is_acknowledged_within_the_delay() {
    let slow = Config { quick_ack_packets: 0, ..config() };
    let mut pair = Pair::established(config(), slow, 1);
    // The first acknowledgment tells of the window that did not fit the SYN/ACK.
    pair.send(From::Client, pattern(0, 100));
    pair.run_for(Duration::from_millis(100));
    pair.send(From::Client, pattern(100, 100));
    let start = pair.now;
    pair.run_for(Duration::from_millis(100));
    let ack = pair.log.iter().rfind(|(_, from, _)| *from == From::Server).map(|(at, _, _)| *at - start);
    assert_eq!(ack, Some(Duration::from_millis(50)), "10 ms on the way, 40 ms of delay");
}

#[test]
fn nagle_waits_for_the_acknowledgment_and_no_delay_does_not() {
    for no_delay in [false, true] {
        let mut pair = Pair::established(Config { no_delay, ..config() }, config(), 1);
        let before = pair.log.len();
        for at in 0..5 {
            pair.send(From::Client, pattern(at * 10, 10));
            pair.flush();
        }
        let first_flight = pair.sent(From::Client, before).len();
        assert_eq!(first_flight, if no_delay { 5 } else { 1 });
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.at_server, pattern(0, 50));
    }
}

#[test]
fn cork_holds_back_what_is_not_full() {
    let mut pair = Pair::established(config(), config(), 1);
    let before = pair.log.len();
    pair.client.set_cork(true);
    pair.send(From::Client, pattern(0, 2000));
    pair.flush();
    assert_eq!(pair.sent(From::Client, before), [(".".to_string(), 1448)]);
    pair.client.set_cork(false);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.at_server.len(), 2000);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let small = Config { receive_buffer_bytes: 8_000, ..config() };
    let mut pair = Pair::established(config(), small, 1);
    pair.server_sleeps = true;
    pair.send(From::Client, pattern(0, 30_000));
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.client.peer_window_bytes(), 0);
    assert!(pair.client.sent_offset() <= 8_000);
    assert_eq!(pair.states(), (State::Established, State::Established));
    // The update that tells of the open window is lost; a probe finds out.
    let mut dropped = false;
    pair.meddle = Box::new(move |from, segment| {
        if from == From::Server && !dropped {
            dropped = true;
            return vec![];
        }
        pass(segment)
    });
    pair.server_sleeps = false;
    pair.run_for(Duration::from_secs(120));
    assert_eq!(pair.at_server, pattern(0, 30_000));
    assert_eq!(pair.client.consecutive_timeouts(), 0, "a closed window is not a dead path");
}

#[test]
fn small_windows_are_not_filled_by_slivers() {
    for buffer in [1, 100, 4_096, 20_000] {
        let small = Config { receive_buffer_bytes: buffer, ..config() };
        let mut pair = Pair::established(config(), small, 1);
        let total = if buffer < 1000 { 500 } else { 100_000 };
        pair.send(From::Client, pattern(0, total));
        pair.run_for(Duration::from_secs(2000));
        assert!(pair.at_server == pattern(0, total), "{buffer}: {} of {total}", pair.at_server.len());
        if buffer >= 4_096 {
            let data = pair.sent(From::Client, 3).into_iter().filter(|(_, len)| *len > 0).count();
            assert!(data < total / 1000 + 20, "{buffer}: {data} segments");
        }
    }
}

#[test]
fn fin_rides_on_the_last_segment() {
    let mut pair = Pair::established(config(), config(), 1);
    let before = pair.log.len();
    pair.send(From::Client, pattern(0, 100));
    pair.client.finish();
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.sent(From::Client, before)[0], ("FP.".to_string(), 100));
    assert_eq!(pair.states(), (State::FinWait2, State::CloseWait));
    assert_eq!(pair.at_server, pattern(0, 100));
}

#[test]
fn no_window_and_no_rate_of_a_policy_is_too_large_or_too_small() {
    let mock = |window_bytes, pacing_rate| {
        let mut pair = Pair::established(config(), config(), 1);
        let chosen = Mock { window_bytes, pacing_rate, ..Mock::new(&congestion::Config::default()) };
        pair.client.controller = Box::new(chosen);
        pair
    };
    let [window, limits] = [14_480, u64::MAX].map(|bytes| (bytes, BitRate::from_bps(bytes)));
    for (window_bytes, rate) in
        [(limits.0, None), (1 << 62, None), (limits.0, Some(limits.1)), (window.0, Some(limits.1))]
    {
        let mut pair = mock(window_bytes, rate);
        pair.send(From::Client, pattern(0, 1_000_000));
        pair.run_for(Duration::from_secs(10));
        assert!(pair.at_server == pattern(0, 1_000_000), "{window_bytes} {rate:?}");
        assert!(pair.client.info().cwnd_bytes <= congestion::MOST_WINDOW_BYTES);
        pair.client.halve_window(true);
    }
    for rate in [BitRate::ZERO, BitRate::from_bps(1)] {
        let mut pair = mock(u64::MAX, Some(rate));
        pair.send(From::Client, pattern(0, 1_000_000));
        pair.run_for(Duration::from_secs(10));
        assert!(pair.at_server.len() < 10_000, "{rate:?}");
    }
}
