//! A server in the background: the command starts itself once more, and ends when that one listens.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
    let mut words = std::env::args_os();
    let mut child = Command::new("/proc/self/exe")
        .arg0(words.next().unwrap_or_else(|| "polypath".into()))
        .args(words)
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

/// More is no number of a process.
const MOST_PID_BYTES: u64 = 32;

/// A file with the number of this process, which is gone with it.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another server may have it by now. Whoever reads one that can't be removed finds no process of that number.
        if fs::read_to_string(&self.0).is_ok_and(|text| text == own_pid()) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Leaves the terminal, now that everything is open. What it says on standard error from now on, nobody reads.
pub(super) fn detach(pid_file: Option<&Path>) -> Result<Option<PidFile>, Failure> {
    let pid_file = pid_file.map(write_pid).transpose()?;
    if is_in_background() {
        // It was started by a name that says nothing, which lists of processes would show.
        let _ = rustix::thread::set_name(c"polypath");
        rustix::process::setsid().map_err(|error| Failure::run(format!("--daemon: {error}")))?;
        std::env::set_current_dir("/").map_err(|error| Failure::run(format!("--daemon: {error}")))?;
        console::tell(READY);
    }
    Ok(pid_file)
}

fn own_pid() -> String {
    format!("{}\n", std::process::id())
}

/// The process that a file names, if there is one now, as iperf3 looks before it writes another there.
fn running(path: &Path) -> Option<i32> {
    let file = open_regular(path, File::options().read(true)).ok()?;
    let mut text = String::new();
    file.take(MOST_PID_BYTES).read_to_string(&mut text).ok()?;
    let number = text.trim().parse().ok()?;
    let found = rustix::process::test_kill_process(rustix::process::Pid::from_raw(number)?);
    // Another user's is one, too.
    let is_there = found.is_ok() || found == Err(rustix::io::Errno::PERM);
    (is_there && text != own_pid()).then_some(number)
}

fn write_pid(path: &Path) -> Result<PidFile, Failure> {
    if let Some(number) = running(path) {
        return Err(Failure::Run(format!(
            "--pidfile {}: process {number}, which it names, still runs; expected another file, or its end",
            path.display()
        )));
    }
    // Only what is known to be a file is emptied.
    let written = open_regular(path, File::options().write(true).create(true)).and_then(|mut file| {
        file.set_len(0)?;
        file.write_all(own_pid().as_bytes())?;
        // The directory in which it is named is left; and a link stays.
        path.canonicalize().map(PidFile)
    });
    let expected = "expected a file that can be written";
    written.map_err(|error| Failure::input(format!("--pidfile {}: {error}; {expected}", path.display())))
}
