//! An experiment in Rust: how much do two paths bring over the better one, as the second gets slower and farther away?
//!
//! ```text
//! cargo run --release -p polypath-lab --example experiment
//! ```
//!
//! One that is data, with a report and figures, is a file for `polypath lab run`: see the folder `experiments`.

use polypath_congestion::CUBIC;
use polypath_lab::{PathSet, PathSpec, Variant, Workload, run_set};
use polypath_mptcp::scheduler;
use polypath_units::{BitRate, Duration};

fn main() {
    let path = |mbps: u64, rtt_ms: u64| PathSpec {
        rate: BitRate::from_mbps(mbps),
        rtt: Duration::from_millis(rtt_ms),
        queue: Duration::from_millis(100),
        loss: 0.0,
        change: None,
    };
    let workload = Workload::Bulk { duration: Duration::from_secs(10) };
    let both = Variant::multipath("both", scheduler::Policy::default(), CUBIC);
    let better = Variant::single_path(0, CUBIC);
    println!("second path        better alone   both   gain");
    for (mbps, rtt_ms) in [(20, 20), (10, 50), (5, 100)] {
        let set = PathSet { paths: vec![path(20, 20), path(mbps, rtt_ms)], ..PathSet::default() };
        // Everything random follows from the seed: the same program prints the same, on every machine.
        let goodput = |variant: &Variant| run_set(&set, variant, &workload, 1).goodput_bps / 1e6;
        let (alone, sum) = (goodput(&better), goodput(&both));
        let gain = (sum / alone - 1.0) * 100.0;
        println!("{mbps:>2} Mbit/s, {rtt_ms:>3} ms {alone:>10.1} {sum:>10.1} {gain:>4.0} %");
    }
}
