//! The simulator benchmark, for profilers: `cargo run --release --example bench [CONNECTIONS [SECONDS]]`.

use polypath_sim::bench::{BenchConfig, run};
use polypath_units::Duration;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let mut config = BenchConfig::default();
    if let Some(connections) = numbers.next() {
        config.connections = connections as usize;
    }
    if let Some(seconds) = numbers.next() {
        config.simulated = Duration::from_secs(seconds);
    }
    println!("{}", serde_json::to_string_pretty(&run(&config)).expect("numbers serialize"));
}
