//! Digests of a file's pieces: by them, a wrong one is known as soon as it is there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::hasher::Hasher;
use crate::answer::DigestAlgorithm;

/// What is read and compared at once.
const MOST_BYTES: u64 = 64 << 20;
const LEAST_BYTES: u64 = 128;

/// Pieces of the same length, but for the last one, and their digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    algorithm: DigestAlgorithm,
    piece_bytes: u64,
    digests: Vec<Vec<u8>>,
}

impl Pieces {
    /// None if a piece has no length that is of use.
    #[must_use]
    pub fn new(algorithm: DigestAlgorithm, piece_bytes: u64, digests: Vec<Vec<u8>>) -> Option<Self> {
        let is_of_use = (LEAST_BYTES..=MOST_BYTES).contains(&piece_bytes);
        is_of_use.then_some(Self { algorithm, piece_bytes, digests })
    }

    /// Whether they make up a file of this length.
    #[must_use]
    pub fn fit(&self, total: u64) -> bool {
        total.div_ceil(self.piece_bytes) == self.digests.len() as u64
    }

    /// How many they are.
    pub(super) fn count(&self) -> u64 {
        self.digests.len() as u64
    }

    /// The pieces of which bytes are in a range, by their numbers.
    pub(super) fn touched(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.piece_bytes..range.end.div_ceil(self.piece_bytes)
    }

    /// The bytes of one.
    pub(super) fn range(&self, number: u64, total: u64) -> Range<u64> {
        let start = number * self.piece_bytes;
        start..(start + self.piece_bytes).min(total)
    }

    /// Whether one is what it has to be.
    pub(super) fn is_right(&self, number: u64, range: &Range<u64>, file: &File) -> io::Result<bool> {
        let mut hasher = Hasher::new(self.algorithm);
        let mut buffer = vec![0; 256 << 10];
        let mut at = range.start;
        while at < range.end {
            let most = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
            file.read_exact_at(&mut buffer[..most], at)?;
            hasher.update(&buffer[..most]);
            at += most as u64;
        }
        let expected = usize::try_from(number).ok().and_then(|number| self.digests.get(number));
        Ok(expected.is_none_or(|expected| *expected == hasher.finish()))
    }
}
