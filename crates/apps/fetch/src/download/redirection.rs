//! Where a server sends elsewhere.

use url::Url;

use crate::http1::Head;
use crate::shown::without_user;

/// More redirections are a circle.
pub(super) const MAX_REDIRECTS: usize = 20;

/// Whether an answer sends elsewhere.
pub(crate) fn is_one(head: &Head) -> bool {
    matches!(head.status, 301 | 302 | 303 | 307 | 308)
}

/// The URL that the answer to a request for `from` sends to; what is wrong with it, if nobody goes there.
pub(crate) fn to(head: &Head, from: &Url) -> Result<Url, String> {
    let location = head.fields.text("location").ok_or("the server sends elsewhere, and doesn't say where")?;
    let url = from.join(location).map_err(|error| format!("the server sends to {location:?}: {error}"))?;
    match (from.scheme(), url.scheme()) {
        ("https", "http") => Err(format!("the server sends from https to {}", without_user(&url))),
        (_, "http" | "https") if url.has_host() => Ok(url),
        _ => Err(format!("the server sends to {}; expected http or https", without_user(&url))),
    }
}
