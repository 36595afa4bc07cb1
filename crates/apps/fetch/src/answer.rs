//! What an answer to a range request says: which bytes of which version of a file.

mod content_range;
mod digest;
mod page;
mod version;

use std::fmt;

pub use content_range::ContentRange;
pub(crate) use digest::collect;
pub use digest::{Digest, DigestAlgorithm, repr_digests};
pub(crate) use page::{is_of_pages, is_page};
pub use version::Version;

use crate::http1::Head;

/// A status by which the server can't answer now, but maybe later.
#[must_use]
pub(crate) const fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Bytes of a file that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedRange {
    /// The first byte, counted from 0.
    pub first: u64,
    /// The last byte; none for the end of the file, wherever that is.
    pub last: Option<u64>,
}

impl AskedRange {
    /// As a value of the field `Range`.
    #[must_use]
    pub fn to_field(self) -> String {
        format!("bytes={self}")
    }

    /// Whether some of it is answered, from where it begins (RFC 9110 §15.3.7 lets a server do so).
    fn is_begun_by(self, first: u64, last: u64) -> bool {
        first == self.first && self.last.is_none_or(|asked| last <= asked)
    }

    fn is_answered_by(self, first: u64, last: u64, total: Option<u64>) -> bool {
        // What reaches beyond the file is cut there.
        let end = total.map_or(u64::MAX, |total| total.saturating_sub(1));
        let is_end = match self.last {
            Some(asked) => last == asked.min(end),
            None => total.is_none() || last == end,
        };
        first == self.first && is_end
    }
}

impl fmt::Display for AskedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.first)?;
        self.last.map_or(Ok(()), |last| write!(f, "{last}"))
    }
}

/// Which bytes an answer brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of them (200): no range was asked for, the server has no ranges, or the file is no longer the one of `If-Range`.
    Whole,
    /// Those that were asked for (206).
    Part {
        /// The first byte, counted from 0.
        first: u64,
        /// The last byte.
        last: u64,
    },
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which bytes it brings.
    pub extent: Extent,
    /// Of which version of the file.
    pub version: Version,
    /// Digests of the whole file, in what its Content-Encoding made of it.
    pub digests: Vec<Digest>,
    /// The server says that it has ranges, or showed it.
    pub has_ranges: bool,
}

/// An answer whose bytes are not those that were asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// A status that brings no content of the file.
    #[error("the server answers with status {0}; expected 200 or 206")]
    Status(u16),
    /// The file has no such bytes (416).
    #[error("the server has no bytes {asked}{}", total.map_or(String::new(), |total| format!(": the file has {total}")))]
    NoSuchRange {
        /// What was asked for.
        asked: AskedRange,
        /// Bytes of the file, if the server told.
        total: Option<u64>,
    },
    /// A part came (206), though no range was asked for.
    #[error("the server sends a part of the file, which wasn't asked for")]
    Unasked,
    /// A part without a Content-Range, or several parts in one answer.
    #[error("the server sends a part of the file, and doesn't say which (no Content-Range)")]
    NoContentRange,
    /// A Content-Range that is none.
    #[error("the server's Content-Range is {0:?}; expected such as \"bytes 0-99/1000\"")]
    MalformedContentRange(String),
    /// Other bytes than those that were asked for.
    #[error("the server sends the bytes {first}-{last}; asked were {asked}")]
    OtherRange {
        /// What was asked for.
        asked: AskedRange,
        /// The first byte of what came.
        first: u64,
        /// The last byte of what came.
        last: u64,
    },
    /// The body has another length than its range.
    #[error("the server sends {length} bytes as the bytes {first}-{last}")]
    OtherLength {
        /// The Content-Length.
        length: u64,
        /// The first byte by Content-Range.
        first: u64,
        /// The last byte by Content-Range.
        last: u64,
    },
    /// It is of another server, whose file nobody can tell from the one of which a part is there.
    #[error("it is another server, and no digest says that its file is the same")]
    OtherServer,
    /// Another length than the file is known to have.
    #[error("its file has {found} bytes; expected {expected}")]
    OtherSize {
        /// Bytes, as whoever told of the file said.
        expected: u64,
        /// Bytes by this answer.
        found: u64,
    },
    /// Another length of the whole file than in an earlier answer.
    #[error("the file changed on the server: it had {expected} bytes, and has {found}")]
    OtherTotal {
        /// Bytes by the earlier answer.
        expected: u64,
        /// Bytes by this one.
        found: u64,
    },
    /// Another ETag, Last-Modified or Content-Encoding than in an earlier answer.
    #[error("the file changed on the server: its {field} was {expected}, and is {found}")]
    OtherValidator {
        /// Which field tells.
        field: &'static str,
        /// By the earlier answer.
        expected: String,
        /// By this one.
        found: String,
    },
}

impl Answer {
    /// Reads the head of the answer to a request for a range, or for all.
    pub fn read(head: &Head, asked: Option<AskedRange>) -> Result<Self, Unusable> {
        Self::read_any(head, asked, AskedRange::is_answered_by)
    }

    /// As [`Self::read`], where the part may end earlier than was asked for.
    pub fn read_begun(head: &Head, asked: Option<AskedRange>) -> Result<Self, Unusable> {
        Self::read_any(head, asked, |asked, first, last, total| {
            asked.is_answered_by(first, last, total) || asked.is_begun_by(first, last)
        })
    }

    fn read_any(
        head: &Head,
        asked: Option<AskedRange>,
        is_answer: impl Fn(AskedRange, u64, u64, Option<u64>) -> bool,
    ) -> Result<Self, Unusable> {
        let content_range = || match head.fields.only("content-range") {
            Some(value) => ContentRange::parse(value)
                .ok_or_else(|| Unusable::MalformedContentRange(String::from_utf8_lossy(value).into_owned())),
            None => Err(Unusable::NoContentRange),
        };
        let length = head.fields.text("content-length").and_then(|length| length.parse::<u64>().ok());
        let (extent, total) = match (head.status, asked) {
            (200, _) => (Extent::Whole, length),
            (206, None) => return Err(Unusable::Unasked),
            (206, Some(asked)) => match content_range()? {
                ContentRange::Part { first, last, total } => {
                    if !is_answer(asked, first, last, total) {
                        return Err(Unusable::OtherRange { asked, first, last });
                    }
                    // No overflow: a part lies within 64 bits, and the last possible byte has a number below their end.
                    if let Some(length) = length.filter(|length| *length != (last - first).saturating_add(1))
                    {
                        return Err(Unusable::OtherLength { length, first, last });
                    }
                    (Extent::Part { first, last }, total)
                }
                ContentRange::Unsatisfied { total } => {
                    return Err(Unusable::NoSuchRange { asked, total: Some(total) });
                }
            },
            (416, Some(asked)) => {
                let total = match content_range() {
                    Ok(ContentRange::Unsatisfied { total }) => Some(total),
                    _ => None,
                };
                return Err(Unusable::NoSuchRange { asked, total });
            }
            (status, _) => return Err(Unusable::Status(status)),
        };
        let says_ranges =
            head.fields.members("accept-ranges").any(|unit| unit.eq_ignore_ascii_case(b"bytes"));
        Ok(Self {
            extent,
            version: Version::read(&head.fields, total),
            digests: repr_digests(&head.fields),
            has_ranges: says_ranges || matches!(extent, Extent::Part { .. }),
        })
    }

    /// Whether the bytes belong to the version of an earlier answer.
    pub fn check_version(&self, expected: &Version) -> Result<(), Unusable> {
        expected.check_same(&self.version)
    }
}

#[cfg(test)]
mod tests;
