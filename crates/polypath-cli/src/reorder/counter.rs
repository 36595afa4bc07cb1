//! Numbers that a sender counts up by one for each packet, and that begin again at zero after the largest.

/// What a number is put on, so that one that came earlier is not negative.
const BASE: u64 = 1 << 40;

/// A number in so many bits.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    bits: u32,
    /// The highest so far, as it was sent and as it goes on.
    highest: Option<(u64, u64)>,
    /// The last that was no neighbour of the others.
    strange: Option<u64>,
    packets: u64,
    jumps: u64,
}

impl Counter {
    pub(super) const fn new(bits: u32) -> Self {
        Self { bits, highest: None, strange: None, packets: 0, jumps: 0 }
    }

    /// The number as it goes on beyond the largest; none if it has nothing to do with those before.
    pub(super) fn unwrap(&mut self, raw: u64) -> Option<u64> {
        self.packets += 1;
        let Some((sent, number)) = self.highest else {
            let number = if self.bits == 64 { raw } else { BASE + raw };
            self.highest = Some((raw, number));
            return Some(number);
        };
        let distance = self.distance(sent, raw);
        if distance.unsigned_abs() <= self.most_distance() {
            self.strange = None;
            let number = number.checked_add_signed(distance)?;
            if distance > 0 {
                self.highest = Some((raw, number));
            }
            return Some(number);
        }
        self.jumps += 1;
        // Two strange ones after each other that go together: the sender began anew.
        let before = self.strange.replace(raw)?;
        let step = self.distance(before, raw);
        if step.unsigned_abs() > self.most_distance() || step <= 0 {
            return None;
        }
        self.strange = None;
        let number = number.checked_add(step.unsigned_abs())?;
        self.highest = Some((raw, number));
        Some(number)
    }

    /// They jump about: they number no packets.
    pub(super) const fn is_none(&self) -> bool {
        self.jumps * 10 > self.packets
    }

    fn distance(&self, from: u64, to: u64) -> i64 {
        let unused = 64 - self.bits;
        // The highest bit of the number becomes the sign.
        ((to.wrapping_sub(from) << unused) as i64) >> unused
    }

    /// Farther away is what does not belong to the others: a quarter of the circle, or what no outage lasts for.
    const fn most_distance(&self) -> u64 {
        let quarter = 1 << (self.bits - 2);
        if quarter < 1 << 20 { quarter } else { 1 << 20 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_behind_the_largest() {
        let mut counter = Counter::new(16);
        let numbers = [65_534, 0, 65_535, 1].map(|raw| counter.unwrap(raw).map(|number| number - BASE));
        assert_eq!(numbers, [65_534, 65_536, 65_535, 65_537].map(Some));
        assert!(!counter.is_none());
        let mut whole = Counter::new(64);
        assert_eq!([u64::MAX - 1, u64::MAX].map(|raw| whole.unwrap(raw)), [u64::MAX - 1, u64::MAX].map(Some));
        assert_eq!(whole.unwrap(0), None, "there is nothing behind it");
    }

    #[test]
    fn a_sender_that_begins_anew_goes_on_and_a_stray_number_does_not_count() {
        let mut counter = Counter::new(32);
        let numbers = [1, 2, 3_000_000_000, 3, 70, 2_000_000_000, 2_000_000_001, 2_000_000_002];
        let numbers = numbers.map(|raw| counter.unwrap(raw).map(|number| number - BASE));
        let expected = [Some(1), Some(2), None, Some(3), Some(70), None, Some(71), Some(72)];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn what_jumps_about_is_no_counter() {
        let mut counter = Counter::new(16);
        for step in 0..100_u64 {
            counter.unwrap(step * 40_503 % 65_536);
        }
        assert!(counter.is_none());
    }
}
