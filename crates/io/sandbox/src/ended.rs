use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended(pub(super) ExitStatus);

impl Ended {
    /// The exit code that a shell would show: 128 and the signal's number if it was killed.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        let code = self.0.code().unwrap_or_else(|| 128 + self.0.signal().unwrap_or(0));
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }
}

/// Why a program was not run, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no such program: a shell's exit code is 127.
    #[error("{0}: command not found")]
    NotFound(String),
    /// It is there and can't be executed: a shell's exit code is 126.
    #[error("{0}: can't be executed ({1})")]
    NotExecutable(String, io::Error),
    /// A signal ended it before it began, such as ^C.
    #[error("ended by a signal before the program began")]
    Signalled(Ended),
    /// The namespace could not be made.
    #[error("no network namespace for the program: {0}")]
    Namespace(String),
    /// A published port could not be opened.
    #[error("can't publish port {port}: {error}")]
    Publish {
        /// The port outside.
        port: u16,
        /// What the engine said.
        error: io::Error,
    },
    /// Something else that the system refused.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}
