use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::http1::Fields;

/// How a digest is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "net", derive(serde::Serialize, serde::Deserialize))]
pub enum DigestAlgorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl DigestAlgorithm {
    const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Its name in fields.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
        }
    }

    /// Bytes of a digest.
    #[must_use]
    pub fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// A digest that the server tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "net", derive(serde::Serialize, serde::Deserialize))]
pub struct Digest {
    /// How it is made.
    pub algorithm: DigestAlgorithm,
    /// Its bytes, as many as the algorithm gives.
    pub value: Vec<u8>,
}

impl Digest {
    /// From hexadecimal digits, as many as the algorithm has; `None` if they are others.
    #[must_use]
    pub fn from_hex(algorithm: DigestAlgorithm, digits: &str) -> Option<Self> {
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok();
        if !is_hex || digits.len() != 2 * algorithm.length() {
            return None;
        }
        let value = (0..algorithm.length()).map(byte).collect::<Option<Vec<u8>>>()?;
        Some(Self { algorithm, value })
    }
}

/// Adds what an answer tells to what is known; the error is the algorithm of a digest that is known to be another.
pub(crate) fn collect(known: &mut Vec<Digest>, told: &[Digest]) -> Result<(), DigestAlgorithm> {
    for digest in told {
        match known.iter().find(|known| known.algorithm == digest.algorithm) {
            Some(known) if known.value != digest.value => return Err(digest.algorithm),
            Some(_) => {}
            None => known.push(digest.clone()),
        }
    }
    Ok(())
}

/// The digests of the field `Repr-Digest` (RFC 9530 §3): of the whole, also if the answer brings a part. Those of unknown algorithms are
/// left out, and so is the whole field when it is malformed, as structured fields have it.
#[must_use]
pub fn repr_digests(fields: &Fields) -> Vec<Digest> {
    let lines: Vec<&[u8]> = fields.all("repr-digest").collect();
    let Ok(members) = Parser::new(&lines.join(&b", "[..])).parse::<Dictionary>() else { return Vec::new() };
    let digest = |algorithm: DigestAlgorithm| match members.get(algorithm.name())? {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::ByteSequence(value) if value.len() == algorithm.length() => {
                Some(Digest { algorithm, value: value.clone() })
            }
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    };
    DigestAlgorithm::ALL.into_iter().filter_map(digest).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(lines: &[&str]) -> Vec<Digest> {
        let line = |line: &&str| (Bytes::from("Repr-Digest"), Bytes::copy_from_slice(line.as_bytes()));
        repr_digests(&Fields::new(lines.iter().map(line).collect()))
    }

    #[test]
    fn digests_are_read() {
        let (short, long) = ("A".repeat(43), "A".repeat(86));
        let sha256 = Digest { algorithm: DigestAlgorithm::Sha256, value: vec![0; 32] };
        let sha512 = Digest { algorithm: DigestAlgorithm::Sha512, value: vec![0; 64] };
        let (first, second) = (format!("sha-512=:{long}==:, md5=:AAAA:"), format!("sha-256=:{short}=:;q=1"));
        assert_eq!(read(&[&first, &second]), [sha256.clone(), sha512]);
        assert_eq!(read(&[&second]), [sha256]);
    }

    #[test]
    fn digests_that_are_none_are_left_out() {
        for line in ["", "sha-256", "sha-256=:AAAA:", "sha-256=\"x\"", "sha-256=(:AAAA:)", "SHA-256=:AAAA:"] {
            assert_eq!(read(&[line]), [], "{line}");
        }
        assert_eq!(read(&[]), []);
    }
}
