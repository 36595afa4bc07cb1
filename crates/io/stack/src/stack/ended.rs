//! Why a stack carries nothing any more.

use std::any::Any;
use std::io;

/// Why a stack has ended, while a program still holds it. The errors of its streams, listeners and connects hold it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackEnded {
    /// The tokio runtime is gone in which the stack was made.
    #[error(
        "the stack ended with the tokio runtime in which it was made; expected a runtime that lives as long as the stack is used"
    )]
    Runtime,
    /// A policy of the program panicked, or a driver, with this message.
    #[error("the stack ended, since one of its policies or its driver panicked: {0}")]
    Panic(String),
    /// The driver failed.
    #[error("the network driver failed: {message}")]
    Driver {
        /// What kind of error it had.
        kind: io::ErrorKind,
        /// What it said.
        message: String,
    },
}

impl StackEnded {
    /// The one inside of an error.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    pub(super) fn by_driver(error: &io::Error) -> Self {
        Self::Driver { kind: error.kind(), message: error.to_string() }
    }

    pub(super) fn by_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panic(text.unwrap_or_else(|| "it did not say why".into()))
    }
}

impl From<StackEnded> for io::Error {
    fn from(ended: StackEnded) -> Self {
        let kind = match ended {
            StackEnded::Driver { kind, .. } => kind,
            StackEnded::Runtime | StackEnded::Panic(_) => io::ErrorKind::Other,
        };
        Self::new(kind, ended)
    }
}
