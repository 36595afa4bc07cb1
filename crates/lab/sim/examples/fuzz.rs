//! Runs of the state-machine fuzzer: `cargo run --release --example fuzz [FIRST [COUNT]]`; a failing seed is replayed with a
//! count of 1, shrunk and traced.

use polypath_sim::fuzz::{Case, known, shrink};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let first = numbers.next().unwrap_or(0);
    let count = numbers.next().unwrap_or(1000);
    if count > 1 {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let started = std::time::Instant::now();
    let (mut failures, mut expected, mut packets) = (0, 0, 0);
    for seed in first..first + count {
        let begun = std::time::Instant::now();
        let case = Case::from_seed(seed);
        match case.run() {
            Ok(outcome) => packets += outcome.packets,
            Err(failure) if known(&failure).is_some() => expected += 1,
            Err(failure) => {
                failures += 1;
                let text = failure.to_string();
                println!("seed {seed}: {}", text.chars().take(400).collect::<String>());
                if count == 1 {
                    let shrunk = shrink(&case, failure, 3000);
                    println!("{}\n{}", shrunk.case.describe_briefly(), shrunk.failure);
                    let (_, log) = shrunk.case.run_traced();
                    println!("{}", log[log.len().saturating_sub(400)..].join("\n"));
                }
            }
        }
        let took = begun.elapsed();
        if took.as_secs() >= 2 && count > 1 {
            println!("seed {seed} took {took:?}");
        }
    }
    println!(
        "{count} runs, {failures} failures, {expected} expected, {packets} packets, {:?}",
        started.elapsed()
    );
    std::process::exit(i32::from(failures > 0));
}
