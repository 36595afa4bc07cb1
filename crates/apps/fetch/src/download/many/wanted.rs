//! What is wanted of many files, and what is told of them.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::answer::Digest;
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::playback::History;

/// One of many files.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Where it comes from.
    pub url: Url,
    /// Where it goes.
    pub place: PathBuf,
    /// Use what an earlier attempt left.
    pub resume: bool,
}

/// What became of one of them.
#[derive(Debug)]
pub struct Ended {
    /// Its number, as they were given.
    pub number: usize,
    /// That came this time.
    pub bytes: u64,
    /// Since it was begun.
    pub took: Duration,
    /// When which bytes came; none if nothing did.
    pub history: Option<Box<History>>,
    /// The digests with which it was compared.
    pub result: Result<Vec<Digest>, DownloadError>,
}

/// What happens while they are fetched.
#[derive(Debug)]
pub enum Event {
    /// Something of one file or another; `Begun` and `Over` are never told.
    Progress(Progress),
    /// No more comes of a file.
    Ended(Ended),
}
