//! Why a download did not succeed.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::answer::{DigestAlgorithm, Unusable};
use crate::http1;

/// Why there is no file. Each is one line for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The URL can't be asked for.
    #[error("{0}")]
    Request(#[from] http1::InvalidRequest),
    /// The server says no.
    #[error("{url}: the server says {status}{}", reason(*.status))]
    Refused {
        /// What was asked for.
        url: Url,
        /// The status code.
        status: u16,
    },
    /// The server sends elsewhere, where nobody goes.
    #[error("{url}: {problem}")]
    Redirect {
        /// What was asked for.
        url: Url,
        /// What is wrong with it.
        problem: String,
    },
    /// The answers don't fit together, or to what was asked.
    #[error("{url}: {cause}")]
    Answer {
        /// What was asked for.
        url: Url,
        /// How.
        cause: Box<Unusable>,
    },
    /// Networks say different things, and nobody can tell which of them speaks for the server.
    #[error(
        "{url}: what is answered differs from network to network, as where one wants a password; expected https, or one that is right (-I NAME)"
    )]
    Differs {
        /// What was asked for.
        url: Url,
    },
    /// The server tells different digests of one file.
    #[error("{url}: the server told two {} digests of one file", .algorithm.name())]
    TwoDigests {
        /// What was asked for.
        url: Url,
        /// Of which kind.
        algorithm: DigestAlgorithm,
    },
    /// What came is not what was promised.
    #[error("{what} of what came is {found}; expected {expected}")]
    Digest {
        /// Such as `sha-256`.
        what: &'static str,
        /// In hexadecimal digits.
        expected: String,
        /// In hexadecimal digits.
        found: String,
    },
    /// A piece is not what was promised.
    #[error("{url}: piece {number} is wrong")]
    Piece {
        /// What was asked for.
        url: Url,
        /// Counted from 0.
        number: u64,
    },
    /// A page for people comes, where the file may be had elsewhere.
    #[error("{url}: a page of the web comes in place of the file")]
    Page {
        /// What was asked for.
        url: Url,
    },
    /// No place of the file brings it.
    #[error("none of its places brings the file: {}", .0.join("; "))]
    Nowhere(Vec<String>),
    /// No path has a connection.
    #[error("{}", .0.join("; "))]
    Unreachable(Vec<String>),
    /// Nothing came for long.
    #[error("nothing came for {} s{}", .silent_for.as_secs(), because(.causes))]
    Stalled {
        /// For how long.
        silent_for: Duration,
        /// What the paths say.
        causes: Vec<String>,
    },
    /// More time than was given.
    #[error("not done after {} s", .0.as_secs_f64())]
    TooLong(Duration),
    /// The file can't be written.
    #[error("{}: can't be written: {cause}", .place.display())]
    Write {
        /// Where.
        place: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Whoever takes the file does not.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// The server has no ranges, its answer was broken off, and what came is taken already.
    #[error("the connection broke after {received_bytes} bytes, and the server can't go on there")]
    Broken {
        /// Taken already.
        received_bytes: u64,
    },
    /// Somebody wants it to end.
    #[error("interrupted{}", .kept.as_ref().map_or_else(String::new, |kept| format!("; {kept}")))]
    Interrupted {
        /// What is there of the file, if anything is.
        kept: Option<Kept>,
    },
}

/// What is there of a file that is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where it is.
    pub parts: PathBuf,
    /// How much it is.
    pub bytes: u64,
    /// Another attempt can go on with it.
    pub is_resumable: bool,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parts, bytes, is_resumable } = self;
        let rest = if *is_resumable {
            "--resume goes on from there"
        } else {
            "nobody can go on with them, as the server does not tell versions apart or has no ranges"
        };
        write!(f, "{bytes} bytes are kept in {}; {rest}", parts.display())
    }
}

fn because(causes: &[String]) -> String {
    if causes.is_empty() { String::new() } else { format!(": {}", causes.join("; ")) }
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => " (bad request)",
        401 => " (wants a user and a password: -u USER:PASSWORD)",
        403 => " (forbidden)",
        404 => " (not found)",
        407 => " (the proxy wants a user and a password)",
        410 => " (gone)",
        429 => " (too many requests)",
        500 => " (internal error)",
        502 => " (bad gateway)",
        503 => " (service unavailable)",
        504 => " (gateway timeout)",
        _ => "",
    }
}
