use std::time::Duration;

use super::Unusable;
use crate::http1::Fields;

/// What tells one version of a file from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "net", derive(serde::Serialize, serde::Deserialize))]
pub struct Version {
    /// With its quotes, and `W/` if it is weak.
    etag: Option<String>,
    last_modified: Option<String>,
    /// The date is so much older than the answer that the file can't have changed twice at it.
    is_date_strong: bool,
    encoding: Option<String>,
    total: Option<u64>,
}

impl Version {
    /// From an answer's fields, and the length of the whole file if it is known.
    pub(super) fn read(fields: &Fields, total: Option<u64>) -> Self {
        let date = |name| httpdate::parse_http_date(fields.text(name)?).ok();
        let (last_modified, date) = (date("last-modified"), date("date"));
        let is_date_strong = last_modified
            .and_then(|modified| modified.checked_add(Duration::from_secs(1)))
            .is_some_and(|earliest| date.is_some_and(|date| date >= earliest));
        let encodings: Vec<_> = fields
            .members("content-encoding")
            .map(|encoding| String::from_utf8_lossy(encoding).to_ascii_lowercase())
            .filter(|encoding| encoding != "identity")
            .collect();
        Self {
            etag: fields.text("etag").filter(|tag| is_entity_tag(tag)).map(str::to_owned),
            last_modified: last_modified.map(httpdate::fmt_http_date),
            is_date_strong,
            encoding: (!encodings.is_empty()).then(|| encodings.join(", ")),
            total,
        }
    }

    /// Bytes of the whole file, if they are known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// The Content-Encoding, such as `gzip`: ranges are of what it made of the file.
    #[must_use]
    pub fn encoding(&self) -> Option<&str> {
        self.encoding.as_deref()
    }

    /// What says that two answers are of the same bytes: a strong ETag, or else the date of Last-Modified, if the file was at rest when it
    /// was sent (RFC 9110 §8.8).
    #[must_use]
    pub fn validator(&self) -> Option<&str> {
        self.strong_etag().or_else(|| self.last_modified.as_deref().filter(|_| self.is_date_strong))
    }

    /// A value of the field `If-Range`, by which a part comes only of this version (RFC 9110 §13.1.5): a strong ETag, or else a date,
    /// if there is no ETag at all and the file was at rest when it was sent.
    #[must_use]
    pub fn if_range(&self) -> Option<&str> {
        let date = || self.last_modified.as_deref().filter(|_| self.is_date_strong && self.etag.is_none());
        self.strong_etag().or_else(date)
    }

    /// Whether pieces of both fit together: nothing says otherwise. A length that one of them doesn't tell says nothing; an ETag, and without
    /// a strong one a date, must be in both or in none. (Only the answer to an `If-Range` may leave them out, and none is sent here.)
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.check_same(other).is_ok()
    }

    /// As [`Self::is_same`]; the error says in which way `found` is another version.
    pub fn check_same(&self, found: &Self) -> Result<(), Unusable> {
        if let (Some(expected), Some(found)) = (self.total, found.total)
            && expected != found
        {
            return Err(Unusable::OtherTotal { expected, found });
        }
        let differ = |field, expected: &Option<String>, found: &Option<String>| {
            let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
            Unusable::OtherValidator { field, expected: word(expected), found: word(found) }
        };
        if self.etag != found.etag {
            return Err(differ("ETag", &self.etag, &found.etag));
        }
        if self.encoding != found.encoding {
            return Err(differ("Content-Encoding", &self.encoding, &found.encoding));
        }
        let is_other_date = self.last_modified != found.last_modified;
        // Copies of a file on several servers have the same strong ETag, but not always the same date.
        if is_other_date && self.strong_etag().is_none() {
            return Err(differ("Last-Modified", &self.last_modified, &found.last_modified));
        }
        Ok(())
    }

    fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|tag| !tag.starts_with("W/"))
    }
}

/// RFC 9110 §8.8.3.
fn is_entity_tag(text: &str) -> bool {
    let opaque = text.strip_prefix("W/").unwrap_or(text);
    let inner = opaque.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| inner.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn version(fields: &[(&str, &str)], total: u64) -> Version {
        let field = |(name, value): &(&str, &str)| {
            (Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))
        };
        Version::read(&Fields::new(fields.iter().map(field).collect()), Some(total))
    }

    #[test]
    fn a_strong_etag_comes_before_a_date() {
        let strong = version(&[("ETag", "\"x\""), ("Last-Modified", OLD), ("Date", NEW)], 9);
        assert_eq!((strong.validator(), strong.if_range()), (Some("\"x\""), Some("\"x\"")));
        let dated = version(&[("Last-Modified", OLD), ("Date", NEW)], 9);
        assert_eq!((dated.validator(), dated.if_range()), (Some(OLD), Some(OLD)));
        assert_eq!((strong.total(), strong.encoding()), (Some(9), None));
    }

    #[test]
    fn what_is_weak_is_no_validator_of_ranges() {
        let weak = version(&[("ETag", "W/\"x\""), ("Last-Modified", OLD), ("Date", NEW)], 9);
        assert_eq!((weak.validator(), weak.if_range()), (Some(OLD), None));
        assert_eq!(version(&[("ETag", "W/\"x\"")], 9).validator(), None);
        // The file may have changed again in the second of the date.
        assert_eq!(version(&[("Last-Modified", OLD), ("Date", OLD)], 9).if_range(), None);
        assert_eq!(version(&[("Last-Modified", OLD)], 9).if_range(), None);
        for tag in ["x", "\"", "\"a\"b\"", "\"a b\"", "w/\"a\"", ""] {
            assert_eq!(version(&[("ETag", tag)], 9).validator(), None, "{tag}");
        }
        assert_eq!(version(&[("Last-Modified", "yesterday")], 9).validator(), None);
    }

    #[test]
    fn versions_are_told_from_each_other() {
        let tagged = version(&[("ETag", "\"x\""), ("Last-Modified", OLD)], 9);
        assert!(tagged.is_same(&version(&[("ETag", "\"x\""), ("Last-Modified", NEW)], 9)));
        assert!(tagged.is_same(&version(&[("ETag", "\"x\"")], 9)));
        assert!(!tagged.is_same(&version(&[("ETag", "\"y\""), ("Last-Modified", OLD)], 9)));
        assert!(!tagged.is_same(&version(&[("Last-Modified", OLD)], 9)));
        assert!(!tagged.is_same(&version(&[("ETag", "\"x\"")], 10)));
        assert!(!tagged.is_same(&version(&[("ETag", "\"x\""), ("Content-Encoding", "GZIP")], 9)));
        let dated = version(&[("Last-Modified", OLD)], 9);
        assert!(!dated.is_same(&version(&[], 9)));
        assert!(dated.is_same(&Version { total: None, ..dated.clone() }));
        assert!(!dated.is_same(&version(&[("Last-Modified", NEW)], 9)));
    }
}
