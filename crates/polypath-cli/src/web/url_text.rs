//! What is shown of a text that should be a URL.

/// Without a user and a password, whatever else is wrong with it.
pub(crate) fn without_user(text: &str) -> String {
    let begin = text.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = text.split_at(begin);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password may have what ends a host.
    match rest[..end].rfind('@').or_else(|| rest.rfind('@').filter(|_| begin > 0)) {
        Some(at) => format!("{scheme}{}", &rest[at + 1..]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        for (text, shown) in [
            ("http://bob:TOPSECRET@x:99999/", "http://x:99999/"),
            ("http://bob:TOP@SECRET@x:99999/a@b", "http://x:99999/a@b"),
            ("http://bob:TOP/SECRET@x:99999/", "http://x:99999/"),
            ("bob:TOPSECRET@x:99999", "x:99999"),
            ("http://x:99999/a", "http://x:99999/a"),
            ("film", "film"),
        ] {
            assert_eq!(without_user(text), shown);
        }
    }
}
