//! `polypath lab`.

mod compare;
mod folder;
mod list;
mod only;
mod run;
mod show;

use clap::Subcommand;
use polypath_config::Policies;

use super::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum Lab {
    /// Run an experiment on all cores and write its report
    ///
    /// Finished runs are stored as they end: the same command goes on after an interruption. Results are kept by
    /// experiment, form and build, each in a folder of its own. The exit code says whether the runs were done, and not whether
    /// they are as published or expected: the report and `claims` of --json do.
    Run(run::Arguments),
    /// List the experiments of a folder, and the results of them that there are
    List(list::Arguments),
    /// Show results in the terminal, and write their report again
    Show(show::Arguments),
    /// Compare two results of one experiment, set by set; exit code 1 if a median became worse, 2 if runs are missing
    Compare(compare::Arguments),
}

pub(super) fn run(lab: &Lab, policies: &Policies) -> Result<(), Failure> {
    match lab {
        Lab::Run(arguments) => run::run(arguments, policies),
        Lab::List(arguments) => list::run(arguments, policies),
        Lab::Show(arguments) => show::run(arguments, policies),
        Lab::Compare(arguments) => compare::run(arguments, policies),
    }
}
