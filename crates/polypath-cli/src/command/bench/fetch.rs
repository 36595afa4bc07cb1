//! `polypath bench fetch`.

use std::collections::BTreeMap;

use clap::Args;
use indicatif::ProgressBar;
use polypath_lab::download::{Pair, PairRanges, run_pairs};
use serde::Serialize;

use crate::bench::Spread;
use crate::bench::beside_kernel::scene::AccessLink;
use crate::bench::fetch::{Fetcher, Site};
use crate::bench::fetch_beside_curl::{Cost, Fetched, Link, OnePath};
use crate::command::{Failure, complain, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// Bytes of the file
    #[arg(long, value_name = "SIZE", default_value = "50MB", value_parser = super::parse_size)]
    file_size: u64,
    /// How often each downloads it; the median counts. Over one path five times at least
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Only rows whose name contains this, such as "https"
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The congestion control of the server's TCP, as the kernel calls it
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Instead, in the simulator: so many random pairs of paths and sizes of files, beside the better path alone
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["file_size", "repeats", "only", "congestion"], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pairs: Option<u32>,
    /// The seed of these pairs
    #[arg(long, default_value_t = 1, requires = "pairs")]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
One nginx behind emulated access links, and one download at a time, by HTTP and by HTTPS: `polypath get --ranges`, aria2 with a connection for \
each interface and with 16, and curl over the fastest interface. Figures are shares of the sum of the links' rates: the file's bytes, \
without any header, by the time from the program's start to its end.\n\n\
Over one path, `polypath get --ranges` and curl by turns: 500 MB on a link of 1 Gbit/s (`gigabit`), and 10 000 files of 1 to 4 KiB with `-Z` on that link \
and on an emulated one with a round trip of 20 ms. Figures are seconds from start to end, which may be 1.02 times curl's, and seconds of the processor, \
which may be 1.2 times curl's.\n\n\
With `--pairs`, what is shipped downloads over simulated paths of 0.5 to 100 Mbit/s, 2 to 400 ms and queues of 20 to 400 ms, files of 1 to 200 MB. \
The figure is the share of pairs over which both paths were not more than 3 % slower than the better one alone.\n\n\
JSON: bytes, repeats, congestion; rows: name, figure (share, seconds or cpu_seconds), lines (mbit_per_s, rtt_ms, queue_ms; none of 1 Gbit/s), ours, peers (a figure by name), bound, held. With `--pairs`: \
seed, pairs (bytes; paths: Mbit/s, round trip and queue in ms; alone_s, both_s), and one row.";

/// Links that are measured: those of Kaspar's dissertation, and two pairs of access links.
const SCENES: [(&str, &[AccessLink]); 4] = [
    ("wlan-hspa", &[WLAN, HSPA]),
    ("wlan-hspa-wlan", &[WLAN, HSPA, WLAN]),
    ("20+10", &[line(20.0, 20.0), line(10.0, 40.0)]),
    ("100+5", &[line(100.0, 20.0), line(5.0, 60.0)]),
];
/// 600 KB/s.
const WLAN: AccessLink = line(4.8, 10.0);
/// 300 KB/s.
const HSPA: AccessLink = line(2.4, 210.0);
/// The longest that a packet may wait.
const QUEUE_MS: f64 = 250.0;

const fn line(mbit_per_s: f64, rtt_ms: f64) -> AccessLink {
    AccessLink { mbit_per_s, rtt_ms, queue_ms: QUEUE_MS }
}

/// Share of the sum that ours is to have over the links of the document.
const BOUND: f64 = 0.95;

#[derive(Debug, Serialize)]
struct Results {
    bytes: u64,
    repeats: u32,
    congestion: String,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct SimulatedResults {
    seed: u64,
    pairs: Vec<Pair>,
    rows: [Row; 1],
}

/// What is measured over one path.
const ONE_PATH: [(&str, Link, Fetched); 3] = [
    ("gigabit", Link::Gigabit, Fetched::Large),
    ("10000 files", Link::Gigabit, Fetched::Small),
    ("10000 files 20 ms", Link::Emulated(line(200.0, 20.0)), Fetched::Small),
];
/// So many times what curl needs is not more than that: of what differs from run to run, medians keep some.
const MOST_OF_TIME: f64 = 1.02;
const MOST_OF_CPU: f64 = 1.2;
/// Runs of each, which are over soon.
const LEAST_RUNS: u32 = 5;

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// What the figures are.
    figure: &'static str,
    lines: Vec<AccessLink>,
    ours: f64,
    peers: BTreeMap<&'static str, f64>,
    /// Least share that ours is to have; of links without such a bound, the best of the others. Most of seconds.
    bound: f64,
    held: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(count) = arguments.pairs {
        return run_simulated(count, arguments);
    }
    let (known, missing): (Vec<Fetcher>, Vec<Fetcher>) =
        Fetcher::PEERS.into_iter().partition(|peer| peer.is_installed());
    for peer in missing {
        complain(&format!("{peer} is not installed, so that its figures are missing"));
    }
    let names = SCENES.iter().flat_map(|(name, lines)| ["http", "https"].map(|kind| (*name, *lines, kind)));
    let is_wanted = |name: &str, kind: &str| format!("{name} {kind}").contains(&arguments.only);
    let wanted: Vec<_> = names.filter(|(name, _, kind)| is_wanted(name, kind)).collect();
    let one_path = ONE_PATH.iter().flat_map(|scene| ["http", "https"].map(|kind| (scene, kind)));
    let one_path: Vec<_> = one_path.filter(|((name, ..), kind)| is_wanted(name, kind)).collect();
    if wanted.is_empty() && one_path.is_empty() {
        return Err(Failure::Input(format!("--only: no row has \"{}\" in its name", arguments.only)));
    }
    let runs = arguments.repeats.max(LEAST_RUNS);
    let (several, one) = (wanted.len() as u64 * (1 + known.len() as u64), one_path.len() as u64 * 2);
    let bar = super::progress(several * u64::from(arguments.repeats) + one * u64::from(runs));
    let mut rows = Vec::new();
    for (name, lines, kind) in wanted {
        let site = Site::new(lines, arguments.file_size, &arguments.congestion).map_err(Failure::run)?;
        let mut shares: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for _ in 0..arguments.repeats {
            for fetcher in [Fetcher::Ours].iter().chain(&known) {
                bar.set_message(format!("{name} {kind} {fetcher}"));
                let seconds = site.fetch(*fetcher, kind == "https").map_err(Failure::run)?;
                shares.entry(fetcher.name()).or_default().push(site.share(seconds));
                bar.inc(1);
            }
        }
        let mut medians: BTreeMap<&'static str, f64> = shares
            .into_iter()
            .filter_map(|(name, shares)| Some((name, Spread::of(shares)?.median)))
            .collect();
        let ours = medians.remove(Fetcher::Ours.name()).unwrap_or_default();
        let best = medians.values().copied().fold(0.0, f64::max);
        let bound = if name.starts_with("wlan") { BOUND } else { best };
        let name = format!("{name} {kind}");
        let (figure, lines, held) = ("share", lines.to_vec(), ours >= bound);
        rows.push(Row { name, figure, lines, ours, peers: medians, bound, held });
    }
    if known.contains(&Fetcher::Curl) {
        for ((name, link, fetched), kind) in one_path {
            let name = format!("{name} {kind}");
            bar.set_message(name.clone());
            rows.extend(beside_curl(name, *link, *fetched, kind == "https", (runs, &bar))?);
        }
    }
    bar.finish_and_clear();
    let (bytes, repeats, congestion) = (arguments.file_size, arguments.repeats, arguments.congestion.clone());
    let results = Results { bytes, repeats, congestion, rows };
    if arguments.json { print_json(&results) } else { print_table(&results) }
}

/// Time, and time of the processor, beside curl's.
fn beside_curl(
    name: String,
    link: Link,
    fetched: Fetched,
    is_https: bool,
    (runs, bar): (u32, &ProgressBar),
) -> Result<[Row; 2], Failure> {
    let site = OnePath::new(link, fetched).map_err(Failure::run)?;
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (costs, is_curl) in costs.iter_mut().zip([false, true]) {
            costs.push(site.fetch(is_curl, is_https).map_err(Failure::run)?);
            bar.inc(1);
        }
    }
    let lines = match link {
        Link::Gigabit => Vec::new(),
        Link::Emulated(line) => vec![line],
    };
    type Of = fn(&Cost) -> f64;
    let figures: [(_, Of, _); 2] = [
        ("seconds", |cost| cost.seconds, MOST_OF_TIME),
        ("cpu_seconds", |cost| cost.cpu_seconds, MOST_OF_CPU),
    ];
    Ok(figures.map(|(figure, of, most)| {
        let median = |costs: &[Cost]| Spread::of(costs.iter().map(of)).map_or(0.0, |spread| spread.median);
        let (ours, curl) = (median(&costs[0]), median(&costs[1]));
        let (bound, peers) = (curl * most, BTreeMap::from([("curl", curl)]));
        Row { name: name.clone(), figure, lines: lines.clone(), ours, peers, bound, held: ours <= bound }
    }))
}

/// Slower by less than that part is not slower.
const TOLERANCE: f64 = 0.03;
/// Share of the pairs that are not to be slower.
const BOUND_OF_PAIRS: f64 = 0.99;

fn run_simulated(count: u32, arguments: &Arguments) -> Result<(), Failure> {
    let pairs = run_pairs(count as usize, &PairRanges::default(), arguments.seed);
    if pairs.iter().any(|pair| !pair.is_right) {
        return Err(Failure::Run("a download brought wrong bytes".into()));
    }
    let not_slower = pairs.iter().filter(|pair| pair.gain() >= -TOLERANCE).count();
    let ours = not_slower as f64 / f64::from(count);
    let row = Row {
        name: format!("{count} random pairs"),
        figure: "share",
        lines: Vec::new(),
        ours,
        peers: BTreeMap::new(),
        bound: BOUND_OF_PAIRS,
        held: ours >= BOUND_OF_PAIRS,
    };
    let mut gains: Vec<f64> = pairs.iter().map(Pair::gain).collect();
    gains.sort_by(f64::total_cmp);
    let results = SimulatedResults { seed: arguments.seed, pairs, rows: [row] };
    if arguments.json {
        return print_json(&results);
    }
    print_line(&format!(
        "{count} random pairs of paths, files of 1 to 200 MB, seed {}: both were not slower than the better one in {:.1} %; {}",
        arguments.seed,
        ours * 100.0,
        if ours >= BOUND_OF_PAIRS { "held" } else { "not held" }
    ))?;
    print_line(&format!(
        "time saved: worst {:.1} %, median {:.1} %, best {:.1} %",
        gains[0] * 100.0,
        gains[gains.len() / 2] * 100.0,
        gains[gains.len() - 1] * 100.0
    ))
}

fn print_table(results: &Results) -> Result<(), Failure> {
    print_line(&format!(
        "{} bytes sent with {}, share of the sum of the links' rates, median of {}, queues of {QUEUE_MS} ms",
        results.bytes, results.congestion, results.repeats
    ))?;
    for row in &results.rows {
        let figure = |value: f64| match row.figure {
            "share" => format!("{:.1} %", value * 100.0),
            "cpu_seconds" => format!("{value:.2} s of the processor"),
            _ => format!("{value:.2} s"),
        };
        let peers: Vec<String> =
            row.peers.iter().map(|(name, value)| format!("{name} {}", figure(*value))).collect();
        print_line(&format!(
            "{:<22} polypath {}, {}; {}",
            row.name,
            figure(row.ours),
            peers.join(", "),
            if row.held { "held" } else { "not held" }
        ))?;
    }
    Ok(())
}
