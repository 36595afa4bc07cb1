//! The `polypath` command, with our policies alone.

use std::process::ExitCode;

use polypath_config::Policies;

fn main() -> ExitCode {
    polypath_cli::run(&Policies::default())
}
