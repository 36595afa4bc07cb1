//! Starts a keeper from within a program, which must not notice: neither a child nor a signal of it, nor a descriptor.
#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString, c_int};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use polypath_system::Detached;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

/// The descriptor at which a keeper says that it can be asked, or why not.
const TOLD_AT: c_int = 3;

/// What it says then; anything else is why not.
const READY: &str = "ready";

/// The variable that the keeper must not have: it is no program that is to be carried.
const LEFT_OUT: &str = "LD_PRELOAD";

/// Runs `program` with `arguments` as a keeper, a process that is nobody's child, and waits until it can be asked. It has the
/// variables of this process, but for `changed`. What it says goes to this process's standard error, or nowhere.
pub fn launch(
    program: &Path,
    arguments: &[&str],
    changed: &[(&str, &str)],
    is_heard: bool,
) -> io::Result<()> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let is_kept = |name: &OsStr| name != LEFT_OUT && changed.iter().all(|(other, _)| name != *other);
    let kept = std::env::vars_os().filter(|(name, _)| is_kept(name));
    let changed = changed.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let variables: Vec<(OsString, OsString)> = kept.chain(changed).collect();
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // A program may have closed it.
    let heard = is_heard.then(|| io::stderr().as_fd().try_clone_to_owned().ok()).flatten();
    let standard_error = heard.as_ref().unwrap_or(&nothing);
    Detached {
        program,
        arguments: &arguments,
        variables: &variables,
        descriptors: &[nothing.as_fd(), nothing.as_fd(), standard_error.as_fd(), writer.as_fd()],
        has_network_rights: false,
    }
    .start()?;
    drop(writer);
    let mut told = String::new();
    // A line, not an end: another thread of the program may have forked in between.
    BufReader::new(std::fs::File::from(reader)).read_line(&mut told)?;
    match told.trim_end() {
        READY => Ok(()),
        "" => Err(io::Error::other(format!("{} ended at once", program.display()))),
        reason => Err(io::Error::other(reason.to_string())),
    }
}

/// What a keeper says to the program that started it: that it can be asked, or why not.
pub fn tell_ready(result: Result<(), &str>) {
    use std::os::fd::FromRawFd;
    // SAFETY: a keeper is started with this descriptor, for this purpose, and nothing else in the process knows it.
    let told = unsafe { OwnedFd::from_raw_fd(TOLD_AT) };
    // Nobody waits any more: no harm.
    let line = format!("{}\n", result.err().unwrap_or(READY));
    let _ = rustix::io::write(&told, line.as_bytes());
}
