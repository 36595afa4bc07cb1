//! `polypath bench never-slower --peer kernel`.

use polypath::bench::beside_kernel::scene::Way;
use polypath::bench::beside_kernel::{BesideKernel, BesideKernelResult, Sample};
use polypath::mptcp::JudgePaths;

use super::{Arguments, Sizes, Ways};
use crate::command::network::block_on_interruptibly;
use crate::command::{Failure, print_json, print_line, write_file};

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
        judge_paths: JudgePaths::Foreign,
    };
    let bar = crate::command::bench::progress(u64::from(arguments.sets) * comparison.ways.len() as u64);
    let result = block_on_interruptibly(async {
        let running = comparison.run(|sample| {
            bar.set_message(format!(
                "{:?}: {:.2}, kernel {:.2}",
                sample.way, sample.benefit, sample.kernel_benefit
            ));
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
    print_line(&format!("{:<9}{:<8}{:>8}{:>8}{:>8}{:>8}", "way", "client", "held", "median", "p5", "min"))?;
    for way in &result.ways {
        let name = format!("{:?}", way.way).to_lowercase();
        for (client, held, benefit) in
            [("ours", way.share_held, &way.benefit), ("kernel", way.kernel_share_held, &way.kernel_benefit)]
        {
            let figures =
                [benefit.median, benefit.p5, benefit.min].map(|figure| format!("{figure:>8.3}")).concat();
            print_line(&format!("{name:<9}{client:<8}{:>6.0} %{figures}", 100.0 * held))?;
        }
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
    format!(
        "  {:?} {:.2} MB over {}: {:.2} s, benefit {:.3}; kernel {:.2} s, {:.3}",
        sample.way,
        sample.set.bytes as f64 / 1e6,
        links.join(" and "),
        sample.ours.seconds,
        sample.benefit,
        sample.kernel.seconds,
        sample.kernel_benefit
    )
}
