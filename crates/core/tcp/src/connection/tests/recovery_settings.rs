//! Loss recovery as [`LossRecovery`] sets it.

use std::boxed::Box;
use std::vec;

use polypath_units::Duration;

use super::pair::{From, Pair, pass, pattern};
use crate::{Config, DuplicateThreshold, ForwardRto, LossDetection, LossRecovery};

fn counting(least: u8, forward: bool) -> Config {
    let detection = LossDetection::ByCount(DuplicateThreshold { least, forward });
    let loss_recovery = LossRecovery { detection, ..LossRecovery::default() };
    Config { max_aggregate_bytes: 0, pacing: false, mtu_probing: false, loss_recovery, ..Config::default() }
}

fn established(config: &Config) -> Pair {
    Pair::established(config.clone(), config.clone(), 1)
}

/// Treats the client's data segment of this ordinal alone, retransmissions counted, as `of_one` says.
fn meddle_with(
    pair: &mut Pair,
    mut of_one: impl FnMut(usize, polypath_wire::Segment) -> vec::Vec<(Duration, polypath_wire::Segment)>
    + 'static,
) {
    let mut seen = 0;
    pair.meddle = Box::new(move |from, segment| {
        if from == From::Server || segment.payload.is_empty() {
            return pass(segment);
        }
        seen += 1;
        of_one(seen, segment)
    });
}

fn late(pair: &mut Pair, victim: usize, by: Duration) {
    meddle_with(pair, move |seen, segment| vec![(if seen == victim { by } else { Duration::ZERO }, segment)]);
}

fn lose(pair: &mut Pair, victims: &'static [usize]) {
    meddle_with(pair, |seen, segment| if victims.contains(&seen) { vec![] } else { pass(segment) });
}

#[track_caller]
fn transfer(pair: &mut Pair, from: usize, len: usize) {
    pair.send(From::Client, pattern(from, len));
    while pair.at_server.len() < from + len && pair.step() {}
    assert!(pair.at_server == pattern(0, from + len), "{} arrived", pair.at_server.len());
    // What is under way still arrives.
    pair.run_for(Duration::from_millis(50));
}

#[test]
fn a_lost_segment_is_sent_again_as_soon_as_enough_have_overtaken_it() {
    for (least, forward) in [(3, false), (3, true), (12, false), (12, true)] {
        let mut pair = established(&counting(least, forward));
        lose(&mut pair, &[40]);
        transfer(&mut pair, 0, 400_000);
        let info = pair.client.info();
        assert_eq!(
            (info.retransmits, info.timeouts, info.spurious),
            (1, Some(0), Some(0)),
            "{least} {forward}"
        );
        assert!(info.ssthresh_bytes < u64::MAX);
    }
}

#[test]
fn several_losses_are_repaired_in_one_recovery() {
    for forward in [false, true] {
        let mut pair = established(&counting(3, forward));
        lose(&mut pair, &[60, 62, 64, 66, 70, 71, 72, 80, 90]);
        transfer(&mut pair, 0, 600_000);
        let info = pair.client.info();
        assert_eq!(
            (info.retransmits, info.timeouts, info.recoveries),
            (9, Some(0), Some(1)),
            "forward {forward}"
        );
    }
}

/// The first four of five are lost. The last draws one duplicate; forward acknowledgment counts the gap as well.
#[test]
fn forward_acknowledgment_counts_what_is_missing() {
    let recoveries = |forward| {
        let mut pair = established(&counting(3, forward));
        lose(&mut pair, &[1, 2, 3, 4]);
        transfer(&mut pair, 0, 5 * 1448);
        pair.client.info().recoveries
    };
    assert_eq!((recoveries(true), recoveries(false)), (Some(1), Some(0)));
}

#[test]
fn a_late_segment_raises_the_threshold_to_what_overtook_it() {
    for forward in [false, true] {
        let mut pair = established(&counting(3, forward));
        // The two behind it arrive first: too few to take it for lost.
        late(&mut pair, 8, Duration::from_micros(100));
        transfer(&mut pair, 0, 10 * 1448);
        assert_eq!((pair.client.info().retransmits, pair.client.duplicate_threshold()), (0, Some(3)));
        // Now five of a flight of ten do. It is sent again, and its timestamp shows that it was late.
        late(&mut pair, 5, Duration::from_millis(8));
        transfer(&mut pair, 14_480, 10 * 1448);
        let info = pair.client.info();
        assert_eq!((info.retransmits, info.spurious, info.timeouts), (1, Some(1), Some(0)), "{forward}");
        assert_eq!(pair.client.duplicate_threshold(), Some(6), "forward {forward}");
        // As many are waited for from then on.
        let flight = (pair.client.info().cwnd_bytes / 1448) as usize;
        late(&mut pair, flight - 4, Duration::from_millis(8));
        transfer(&mut pair, 28_960, 100_000);
        assert_eq!(pair.client.info().retransmits, 1, "forward {forward}");
    }
}

#[test]
fn a_timeout_forgets_the_reordering_that_was_seen() {
    let mut pair = established(&counting(3, false));
    late(&mut pair, 15, Duration::from_millis(8));
    transfer(&mut pair, 0, 30 * 1448);
    assert_eq!(pair.client.duplicate_threshold(), Some(16));
    pair.loss_percent = 100;
    pair.send(From::Client, pattern(43_440, 1448));
    pair.run_for(Duration::from_millis(400));
    pair.loss_percent = 0;
    transfer(&mut pair, 44_888, 1448);
    assert!(pair.client.info().timeouts > Some(0));
    assert_eq!(pair.client.duplicate_threshold(), Some(3));
}

#[test]
fn a_high_threshold_waits_for_what_is_late() {
    let resent = |least| {
        let mut pair = established(&counting(least, false));
        late(&mut pair, 12, Duration::from_millis(3));
        transfer(&mut pair, 0, 100_000);
        pair.client.info().retransmits
    };
    assert_eq!((resent(3), resent(40)), (1, 0));
}

#[test]
fn without_sack_as_many_duplicates_as_the_threshold_says_are_needed() {
    for (least, is_taken_for_lost) in [(3, true), (60, false)] {
        let config = Config { sack: false, timestamps: false, ..counting(least, false) };
        let mut pair = established(&config);
        late(&mut pair, 15, Duration::from_millis(8));
        transfer(&mut pair, 0, 200_000);
        let info = pair.client.info();
        assert_eq!((info.timeouts, info.spurious), (Some(0), Some(0)), "nothing tells");
        assert_eq!(info.recoveries > Some(0), is_taken_for_lost, "{least}");
    }
}

#[test]
fn without_sack_timestamps_show_that_it_was_late_and_how_late() {
    let config = Config { sack: false, ..counting(3, false) };
    let mut pair = established(&config);
    // Its retransmission arrives after it.
    late(&mut pair, 15, Duration::from_millis(8));
    transfer(&mut pair, 0, 200_000);
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.spurious, info.ssthresh_bytes), (1, Some(1), u64::MAX));
    assert!(pair.client.duplicate_threshold() > Some(3));
}

#[test]
fn duplicates_are_neither_reported_nor_believed_where_that_is_off() {
    let mut config = counting(3, false);
    config.timestamps = false;
    for reports in [true, false] {
        config.loss_recovery.duplicate_reports = reports;
        let mut pair = established(&config);
        late(&mut pair, 15, Duration::from_millis(30));
        transfer(&mut pair, 0, 200_000);
        pair.run_for(Duration::from_millis(300));
        let info = pair.client.info();
        let undone = info.ssthresh_bytes == u64::MAX;
        assert_eq!((info.retransmits, info.dsacks, undone), (1, u64::from(reports), reports));
    }
    // The other end reports what this one does not ask for.
    let mut pair = Pair::established(config.clone(), counting(3, false), 1);
    late(&mut pair, 15, Duration::from_millis(30));
    transfer(&mut pair, 0, 200_000);
    pair.run_for(Duration::from_millis(300));
    let info = pair.client.info();
    assert_eq!((info.retransmits, info.dsacks), (1, 0));
    assert!(info.ssthresh_bytes < u64::MAX);
}

/// Everything is late once, by more than the timeout: each form of F-RTO sees it, and without one it is slow start.
#[test]
fn a_delay_spike_is_seen_by_forward_rto() {
    for (setting, sack, expected) in [
        (ForwardRto::Off, true, 0),
        (ForwardRto::WithoutTimestamps, true, 1),
        (ForwardRto::Basic, true, 1),
        (ForwardRto::Basic, false, 1),
        (ForwardRto::Sack, true, 1),
        (ForwardRto::Sack, false, 1),
    ] {
        let mut config = Config { sack, timestamps: false, ..counting(3, false) };
        config.loss_recovery.duplicate_reports = false;
        config.loss_recovery.forward_rto = setting;
        let mut pair = established(&config);
        let (mut free_at, mut seen) = (pair.now, 0);
        pair.clocked = Some(Box::new(move |now, from, segment| {
            if from == From::Server || segment.payload.is_empty() {
                return pass(segment);
            }
            seen += 1;
            let spike = if seen == 100 { Duration::from_millis(400) } else { Duration::ZERO };
            free_at = free_at.max(now + spike);
            vec![(free_at - now, segment)]
        }));
        transfer(&mut pair, 0, 800_000);
        let info = pair.client.info();
        assert_eq!((info.timeouts, info.spurious), (Some(1), Some(expected)), "{setting:?}, SACK {sack}");
    }
}

/// One packet in three takes a second path, whose way is five round trips of the first longer.
#[test]
fn patience_waits_for_a_far_slower_path_and_repairs_what_is_lost() {
    let mut config = counting(3, false);
    let mut resent = |detection, lost: &'static [usize]| {
        config.loss_recovery.detection = detection;
        let mut pair = established(&config);
        meddle_with(&mut pair, |seen, segment| match () {
            () if lost.contains(&seen) => vec![],
            () => vec![(Duration::from_millis(if seen % 3 == 0 { 100 } else { 0 }), segment)],
        });
        transfer(&mut pair, 0, 2_000_000);
        let info = pair.client.info();
        (info.retransmits, info.timeouts, info.ssthresh_bytes)
    };
    assert!(resent(LossDetection::RackTlp, &[]).0 > 20);
    assert_eq!(resent(LossDetection::RackPatient, &[]), (0, Some(0), u64::MAX));
    let (resends, timeouts, threshold) = resent(LossDetection::RackPatient, &[400, 401]);
    assert_eq!((resends, timeouts), (2, Some(0)));
    assert!(threshold < u64::MAX);
}

#[test]
fn whatever_the_settings_nothing_is_lost() {
    for seed in 0..48 {
        let least = [1, 3, 20, 127][seed as usize % 4];
        let detection = match seed % 5 {
            4 => LossDetection::RackPatient,
            _ => LossDetection::ByCount(DuplicateThreshold { least, forward: seed % 3 == 0 }),
        };
        let forward_rto = [ForwardRto::Off, ForwardRto::Basic, ForwardRto::Sack][seed as usize % 3];
        let loss_recovery = LossRecovery { detection, duplicate_reports: seed % 2 == 0, forward_rto };
        let config = Config {
            max_aggregate_bytes: if seed % 5 == 0 { 65_000 } else { 0 },
            sack: seed % 7 != 0,
            timestamps: seed % 4 < 2,
            loss_recovery,
            ..Config::default()
        };
        let mut pair = Pair::new(config.clone(), config, seed);
        pair.loss_percent = (seed % 6) as u32;
        pair.jitter = Duration::from_millis(seed % 5 * 6);
        transfer(&mut pair, 0, 150_000);
    }
}
