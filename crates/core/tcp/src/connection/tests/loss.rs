//! Loss, reordering, duplication: detection, recovery, and undoing what was not needed.

use std::boxed::Box;
use std::vec;

use polypath_units::Duration;

use super::super::State;
use super::pair::{From, Pair, pass, pattern};
use crate::Config;

fn config() -> Config {
    Config { max_aggregate_bytes: 0, ..Config::default() }
}

/// Drops the client's data segments whose ordinals, counted from 1 with retransmissions, are listed.
fn drop_nth(pair: &mut Pair, victims: &'static [usize]) {
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        if from == From::Client && !segment.payload.is_empty() {
            seen += 1;
            if victims.contains(&seen) {
                return vec![];
            }
        }
        pass(segment)
    });
}

#[track_caller]
fn transfer(pair: &mut Pair, total: usize) -> Duration {
    pair.send(From::Client, pattern(0, total));
    let start = pair.now;
    while pair.at_server.len() < total && pair.step() {}
    assert!(pair.at_server == pattern(0, total), "{} of {total}", pair.at_server.len());
    pair.now - start
}

#[test]
fn one_lost_segment_costs_one_retransmission_and_no_timeout() {
    let mut pair = Pair::established(config(), config(), 1);
    drop_nth(&mut pair, &[30]);
    transfer(&mut pair, 300_000);
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.timeouts, info.spurious), (1, Some(0), Some(0)));
    assert!(info.ssthresh_bytes < u64::MAX, "the window was reduced");
}

#[test]
fn many_lost_segments_are_repaired_in_one_recovery() {
    let mut pair = Pair::established(config(), config(), 1);
    drop_nth(&mut pair, &[60, 62, 64, 66, 70, 71, 72, 80, 90]);
    transfer(&mut pair, 600_000);
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.timeouts), (9, Some(0)));
}

/// What arrives behind a hole echoes the timestamp of what came before it (RFC 7323 §4.3), however long ago that was.
#[test]
fn retransmissions_behind_a_hole_measure_no_round_trip() {
    let mut pair = Pair::established(config(), config(), 1);
    let (mut seen, mut victim, mut lost) = (0, None, 0);
    pair.meddle = Box::new(move |from, segment| {
        if from == From::Client && !segment.payload.is_empty() {
            seen += 1;
            if seen == 60 {
                victim = Some(segment.seq);
            }
            // The first of the lost ones is lost three times more.
            if victim == Some(segment.seq) && lost < 4 {
                lost += 1;
                return vec![];
            }
            if (61..100).contains(&seen) && seen % 2 == 0 {
                return vec![];
            }
        }
        pass(segment)
    });
    let (mut longest, mut sent) = (Duration::ZERO, 0);
    pair.send(From::Client, pattern(0, 600_000));
    while pair.at_server.len() < 600_000 && pair.step() {
        let info = pair.client.info();
        longest = longest.max(info.srtt);
        sent = sent.max(info.retransmits);
    }
    assert!(sent > 20, "{sent}");
    let path = pair.client.info().min_rtt;
    assert!(longest < path * 3 / 2, "{longest:?} on a path of {path:?}");
}

#[test]
fn a_retransmission_that_is_lost_again_is_resent_without_timeout() {
    let mut pair = Pair::established(config(), config(), 1);
    let mut lost = 0;
    let mut victim = None;
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        if from == From::Client && !segment.payload.is_empty() {
            seen += 1;
            if seen == 40 {
                victim = Some(segment.seq);
            }
            if victim == Some(segment.seq) && lost < 2 {
                lost += 1;
                return vec![];
            }
        }
        pass(segment)
    });
    transfer(&mut pair, 600_000);
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.timeouts), (2, Some(0)), "RACK sees it by time");
}

#[test]
fn a_retransmission_behind_a_growing_queue_is_waited_for() {
    let mut pair = Pair::established(config(), config(), 1);
    // 16 Mbit/s with room for a second: slow start fills it faster than the round-trip time is averaged.
    let (mut free_at, mut seen) = (pair.now, 0);
    pair.clocked = Some(Box::new(move |now, from, segment| {
        if from == From::Server || segment.payload.is_empty() {
            return pass(segment);
        }
        seen += 1;
        free_at = free_at.max(now) + Duration::from_micros(750);
        if seen == 700 { vec![] } else { vec![(free_at - now, segment)] }
    }));
    transfer(&mut pair, 4_000_000);
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.timeouts), (1, Some(0)), "{info:?}");
}

#[test]
fn a_lost_tail_is_probed() {
    let mut pair = Pair::established(config(), config(), 1);
    drop_nth(&mut pair, &[10]);
    let took = transfer(&mut pair, 14_480);
    assert_eq!(pair.client.info().timeouts, Some(0));
    assert!(took < Duration::from_millis(300), "{took}");
}

#[test]
fn without_sack_new_reno_repairs() {
    let plain = Config { sack: false, ..config() };
    let mut pair = Pair::established(plain.clone(), plain, 1);
    drop_nth(&mut pair, &[60, 63, 66]);
    transfer(&mut pair, 600_000);
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.timeouts), (3, Some(0)));
}

#[test]
fn reordering_is_not_loss() {
    let mut pair = Pair::established(config(), config(), 1);
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        seen += usize::from(from == From::Client);
        let late =
            if from == From::Client && seen % 7 == 0 { Duration::from_millis(4) } else { Duration::ZERO };
        vec![(late, segment)]
    });
    transfer(&mut pair, 3_000_000);
    let info = pair.client.info();
    assert_eq!(info.timeouts, Some(0));
    assert!(info.retransmits < 20, "{} retransmissions", info.retransmits);
    assert!(!pair.client.in_recovery());
}

#[test]
fn a_delay_spike_is_undone_with_and_without_timestamps() {
    for timestamps in [true, false] {
        let with = Config { timestamps, sack: true, ..config() };
        let mut pair = Pair::established(with.clone(), with, 1);
        let mut seen = 0;
        pair.meddle = Box::new(move |from, segment| {
            seen += usize::from(from == From::Client && !segment.payload.is_empty());
            // The path grows longer by far more than the timeout.
            let spike = if from == From::Client && seen >= 100 { 400 } else { 0 };
            vec![(Duration::from_millis(spike), segment)]
        });
        transfer(&mut pair, 800_000);
        let info = pair.client.info();
        assert!(info.timeouts >= Some(1), "timestamps {timestamps}");
        assert!(info.spurious >= Some(1), "timestamps {timestamps}: {info:?}");
    }
}

/// RFC 5682 §2.1, step 2a, and RFC 5681 §3.1: what was sent again after a timeout is on its way, whatever acknowledgment of nothing
/// comes meanwhile, and the loss window has no room for more.
#[test]
fn a_duplicate_acknowledgment_after_a_timeout_sends_nothing_twice() {
    let with = Config { timestamps: false, ..config() };
    let mut pair = Pair::established(with.clone(), with, 1);
    pair.loss_percent = 100;
    pair.send(From::Client, pattern(0, 7300));
    while pair.client.info().timeouts == Some(0) && pair.step() {}
    let info = pair.client.info();
    assert_eq!(
        (info.timeouts, pair.client.in_flight_bytes()),
        (Some(1), 1460 * 5),
        "the first is sent again"
    );
    pair.loss_percent = 0;
    let sent = pair.log.len();
    for _ in 0..3 {
        pair.server().request_ack();
        pair.run_for(Duration::from_millis(20));
    }
    assert_eq!(pair.sent(From::Client, sent), []);
    assert_eq!((pair.client.in_flight_bytes(), pair.client.info().lost_bytes), (1460, 1460 * 4));
    pair.run_for(Duration::from_secs(2));
    assert!(pair.at_server == pattern(0, 7300), "the next timeout sends it");
    assert_eq!(pair.client.info().timeouts, Some(2));
}

#[test]
fn a_dead_path_backs_off_and_recovers() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.send(From::Client, pattern(0, 2_000_000));
    pair.run_for(Duration::from_millis(60));
    pair.loss_percent = 100;
    pair.run_for(Duration::from_secs(10));
    assert!(pair.client.consecutive_timeouts() >= 3);
    pair.loss_percent = 0;
    pair.run_for(Duration::from_secs(60));
    assert!(pair.at_server == pattern(0, 2_000_000));
    assert_eq!(pair.client.consecutive_timeouts(), 0);
}

#[test]
fn a_receiver_that_forgets_selective_acknowledgments_is_survived() {
    let mut pair = Pair::established(config(), config(), 1);
    pair.meddle = Box::new(|from, mut segment| {
        // Claims to have what it never says it has again.
        if from == From::Server && !segment.options.sack.is_empty() {
            segment.options.sack[0].end = segment.options.sack[0].end.add(1448);
        }
        pass(segment)
    });
    pair.loss_percent = 3;
    transfer(&mut pair, 300_000);
}

#[test]
fn random_loss_reordering_and_duplication_lose_nothing() {
    for seed in 0..60 {
        let aggregate = if seed % 2 == 0 { 0 } else { 65_000 };
        let sack = seed % 3 != 0;
        let timestamps = seed % 5 != 0;
        let with = Config { max_aggregate_bytes: aggregate, sack, timestamps, ..config() };
        let mut pair = Pair::new(with.clone(), with, seed);
        pair.loss_percent = (seed % 8) as u32;
        pair.jitter = Duration::from_millis(seed % 6 * 4);
        if seed % 4 == 0 {
            pair.meddle = Box::new(|_, segment| {
                vec![(Duration::ZERO, segment.clone()), (Duration::from_millis(3), segment)]
            });
        }
        pair.send(From::Client, pattern(0, 150_000));
        pair.client.finish();
        let mut answered = false;
        for _ in 0..200_000 {
            if pair.server.is_some() && !answered {
                answered = true;
                pair.send(From::Server, pattern(0, 90_000));
                pair.server().finish();
            }
            if pair.states() == (State::Closed, State::Closed) && answered || !pair.step() {
                break;
            }
        }
        assert!(pair.at_server == pattern(0, 150_000), "seed {seed}: {} at server", pair.at_server.len());
        assert!(pair.at_client == pattern(0, 90_000), "seed {seed}: {} at client", pair.at_client.len());
        assert_eq!(pair.states(), (State::Closed, State::Closed), "seed {seed}");
    }
}

#[test]
fn a_retransmission_that_arrives_shows_what_else_is_lost() {
    // The last segment of the flight is lost along with one in the middle: nothing is selectively acknowledged once the
    // middle is repaired, but the retransmission left after the last segment did (RFC 8985 §3.1).
    let mut pair = Pair::established(config(), config(), 1);
    drop_nth(&mut pair, &[4, 10]);
    let took = transfer(&mut pair, 14_480);
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.timeouts), (2, Some(0)));
    assert!(took < Duration::from_millis(100), "{took}");
}

#[test]
fn the_delivery_rate_is_that_of_the_bottleneck() {
    let mut pair = Pair::established(config(), config(), 1);
    // 1448 bytes each 200 microseconds: 57.92 Mbit/s.
    let mut free_at = polypath_units::Instant::ZERO;
    pair.clocked = Some(Box::new(move |now, from, segment| {
        if from == From::Server {
            return vec![(Duration::ZERO, segment)];
        }
        free_at = free_at.max(now) + Duration::from_micros(200);
        vec![(free_at - now, segment)]
    }));
    transfer(&mut pair, 6_000_000);
    let rate = pair.client.info().delivery_rate.as_mbps_f64();
    assert!((57.0..58.5).contains(&rate), "{rate} Mbit/s");
}
