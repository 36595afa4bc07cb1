//! Signals that are meant for the program.

use std::mem::MaybeUninit;
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process};

/// What a supervisor sends to a process to tell it something.
const HANDED_ON: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// The signals of [`HANDED_ON`], held back in this thread and in those that it starts.
#[derive(Clone, Copy)]
pub(super) struct Held(libc::sigset_t);

impl Held {
    /// Holds them back from here on. To be called before there are other threads.
    pub(super) fn hold() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initializes the set, to which the others add; no pointer outlives the calls.
        #[allow(unsafe_code)]
        let (set, status) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in HANDED_ON {
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
            }
            let set = set.assume_init();
            (set, libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
        };
        if status != 0 {
            return Err(io::Error::from_raw_os_error(status));
        }
        Ok(Self(set))
    }

    /// Hands what comes to `child`, for as long as this process lives. A terminal signals the whole group, so that what
    /// comes from it has reached the child already.
    pub(super) fn hand_on_to(self, child: Pid) {
        thread::spawn(move || {
            loop {
                let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
                // SAFETY: both pointers are to live objects of their types; a siginfo_t may be all zeros.
                #[allow(unsafe_code)]
                let (number, code) = unsafe {
                    let number = libc::sigwaitinfo(&raw const self.0, info.as_mut_ptr());
                    (number, info.assume_init().si_code)
                };
                if let Some(signal) = Signal::from_named_raw(number)
                    && code <= 0
                {
                    // It may have ended just now.
                    let _ = kill_process(child, signal);
                }
            }
        });
    }
}
