//! Soak scenarios: `cargo run --release --example soak [FIRST [COUNT]]`; a failing seed is replayed with a
//! count of 1.

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let first = numbers.next().unwrap_or(0);
    let count = numbers.next().unwrap_or(500);
    let policies = polypath_config::Policies::default();
    let started = std::time::Instant::now();
    let (mut failures, mut packets) = (0, 0);
    for seed in first..first + count {
        // One in twenty runs twice, to compare the traces.
        let result = if seed.is_multiple_of(20) {
            polypath_sim::soak::run_twice(seed, &policies)
        } else {
            polypath_sim::soak::run(seed, &policies)
        };
        match result {
            Ok(outcome) => packets += outcome.packets,
            Err(failure) => {
                failures += 1;
                println!("{failure}");
            }
        }
    }
    println!("{count} scenarios, {failures} failures, {packets} packets, {:?}", started.elapsed());
    std::process::exit(i32::from(failures > 0));
}
