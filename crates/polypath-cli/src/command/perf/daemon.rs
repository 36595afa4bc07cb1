//! A server in the background: the command starts itself once more, and ends when that one listens.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use polypath_system::console;

use super::super::{Failure, open_regular};

/// Says to a process that it is the one in the background.
const MARK: &str = "POLYPATH_PERF_DAEMON";

pub(super) fn is_in_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the process in the background, and waits until it listens or says why not.
pub(super) fn start() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::run(format!("--daemon: {error}"));
    let mut child = Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    for line in child.stderr.take().into_iter().flat_map(|said| BufReader::new(said).lines()) {
        let line = line.map_err(failed)?;
        if line == READY {
            return Ok(());
        }
        // It is a line of our own already.
        console::tell(line);
    }
    let ended = child.wait().map_err(failed)?;
    Err(Failure::Exit(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

const READY: &str = "ready";

/// Leaves the terminal, now that everything is open. What it says on standard error from now on, nobody reads.
pub(super) fn detach(pid_file: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = pid_file {
        write_pid(path)?;
    }
    if is_in_background() {
        rustix::process::setsid().map_err(|error| Failure::run(format!("--daemon: {error}")))?;
        std::env::set_current_dir("/").map_err(|error| Failure::run(format!("--daemon: {error}")))?;
        console::tell(READY);
    }
    Ok(())
}

fn write_pid(path: &Path) -> Result<(), Failure> {
    // Only what is known to be a file is emptied.
    let written = open_regular(path, File::options().write(true).create(true)).and_then(|mut file| {
        file.set_len(0)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
    });
    let expected = "expected a file that can be written";
    written.map_err(|error| Failure::input(format!("--pidfile {}: {error}; {expected}", path.display())))
}
