//! Keys, written as WireGuard writes them: 32 bytes in base64, 44 characters.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use zeroize::{Zeroize, Zeroizing};

/// Length of every key.
pub const KEY_BYTES: usize = 32;

/// Text that is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a key of 44 characters in base64, as WireGuard writes it, and not {} characters", .characters)]
pub struct KeyError {
    characters: usize,
}

fn parse(text: &str) -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyError> {
    let text = text.trim();
    let mistake = KeyError { characters: text.chars().count() };
    let decoded = STANDARD.decode(text).ok().map(Zeroizing::new);
    decoded.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(&bytes[..]).ok()).map(Zeroizing::new).ok_or(mistake)
}

/// A secret key of X25519 (RFC 7748). It is not shown by `Debug`, and overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(Zeroizing<[u8; KEY_BYTES]>);

/// The public half, by which a peer is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; KEY_BYTES]);

/// A secret that both ends know beforehand, mixed into the handshake; all zeros if there is none. Overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PresharedKey(Zeroizing<[u8; KEY_BYTES]>);

impl PrivateKey {
    /// A key of random bytes (RFC 7748 §5 says which bits are fixed).
    #[must_use]
    pub fn from_random(mut random: [u8; KEY_BYTES]) -> Self {
        random[0] &= 248;
        random[31] = (random[31] & 127) | 64;
        let key = Self(Zeroizing::new(random));
        random.zeroize();
        key
    }

    /// Its public half.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        let mut exchange = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("X25519 is built in");
        exchange.set(&*self.0);
        PublicKey(exchange.pubkey().try_into().expect("a public key has 32 bytes"))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// As it is written in a file. Only for that.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        STANDARD.encode(*self.0)
    }
}

impl PublicKey {
    /// A key of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl PresharedKey {
    /// A key of random bytes.
    #[must_use]
    pub fn from_random(mut random: [u8; KEY_BYTES]) -> Self {
        let key = Self(Zeroizing::new(random));
        random.zeroize();
        key
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// As it is written in a file. Only for that.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        STANDARD.encode(*self.0)
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).map(Self)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).map(|bytes| Self(*bytes))
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_key_is_that_of_rfc_7748() {
        // RFC 7748 §6.1, Alice.
        let secret = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
        let public = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
        let key: PrivateKey = secret.parse().unwrap();
        assert_eq!(key.public_key().to_string(), public);
        assert_eq!(key.to_secret_text(), secret);
        assert_eq!(format!("{key:?}"), "PrivateKey(..)");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "abc",
            "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LC==",
            "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCoAA",
        ] {
            assert!(text.parse::<PublicKey>().is_err(), "{text}");
        }
    }
}
