//! `polypath lab compare`.

use std::path::{Path, PathBuf};

use clap::Args;
use polypath_config::Policies;
use polypath_lab::analysis::{Analysis, LeftOut, LeftOutReason, compare};
use polypath_lab::report::number;
use polypath_lab::result::Results;

use super::folder::find;
use crate::command::{Failure, complain, print_json, print_line};

#[derive(Args, Debug)]
pub(in crate::command) struct Arguments {
    /// Results to compare with: a folder, or how its name begins
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// Results of the same experiment
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// How much worse a median may be: a difference for ratios such as the aggregation benefit, else a share
    #[arg(long, value_name = "X", default_value_t = 0.05, value_parser = parse_threshold)]
    threshold: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// So many of the rows that were left out are named.
const NAMED: usize = 3;

fn parse_threshold(text: &str) -> Result<f64, String> {
    if let Some(share) = text.trim().strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok())
    {
        return Err(format!("it is a share; expected {} for {text}", share / 100.0));
    }
    match text.trim().parse::<f64>() {
        Ok(threshold) if threshold >= 0.0 => Ok(threshold),
        _ => Err("expected a number from 0 on, such as 0.05".into()),
    }
}

/// What was not compared, a line for each reason.
fn left_out(rows: &[LeftOut], [old, new]: [&Path; 2]) -> Vec<String> {
    let reasons = [
        (LeftOutReason::OnlyInOld, format!("only in {}", old.display())),
        (LeftOutReason::OnlyInNew, format!("only in {}", new.display())),
        (LeftOutReason::NoCommonSet, "without a set in common".to_string()),
    ];
    let lines = reasons.into_iter().filter_map(|(reason, words)| {
        let names: Vec<String> = rows.iter().filter(|row| row.reason == reason).map(name).collect();
        let more = match names.len() {
            0 => return None,
            count if count > NAMED => format!(" and {} more", count - NAMED),
            _ => String::new(),
        };
        let (count, rows) = (names.len(), if names.len() == 1 { "row" } else { "rows" });
        let named = names[..count.min(NAMED)].join("; ");
        Some(format!("not compared: {count} {rows} {words}: {named}{more}"))
    });
    lines.collect()
}

fn name(row: &LeftOut) -> String {
    let LeftOut { metric, variant, point, .. } = row;
    if point.is_empty() { format!("{metric}, {variant}") } else { format!("{metric}, {variant}, {point}") }
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let old = Results::load(&find(&arguments.old)?, policies).map_err(Failure::input)?;
    let new = Results::load(&find(&arguments.new)?, policies).map_err(Failure::input)?;
    let incomplete: Vec<String> = [&old, &new].into_iter().filter_map(missing).collect();
    let analysis = [&old, &new].map(|results| Analysis::new(&results.experiment, &results.runs));
    let comparison = compare(&analysis[0], &analysis[1], arguments.threshold).map_err(|error| {
        incomplete.iter().for_each(|line| complain(line));
        Failure::Input(format!("{} and {}: {error}", arguments.old.display(), arguments.new.display()))
    })?;
    if arguments.json {
        print_json(&comparison)?;
    } else {
        for difference in &comparison.differences {
            let point =
                if difference.point.is_empty() { String::new() } else { format!(", {}", difference.point) };
            print_line(&format!(
                "{} {} ({}), {}{point}: median {} -> {} over {} sets{}, worse by {} (worse in {:.0} % of sets)",
                if difference.regressed { "✗" } else { " " },
                difference.metric,
                difference.better,
                difference.variant,
                number(difference.old_median),
                number(difference.new_median),
                difference.sets,
                match difference.one_sided_sets {
                    0 => String::new(),
                    count => format!(" ({count} more in one result only)"),
                },
                number(difference.worse_by),
                difference.worse_share * 100.0,
            ))?;
        }
        for line in left_out(&comparison.left_out, [&old.dir, &new.dir]) {
            print_line(&line)?;
        }
    }
    match comparison.differences.iter().filter(|difference| difference.regressed).count() {
        // Who trusts the exit code would take missing runs for good ones.
        0 if !incomplete.is_empty() => Err(Failure::Input(incomplete.join("; "))),
        0 => Ok(()),
        count => {
            incomplete.iter().for_each(|line| complain(line));
            Err(Failure::Run(format!(
                "{count} of {} medians became worse by more than {}",
                comparison.differences.len(),
                arguments.threshold
            )))
        }
    }
}

/// What is missing of results that are not complete.
fn missing(results: &Results) -> Option<String> {
    let Results { dir, manifest, runs, .. } = results;
    let missing = manifest.runs.saturating_sub(runs.len());
    (!manifest.complete).then(|| {
        format!(
            "{} is not complete: {missing} of {} runs {} missing; expected all: the same `polypath lab run` goes on",
            dir.display(),
            manifest.runs,
            if missing == 1 { "is" } else { "are" }
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_share_and_not_percent() {
        assert_eq!(parse_threshold("0.05"), Ok(0.05));
        assert_eq!(parse_threshold("5%"), Err("it is a share; expected 0.05 for 5%".into()));
        for wrong in ["-1", "nan", "x", ""] {
            assert_eq!(parse_threshold(wrong), Err("expected a number from 0 on, such as 0.05".into()));
        }
    }

    #[test]
    fn rows_that_are_left_out_are_counted_and_the_first_are_named() {
        let row = |number: usize, reason| LeftOut {
            variant: format!("v{number}"),
            point: if number == 1 { "4 MB".into() } else { String::new() },
            metric: "goodput",
            reason,
        };
        let mut rows: Vec<LeftOut> = (0..5).map(|number| row(number, LeftOutReason::OnlyInOld)).collect();
        rows.push(row(9, LeftOutReason::OnlyInNew));
        assert_eq!(
            left_out(&rows, [Path::new("old"), Path::new("new")]),
            [
                "not compared: 5 rows only in old: goodput, v0; goodput, v1, 4 MB; goodput, v2 and 2 more",
                "not compared: 1 row only in new: goodput, v9"
            ]
        );
    }
}
