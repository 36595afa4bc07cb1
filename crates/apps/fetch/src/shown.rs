//! URLs as people are told of them.

use url::Url;

/// For messages and records: a password is nobody's business.
pub(crate) fn without_user(url: &Url) -> Url {
    let mut url = url.clone();
    // Fails where there can't be any.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url
}
