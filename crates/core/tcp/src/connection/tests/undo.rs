//! Reductions that were not needed are taken back.

use std::boxed::Box;
use std::vec;

use polypath_units::Duration;

use super::pair::{From, Pair, pattern};
use crate::Config;

fn config() -> Config {
    Config { max_aggregate_bytes: 0, ..Config::default() }
}

#[track_caller]
fn transfer(pair: &mut Pair, from: usize, len: usize) {
    pair.send(From::Client, pattern(from, len));
    while pair.at_server.len() < from + len && pair.step() {}
    assert!(pair.at_server == pattern(0, from + len), "{} arrived", pair.at_server.len());
}

/// Holds back one segment of the client by `late`.
fn delay_one(pair: &mut Pair, victim: usize, late: Duration) {
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        let data = from == From::Client && !segment.payload.is_empty();
        seen += usize::from(data);
        vec![(if data && seen == victim { late } else { Duration::ZERO }, segment)]
    });
}

#[test]
fn a_late_segment_is_no_loss_with_timestamps_and_with_duplicate_reports() {
    for timestamps in [true, false] {
        let with = Config { timestamps, ..config() };
        let mut pair = Pair::established(with.clone(), with, 1);
        // Later than the reordering window, so that it is taken for lost and sent again.
        delay_one(&mut pair, 60, Duration::from_millis(18));
        transfer(&mut pair, 0, 400_000);
        pair.run_for(Duration::from_millis(500));
        let info = pair.client.info();
        assert_eq!(
            (info.retransmits, info.timeouts, info.dsacks),
            (1, Some(0), 1),
            "timestamps {timestamps}"
        );
        assert_eq!(info.spurious, Some(1), "timestamps {timestamps}");
        assert_eq!(info.ssthresh_bytes, u64::MAX, "timestamps {timestamps}: as before");
        assert!(info.reordering_seen);
    }
}

#[test]
fn the_reordering_window_adapts() {
    let mut pair = Pair::established(config(), config(), 1);
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        let data = from == From::Client && !segment.payload.is_empty();
        seen += usize::from(data);
        // A second path, slower by 12 ms of a round trip of 20.
        let late = if data && seen % 5 == 0 { 12 } else { 0 };
        vec![(Duration::from_millis(late), segment)]
    });
    transfer(&mut pair, 0, 1_000_000);
    let early = pair.client.info().retransmits;
    transfer(&mut pair, 1_000_000, 4_000_000);
    let late = pair.client.info().retransmits - early;
    assert!(late * 10 <= early.max(20), "{early} in the first megabyte, {late} in the next four");
    assert_eq!(pair.client.info().timeouts, Some(0));
}

#[test]
fn a_real_loss_is_not_undone() {
    let mut pair = Pair::established(config(), config(), 1);
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        let data = from == From::Client && !segment.payload.is_empty();
        seen += usize::from(data);
        if data && seen == 60 { vec![] } else { vec![(Duration::ZERO, segment)] }
    });
    transfer(&mut pair, 0, 400_000);
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.spurious), (1, Some(0)));
    assert!(info.ssthresh_bytes < u64::MAX);
}

#[test]
fn a_duplicating_network_undoes_nothing() {
    let mut pair = Pair::established(config(), config(), 1);
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        let data = from == From::Client && !segment.payload.is_empty();
        seen += usize::from(data);
        if data && seen == 60 {
            return vec![];
        }
        vec![(Duration::ZERO, segment.clone()), (Duration::from_millis(1), segment)]
    });
    transfer(&mut pair, 0, 400_000);
    transfer(&mut pair, 400_000, 400_000);
    assert!(pair.client.info().dsacks > 100);
    assert!(pair.client.info().ssthresh_bytes < u64::MAX);
    assert_eq!(pair.client.info().timeouts, Some(0));
}

#[test]
fn slight_reordering_is_remembered_and_spares_a_later_retransmission() {
    let at_once = Config { pacing: false, ..config() };
    let mut pair = Pair::established(at_once.clone(), at_once, 1);
    // First the last two of the initial window change places, which is no reason to resend anything.
    delay_one(&mut pair, 9, Duration::from_millis(1));
    transfer(&mut pair, 0, 100_000);
    assert!(pair.client.info().reordering_seen);
    // From then on, three duplicates are not taken for a loss within the reordering window.
    delay_one(&mut pair, 60, Duration::from_millis(4));
    transfer(&mut pair, 100_000, 400_000);
    assert_eq!(pair.client.info().retransmits, 0);
}

#[test]
fn originals_that_were_late_do_not_condemn_what_follows_them() {
    let mut pair = Pair::established(config(), config(), 1);
    let mut seen = 0;
    // Everything is late once, by more than the timeout, and in order: what the timeout resent was not lost, and the
    // acknowledgment of the original says nothing of what left between the two.
    let mut free_at = pair.now;
    pair.clocked = Some(Box::new(move |now, from, segment| {
        let data = from == From::Client && !segment.payload.is_empty();
        seen += usize::from(data);
        if !data {
            return vec![(Duration::ZERO, segment)];
        }
        let spike = if seen == 100 { Duration::from_millis(400) } else { Duration::ZERO };
        free_at = free_at.max(now + spike);
        vec![(free_at - now, segment)]
    }));
    transfer(&mut pair, 0, 800_000);
    let info = pair.client.info();
    assert!(info.timeouts >= Some(1) && info.spurious >= Some(1), "{info:?}");
    assert!(info.retransmits <= 3, "{} retransmissions", info.retransmits);
    assert_eq!(info.ssthresh_bytes, u64::MAX, "no second episode came of it");
}
