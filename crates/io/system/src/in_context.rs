//! Failures of the system with a word of what they were about.

use std::io;

#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
struct InContext {
    what: String,
    source: io::Error,
}

/// The same failure, of the same kind, with what it was about in front. What the system said stays its source, so that
/// [`errno_of`] finds it.
#[must_use]
pub fn in_context(what: impl Into<String>, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), InContext { what: what.into(), source })
}

/// The number that the system gave for a failure, be it that it was put into words since.
#[must_use]
pub fn errno_of(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let mut inner: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
        while let Some(error) = inner {
            match error.downcast_ref::<io::Error>() {
                Some(error) => return errno_of(error),
                None => inner = error.source(),
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_said_is_found_behind_words() {
        let error = in_context("a", in_context("b", io::Error::from_raw_os_error(libc::EMFILE)));
        assert_eq!(errno_of(&error), Some(libc::EMFILE));
        assert!(error.to_string().starts_with("a: b: Too many open files"), "{error}");
        assert_eq!(errno_of(&io::Error::other("nothing of the system")), None);
    }
}
