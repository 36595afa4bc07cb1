//! `polypath bench disturbed`.

use std::time::Duration;

use clap::Args;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::Serialize;

use crate::bench::disturbed::{Disturbance, Outcome, Place};
use crate::command::{Failure, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// Bytes of the file
    #[arg(long, value_name = "SIZE", default_value = "10MB", value_parser = super::parse_size)]
    file_size: u64,
    /// Downloads for each disturbance, each at another moment
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// The same for kill -9
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// Of the moments, and of which interface it is
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only disturbances whose name contains this, such as "lie"
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
Two interfaces of 20 Mbit/s, nginx, and a server that lies. Something happens to each `polypath get --ranges`, at a random moment. Then the \
file has to be there and right, with status 0 and nothing beside it; or there is no file, one line says why, and the same command with \
`-C` brings the file. Where a path is lost, or both for 20 s, or the server restarts, only the first will do.\n\n\
JSON: bytes, seed; rows: name, runs, whole, resumed, kept (the share of the file that the second attempt need not fetch, on average), \
said (the different lines), wrong (what should not have been), held.";

#[derive(Debug, Serialize)]
struct Results {
    bytes: u64,
    seed: u64,
    rows: Vec<Row>,
}

#[derive(Debug, Default, Serialize)]
struct Row {
    name: String,
    runs: u32,
    whole: u32,
    resumed: u32,
    kept: f64,
    said: Vec<String>,
    wrong: Vec<String>,
    held: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let wanted: Vec<Disturbance> =
        Disturbance::all().filter(|each| each.to_string().contains(&arguments.only)).collect();
    if wanted.is_empty() {
        return Err(Failure::Input(format!("--only: no disturbance has \"{}\" in its name", arguments.only)));
    }
    let runs = |each: Disturbance| match each {
        Disturbance::Killed => arguments.kills,
        _ => arguments.repeats,
    };
    let bar = super::progress(wanted.iter().map(|each| u64::from(runs(*each))).sum());
    let mut place = Place::new(arguments.file_size).map_err(Failure::run)?;
    let takes = place.undisturbed().map_err(Failure::run)?;
    let mut random = ChaCha8Rng::seed_from_u64(arguments.seed);
    let mut rows = Vec::new();
    for disturbance in wanted {
        let mut row = Row { name: disturbance.to_string(), runs: runs(disturbance), ..Row::default() };
        let mut kept_bytes = 0;
        for _ in 0..row.runs {
            bar.set_message(row.name.clone());
            let path = (random.next_u32() % 2) as u8;
            let after = moment(&mut random, takes);
            match place.disturb(disturbance, path, after).map_err(Failure::run)? {
                Outcome::Whole => row.whole += 1,
                Outcome::Resumed { said, kept_bytes: kept } => {
                    row.resumed += 1;
                    kept_bytes += kept;
                    note(&mut row.said, said);
                }
                Outcome::Wrong(wrong) => note(&mut row.wrong, wrong),
            }
            bar.inc(1);
        }
        row.kept = kept_bytes as f64 / f64::from(row.resumed.max(1)) / arguments.file_size as f64;
        row.held = row.whole + row.resumed == row.runs;
        rows.push(row);
    }
    bar.finish_and_clear();
    let results = Results { bytes: arguments.file_size, seed: arguments.seed, rows };
    if arguments.json { print_json(&results) } else { print_table(&results) }
}

/// Any time from the beginning to the end.
fn moment(random: &mut ChaCha8Rng, takes: Duration) -> Duration {
    takes.mul_f64(f64::from(random.next_u32()) / f64::from(u32::MAX))
}

/// Each is kept once.
fn note(lines: &mut Vec<String>, line: String) {
    if !line.is_empty() && !lines.contains(&line) {
        lines.push(line);
    }
}

fn print_table(results: &Results) -> Result<(), Failure> {
    for row in &results.rows {
        print_line(&format!(
            "{:<45} {:>3} runs: {:>3} whole, {:>3} after a second attempt ({:.0} % was there); {}",
            row.name,
            row.runs,
            row.whole,
            row.resumed,
            row.kept * 100.0,
            if row.held { "held" } else { "not held" }
        ))?;
        for line in &row.wrong {
            print_line(&format!("  wrong: {line}"))?;
        }
    }
    Ok(())
}
