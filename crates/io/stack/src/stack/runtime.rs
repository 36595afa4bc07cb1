//! The tokio runtime in which a stack is made.

use std::io;
use std::panic::catch_unwind;
use std::time::Duration;

use tokio::runtime::Handle;

use super::timer::Timer;

/// A stack or a listener is not made within a tokio runtime that has what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRuntime {
    /// It is made outside of any.
    #[error("a stack and a listener need a tokio runtime; expected to be called within one")]
    Missing,
    /// The runtime has no IO, or no time. Tokio tells of it by a panic, which is caught: its message is printed as of any other, and
    /// a program that is built with `panic = "abort"` ends there.
    #[error(
        "a stack and a listener need IO and time of the tokio runtime; expected one that is built with `enable_all`"
    )]
    Incomplete,
}

impl From<NoRuntime> for io::Error {
    fn from(error: NoRuntime) -> Self {
        Self::other(error)
    }
}

/// The runtime within which this is called.
pub(crate) fn current() -> io::Result<Handle> {
    let runtime = Handle::try_current().map_err(|_| NoRuntime::Missing)?;
    // tokio has no other way to ask.
    let has_all = catch_unwind(|| {
        drop(tokio::time::sleep(Duration::ZERO));
        Timer::new().map(drop)
    });
    has_all.map_err(|_| NoRuntime::Incomplete)??;
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    fn refusal() -> NoRuntime {
        let error = current().expect_err("something is missing");
        *error.get_ref().expect("typed").downcast_ref().expect("of this type")
    }

    #[test]
    fn what_a_stack_needs_of_its_runtime_is_asked_for_first() {
        assert_eq!(refusal(), NoRuntime::Missing);
        let within =
            |builder: &mut Builder| builder.build().expect("a runtime").block_on(async { refusal() });
        assert_eq!(within(&mut Builder::new_current_thread()), NoRuntime::Incomplete);
        assert_eq!(within(Builder::new_current_thread().enable_io()), NoRuntime::Incomplete);
        assert_eq!(within(Builder::new_current_thread().enable_time()), NoRuntime::Incomplete);
        Builder::new_current_thread().enable_all().build().expect("one").block_on(async {
            current().expect("all is there");
        });
    }
}
