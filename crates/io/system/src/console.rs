//! Standard output and standard error, as commands speak through them.
//!
//! What can't be written to standard output is an error; a message that can't be written to standard error is dropped. A
//! reader that takes nothing is waited for, until a signal asks for the end.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// What a pipe takes at once, if it takes anything (POSIX: at least 512; Linux: a page).
const PIECE_BYTES: usize = 4096;
/// How often somebody who waits for a reader looks whether the end is asked for: 100 ms.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A signal has asked for the end.
static IS_END_ASKED: AtomicBool = AtomicBool::new(false);

/// From now on this signal does not end the process, but its wait for a reader.
#[allow(unsafe_code)]
pub fn wait_until(signal: i32) -> io::Result<()> {
    // SAFETY: the handler does nothing but store to an atomic, which signal-safety(7) allows.
    unsafe { signal_hook_registry::register(signal, || IS_END_ASKED.store(true, Ordering::Relaxed)) }?;
    Ok(())
}

/// Most lines that are held back; the oldest are left out beyond that.
const MOST_HELD: usize = 4096;

/// Lines that are held back, each for standard output or standard error.
static HELD_BACK: Mutex<Option<HeldBack>> = Mutex::new(None);

#[derive(Debug, Default)]
struct HeldBack {
    lines: VecDeque<(bool, String)>,
    left_out: usize,
}

/// While this is there, lines for a terminal wait: something else is drawn on it.
#[derive(Debug)]
pub struct Held(());

/// Holds lines for a terminal back. What goes elsewhere is written as ever.
#[must_use]
pub fn hold() -> Held {
    *lines() = Some(HeldBack::default());
    Held(())
}

/// Lines for a terminal are held back: something else is drawn there.
#[must_use]
pub fn is_held_back() -> bool {
    lines().is_some()
}

impl Held {
    /// The latest line that was held back.
    #[must_use]
    pub fn latest(&self) -> Option<String> {
        Some(lines().as_ref()?.lines.back()?.1.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(HeldBack { lines, left_out }) = lines().take() else { return };
        if left_out > 0 {
            tell(format_args!("({left_out} earlier lines are left out)"));
        }
        for (is_output, line) in lines {
            if is_output {
                let _ = print(line);
            } else {
                tell(line);
            }
        }
    }
}

fn lines() -> MutexGuard<'static, Option<HeldBack>> {
    HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a line for later, if lines are held back and it is for a terminal.
fn is_held(is_output: bool, line: &impl Display) -> bool {
    let mut held = lines();
    let Some(held) = &mut *held else { return false };
    let is_terminal = if is_output { io::stdout().is_terminal() } else { io::stderr().is_terminal() };
    if is_terminal {
        if held.lines.len() == MOST_HELD {
            held.lines.pop_front();
            held.left_out += 1;
        }
        held.lines.push_back((is_output, line.to_string()));
    }
    is_terminal
}

/// Says a line on standard error. If it can't be written, that changes nothing for anybody.
pub fn tell(line: impl Display) {
    if is_held(false, &line) {
        return;
    }
    let _ = write(io::stderr().as_fd(), format!("{line}\n").as_bytes());
}

/// Writes a line to standard output.
pub fn print(line: impl Display) -> io::Result<()> {
    check_output()?;
    if is_held(true, &line) {
        return Ok(());
    }
    write(io::stdout().as_fd(), format!("{line}\n").as_bytes())
}

/// Standard output itself. EBADF if the process was started without one.
pub fn output() -> io::Result<OwnedFd> {
    check_output()?;
    io::stdout().as_fd().try_clone_to_owned()
}

fn check_output() -> io::Result<()> {
    if HAD_NO_OUTPUT.load(Ordering::Relaxed) { Err(Errno::BADF.into()) } else { Ok(()) }
}

fn write(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        wait_for_room(to)?;
        match rustix::io::write(to, &bytes[..bytes.len().min(PIECE_BYTES)]) {
            Ok(length) => bytes = &bytes[length..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits in poll(2), where no write to a full pipe keeps the process from its end.
fn wait_for_room(to: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        let mut watched = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        match rustix::event::poll(&mut watched, Some(&LOOK_INTERVAL)) {
            Ok(0) | Err(Errno::INTR) if IS_END_ASKED.load(Ordering::Relaxed) => {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The process was started with standard output closed. Rust's runtime opens `/dev/null` there before `main`, which takes
/// everything, so that this is found out earlier.
static HAD_NO_OUTPUT: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime.
#[allow(unsafe_code)]
// SAFETY: the loader calls each function of this section once, with arguments that this one need not take.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_FOR_OUTPUT: extern "C" fn() = look_for_output;

#[allow(unsafe_code)]
extern "C" fn look_for_output() {
    // SAFETY: fcntl(2) with F_GETFD reads a flag of a descriptor, or says that there is none.
    let is_closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    HAD_NO_OUTPUT.store(is_closed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_a_pipe_arrives_whole() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let text: Vec<u8> = (0..1 << 18).map(|index: u32| index.to_le_bytes()[1]).collect();
        let reading = std::thread::spawn(move || {
            let mut read = Vec::new();
            io::Read::read_to_end(&mut std::fs::File::from(reader), &mut read).map(|_| read)
        });
        write(writer.as_fd(), &text).expect("a reader");
        drop(writer);
        assert!(reading.join().expect("a thread").expect("a pipe") == text);
    }
}
