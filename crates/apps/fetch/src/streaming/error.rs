//! Why a stream does not go on.

use std::time::Duration;

use url::Url;

use crate::answer::Unusable;
use crate::http1::InvalidRequest;
use crate::manifest;
use crate::shown::without_user;
use crate::stream::Changed;

/// Why a stream does not go on. Each is one line for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// No interface leads anywhere.
    #[error("no interface leads there")]
    NoWay,
    /// Somebody asked for the end.
    #[error("interrupted")]
    Interrupted,
    /// The URL can't be asked for.
    #[error("{0}")]
    Request(#[from] InvalidRequest),
    /// Something that is needed can't be had.
    #[error("{}: {cause}", without_user(.url))]
    Fetch {
        /// What was asked for.
        url: Box<Url>,
        /// Why.
        cause: String,
    },
    /// The manifest is none, or of a stream that can't be played.
    #[error("{}: {cause}", without_user(.url))]
    Manifest {
        /// Where it is.
        url: Box<Url>,
        /// Why.
        cause: manifest::Error,
    },
    /// A segment's answers don't fit together.
    #[error("{}: {cause}", without_user(.url))]
    Answer {
        /// What was asked for.
        url: Box<Url>,
        /// How.
        cause: Box<Unusable>,
    },
    /// A segment is not what it was.
    #[error("{}: {cause}", without_user(.url))]
    Changed {
        /// What was asked for.
        url: Box<Url>,
        /// How.
        cause: Changed,
    },
    /// Segments lie on several servers.
    #[error("{} is on another server than {}; expected all segments on one", without_user(.url), without_user(.first))]
    OtherServer {
        /// A segment.
        url: Box<Url>,
        /// The first one.
        first: Box<Url>,
    },
    /// A segment that nobody could hold.
    #[error("{}: {bytes} bytes are more than a segment may have", without_user(.url))]
    TooLong {
        /// What was asked for.
        url: Box<Url>,
        /// Its length.
        bytes: u64,
    },
    /// There is nothing to play.
    #[error("the stream has no segment")]
    Empty,
    /// A live stream does not go on.
    #[error("the live stream has had nothing new for {} s", .unchanged_for.as_secs())]
    NothingNew {
        /// For how long.
        unchanged_for: Duration,
    },
    /// Nothing came for long.
    #[error("nothing came for {} s{}", .silent_for.as_secs(), because(.causes))]
    Stalled {
        /// For how long.
        silent_for: Duration,
        /// What the paths say.
        causes: Vec<String>,
    },
}

fn because(causes: &[String]) -> String {
    if causes.is_empty() { String::new() } else { format!(": {}", causes.join("; ")) }
}
