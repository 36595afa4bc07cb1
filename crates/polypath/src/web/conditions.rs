//! Conditional requests (RFC 9110 §13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};

/// By what a representation is told from others.
#[derive(Clone, Debug)]
pub(super) struct Validators {
    pub(super) etag: String,
    pub(super) modified: SystemTime,
}

/// What the conditions of a request come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Proceed,
    NotModified,
    Failed,
}

pub(super) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// In the order of §13.2.2.
pub(super) fn check(headers: &HeaderMap, validators: &Validators) -> Verdict {
    let date = |name| text(headers, name).and_then(|field| httpdate::parse_http_date(field).ok());
    let modified = whole_seconds(validators.modified);
    if let Some(tags) = text(headers, IF_MATCH) {
        if !matches(tags, &validators.etag, false) {
            return Verdict::Failed;
        }
    } else if date(IF_UNMODIFIED_SINCE).is_some_and(|since| modified > since) {
        return Verdict::Failed;
    }
    let is_same = match text(headers, IF_NONE_MATCH) {
        Some(tags) => matches(tags, &validators.etag, true),
        None => date(IF_MODIFIED_SINCE).is_some_and(|since| modified <= since),
    };
    if is_same { Verdict::NotModified } else { Verdict::Proceed }
}

/// Whether a range may be answered (§13.1.5): without the field, and if it names this representation.
pub(super) fn allows_range(headers: &HeaderMap, validators: &Validators) -> bool {
    match text(headers, IF_RANGE) {
        None => true,
        Some(tag) if tag.contains('"') => tag.trim() == validators.etag,
        Some(date) => {
            httpdate::parse_http_date(date).is_ok_and(|date| date == whole_seconds(validators.modified))
        }
    }
}

/// Whether a list of entity tags has this one; a weak tag is none for a strong comparison.
fn matches(tags: &str, etag: &str, is_weak: bool) -> bool {
    tags.trim() == "*"
        || tags
            .split(',')
            .map(str::trim)
            .any(|tag| tag == etag || is_weak && tag.strip_prefix("W/").is_some_and(|strong| strong == etag))
}

/// Dates of HTTP have no fractions.
fn whole_seconds(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_come_to_what_the_standard_says() {
        let modified = UNIX_EPOCH + Duration::from_millis(1_000_000_500);
        let validators = Validators { etag: "\"a\"".into(), modified };
        let (same, earlier) = ("Mon, 12 Jan 1970 13:46:40 GMT", "Mon, 12 Jan 1970 13:46:39 GMT");
        for (fields, verdict) in [
            (vec![], Verdict::Proceed),
            (vec![(IF_NONE_MATCH, "\"a\"")], Verdict::NotModified),
            (vec![(IF_NONE_MATCH, "\"b\", W/\"a\"")], Verdict::NotModified),
            (vec![(IF_NONE_MATCH, "*")], Verdict::NotModified),
            (vec![(IF_NONE_MATCH, "\"b\"")], Verdict::Proceed),
            (vec![(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, same)], Verdict::Proceed),
            (vec![(IF_MODIFIED_SINCE, same)], Verdict::NotModified),
            (vec![(IF_MODIFIED_SINCE, earlier)], Verdict::Proceed),
            (vec![(IF_MODIFIED_SINCE, "yesterday")], Verdict::Proceed),
            (vec![(IF_MATCH, "\"b\"")], Verdict::Failed),
            (vec![(IF_MATCH, "W/\"a\"")], Verdict::Failed),
            (vec![(IF_MATCH, "\"a\""), (IF_UNMODIFIED_SINCE, earlier)], Verdict::Proceed),
            (vec![(IF_UNMODIFIED_SINCE, earlier)], Verdict::Failed),
        ] {
            let headers: HeaderMap = fields
                .iter()
                .map(|(name, value)| (name.clone(), value.parse().expect("a field's value")))
                .collect();
            assert_eq!(check(&headers, &validators), verdict, "{fields:?}");
        }
        for (field, allowed) in [("\"a\"", true), ("W/\"a\"", false), (same, true), (earlier, false)] {
            let headers: HeaderMap =
                [(IF_RANGE, field.parse().expect("a field's value"))].into_iter().collect();
            assert_eq!(allows_range(&headers, &validators), allowed, "{field}");
        }
    }
}
