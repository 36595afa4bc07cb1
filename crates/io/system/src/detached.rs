//! Starts a program from within another one, which must not notice: neither a child nor a signal of it, nor a descriptor.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, OsString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities};

/// A program that is to run as nobody's child.
#[derive(Clone, Copy, Debug)]
pub struct Detached<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments, from the first on.
    pub arguments: &'a [OsString],
    /// All its variables.
    pub variables: &'a [(OsString, OsString)],
    /// All its descriptors, from 0 on.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// It may change the network if this process may, whoever its user is.
    pub has_network_rights: bool,
}

/// What the system calls of the new process need: it takes no memory.
struct Prepared<'a> {
    words: &'a [*const c_char],
    variables: &'a [*const c_char],
    descriptors: &'a [c_int],
    has_network_rights: bool,
}

impl Detached<'_> {
    /// Runs it. Whether it could be run shows in what it writes to its descriptors.
    pub fn start(&self) -> io::Result<()> {
        let words =
            std::iter::once(self.program.as_os_str()).chain(self.arguments.iter().map(|word| &**word));
        let words = words.map(text).collect::<io::Result<Vec<_>>>()?;
        let variables = self.variables.iter().map(|(name, value)| {
            let mut variable = name.clone();
            variable.push("=");
            variable.push(value);
            text(&variable)
        });
        let variables = variables.collect::<io::Result<Vec<_>>>()?;
        // Out of the way of the numbers that they get.
        let count = self.descriptors.len() as c_int;
        let above = self.descriptors.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, count));
        let above = above.collect::<Result<Vec<OwnedFd>, _>>()?;
        let descriptors: Vec<c_int> = above.iter().map(AsRawFd::as_raw_fd).collect();
        let (words, variables) = (pointers(&words), pointers(&variables));
        let prepared = Prepared {
            words: &words,
            variables: &variables,
            descriptors: &descriptors,
            has_network_rights: self.has_network_rights,
        };
        // SAFETY: both lists end with a null, and they and what they point to live through the call.
        unsafe { start(&prepared) }
    }
}

fn text(text: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(text.as_ref().as_bytes())?)
}

/// As `execve` asks for.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Starts the program as a grandchild. Its parent, which ends at once, is a child that sends no signal and that this process
/// can't wait for by chance (`__WCLONE` in wait(2)).
///
/// # Safety
/// The lists are those that `execve` asks for.
unsafe fn start(prepared: &Prepared<'_>) -> io::Result<()> {
    // SAFETY: without flags and stack this is fork: the child has memory of its own. Other threads are not in it, so that it
    // makes nothing but system calls.
    match unsafe { clone() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: this is that child, and the caller vouches for the lists.
        0 => unsafe { become_program(prepared) },
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
unsafe fn become_program(prepared: &Prepared<'_>) -> ! {
    // SAFETY: system calls, on descriptors that are open here and on lists that the caller vouches for. No handler of this
    // program's may run here, so that signals stay blocked until there is another program.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
        libc::setsid();
        if clone() != 0 {
            libc::_exit(0);
        }
        for (number, fd) in prepared.descriptors.iter().enumerate() {
            libc::dup2(*fd, number as c_int);
        }
        libc::syscall(libc::SYS_close_range, prepared.descriptors.len(), c_int::MAX, 0);
        if prepared.has_network_rights {
            pass_on_network_rights();
        }
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::sigemptyset(&raw mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
        libc::execve(prepared.words[0], prepared.words.as_ptr(), prepared.variables.as_ptr());
        libc::_exit(127);
    }
}

/// What a process starts that has the capability from its file (`setcap`) has none, unless it is ambient. Nothing but system
/// calls. Where that is refused, the other program lacks it.
fn pass_on_network_rights() {
    let Ok(mut sets) = capabilities(None) else { return };
    sets.inheritable |= sets.permitted & CapabilitySet::NET_ADMIN;
    if set_capabilities(None, sets).is_ok() {
        let _ = configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true);
    }
}
