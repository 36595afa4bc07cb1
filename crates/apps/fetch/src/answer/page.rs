//! Whether an answer is a page for people, such as one that wants a password.

use crate::http1::Head;

/// By its media type. Whoever tells none may bring anything.
#[must_use]
pub(crate) fn is_page(head: &Head) -> bool {
    head.fields.only("content-type").is_some_and(is_of_pages)
}

/// Whether a media type is one of pages.
#[must_use]
pub(crate) fn is_of_pages(media_type: &[u8]) -> bool {
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    [&b"text/html"[..], b"application/xhtml+xml"].iter().any(|page| essence.eq_ignore_ascii_case(page))
}
