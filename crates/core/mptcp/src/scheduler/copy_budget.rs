/// How much of what is on its way may be sent again over another path, in the hope that it arrives earlier.
///
/// To an application that writes little by little, every write is the end of what was written. If each were copied, a stream that one
/// path carries with ease would go out twice: its copies cost money on a metered path, and on a full one delay what they are to
/// speed up. So copies take a share of what is sent, and may run ahead of that as far as the end of a transfer needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyBudget {
    left_bytes: u64,
    /// What has been sent, of which no whole byte has come in yet.
    rest_bytes: u64,
}

/// At the beginning: a short transfer, or the end of one, over two paths of several hundred kilobytes each.
const FIRST_BYTES: u64 = 256 << 10;
/// So many bytes sent allow one more to be copied.
const SENT_PER_COPIED: u64 = 32;
/// It grows no further: as much as stands in a long queue of a slow path.
const MOST_BYTES: u64 = 1 << 20;

impl Default for CopyBudget {
    fn default() -> Self {
        Self { left_bytes: FIRST_BYTES, rest_bytes: 0 }
    }
}

impl CopyBudget {
    pub(super) const fn allows(&self, count: u64) -> bool {
        self.left_bytes >= count
    }

    pub(super) fn on_sent(&mut self, count: u64) {
        let sent = self.rest_bytes + count;
        self.left_bytes = (self.left_bytes + sent / SENT_PER_COPIED).min(MOST_BYTES);
        self.rest_bytes = sent % SENT_PER_COPIED;
    }

    pub(super) fn on_copied(&mut self, count: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_a_share_of_what_is_sent_and_a_bounded_advance() {
        let mut budget = CopyBudget::default();
        let mut copied = 0;
        for sent in 1..=100_000_u64 {
            budget.on_sent(1000);
            if budget.allows(1000) {
                budget.on_copied(1000);
                copied += 1000;
            }
            assert!(copied <= FIRST_BYTES + sent * 1000 / SENT_PER_COPIED);
        }
        assert!(copied > 100_000_000 / SENT_PER_COPIED);
        for _ in 0..1_000_000 {
            budget.on_sent(1000);
        }
        assert!(budget.allows(MOST_BYTES) && !budget.allows(MOST_BYTES + 1));
    }
}
