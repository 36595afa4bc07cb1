//! The middlebox matrix: `cargo run --release --example matrix [WORD]` runs the cases whose name contains the
//! word; a single one is also printed packet by packet.

use polypath_config::Policies;
use polypath_sim::matrix;
use polypath_sim::trace::TraceOutputs;

fn main() {
    let word = std::env::args().nth(1).unwrap_or_default();
    let mut cases = matrix::cases(&Policies::default());
    match cases.iter().position(|case| case.to_string() == word) {
        Some(exact) => cases = vec![cases.swap_remove(exact)],
        None => cases.retain(|case| case.to_string().contains(&word)),
    }
    let mut failures = 0;
    for case in &cases {
        let outputs = (cases.len() == 1)
            .then(|| TraceOutputs { text: Some(Box::new(std::io::stdout())), ..TraceOutputs::default() });
        if let Err(failure) = matrix::run_traced(case, outputs) {
            failures += 1;
            println!("{failure}");
        }
    }
    println!("{} cases, {failures} failures", cases.len());
    std::process::exit(i32::from(failures > 0));
}
