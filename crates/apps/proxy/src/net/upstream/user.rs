//! Who this end is for a proxy on the way.

use std::fmt;

use percent_encoding::percent_decode_str;

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User(secret)")
    }
}

impl User {
    /// As a URL has it: `NAME:PASSWORD`, each percent-encoded.
    pub(super) fn parse(text: &str) -> Self {
        let (name, password) = text.split_once(':').unwrap_or((text, ""));
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Self { name: decoded(name), password: decoded(password) }
    }

    /// Whether SOCKS has a place for it (RFC 1929 §2).
    pub(super) fn fits_socks(&self) -> bool {
        [&self.name, &self.password].iter().all(|part| (1..=255).contains(&part.len()))
    }
}
