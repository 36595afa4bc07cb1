//! `polypath lab compare`.

use std::path::PathBuf;

use clap::Args;
use polypath_config::Policies;
use polypath_lab::analysis::{Analysis, compare};
use polypath_lab::report::number;
use polypath_lab::result::Results;

use super::folder::find;
use crate::command::{Failure, print_json, print_line};

#[derive(Args, Debug)]
pub(in crate::command) struct Arguments {
    /// Results to compare with: a folder, or how its name begins
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// Results of the same experiment
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// How much worse a median may be: a difference for ratios such as the aggregation benefit, else a share
    #[arg(long, value_name = "X", default_value_t = 0.05)]
    threshold: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    if arguments.threshold.is_nan() || arguments.threshold < 0.0 {
        return Err(Failure::Input(format!(
            "--threshold: {} is no amount; expected a number such as 0.05",
            arguments.threshold
        )));
    }
    let old = Results::load(&find(&arguments.old)?, policies).map_err(Failure::input)?;
    let new = Results::load(&find(&arguments.new)?, policies).map_err(Failure::input)?;
    let analysis = [&old, &new].map(|results| Analysis::new(&results.experiment, &results.runs));
    let comparison = compare(&analysis[0], &analysis[1], arguments.threshold).map_err(|error| {
        Failure::Input(format!("{} and {}: {error}", arguments.old.display(), arguments.new.display()))
    })?;
    if arguments.json {
        print_json(&comparison)?;
    } else {
        for difference in &comparison.differences {
            let point =
                if difference.point.is_empty() { String::new() } else { format!(", {}", difference.point) };
            print_line(&format!(
                "{} {} ({}), {}{point}: median {} -> {} over {} sets, worse by {} (worse in {:.0} % of sets)",
                if difference.regressed { "✗" } else { " " },
                difference.metric,
                difference.better,
                difference.variant,
                number(difference.old_median),
                number(difference.new_median),
                difference.sets,
                number(difference.worse_by),
                difference.worse_share * 100.0,
            ))?;
        }
    }
    match comparison.differences.iter().filter(|difference| difference.regressed).count() {
        0 => Ok(()),
        count => Err(Failure::Run(format!(
            "{count} of {} medians became worse by more than {}",
            comparison.differences.len(),
            arguments.threshold
        ))),
    }
}
