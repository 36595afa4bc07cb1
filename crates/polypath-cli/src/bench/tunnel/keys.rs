//! Keys that everybody knows: here is nothing to protect.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Of one end.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyPair {
    private: &'static str,
    public: &'static str,
}

/// Of client and server.
pub(super) const KEYS: [KeyPair; 2] = [
    KeyPair {
        private: "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
        public: "07a37cbc142093c8b755dc1b10e86cb426374ad16aa853ed0bdfc0b2b86d1c7c",
    },
    KeyPair {
        private: "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
        public: "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    },
];

impl KeyPair {
    pub(super) fn private_hex(&self) -> &'static str {
        self.private
    }

    pub(super) fn public_hex(&self) -> &'static str {
        self.public
    }

    /// As WireGuard's files have it.
    pub(super) fn private_base64(&self) -> String {
        in_base64(self.private)
    }

    pub(super) fn public_base64(&self) -> String {
        in_base64(self.public)
    }
}

fn in_base64(hex: &str) -> String {
    let digits = hex.as_bytes().chunks(2);
    let bytes = digits.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    BASE64_STANDARD.encode(bytes.collect::<Vec<u8>>())
}
