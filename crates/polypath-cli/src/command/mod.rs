//! Subcommands, and what they have in common: one line for each mistake, and exit codes.

#[cfg(feature = "full")]
mod all;
#[cfg(feature = "full")]
mod bench;
mod build;
#[cfg(feature = "full")]
mod choice;
#[cfg(feature = "full")]
mod completions;
#[cfg(feature = "full")]
mod configuration;
#[cfg(feature = "full")]
mod control_socket;
#[cfg(feature = "full")]
mod copy_begun;
#[cfg(feature = "full")]
mod cp;
#[cfg(feature = "full")]
mod curl_habits;
#[cfg(feature = "full")]
mod datagrams;
mod demo;
#[cfg(feature = "full")]
mod doctor;
#[cfg(feature = "full")]
mod emulate;
#[cfg(feature = "full")]
mod enable;
#[cfg(feature = "full")]
mod engine;
#[cfg(feature = "full")]
mod engine_names;
#[cfg(feature = "full")]
mod get;
mod help;
#[cfg(feature = "full")]
mod history;
#[cfg(feature = "full")]
mod http_arguments;
#[cfg(feature = "full")]
mod http_cookies;
#[cfg(feature = "full")]
mod incomplete;
#[cfg(feature = "full")]
mod interfaces;
#[cfg(feature = "full")]
mod jobs;
#[cfg(feature = "full")]
mod kernel_paths;
#[cfg(feature = "full")]
mod lab;
mod lacks;
#[cfg(feature = "full")]
mod left_out;
#[cfg(feature = "full")]
mod live;
#[cfg(feature = "full")]
mod log;
#[cfg(feature = "full")]
mod man;
#[cfg(feature = "full")]
mod metrics;
#[cfg(feature = "full")]
mod monitor;
#[cfg(feature = "full")]
mod network;
#[cfg(feature = "full")]
mod offered;
#[cfg(feature = "full")]
mod path;
#[cfg(feature = "full")]
mod perf;
#[cfg(feature = "full")]
mod ports;
#[cfg(feature = "full")]
mod preload;
#[cfg(feature = "full")]
mod proxy;
#[cfg(feature = "full")]
mod range_job;
#[cfg(feature = "full")]
mod range_metalink;
#[cfg(feature = "full")]
mod range_mirrors;
#[cfg(feature = "full")]
mod range_ways;
#[cfg(feature = "full")]
mod ranges;
#[cfg(feature = "full")]
mod ranges_many;
#[cfg(feature = "full")]
mod ranges_shown;
#[cfg(feature = "full")]
mod rates;
#[cfg(feature = "full")]
mod readiness;
#[cfg(feature = "full")]
mod reorder;
#[cfg(feature = "full")]
mod request_log;
#[cfg(feature = "full")]
mod run;
#[cfg(feature = "full")]
mod schema;
#[cfg(feature = "full")]
mod serve;
#[cfg(feature = "full")]
mod serve_tls;
#[cfg(feature = "full")]
mod service_end;
#[cfg(feature = "full")]
mod shares;
mod sim;
mod soak;
#[cfg(feature = "full")]
mod ss;
mod standard_input;
#[cfg(feature = "full")]
mod stream;
#[cfg(feature = "full")]
mod top;
#[cfg(feature = "full")]
mod transfer;
#[cfg(feature = "full")]
mod transfer_outcome;
#[cfg(feature = "full")]
mod transfer_page;
#[cfg(feature = "full")]
mod transfer_report;
#[cfg(feature = "full")]
mod tunnel;
#[cfg(feature = "full")]
mod uplink_names;
#[cfg(feature = "full")]
mod url_list;
#[cfg(feature = "full")]
mod watch;
#[cfg(feature = "full")]
mod words;

#[cfg(all(feature = "full", feature = "fuzzing"))]
pub use tunnel::fuzzing::file as fuzz_tunnel_file;

use std::fmt;
use std::io::{self, Write};
#[cfg(feature = "full")]
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

#[cfg(feature = "full")]
use clap::ArgAction;
use clap::error::ErrorKind;
use clap::{FromArgMatches, Parser, Subcommand};
use polypath_config::{Policies, PolicyKind};
use polypath_system::console;
use polypath_units::named::Named;
use serde::Serialize;

/// Multipath TCP in user space: one connection, many paths.
#[derive(Debug, Parser)]
#[command(name = "polypath", version, propagate_version = true, max_term_width = 100)]
struct Polypath {
    // Without the rest, nothing is in the program that logs.
    #[cfg(feature = "full")]
    /// Say more on standard error: what happens; -vv for details, -vvv for all of them. RUST_LOG says it for each target
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 900)]
    verbose: u8,
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
    /// Run random scenarios, or replay one by its seed
    Soak(soak::Arguments),
    #[cfg(feature = "full")]
    #[command(flatten)]
    All(Box<all::Command>),
}

/// Why a command did not succeed.
#[derive(Debug)]
enum Failure {
    /// What the user asked for makes no sense: exit code 2.
    Input(String),
    /// It was tried and went wrong: exit code 1.
    Run(String),
    /// A program that was run has ended with this code, which becomes ours; nothing is said about it.
    #[cfg_attr(not(feature = "full"), expect(dead_code, reason = "only such commands run programs"))]
    Exit(u8),
}

impl Failure {
    fn input(message: impl fmt::Display) -> Self {
        Self::Input(message.to_string())
    }

    fn run(message: impl fmt::Display) -> Self {
        Self::Run(message.to_string())
    }

    /// What is said of it.
    #[cfg(feature = "full")]
    fn message(self) -> String {
        match self {
            Self::Input(message) | Self::Run(message) => message,
            Self::Exit(code) => format!("it ended with {code}"),
        }
    }
}

/// Parses the program's arguments and runs the command. Files and options may name these policies.
///
/// The program is `main` and no more than that: some subcommands start it again, as a process of its own.
#[must_use]
pub fn run(policies: &Policies) -> ExitCode {
    let matches = help::command(policies).try_get_matches();
    let arguments = match matches.and_then(|matches| Polypath::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let (message, code) = match carry_out(arguments, policies) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Input(message)) => (message, 2),
        Err(Failure::Run(message)) => (message, 1),
        Err(Failure::Exit(code)) => return ExitCode::from(code),
    };
    complain(&message);
    ExitCode::from(code)
}

fn carry_out(arguments: Polypath, policies: &Policies) -> Result<(), Failure> {
    #[cfg(feature = "full")]
    log::start(arguments.verbose);
    match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments, policies),
        Command::Sim(arguments) => sim::run(&arguments, policies),
        Command::Soak(arguments) => soak::run(&arguments, policies),
        #[cfg(feature = "full")]
        Command::All(command) => command.run(policies),
    }
}

/// The policy that an option names.
fn chosen<K: PolicyKind>(policies: &Policies, option: &str, name: &str) -> Result<Named<K>, Failure> {
    policies.find(name).map_err(|error| Failure::Input(format!("{option}: {error}")))
}

/// Says what is wrong, in one line.
fn complain(message: &str) {
    let limit = polypath_system::process::descriptor_limit();
    let runtime_directory = polypath_system::runtime_directory().ok();
    let message = lacks::explained(message, limit, runtime_directory.as_deref());
    console::tell(format_args!("polypath: {}", harmless(&message)));
}

/// Text in which a peer may have put what it likes: nothing in it moves a terminal's cursor, begins a line, turns around
/// what follows, or is there without being seen.
fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for letter in text.chars() {
        if does_harm(letter) || is_unseen(letter) {
            harmless.extend(letter.escape_default());
        } else {
            harmless.push(letter);
        }
    }
    harmless
}

fn does_harm(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Marks and fillers that take no room. A name of a file may have some of them; text that is shown says which.
fn is_unseen(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Help goes to standard output as it is; a mistake becomes one line.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help {
        // Where nobody can read it, nothing is lost.
        let _ = error.print();
        // -V is short, and takes no look at the program.
        if error.kind() == ErrorKind::DisplayVersion && std::env::args_os().any(|word| word == "--version") {
            let _ = print_line(&build::explained());
        }
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    complain(&one_line(&error.to_string()));
    ExitCode::from(2)
}

/// What clap says, without the usage below it: the mistake, what is missing and the tip.
fn one_line(message: &str) -> String {
    let lines =
        message.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    words.join(" ").trim_start_matches("error: ").replace(" tip:", "; tip:")
}

/// Prints a result as JSON.
fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::run)?;
    print_line(&harmless_json(&text))
}

/// As [`harmless`] for JSON, which escapes the first control characters alone; all of them can be nowhere but in strings.
fn harmless_json(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for letter in text.chars() {
        // The ends of its lines are no part of a string.
        if letter != '\n' && (does_harm(letter) || is_unseen(letter)) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                harmless.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            harmless.push(letter);
        }
    }
    harmless
}

/// Prints a line; a reader that went away (`| head`) is no failure.
fn print_line(text: &str) -> Result<(), Failure> {
    match console::print(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("standard output can't be written: {error}")))
        }
        _ => Ok(()),
    }
}

fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(path, content).map_err(|error| cannot_write(path, &error))
}

/// Finds out before a run, not after it, that a result has no place to go. What is in the file stays, and a file that was not
/// there still is not: a run that is broken off leaves no empty one.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let mut options = std::fs::OpenOptions::new();
    let checked = match options.append(true).create_new(true).open(path) {
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create_new(false).open(path).map(drop)
        }
        Err(error) => Err(error),
    };
    checked.map_err(|error| cannot_write(path, &error))
}

/// Opens a file, as a link leads there. What is none is left alone: a pipe keeps nobody waiting, and nothing is asked of a device.
#[cfg(feature = "full")]
fn open_regular(path: &Path, options: &mut std::fs::OpenOptions) -> io::Result<std::fs::File> {
    let no_file = || io::Error::other("no regular file");
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(no_file());
    }
    // It may have changed since.
    let file = options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

fn create_file(path: &Path) -> Result<Box<dyn Write>, Failure> {
    let file = std::fs::File::create(path).map_err(|error| cannot_write(path, &error))?;
    Ok(Box::new(io::BufWriter::new(file)))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    if is_full(error) {
        return Failure::Run(format!("{path}: can't be written: {error}"));
    }
    Failure::Input(format!("{path}: can't be written ({error}); expected a writable file"))
}

/// There is no room, which is no mistake of whoever named the place.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_can_not_be_is_a_mistake_and_a_full_one_a_failure() {
        let written = |path: &str| write_file(Path::new(path), "text");
        assert!(matches!(written("/dev/full"), Err(Failure::Run(_))));
        assert!(matches!(written("/nothing/file"), Err(Failure::Input(_))));
    }

    #[test]
    fn nothing_that_a_peer_says_moves_the_cursor() {
        for (said, shown) in [
            ("a b\u{e9}", "a b\u{e9}"),
            ("\u{1b}[2Ja\r\n\t\0", "\\u{1b}[2Ja\\r\\n\\t\\u{0}"),
            ("\u{7f}\u{9b}31m", "\\u{7f}\\u{9b}31m"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("a\u{200b}b\u{feff}\u{2060}\u{e0041}", "a\\u{200b}b\\u{feff}\\u{2060}\\u{e0041}"),
            ("\u{2028}\u{200f}\u{ad}", "\\u{2028}\\u{200f}\\u{ad}"),
        ] {
            assert_eq!(harmless(said), shown);
            let json = serde_json::to_string_pretty(&[said]).expect("JSON");
            let safe = harmless_json(&json);
            assert!(
                !safe.contains(|letter| letter != '\n' && (does_harm(letter) || is_unseen(letter))),
                "{safe}"
            );
            assert_eq!(serde_json::from_str::<[String; 1]>(&safe).expect("JSON"), [said]);
        }
    }

    #[test]
    fn finding_out_that_a_file_can_be_written_leaves_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let (fresh, present) = (folder.path().join("fresh"), folder.path().join("present"));
        std::fs::write(&present, "as it was").expect("a file");
        assert!(check_writable(&fresh).is_ok() && check_writable(&present).is_ok());
        assert!(!fresh.exists());
        assert_eq!(std::fs::read_to_string(&present).expect("a file"), "as it was");
        assert!(check_writable(&folder.path().join("none/fresh")).is_err());
    }
}
