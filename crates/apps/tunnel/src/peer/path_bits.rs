//! A set of paths, by number.

/// The numbers in it, from the lowest on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathBits(u16);

impl PathBits {
    pub(super) const fn with(self, path: usize) -> Self {
        Self(self.0 | 1 << path)
    }
}

impl Iterator for PathBits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let path = self.0.trailing_zeros() as usize;
        // Without its lowest bit.
        self.0 &= self.0.checked_sub(1)?;
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_order_and_once() {
        let bits = [15, 0, 8, 0].into_iter().fold(PathBits::default(), PathBits::with);
        assert_eq!(bits.collect::<Vec<_>>(), [0, 8, 15]);
        assert_eq!(PathBits::default().next(), None);
    }
}
