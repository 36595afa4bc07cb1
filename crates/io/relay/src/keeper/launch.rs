//! Starts a keeper from within a program, which must not notice: neither a child nor a signal of it, nor a descriptor.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, OsString, c_char, c_int};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
    let words = std::iter::once(program.as_os_str()).chain(arguments.iter().map(OsStr::new));
    let words = words.map(text).collect::<io::Result<Vec<_>>>()?;
    let is_kept = |name: &OsStr| name != LEFT_OUT && changed.iter().all(|(other, _)| name != *other);
    let kept = std::env::vars_os().filter(|(name, _)| is_kept(name));
    let changed = changed.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let variables = kept.chain(changed).map(|(mut variable, value)| {
        variable.push("=");
        variable.push(value);
        text(&variable)
    });
    let variables = variables.collect::<io::Result<Vec<_>>>()?;
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // Out of the way of those that the keeper gets.
    let writer = above(writer.as_fd())?;
    let nothing =
        above(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?.as_fd())?;
    let words: Vec<*const c_char> =
        words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
    let variables: Vec<*const c_char> =
        variables.iter().map(|variable| variable.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: both lists end with a null, and they and what they point to live through the call.
    unsafe { start(&words, &variables, nothing.as_raw_fd(), writer.as_raw_fd(), is_heard)? };
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

fn text(text: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(text.as_ref().as_bytes())?)
}

/// A copy with a number beyond those that the keeper gets.
fn above(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, TOLD_AT + 1)?)
}

/// Starts the keeper as a grandchild. Its parent, which ends at once, is a child that sends no signal and that the program
/// can't wait for by chance (`__WCLONE` in wait(2)).
///
/// # Safety
/// The lists are those that `execve` asks for.
unsafe fn start(
    words: &[*const c_char],
    variables: &[*const c_char],
    nothing: c_int,
    told: c_int,
    is_heard: bool,
) -> io::Result<()> {
    // SAFETY: without flags and stack this is fork: the child has memory of its own. Other threads are not in it, so that it
    // makes nothing but system calls.
    match unsafe { clone() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: this is that child, and the caller vouches for the lists.
        0 => unsafe { become_keeper(words, variables, nothing, told, is_heard) },
        child => {
            let mut status = 0;
            // SAFETY: the number is our own child's, and the status lives through the call.
            while unsafe { libc::waitpid(child, &raw mut status, libc::__WCLONE) } < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            Ok(())
        }
    }
}

/// # Safety
/// What follows in the child is system calls only.
unsafe fn clone() -> c_int {
    // SAFETY: the system call takes no memory; the caller vouches for what follows.
    unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) as c_int }
}

/// # Safety
/// As for [`start`], in a child of its own.
unsafe fn become_keeper(
    words: &[*const c_char],
    variables: &[*const c_char],
    nothing: c_int,
    told: c_int,
    is_heard: bool,
) -> ! {
    // SAFETY: system calls, on descriptors that are open here and on lists that the caller vouches for. No handler of the
    // program's may run here, so that signals stay blocked until there is another program.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
        libc::setsid();
        if clone() != 0 {
            libc::_exit(0);
        }
        for standard in 0..TOLD_AT {
            // A closed one must not become another descriptor.
            if standard != libc::STDERR_FILENO || !is_heard || libc::fcntl(standard, libc::F_GETFD) < 0 {
                libc::dup2(nothing, standard);
            }
        }
        libc::dup2(told, TOLD_AT);
        libc::syscall(libc::SYS_close_range, TOLD_AT + 1, c_int::MAX, 0);
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::sigemptyset(&raw mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
        libc::execve(words[0], words.as_ptr(), variables.as_ptr());
        libc::_exit(127);
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
