//! The content of simulated streams: a function of the stream offset, so that a receiver can check every byte
//! without anything being kept, and a table in static storage, so that sending neither copies nor counts
//! references.

use std::sync::OnceLock;

use bytes::Bytes;
use rand_core::{Rng, SeedableRng};

// A prime, so that no power-of-two shift of the stream maps the pattern to itself.
const PERIOD_BYTES: usize = 1_048_573;

fn table() -> &'static [u8] {
    static TABLE: OnceLock<&'static [u8]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut bytes = vec![0; PERIOD_BYTES];
        rand_chacha::ChaCha8Rng::seed_from_u64(0x706f_6c79).fill_bytes(&mut bytes);
        // Lives as long as the process, which is what `Bytes::from_static` needs.
        Vec::leak(bytes)
    })
}

/// A stream's content: the shared table read from a place that depends on the stream.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    table: &'static [u8],
    start: usize,
}

/// Where a stream differs from its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Stream offset of the first wrong byte.
    pub offset: u64,
}

impl Pattern {
    /// The pattern of stream number `stream`; different streams differ almost everywhere.
    pub fn new(stream: u64) -> Self {
        let start = stream.wrapping_mul(0x9e37_79b9_7f4a_7c15) % PERIOD_BYTES as u64;
        Self { table: table(), start: start as usize }
    }

    fn position(&self, offset: u64) -> usize {
        ((offset + self.start as u64) % PERIOD_BYTES as u64) as usize
    }

    /// At most `max_bytes` bytes of the stream from `offset`, without a copy. Shorter where the table ends;
    /// never empty unless `max_bytes` is zero.
    pub fn slice(&self, offset: u64, max_bytes: u64) -> Bytes {
        let start = self.position(offset);
        let len = usize::try_from(max_bytes).unwrap_or(usize::MAX).min(PERIOD_BYTES - start);
        Bytes::from_static(&self.table[start..start + len])
    }

    /// The first `count` bytes of the stream.
    pub fn to_vec(&self, count: u64) -> Vec<u8> {
        (0..count).map(|offset| self.table[self.position(offset)]).collect()
    }

    /// Compares received bytes, which begin at `offset` of the stream, with the pattern.
    ///
    /// # Errors
    /// The offset of the first byte that differs.
    pub fn verify(&self, offset: u64, received: &[u8]) -> Result<(), Mismatch> {
        let mut done = 0;
        while done < received.len() {
            let start = self.position(offset + done as u64);
            let len = (received.len() - done).min(PERIOD_BYTES - start);
            let (got, want) = (&received[done..done + len], &self.table[start..start + len]);
            // Inside one process the bytes that arrive are mostly the very bytes that were sent.
            if got.as_ptr() != want.as_ptr() && got != want {
                let at = got.iter().zip(want).position(|(got, want)| got != want).unwrap_or(0);
                return Err(Mismatch { offset: offset + (done + at) as u64 });
            }
            done += len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sliced_verifies_at_its_offset_and_nowhere_else() {
        let pattern = Pattern::new(3);
        let mut stream = Vec::new();
        while stream.len() < 2 * PERIOD_BYTES + 10 {
            stream.extend_from_slice(&pattern.slice(stream.len() as u64, 100_000));
        }
        assert_eq!(pattern.verify(0, &stream), Ok(()));
        assert_eq!(pattern.verify(1_048_000, &stream[1_048_000..1_050_000]), Ok(()));
        assert!(pattern.verify(1, &stream[..100]).is_err());
        assert!(Pattern::new(4).verify(0, &stream[..100]).is_err());
        stream[1_060_000] ^= 1;
        assert_eq!(pattern.verify(0, &stream), Err(Mismatch { offset: 1_060_000 }));
        let own = pattern.slice(77, 1000);
        assert_eq!(pattern.verify(77, &own), Ok(()));
    }
}
