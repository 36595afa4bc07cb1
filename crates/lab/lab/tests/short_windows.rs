//! Receive buffers that are too small for both paths (Paasch 2014, §4.2.1, Fig. 4.4 to 4.9): what is left of the window must go
//! where it brings something, and must not hold up the better path.

use polypath_lab::run::Buffer;
use polypath_lab::{PathSet, PathSpec, Variant, Workload, run_set};
use polypath_mptcp::scheduler::Policy;
use polypath_units::{BitRate, Duration};

fn path(rate_bps: u64, rtt_micros: u64, queue_micros: u64) -> PathSpec {
    PathSpec {
        rate: BitRate::from_bps(rate_bps),
        rtt: Duration::from_micros(rtt_micros),
        queue: Duration::from_micros(queue_micros),
        loss: 0.0,
        change: None,
    }
}

/// Goodput in Mbit/s.
fn goodput_mbps(set: &PathSet, variant: Variant, buffer_kb: u64, duration: Duration) -> f64 {
    let variant = Variant { buffer: Buffer::Bytes(buffer_kb * 1000), autotuning: false, ..variant };
    run_set(set, &variant, &Workload::Bulk { duration }, 1).goodput_bps / 1e6
}

fn multipath(scheduler: &str) -> Variant {
    let policy = Policy::by_name(scheduler).expect("a scheduler");
    Variant::multipath(scheduler, policy, polypath_congestion::CUBIC)
}

#[test]
fn wifi_and_3g_bring_more_than_wifi_with_any_buffer_that_has_room_for_3g() {
    let wifi_and_3g =
        PathSet::from(vec![path(8_000_000, 20_000, 80_000), path(2_000_000, 150_000, 2_000_000)]);
    let goodput =
        |variant, buffer_kb| goodput_mbps(&wifi_and_3g, variant, buffer_kb, Duration::from_secs(20));
    let mut before = 0.0;
    // With 50 KB only WiFi is of use, and mappings cost 0.2 % of it.
    for (buffer_kb, least) in [(50, 0.995), (100, 1.10), (125, 1.15), (150, 1.2), (200, 1.2), (400, 1.2)] {
        let tcp = goodput(Variant::single_path(0, polypath_congestion::CUBIC), buffer_kb);
        let ours = goodput(multipath("default"), buffer_kb);
        println!("{buffer_kb} KB: {ours:.2} Mbit/s, TCP over WiFi {tcp:.2}");
        assert!(ours >= least * tcp, "{buffer_kb} KB: {ours:.2} Mbit/s, TCP {tcp:.2}");
        assert!(ours >= 0.99 * before, "a larger buffer brings less");
        before = ours;
    }
}

#[test]
fn a_thin_path_does_not_hold_up_a_broad_one_whose_queue_makes_its_round_trip_longer() {
    let broad_and_thin = PathSet::from(vec![path(1_000_000_000, 200, 1_200), path(100_000_000, 200, 12_000)]);
    let goodput = |variant| goodput_mbps(&broad_and_thin, variant, 125, Duration::from_secs(1));
    let tcp = goodput(Variant::single_path(0, polypath_congestion::CUBIC));
    let ours = goodput(multipath("default"));
    println!("{ours:.0} Mbit/s, TCP {tcp:.0}");
    assert!(ours >= tcp, "{ours:.0} Mbit/s, TCP {tcp:.0}");
}
