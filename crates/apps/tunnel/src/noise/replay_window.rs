//! Which counters have come (RFC 6479).

/// Counters that the window reaches back. At 1 Gbit/s and 1400 bytes a packet, 400 ms are 36 000.
pub(super) const WINDOW_PACKETS: u64 = 1 << 16;
const BITS: u64 = 64;
/// One more word than the window needs, so that moving it on clears words that are outside.
const WORDS: u64 = WINDOW_PACKETS / BITS * 2;

/// A counter is good once, if it is not too far behind the largest.
#[derive(Clone)]
pub(super) struct ReplayWindow {
    /// One more than the largest counter that came.
    next: u64,
    /// Grows with the counters, up to its ring: paths that carry little hold little.
    words: Vec<u64>,
}

impl ReplayWindow {
    pub(super) const fn new() -> Self {
        Self { next: 0, words: Vec::new() }
    }

    /// Whether it may come. Cheap: before the contents are decrypted.
    pub(super) fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return true;
        }
        self.next - counter <= WINDOW_PACKETS && self.words[self.word(counter)] & bit(counter) == 0
    }

    /// It came, and it is authentic. False if it came before.
    pub(super) fn note(&mut self, counter: u64) -> bool {
        if !self.is_new(counter) {
            return false;
        }
        if counter >= self.next {
            self.move_on(counter);
        }
        let word = self.word(counter);
        self.words[word] |= bit(counter);
        true
    }

    fn move_on(&mut self, counter: u64) {
        let (last, now) = (self.next.saturating_sub(1) / BITS, counter / BITS);
        if (self.words.len() as u64) < WORDS && now >= self.words.len() as u64 {
            let wanted = (now + 1).next_power_of_two().min(WORDS);
            // Below the ring's full length, positions are the counters' own.
            if now < WORDS {
                self.words.resize(wanted as usize, 0);
            } else {
                self.words = self.regrown();
            }
        }
        let ring = self.words.len() as u64;
        for word in (last + 1..=now).rev().take(ring as usize) {
            self.words[(word % ring) as usize] = 0;
        }
        self.next = counter + 1;
    }

    /// The full ring. What came before lies at the same places.
    fn regrown(&self) -> Vec<u64> {
        let mut words = self.words.clone();
        words.resize(WORDS as usize, 0);
        words
    }

    fn word(&self, counter: u64) -> usize {
        ((counter / BITS) % self.words.len().max(1) as u64) as usize
    }
}

fn bit(counter: u64) -> u64 {
    1 << (counter % BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn skew_of_400_ms_at_a_gigabit_is_borne() {
        let mut window = ReplayWindow::new();
        // Every other packet comes 36 000 packets late.
        for counter in 0..200_000_u64 {
            if counter % 2 == 0 {
                assert!(window.note(counter));
            }
            if counter >= 36_000 && counter % 2 == 1 {
                assert!(window.note(counter - 36_000), "{counter}");
                assert!(!window.note(counter - 36_000));
            }
        }
    }

    #[test]
    fn far_jumps_forget_and_refuse_what_is_too_old() {
        let mut window = ReplayWindow::new();
        assert!(window.note(5));
        assert!(window.note(1_000_000));
        assert!(!window.note(5));
        assert!(window.note(1_000_000 - WINDOW_PACKETS + 1));
        assert!(!window.note(1_000_000 - WINDOW_PACKETS));
        assert!(window.note(u64::MAX - 1));
        assert!(!window.note(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn it_says_what_a_set_says(counters in proptest::collection::vec(0_u64..300_000, 1..400)) {
            let mut window = ReplayWindow::new();
            let (mut seen, mut largest) = (BTreeSet::new(), 0);
            for counter in counters {
                largest = largest.max(counter);
                let is_new = seen.insert(counter);
                let expected = is_new && (counter == largest || largest + 1 - counter <= WINDOW_PACKETS);
                prop_assert_eq!(window.is_new(counter), expected);
                prop_assert_eq!(window.note(counter), expected);
                if !expected { seen.insert(counter); }
            }
        }
    }
}
