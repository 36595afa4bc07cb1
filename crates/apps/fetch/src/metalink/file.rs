//! What a Metalink tells of a file.

use url::Url;

use crate::answer::Digest;
use crate::download::Pieces;

/// Bytes of a document.
pub const MAX_BYTES: usize = 4 << 20;

/// What a Metalink tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metalink {
    /// The files that can be fetched: at least one, each with a name of its own.
    pub files: Vec<File>,
    /// The names of those that have no place by http or https.
    pub placeless: Vec<String>,
    /// How many more there are than are read.
    pub beyond: usize,
}

/// A file of a Metalink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What it is to be called: a name without any folder.
    pub name: String,
    /// Its length, if that is told.
    pub size_bytes: Option<u64>,
    /// What it has to be.
    pub digests: Vec<Digest>,
    /// What its pieces have to be.
    pub pieces: Option<Pieces>,
    /// Where it is, by http or https: the best first. At least one.
    pub urls: Vec<Url>,
}

/// Why a Metalink can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Longer than a Metalink may be.
    #[error("a Metalink of {0} bytes is too long; at most {MAX_BYTES} are read")]
    TooLong(usize),
    /// No XML, or none of this format.
    #[error("byte {at}: {what}")]
    Malformed {
        /// Counted from 0.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// A name that could lead anywhere else.
    #[error(
        "a file is called {0:?}; expected a name without \"..\" or marks that nobody sees, and no path from the root"
    )]
    Name(String),
    /// A name that programs look for, and that nobody sees.
    #[error("a file is called {0:?}, which would be hidden; expected a name that begins with no dot")]
    Hidden(String),
    /// The name of another file too.
    #[error("{0:?} has the name of another file, as folders are not made; expected each name once")]
    Twice(String),
    /// What a file has to be can't be read, and nobody would compare it.
    #[error("{name:?}: its {what} can't be read")]
    Unreadable {
        /// Of the file.
        name: String,
        /// What of it.
        what: &'static str,
    },
    /// The digests of its pieces are of use to nobody.
    #[error("{0:?}: its pieces don't make up the file, or are too many or too long")]
    Pieces(String),
    /// Nothing that could be fetched.
    #[error("it names no file with a place by http or https")]
    Empty,
}
