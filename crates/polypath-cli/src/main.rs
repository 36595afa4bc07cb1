//! The `polypath` command.

// Where they can't write they panic; `console` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}
