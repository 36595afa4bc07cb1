//! `polypath bench never-slower --peer kernel`.

use crate::bench::beside_kernel::scene::Way;
use crate::bench::beside_kernel::{BesideKernel, BesideKernelResult, Client, Sample};

use super::{Arguments, Sizes, Ways};
use crate::command::network::block_on_interruptibly;
use crate::command::{Failure, print_json, print_line, write_file};

/// Who carries each set.
const CLIENTS: [Client; 4] = [Client::Ours, Client::OursJudging, Client::Kernel, Client::Tcp];

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.changing || !arguments.only.is_empty() || matches!(arguments.sizes, Sizes::Random) {
        return Err(Failure::input(
            "--peer kernel: has sets of its own; leave out --sizes, --changing and --only",
        ));
    }
    let comparison = BesideKernel {
        sets: arguments.sets as usize,
        seed: arguments.seed,
        ways: match arguments.way {
            Ways::Receive => vec![Way::Receive],
            Ways::Send => vec![Way::Send],
            Ways::Both => vec![Way::Receive, Way::Send],
        },
        clients: CLIENTS.to_vec(),
        congestion: arguments.single_path_congestion.to_string(),
        most_seconds: arguments.most_seconds,
    };
    let bar = crate::command::bench::progress(u64::from(arguments.sets));
    let result = block_on_interruptibly(async {
        let running = comparison.run(|sample| {
            let benefits: Vec<String> =
                sample.runs.iter().map(|run| format!("{} {:.2}", run.client.name(), run.benefit)).collect();
            bar.set_message(benefits.join(", "));
            bar.inc(1);
        });
        running.await.map_err(Failure::run)
    });
    bar.finish_and_clear();
    let result = result?;
    if let Some(path) = &arguments.samples {
        let lines: Result<String, _> = result
            .samples
            .iter()
            .map(|sample| serde_json::to_string(sample).map(|line| line + "\n"))
            .collect();
        write_file(path, lines.map_err(Failure::run)?)?;
    }
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

fn print_table(result: &BesideKernelResult) -> Result<(), Failure> {
    print_line(&format!("{:<9}{:<10}{:>8}{:>8}{:>8}{:>8}", "way", "client", "held", "median", "p5", "min"))?;
    for row in &result.rows {
        let way = format!("{:?}", row.way).to_lowercase();
        let benefit = &row.benefit;
        let figures =
            [benefit.median, benefit.p5, benefit.min].map(|figure| format!("{figure:>8.3}")).concat();
        print_line(&format!("{way:<9}{:<10}{:>6.0} %{figures}", row.client.name(), 100.0 * row.share_held))?;
    }
    print_line("held: no more than 5 % slower than TCP over the better path; the worst:")?;
    result.samples.iter().take(5).try_for_each(|sample| print_line(&describe(sample)))
}

fn describe(sample: &Sample) -> String {
    let links: Vec<String> = sample
        .set
        .links
        .iter()
        .map(|link| {
            format!("{:.2} Mbit/s {:.0} ms queue {:.0} ms", link.mbit_per_s, link.rtt_ms, link.queue_ms)
        })
        .collect();
    let runs: Vec<String> = sample
        .runs
        .iter()
        .map(|run| format!("{} {:.2} s, {:.3}", run.client.name(), run.transfer.seconds, run.benefit))
        .collect();
    format!("  {:.2} MB over {}: {}", sample.set.bytes as f64 / 1e6, links.join(" and "), runs.join("; "))
}
