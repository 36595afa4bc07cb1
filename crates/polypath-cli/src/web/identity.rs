//! By what a client tells one state of a file from another.

use std::time::Duration;

use hyper::header::{DATE, ETAG, HeaderName, LAST_MODIFIED};
use serde::{Deserialize, Serialize};

use super::Digest;
use super::client::{Error, Fetched};

/// What a server says of a file (RFC 9110 §8.8, RFC 9530).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) etag: Option<String>,
    pub(super) last_modified: Option<String>,
    /// The file was old enough that its date tells its states apart (RFC 9110 §8.8.2.2).
    pub(super) has_strong_date: bool,
    /// Bytes of the whole.
    pub(super) length: Option<u64>,
    pub(super) digest: Option<Digest>,
}

impl Identity {
    /// From an answer to GET or HEAD.
    pub(super) fn of(fetched: &Fetched) -> Result<Self, Error> {
        let field = |name: HeaderName| {
            let value = fetched.response.headers().get(name)?.to_str().ok()?;
            Some(value.trim().to_string())
        };
        let length = match fetched.range() {
            Some((.., total)) => Some(total),
            None => fetched.content_length(),
        };
        let last_modified = field(LAST_MODIFIED);
        let date = |text: &Option<String>| httpdate::parse_http_date(text.as_deref()?).ok();
        let has_strong_date = match (date(&last_modified), date(&field(DATE))) {
            (Some(modified), Some(now)) => {
                now.duration_since(modified).is_ok_and(|age| age >= Duration::from_secs(1))
            }
            _ => false,
        };
        let digest = fetched.told_digest()?;
        Ok(Self { etag: field(ETAG), last_modified, has_strong_date, length, digest })
    }

    /// What `If-Range` may say (RFC 9110 §13.1.5): weak validators tell too little.
    pub(super) fn strong_validator(&self) -> Option<&str> {
        match &self.etag {
            Some(etag) => Some(etag.as_str()).filter(|etag| !etag.starts_with("W/")),
            None => self.last_modified.as_deref().filter(|_| self.has_strong_date),
        }
    }

    /// Whether both can be the same state of a file: nothing that both say differs.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        fn agree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        agree(&self.etag, &other.etag)
            && agree(&self.last_modified, &other.last_modified)
            && agree(&self.length, &other.length)
            && agree(&self.digest, &other.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_validators_are_not_believed() {
        let strong = |etag: Option<&str>, has_strong_date| {
            let last_modified = Some("Mon, 12 Jan 1970 13:46:40 GMT".to_string());
            let etag = etag.map(str::to_string);
            let identity = Identity { etag, last_modified, has_strong_date, ..Identity::default() };
            identity.strong_validator().map(str::to_string)
        };
        assert_eq!(strong(Some("\"a\""), false).as_deref(), Some("\"a\""));
        assert_eq!(strong(Some("W/\"a\""), true), None);
        assert_eq!(strong(None, false), None);
        assert_eq!(strong(None, true).as_deref(), Some("Mon, 12 Jan 1970 13:46:40 GMT"));
    }

    #[test]
    fn files_agree_until_something_differs() {
        let one = Identity { etag: Some("\"a\"".into()), length: Some(5), ..Identity::default() };
        assert!(one.agrees_with(&Identity::default()) && one.agrees_with(&one));
        assert!(!one.agrees_with(&Identity { length: Some(6), ..one.clone() }));
        assert!(!one.agrees_with(&Identity { etag: Some("\"b\"".into()), ..one.clone() }));
    }
}
