//! Choices from bytes, so that a seed, a fuzzer's input and a shrunk run are one thing.

/// Reads choices from a byte string; where it ends, zeros follow, and zero is always the plainest choice.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// Below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// True in so many cases of 256.
    pub(super) fn chance(&mut self, of_256: u8) -> bool {
        self.byte() > 255 - of_256
    }

    /// 1 to 2^`bits` - 1, uniform in the logarithm.
    pub(super) fn log(&mut self, bits: u8) -> u64 {
        let byte = u32::from(self.byte()) % (8 * u32::from(bits));
        ((8 + u64::from(byte & 7)) << (byte >> 3)) >> 3
    }
}
