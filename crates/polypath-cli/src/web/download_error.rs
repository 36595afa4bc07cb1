//! Why a download ended without a file.

use std::io;
use std::path::{Path, PathBuf};

use hyper::StatusCode;
use url::Url;

use super::client::Error;

/// Why a file is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DownloadError {
    /// There is no answer.
    #[error(transparent)]
    Request(#[from] Error),
    /// The answer is none that has a file.
    #[error("{url}: the server says {status}")]
    Refused {
        /// What was asked for.
        url: Box<Url>,
        /// The answer.
        status: StatusCode,
    },
    /// The URL leads to a directory, and a file was expected.
    #[error("{0}: a directory; expected a file")]
    Directory(Box<Url>),
    /// The file or its part can't be opened.
    #[error("{}: can't be written: {source}", .place.display())]
    Open {
        /// Which.
        place: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process writes to the part.
    #[error("{}: another download writes it; expected one at a time", .0.display())]
    Busy(PathBuf),
    /// What came can't be written.
    #[error("{}: can't be written: {source}", .place.display())]
    Write {
        /// Where.
        place: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The connection ended too early.
    #[error("{url}: broke off after {received}{}: {problem}{}", of(*.promised), resume_tip(*.is_resumable))]
    BrokeOff {
        /// What was asked for.
        url: Box<Url>,
        /// Bytes that came.
        received: u64,
        /// Bytes that were to come, if the server told.
        promised: Option<u64>,
        /// Why.
        problem: String,
        /// What came is kept and can be gone on with.
        is_resumable: bool,
    },
    /// What was there before is not the beginning of the file.
    #[error("{}: what was there is no part of the file at {url}; {}", .place.display(), whereabouts(.kept.as_deref()))]
    Damaged {
        /// The file.
        place: PathBuf,
        /// What was asked for.
        url: Box<Url>,
        /// Where it is now.
        kept: Option<PathBuf>,
    },
    /// What came is not what the server has.
    #[error("{url}: what came differs from what the server says it has (SHA-256), and is not kept")]
    Differs {
        /// What was asked for.
        url: Box<Url>,
    },
    /// The file is another one than when the download began.
    #[error("{0}: the file changed on the server; what came is not kept, and the same command begins anew")]
    Changed(Box<Url>),
    /// The server sends what was not asked for.
    #[error("{0}: the server sends another part than was asked for")]
    AnotherPart(Box<Url>),
    /// Its end was asked for.
    #[error("{}: interrupted; {kept_bytes} bytes are kept in {}{}", .place.display(), .part.display(), resume_tip(*.is_resumable))]
    Interrupted {
        /// The file.
        place: PathBuf,
        /// Where its beginning is.
        part: PathBuf,
        /// Bytes there.
        kept_bytes: u64,
        /// They can be gone on with.
        is_resumable: bool,
    },
    /// All came, and the server can't be asked any more whether it is right.
    #[error("{}: all {bytes} bytes came, but were not compared, as the server can't be asked for their SHA-256: {source}{}", .place.display(), kept_in(.part.as_deref()))]
    Uncompared {
        /// The file.
        place: PathBuf,
        /// Bytes of it.
        bytes: u64,
        /// Where they are, if they can be gone on with.
        part: Option<PathBuf>,
        /// Why there is no answer.
        source: Box<Error>,
    },
    /// The server made other bytes of the file, which was not asked for (RFC 9110 §8.4).
    #[error("{url}: the server sends the file encoded ({coding}), which was not asked for; expected it as it is{}", name_tip(.ending))]
    Encoded {
        /// What was asked for.
        url: Box<Url>,
        /// How it is encoded.
        coding: String,
        /// A file whose name ends so would be expected to be encoded.
        ending: Option<&'static str>,
    },
    /// There is nothing to compare with.
    #[error("{0}: the server tells no SHA-256; expected --no-verify for such a server")]
    NoDigest(Box<Url>),
}

fn of(promised: Option<u64>) -> String {
    promised.map_or(" bytes".into(), |promised| format!(" of {promised} bytes"))
}

fn resume_tip(is_resumable: bool) -> &'static str {
    if is_resumable { "; --resume goes on from there" } else { "" }
}

fn kept_in(part: Option<&Path>) -> String {
    let tip = |part: &Path| format!("; they are kept in {}; --resume compares them", part.display());
    part.map_or_else(String::new, tip)
}

fn name_tip(ending: &Option<&'static str>) -> String {
    ending.map_or_else(String::new, |ending| format!(", or a name that ends in {ending} to keep it so"))
}

fn whereabouts(kept: Option<&Path>) -> String {
    let kept = kept.map_or("it is removed".into(), |kept| format!("it is now {}", kept.display()));
    format!("{kept}, and the same command begins anew")
}
