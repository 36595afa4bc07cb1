use url::Url;

use super::limits::{MAX_MANIFEST_BYTES, MAX_QUALITIES, MAX_SEGMENTS, MAX_URL_BYTES};
use crate::shown::without_user;

/// Why a manifest can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Longer than a manifest may be.
    #[error("a manifest of {0} bytes is too long; at most {MAX_MANIFEST_BYTES} are read")]
    TooLong(usize),
    /// Neither of the two formats.
    #[error(
        "this is neither an MPEG-DASH manifest nor an HLS playlist{}",
        content_type.as_ref().map_or(String::new(), |content_type| format!(": the server calls it {content_type:?}"))
    )]
    UnknownFormat {
        /// What the server calls it.
        content_type: Option<String>,
    },
    /// Something breaks the format's rules.
    #[error("line {line}: {what}")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// The format allows it, and this reader can't read it.
    #[error("line {line}: {what}: not supported")]
    Unsupported {
        /// Counted from 1.
        line: usize,
        /// What it is.
        what: String,
    },
    /// The segments are encrypted.
    #[error("the stream is encrypted ({scheme}); only streams in the clear can be played")]
    Encrypted {
        /// The name of the scheme, or its identifier.
        scheme: String,
    },
    /// No video and no audio that could be played.
    #[error("the manifest has no track that can be played: {0}")]
    NoTrack(String),
    /// More segments than anyone needs.
    #[error("the manifest has more than {MAX_SEGMENTS} segments of one quality, or too many in all")]
    TooManySegments,
    /// More qualities than anyone needs.
    #[error("the manifest has more than {MAX_QUALITIES} qualities of one track")]
    TooManyQualities,
    /// A URL, with what it is relative to, is too long.
    #[error("line {0}: a URL is longer than {MAX_URL_BYTES} bytes")]
    LongUrl(usize),
    /// The index of a single file (`sidx`) is malformed.
    #[error("the index of segments (sidx) {0}")]
    Index(&'static str),
    /// A live playlist's numbers went back: another stream began at the same URL.
    #[error("the playlist's numbers went back from {from} to {to}: the stream began anew")]
    Restarted {
        /// The first number that was listed before.
        from: u64,
        /// The last number that is listed now.
        to: u64,
    },
    /// A playlist has no way to leave an initialization section behind.
    #[error("a segment in another container can't follow in the same playlist")]
    OtherContainer,
    /// Something has to be fetched first.
    #[error("{} has to be fetched first", without_user(.0))]
    Waiting(Box<Url>),
    /// What was fetched wasn't asked for.
    #[error("{} isn't part of this manifest", without_user(.0))]
    Unasked(Box<Url>),
    /// Wrong in a playlist of the manifest, and not in the manifest itself.
    #[error("{}: {source}", without_user(.url))]
    In {
        /// Which one.
        url: Box<Url>,
        /// What is wrong there.
        source: Box<Error>,
    },
}

impl Error {
    pub(super) fn malformed(line: usize, what: impl Into<String>) -> Self {
        Self::Malformed { line, what: one_line(&what.into()) }
    }

    pub(super) fn unsupported(line: usize, what: impl Into<String>) -> Self {
        Self::Unsupported { line, what: one_line(&what.into()) }
    }

    pub(super) fn encrypted(scheme: &str) -> Self {
        Self::Encrypted { scheme: one_line(scheme) }
    }

    /// Says where it happened.
    pub(super) fn within(self, url: &Url) -> Self {
        Self::In { url: Box::new(url.clone()), source: Box::new(self) }
    }
}

/// A message in one line, whatever somebody else wrote into it.
fn one_line(text: &str) -> String {
    const MOST: usize = 300;
    let mut line: String =
        text.chars().take(MOST).map(|char| if char.is_control() { ' ' } else { char }).collect();
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

/// The beginning of a text that somebody else wrote, for a message of one line.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
