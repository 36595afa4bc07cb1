//! Who may store files.

use std::fmt;
use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctutils::CtEq;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use sha2::{Digest as _, Sha256};
use url::{Host, Url};

/// Fewer characters are too easily guessed.
const LEAST_CHARACTERS: usize = 16;
const MOST_CHARACTERS: usize = 1024;
/// Of a token of our own making.
const RANDOM_BYTES: usize = 20;

/// A secret that a client shows to be let in: as a bearer token (RFC 6750), or as the password of anybody (RFC 7617),
/// which is what browsers and `curl -u` know. Over plain HTTP whoever sees the packets sees it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a token of {LEAST_CHARACTERS} to {MOST_CHARACTERS} letters, digits and -._~+/=")]
pub(crate) struct InvalidToken;

impl Token {
    /// A token that somebody chose.
    pub(crate) fn new(text: &str) -> Result<Self, InvalidToken> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let has_length = (LEAST_CHARACTERS..=MOST_CHARACTERS).contains(&text.len());
        if has_length && text.bytes().all(is_allowed) { Ok(Self(text.into())) } else { Err(InvalidToken) }
    }

    /// A token that nobody guesses.
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0; RANDOM_BYTES];
        // The kernel gives this many at once or none.
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token itself, for whoever tells it to people.
    #[must_use]
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// As `Authorization` says it.
    pub(super) fn to_field(&self) -> HeaderValue {
        // All its characters are allowed there.
        let field = HeaderValue::from_str(&format!("Bearer {}", self.0));
        let mut field = field.unwrap_or_else(|_| HeaderValue::from_static(""));
        field.set_sensitive(true);
        field
    }

    /// Whether a request shows it.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(AUTHORIZATION).and_then(|field| shown(field.to_str().ok()?));
        shown.is_some_and(|shown| self.is(&shown))
    }

    /// Takes the same time wherever they differ, and whatever their lengths.
    fn is(&self, other: &[u8]) -> bool {
        let sum = |bytes: &[u8]| <[u8; 32]>::from(Sha256::digest(bytes));
        sum(self.0.as_bytes()).ct_eq(&sum(other)).to_bool()
    }
}

/// The secret in a field, whichever way it is said.
fn shown(field: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = field.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.into());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(rest).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Whether an `Origin` field (RFC 6454) is that of a page from this machine, or from this server: it names a loopback address,
/// or the address that `host`, the request's own `Host` field, names. A name of the server's is not enough: a page of
/// somebody else's that had the server's address looked up under its own name (DNS rebinding) has that name in both.
/// Programs that are no browsers send no such field.
/// `scheme` is that of this server's URLs.
pub(super) fn is_of_this_machine(origin: &str, scheme: &str, host: Option<&str>) -> bool {
    let Ok(origin) = Url::parse(origin.trim()) else { return false };
    match origin.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback() || is_named(&origin, scheme, host),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback() || is_named(&origin, scheme, host),
        None => false,
    }
}

/// Whether a request was sent to an address or to a name that is this machine's, by what it says in `Host` or in its target.
/// A browser that looked up somebody else's name and found our address (DNS rebinding) has that name there, and a page of
/// theirs may send what it likes. Addresses can't be forged so, whichever they are: translators on the way have their own.
pub(super) fn is_sent_to_us(host: &str, names: &[String]) -> bool {
    let Ok(url) = Url::parse(&format!("http://{}", host.trim())) else { return false };
    match url.host() {
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => true,
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            let is = |other: &String| name.eq_ignore_ascii_case(other.trim_end_matches('.'));
            // RFC 6761 §6.3.
            name == "localhost" || name.ends_with(".localhost") || names.iter().any(is)
        }
        None => false,
    }
}

/// Whether a request went to the origin's own address and port.
fn is_named(origin: &Url, scheme: &str, host: Option<&str>) -> bool {
    let Some(host) = host.and_then(|host| Url::parse(&format!("{scheme}://{}", host.trim())).ok()) else {
        return false;
    };
    origin.scheme() == scheme && (origin.host(), origin.port()) == (host.host(), host.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_as_bearer_or_as_a_password() {
        let token = Token::new("0123456789abcdef").expect("long enough");
        let is_let_in = |field: &str| {
            let headers = [(AUTHORIZATION, HeaderValue::from_str(field).expect("a field"))];
            token.is_in(&headers.into_iter().collect())
        };
        let basic = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
        assert!(is_let_in("Bearer 0123456789abcdef") && is_let_in("bearer  0123456789abcdef"));
        assert!(is_let_in(&basic(":0123456789abcdef")) && is_let_in(&basic("me:0123456789abcdef")));
        assert!(token.is_in(&[(AUTHORIZATION, token.to_field())].into_iter().collect()));
        for wrong in [
            "",
            "Bearer",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdefg",
            "0123456789abcdef",
            "Digest 0123456789abcdef",
            &basic("0123456789abcdef"),
            &basic("0123456789abcdef:"),
            "Basic ?",
        ] {
            assert!(!is_let_in(wrong), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
    }

    #[test]
    fn tokens_are_long_and_differ() {
        for wrong in ["", "short", "with a space in it", &"x".repeat(1025), "0123456789abcdéf"] {
            assert_eq!(Token::new(wrong), Err(InvalidToken), "{wrong}");
        }
        let (one, other) = (Token::random().expect("bytes"), Token::random().expect("bytes"));
        assert!(one != other && Token::new(one.reveal()).as_ref() == Ok(&one));
        assert_eq!(format!("{one:?}"), "Token(…)");
    }

    #[test]
    fn names_of_others_are_not_ours() {
        let names = ["nas.example".to_string()];
        for ours in [
            "127.0.0.1:8077",
            "[::1]:1",
            "192.0.2.7",
            "localhost:8077",
            "LocalHost",
            "a.localhost.",
            "NAS.example:80",
        ] {
            assert!(is_sent_to_us(ours, &names), "{ours}");
        }
        for other in [
            "evil.example:8077",
            "x",
            "",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "nas.example.evil",
        ] {
            assert!(!is_sent_to_us(other, &names), "{other}");
        }
    }

    #[test]
    fn pages_of_others_have_names_of_others() {
        for ours in
            ["http://127.0.0.1:8077", "http://[::1]:80", "http://localhost:1", "http://[::ffff:127.0.0.1]"]
        {
            assert!(
                is_of_this_machine(ours, "http", Some("192.0.2.1:8077"))
                    && is_of_this_machine(ours, "https", None),
                "{ours}"
            );
        }
        for other in ["http://evil.example:8077", "null", "", "http://127.0.0.1.evil.example"] {
            assert!(!is_of_this_machine(other, "http", Some("127.0.0.1:8077")), "{other}");
        }
        for (origin, host, is_ours) in [
            ("http://192.0.2.1:8077", Some("192.0.2.1:8077"), true),
            ("http://192.0.2.1", Some("192.0.2.1:80"), true),
            ("http://[2001:db8::1]:8077", Some("[2001:db8::1]:8077"), true),
            ("http://192.0.2.1:8077", Some("192.0.2.1"), false),
            ("http://192.0.2.1:8077", Some("127.0.0.1:8077"), false),
            ("https://192.0.2.1:8077", Some("192.0.2.1:8077"), false),
            ("http://192.0.2.1:8077", None, false),
            ("http://evil.example:8077", Some("evil.example:8077"), false),
        ] {
            assert_eq!(is_of_this_machine(origin, "http", host), is_ours, "{origin} at {host:?}");
        }
        let host = Some("192.0.2.1:443");
        assert!(is_of_this_machine("https://192.0.2.1", "https", host));
        assert!(!is_of_this_machine("http://192.0.2.1:443", "https", host));
    }
}
