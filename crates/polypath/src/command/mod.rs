//! Subcommands, and what they have in common: one line for each mistake, and exit codes.

mod bench;
mod demo;
mod sim;
mod soak;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;

/// Multipath TCP in user space: one connection, many paths.
#[derive(Debug, Parser)]
#[command(name = "polypath", version, propagate_version = true, max_term_width = 100)]
struct Polypath {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send a file over two emulated access links, cut one midway, and show what happens
    ///
    /// Needs no privileges and no network: both hosts run in this process, over links that are emulated in real time.
    Demo(demo::Arguments),
    /// Run a scenario that is described in a TOML file
    Sim(sim::Arguments),
    /// Measure the stack and the simulator
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run random scenarios, or replay one by its seed
    Soak(soak::Arguments),
}

/// Why a command did not succeed.
#[derive(Debug)]
enum Failure {
    /// What the user asked for makes no sense: exit code 2.
    Input(String),
    /// It was tried and went wrong: exit code 1.
    Run(String),
}

impl Failure {
    fn input(message: impl fmt::Display) -> Self {
        Self::Input(message.to_string())
    }

    fn run(message: impl fmt::Display) -> Self {
        Self::Run(message.to_string())
    }
}

/// Parses the arguments and runs the command.
pub(crate) fn run() -> ExitCode {
    let arguments = Polypath::parse();
    let result = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Bench(bench) => bench::run(&bench),
        Command::Soak(arguments) => soak::run(&arguments),
    };
    let (message, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Input(message)) => (message, 2),
        Err(Failure::Run(message)) => (message, 1),
    };
    eprintln!("polypath: {message}");
    ExitCode::from(code)
}

/// Prints a result as JSON.
fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::run)?;
    print_line(&text)
}

/// Prints a line; a reader that went away (`| head`) is no failure.
fn print_line(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::run(error)),
        _ => Ok(()),
    }
}

fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(path, content).map_err(|error| cannot_write(path, &error))
}

fn create_file(path: &Path) -> Result<Box<dyn Write>, Failure> {
    let file = std::fs::File::create(path).map_err(|error| cannot_write(path, &error))?;
    Ok(Box::new(io::BufWriter::new(file)))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Input(format!("{}: can't be written ({error}); expected a writable file", path.display()))
}
