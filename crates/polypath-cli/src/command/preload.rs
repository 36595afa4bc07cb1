//! `polypath preload`: a dynamically linked program whose TCP connections are carried by Multipath TCP.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use clap::Args;
use polypath_config::Policies;
use polypath_relay::EngineChoice;
use polypath_relay::keeper::{Keeper, KeeperAddress, tell_ready};

use super::engine::{EngineArguments, Task, guardian};
use super::{Failure, complain, log, network};

/// The subcommand that keeps the connections of preloaded programs; the library starts it.
pub(super) const KEEPER: &str = "preload-keeper";
/// What the library and its keeper are told by.
const OPTIONS_VARIABLE: &str = "POLYPATH_PRELOAD_OPTIONS";
const KEEPER_VARIABLE: &str = "POLYPATH_PRELOAD_KEEPER";
const COMMAND_VARIABLE: &str = "POLYPATH_PRELOAD_COMMAND";

/// How often `-v` was given. It is there if the keeper is to say anything: then it has the program's standard error.
const VERBOSITY_VARIABLE: &str = "POLYPATH_PRELOAD_VERBOSITY";

const LIBRARY: &str = "libpolypath_preload.so";
/// Names the library when it isn't beside the command.
const LIBRARY_VARIABLE: &str = "POLYPATH_PRELOAD_LIBRARY";
/// The program header that names the dynamic linker.
const PT_INTERP: u32 = 3;

#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    engine: EngineArguments,
    /// Take connections from other Polypath ends at the UDP port (engine udp); the program's listeners get them
    #[arg(long)]
    reachable: bool,
    /// Show nothing but failures
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Some((program, rest)) = arguments.command.split_first() else {
        return Err(Failure::input("no command to run"));
    };
    let name = Path::new(program).display();
    let Some(found) = find_program(program) else {
        complain(&format!(
            "{name}: command not found; expected an executable file, or the name of one in PATH"
        ));
        // As a shell has it, and `polypath run`.
        return Err(Failure::Exit(127));
    };
    let content =
        fs::read(&found).map_err(|error| Failure::input(format!("{name}: can't be read: {error}")))?;
    if is_static(&content) {
        return Err(Failure::input(format!(
            "{name}: statically linked, so that no library can be loaded into it; use `polypath run -- {name}`"
        )));
    }
    let mut preload = find_library()?.into_os_string();
    let task = Task { runs_program: true, is_quiet: arguments.quiet, ..Task::default() };
    let engine = arguments.engine.configured(Some(program), &Policies::default())?;
    let options = engine.decided(&task)?.words(arguments.reachable)?;
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&found);
    command.arg0(program).args(rest).env("LD_PRELOAD", preload);
    command.env(OPTIONS_VARIABLE, options);
    // One for the program and all that it starts.
    let keeper = KeeperAddress::random().map_err(Failure::run)?;
    command.env(KEEPER_VARIABLE, keeper.to_string());
    if let Some(wish) = log::wish_for_helpers() {
        command.env(VERBOSITY_VARIABLE, wish);
    }
    command.env(COMMAND_VARIABLE, env::current_exe().map_err(Failure::run)?);
    Err(Failure::run(format!("{name}: can't be run: {}", command.exec())))
}

/// Keeps the connections of the programs that ask, until none is left. Started by the library, which waits for a word.
pub(super) fn keep() -> Result<(), Failure> {
    let started = keeper_from_environment();
    let told = started.as_ref().map(drop).map_err(|error| error.to_string());
    tell_ready(told.as_ref().map(drop).map_err(String::as_str));
    // If there is one already, it is the one to ask.
    let Some(mut keeper) = started.map_err(Failure::run)? else { return Ok(()) };
    let ended = network::block_on_whatever_asked(async {
        keeper.wait().await;
        Ok(())
    });
    keeper.finish();
    ended
}

fn keeper_from_environment() -> Result<Option<Keeper>, String> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let address =
        variable(KEEPER_VARIABLE)?.parse().map_err(|error| format!("{KEEPER_VARIABLE}: {error}"))?;
    let choice = EngineChoice::parse(&variable(OPTIONS_VARIABLE)?);
    match choice.map_err(|error| format!("{OPTIONS_VARIABLE}: {error}"))? {
        EngineChoice::Relay(mut choices) => {
            choices.guardian = Some(guardian());
            Keeper::start(address, *choices).map_err(|error| error.to_string())
        }
        _ => Err(format!("{OPTIONS_VARIABLE}: expected engine=tun or engine=udp")),
    }
}

fn find_program(program: &OsStr) -> Option<PathBuf> {
    let is_executable = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if Path::new(program).components().count() > 1 {
        return Some(PathBuf::from(program)).filter(is_executable);
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(is_executable)
}

fn find_library() -> Result<PathBuf, Failure> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE) {
        let named = PathBuf::from(named);
        return if named.is_file() {
            Ok(named)
        } else {
            Err(Failure::input(format!("{LIBRARY_VARIABLE}={}: no such file", named.display())))
        };
    }
    let executable = env::current_exe().map_err(Failure::run)?;
    let folder = executable.parent().unwrap_or(Path::new("/"));
    let places = ["", "../lib", "../lib/polypath"].map(|place| folder.join(place).join(LIBRARY));
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
        Failure::run(format!(
            "{LIBRARY} is neither in {0} nor in {0}/../lib or polypath there; build it with `cargo build -p polypath-preload`, or name it in {LIBRARY_VARIABLE}",
            folder.display()
        ))
    })
}

/// Whether this is an ELF file for a 64-bit little-endian machine that asks for no dynamic linker. Of other files, such
/// as scripts, nothing is known.
pub(super) fn is_static(file: &[u8]) -> bool {
    has_interpreter(file) == Some(false)
}

fn has_interpreter(file: &[u8]) -> Option<bool> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?)));
    let start = usize::try_from(u64::from_le_bytes(file.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (half(54)?, half(56)?);
    for index in 0..count {
        let at = start.checked_add(index.checked_mul(size)?)?;
        let kind = file.get(at..at.checked_add(4)?)?;
        if kind == PT_INTERP.to_le_bytes() {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header with one program header of this kind.
    fn elf(kind: u32) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (file[32], file[54], file[56]) = (64, 56, 1);
        file[64..68].copy_from_slice(&kind.to_le_bytes());
        file
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn options(line: &str) -> Result<String, Failure> {
        let words = std::iter::once("preload").chain(line.split(' '));
        let line = <Line as clap::Parser>::try_parse_from(words).expect("it can be read");
        line.arguments.engine.words(line.arguments.reachable)
    }

    #[test]
    fn the_library_understands_what_it_is_told() {
        for (line, expected) in [
            ("--engine kernel -- true", "engine=kernel"),
            ("--engine tcp true", "engine=tcp"),
            ("--engine tun -I a,b --backup b -- true -x", "engine=tun,interface=a,interface=b,backup=b"),
            ("--engine udp --udp-port 7 --reachable true", "engine=udp,udp_port=7,reachable"),
            ("--engine tun --keepalive 5 true", "engine=tun,keepalive=5"),
            ("--engine udp --congestion-control lia true", "engine=udp,congestion=lia,udp_port=6824"),
            ("--engine udp --announce 192.0.2.1:6824 true", "engine=udp,announce=192.0.2.1,udp_port=6824"),
            ("--engine tun --announce 192.0.2.1:80 true", "engine=tun,announce=192.0.2.1:80"),
        ] {
            let options = options(line).expect("it makes sense");
            assert_eq!(options, expected);
            assert!(EngineChoice::parse(&options).is_ok(), "{options}");
        }
        assert!(options("--engine kernel --reachable true").is_err());
        assert!(options("--engine kernel -I eth0 true").is_err());
        assert!(options("--engine udp --announce 192.0.2.1:80 true").is_err());
        assert!(options("--engine udp --udp-port 80 --announce 192.0.2.1:80 true").is_ok());
    }

    #[test]
    fn static_programs_are_told_from_others() {
        assert!(is_static(&elf(1)));
        assert!(!is_static(&elf(PT_INTERP)));
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(&elf(1)[..70][..66]), "cut off: nothing is known");
        let own = fs::read("/proc/self/exe").expect("this program");
        assert!(!is_static(&own));
    }
}
