//! The program `nft`, which changes the firewall and tells what is there.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities};
use serde_json::Value;

/// Its name.
const PROGRAM: &str = "nft";

/// Where it is when a user's PATH leaves out the programs of administrators.
const ADMINISTRATORS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The program by its name if PATH leads to it, else by where it is.
fn program() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_in = |directory: &Path| directory.join(PROGRAM).is_file();
        if std::env::split_paths(&path).any(|directory| is_in(&directory)) {
            return PROGRAM.into();
        }
        let beside = ADMINISTRATORS.iter().find(|directory| is_in(Path::new(directory)));
        beside.map_or(PROGRAM.into(), |directory| format!("{directory}/{PROGRAM}"))
    })
}

/// Name of an instance's table.
pub(super) fn table_name(slot: u8) -> String {
    format!("polypath{slot}")
}

/// Whether there is nft, and it may be used.
pub(crate) fn probe() -> io::Result<()> {
    list(&["list", "tables"], "table").map(drop)
}

/// Has nft do something.
pub(super) fn run(ruleset: &Value) -> io::Result<()> {
    nft(&["-j", "-f", "-"], &ruleset.to_string()).map(drop)
}

/// Asks nft for objects of a kind.
pub(super) fn list(arguments: &[&str], kind: &str) -> io::Result<Vec<Value>> {
    let arguments = [&["-j"], arguments].concat();
    let answer: Value = serde_json::from_slice(&nft(&arguments, "")?)?;
    let objects = answer["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(objects.iter().filter_map(|object| object.get(kind).cloned()).collect())
}

/// What nft prints for an input. It is in a process group of its own, so that ^C leaves it to do its work: this process, not
/// nft, decides what an interruption ends. If this one is killed, so is nft: it must not change what was just put back.
fn nft(arguments: &[&str], input: &str) -> io::Result<Vec<u8>> {
    let mut command = Command::new(program());
    command.args(arguments).process_group(0);
    // SAFETY: between fork and exec there are system calls only, and no memory is taken.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| {
            pass_on_capability();
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        });
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_started)?;
    // What it does not read it has refused, and says so.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    if output.status.success() {
        return written.map(|()| output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = match (said.lines().next(), output.status.code()) {
        (None, None) => format!("it was killed ({})", output.status),
        (first, _) => first.unwrap_or_default().to_string(),
    };
    Err(io::Error::other(format!("nft refused what it was asked for: {reason}")))
}

/// Where this program has its capability from its file (`setcap`), what it starts has none, unless it is ambient. A kernel that
/// refuses that, or a process without the capability, changes nothing: then nft says what it lacks.
fn pass_on_capability() {
    let Ok(mut sets) = capabilities(None) else { return };
    sets.inheritable |= sets.permitted & CapabilitySet::NET_ADMIN;
    if set_capabilities(None, sets).is_ok() {
        let _ = configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true);
    }
}

fn not_started(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            io::ErrorKind::NotFound,
            "the program nft is missing, which translates addresses; install it with `apt install nftables` or the like",
        ),
        _ => polypath_system::in_context("nft", error),
    }
}
