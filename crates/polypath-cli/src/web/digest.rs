//! SHA-256 of files, and how HTTP writes it (RFC 9530).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Asks for a digest.
pub(super) const WANT_REPR_DIGEST: &str = "want-repr-digest";
/// Has it.
pub(super) const REPR_DIGEST: &str = "repr-digest";

const BUFFER_BYTES: usize = 256 << 10;

/// A SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest(pub [u8; 32]);

/// A field has a SHA-256, and it is none, or several that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedDigest;

impl Digest {
    pub(super) fn of(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// As a value of `Repr-Digest` (RFC 9530 §3).
    #[must_use]
    pub(crate) fn to_field(self) -> String {
        format!("sha-256=:{}:", BASE64_STANDARD.encode(self.0))
    }

    /// The SHA-256 that `Repr-Digest` tells among these fields; several lines are one field (RFC 9110 §5.3).
    pub(super) fn told_in(fields: &HeaderMap) -> Result<Option<Self>, MalformedDigest> {
        let lines = fields.get_all(REPR_DIGEST).iter().map(HeaderValue::to_str);
        let lines: Vec<_> = lines.collect::<Result<_, _>>().map_err(|_| MalformedDigest)?;
        Self::from_field(&lines.join(", "))
    }

    /// The SHA-256 among the digests of a field (a dictionary, RFC 8941 §3.2); none if it has only others.
    pub(super) fn from_field(field: &str) -> Result<Option<Self>, MalformedDigest> {
        let mut found = None;
        for value in field.split(',').filter_map(|member| member.trim().strip_prefix("sha-256=")) {
            let digest = Self::from_value(value)?;
            // RFC 8941 lets the last of several count. A file can't have two, so somebody is wrong.
            if found.replace(digest).is_some_and(|before| before != digest) {
                return Err(MalformedDigest);
            }
        }
        Ok(found)
    }

    fn from_value(value: &str) -> Result<Self, MalformedDigest> {
        // Parameters may follow; none is defined.
        let bytes = value.split(';').next().unwrap_or_default().trim();
        let text =
            bytes.strip_prefix(':').and_then(|bytes| bytes.strip_suffix(':')).ok_or(MalformedDigest)?;
        let digest = BASE64_STANDARD.decode(text).map_err(|_| MalformedDigest)?;
        digest.try_into().map(Self).map_err(|_| MalformedDigest)
    }

    /// In hexadecimal digits, as `sha256sum` writes it.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Digest of the first `length` bytes of a file, or of all. Between two blocks of it others have their turn, such as whoever
/// waits for a signal.
pub(crate) async fn digest_of(path: &Path, length: Option<u64>) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut hashing = Hashing::new(length);
    while hashing.read_block(&mut file)? {
        tokio::task::yield_now().await;
    }
    Ok(Digest::of(hashing.hasher))
}

/// A hasher that has seen the next `length` bytes, or all to the end. That many must be there.
pub(super) fn hash(file: &mut File, length: Option<u64>) -> io::Result<Sha256> {
    let mut hashing = Hashing::new(length);
    while hashing.read_block(file)? {}
    Ok(hashing.hasher)
}

/// A file that is hashed block by block.
struct Hashing {
    hasher: Sha256,
    buffer: Vec<u8>,
    /// None: to the end.
    left: Option<u64>,
}

impl Hashing {
    fn new(length: Option<u64>) -> Self {
        Self { hasher: Sha256::new(), buffer: vec![0; BUFFER_BYTES], left: length }
    }

    /// The next block. False if there is none.
    fn read_block(&mut self, file: &mut File) -> io::Result<bool> {
        let most = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let most = most.min(self.buffer.len());
        if most == 0 {
            return Ok(false);
        }
        match (file.read(&mut self.buffer[..most])?, self.left) {
            (0, None) => Ok(false),
            (0, Some(_)) => Err(io::ErrorKind::UnexpectedEof.into()),
            (read, left) => {
                self.hasher.update(&self.buffer[..read]);
                self.left = left.map(|left| left - read as u64);
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_goes_through_a_field() {
        // The example of RFC 9530, appendix D.
        let digest = Digest::of(Sha256::new_with_prefix("{\"hello\": \"world\"}\n"));
        let field = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
        assert_eq!(digest.to_field(), field);
        assert_eq!(Digest::from_field(&format!("md5=:AAAA:, {field};x=1")), Ok(Some(digest)));
        assert_eq!(Digest::from_field(&format!("{field}, {field}")), Ok(Some(digest)));
        let other = Digest([0; 32]).to_field();
        assert_eq!(Digest::from_field(&format!("{field}, {other}")), Err(MalformedDigest));
        for other in ["", "md5=:AAAA:", "sha-512=:AAAA:"] {
            assert_eq!(Digest::from_field(other), Ok(None), "{other}");
        }
        for wrong in ["sha-256=:AAAA:", "sha-256=RK/0", "sha-256=", "sha-512=:AAAA:, sha-256=:?:"] {
            assert_eq!(Digest::from_field(wrong), Err(MalformedDigest), "{wrong}");
        }
    }
}
