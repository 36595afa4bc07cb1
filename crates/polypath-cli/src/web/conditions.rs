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

/// For GET and HEAD, in the order of §13.2.2.
pub(super) fn check(headers: &HeaderMap, validators: &Validators) -> Verdict {
    let conditions = Preconditions::of(headers);
    if conditions.expect_another(Some(validators)) {
        return Verdict::Failed;
    }
    let is_same = conditions.exclude(Some(validators)).unwrap_or_else(|| {
        date(headers, IF_MODIFIED_SINCE).is_some_and(|since| whole_seconds(validators.modified) <= since)
    });
    if is_same { Verdict::NotModified } else { Verdict::Proceed }
}

/// The conditions that hold for every method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preconditions {
    if_match: Option<String>,
    if_none_match: Option<String>,
    if_unmodified_since: Option<SystemTime>,
}

impl Preconditions {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self {
            if_match: list(headers, IF_MATCH),
            if_none_match: list(headers, IF_NONE_MATCH),
            if_unmodified_since: date(headers, IF_UNMODIFIED_SINCE),
        }
    }

    /// There are none.
    pub(super) fn are_none(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none() && self.if_unmodified_since.is_none()
    }

    /// Whether a file may be replaced by a request, or made if there is none. If not, the answer is 412.
    pub(super) fn allow_change(&self, there: Option<&Validators>) -> bool {
        !self.expect_another(there) && self.exclude(there) != Some(true)
    }

    /// Whether the client expects something else than what is there (§13.1.1, §13.1.4).
    fn expect_another(&self, there: Option<&Validators>) -> bool {
        match (&self.if_match, there) {
            (Some(tags), there) => !there.is_some_and(|there| matches(tags, &there.etag, false)),
            (None, Some(there)) => {
                self.if_unmodified_since.is_some_and(|since| whole_seconds(there.modified) > since)
            }
            (None, None) => false,
        }
    }

    /// Whether the client wants to do nothing with what is there (§13.1.2); none if it says nothing of it.
    fn exclude(&self, there: Option<&Validators>) -> Option<bool> {
        let tags = self.if_none_match.as_ref()?;
        Some(there.is_some_and(|there| matches(tags, &there.etag, true)))
    }
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

/// A list that may be spread over several fields. What is no text stays a part of it: it matches nothing, and is a condition.
fn list(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let lines = headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    lines.map(|line| line.into_owned()).reduce(|list, line| list + "," + &line)
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
    use hyper::header::HeaderValue;

    use super::*;

    fn fields(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, text) in fields {
            // Characters are bytes here, so that one can be none of ASCII.
            let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(c).expect("a byte")).collect();
            headers.append(name, HeaderValue::from_bytes(&bytes).expect("a field's value"));
        }
        headers
    }

    #[test]
    fn a_change_wants_what_the_client_saw() {
        let modified = UNIX_EPOCH + Duration::from_millis(1_000_000_500);
        let there = Validators { etag: "\"a\"".into(), modified };
        for (conditions, replaces, makes) in [
            (&[][..], true, true),
            (&[(IF_NONE_MATCH, "*")], false, true),
            (&[(IF_NONE_MATCH, "\"a\"")], false, true),
            (&[(IF_NONE_MATCH, "\"b\""), (IF_NONE_MATCH, "W/\"a\"")], false, true),
            (&[(IF_NONE_MATCH, "\"b\"")], true, true),
            (&[(IF_MATCH, "*")], true, false),
            (&[(IF_MATCH, "\"a\"")], true, false),
            (&[(IF_MATCH, "\"b\""), (IF_MATCH, "\"a\"")], true, false),
            (&[(IF_MATCH, "\"b\"")], false, false),
            (&[(IF_MATCH, "W/\"a\"")], false, false),
            (&[(IF_MATCH, "ÿ")], false, false),
            (&[(IF_UNMODIFIED_SINCE, "Mon, 12 Jan 1970 13:46:39 GMT")], false, true),
            (&[(IF_UNMODIFIED_SINCE, "Mon, 12 Jan 1970 13:46:40 GMT")], true, true),
            // These are for reading.
            (&[(IF_MODIFIED_SINCE, "Mon, 12 Jan 1970 13:46:40 GMT")], true, true),
        ] {
            let checked = Preconditions::of(&fields(conditions));
            let allowed = (checked.allow_change(Some(&there)), checked.allow_change(None));
            assert_eq!(allowed, (replaces, makes), "{conditions:?}");
        }
    }

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
