use polypath_units::BitRate;

use super::*;
use crate::run::PathSpec;

fn path(kilobytes_per_second: u64, rtt_ms: u64, queue_ms: u64) -> PathSpec {
    PathSpec {
        rate: BitRate::from_bps(kilobytes_per_second * 8_000),
        rtt: Duration::from_millis(rtt_ms),
        queue: Duration::from_millis(queue_ms),
        loss: 0.0,
        change: None,
    }
}

/// Of the sum of the paths' rates.
fn share(paths: &[PathSpec], total_bytes: u64) -> f64 {
    let sum_bps: u64 = paths.iter().map(|path| path.rate.as_bps()).sum();
    let download = Download { total_bytes, sizing: Sizing::for_files(), timeout: Duration::from_secs(3000) };
    let downloaded = run_download(&PathSet::from(paths.to_vec()), &download, 1);
    assert!(downloaded.is_right);
    // What was asked for twice, or for nothing, is little.
    assert!(downloaded.path_bytes.iter().sum::<u64>() < total_bytes + total_bytes / 200, "{downloaded:?}");
    let took = downloaded.took.expect("an end").as_secs_f64();
    total_bytes as f64 * 8.0 / sum_bps as f64 / took
}

#[test]
fn several_paths_bring_the_sum_of_all() {
    // Headers of IP and TCP are 3.5 %.
    let (wlan, hspa) = (path(600, 10, 100), path(300, 210, 200));
    for paths in [&[wlan, hspa][..], &[wlan, hspa, path(1200, 11, 100)]] {
        let share = share(paths, 50_000_000);
        assert!(share > 0.95, "{share} {paths:?}");
    }
}

#[test]
fn two_paths_are_never_slower_than_the_better_one() {
    // Small files are the hard ones. All of them: `polypath bench fetch --pairs`.
    let pairs = run_pairs(40, &PairRanges { bytes: [1e6, 8e6], ..PairRanges::default() }, 20);
    assert!(pairs.iter().all(|pair| pair.is_right), "{pairs:?}");
    let slower: Vec<_> = pairs.iter().filter(|pair| pair.gain() < -0.03).collect();
    assert!(slower.len() <= 1 && pairs.iter().all(|pair| pair.gain() > -0.2), "{slower:?}");
}

#[test]
fn a_server_that_nobody_reaches_is_given_up() {
    let download =
        Download { total_bytes: 1_000_000, sizing: Sizing::for_files(), timeout: Duration::from_secs(2) };
    let lost = PathSpec { loss: 1.0, ..path(600, 10, 100) };
    let downloaded = run_download(&PathSet::from(vec![lost, lost]), &download, 1);
    assert_eq!((downloaded.took, downloaded.history.end()), (None, None));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let paths = PathSet::from(vec![path(600, 10, 100), PathSpec { loss: 0.01, ..path(300, 210, 200) }]);
    let download =
        Download { total_bytes: 3_000_000, sizing: Sizing::in_order(), timeout: Duration::from_secs(60) };
    let [one, other] = [7, 7].map(|seed| run_download(&paths, &download, seed));
    assert!(one.is_right && one.took.is_some());
    assert_eq!((one.took, one.path_bytes, one.requests), (other.took, other.path_bytes, other.requests));
}

/// Kaspar 2011, Fig. 6.7: at the rate that segments of a fixed size sustain, a player of ours begins sooner and holds less.
#[test]
fn a_player_waits_less_than_with_segments_of_any_fixed_size() {
    let set = PathSet::from(vec![path(600, 10, 100), path(300, 210, 200)]);
    let run = |sizing| {
        let download = Download { total_bytes: 25_200_000, sizing, timeout: Duration::from_secs(600) };
        run_download(&set, &download, 1).history
    };
    let ours = run(Sizing::in_order());
    for pipelined in [1, 2] {
        for segment_bytes in [25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 3_000_000, 12_000_000] {
            let theirs = run(Sizing::Fixed { segment_bytes, pipelined }).playback(None).expect("a playback");
            let ours = ours.playback(Some(theirs.bytes_per_second)).expect("a playback");
            assert!(
                ours.startup_latency < theirs.startup_latency
                    && ours.required_buffer_bytes < theirs.required_buffer_bytes,
                "{segment_bytes} x{pipelined}: {ours:?} {theirs:?}"
            );
        }
    }
}

/// Kaspar 2011, Fig. 6.15: 2.4 and 0.6 Mbit/s.
#[test]
fn a_slow_second_path_makes_a_stream_better() {
    let (fast, slow) = (path(300, 20, 200), path(75, 20, 200));
    let traffic = StreamTraffic {
        duration: Duration::from_secs(200),
        buffer: Duration::from_secs(4),
        timeout: Duration::from_secs(600),
    };
    for policy in ["measured-speed", "robust-mpc"] {
        let [alone, both] = [vec![fast], vec![fast, slow]].map(|paths| {
            let variant = Variant {
                sizing: Sizing::in_order(),
                adaptation: policy.parse().expect("a policy"),
                ..Variant::multipath("stream", Policy::default(), polypath_congestion::CUBIC)
            };
            let outcome = stream_over(&PathSet::from(paths), &variant, traffic, 1, None);
            outcome.stream.expect("a stream")
        });
        assert_eq!((alone.segments, both.segments), (100, 100), "{policy}");
        assert!(both.top_segments as f64 >= 1.44 * alone.top_segments as f64, "{policy}: {alone:?} {both:?}");
        assert!(both.stalled_s < 0.5 && both.startup_s < alone.startup_s, "{policy}: {alone:?} {both:?}");
    }
}
