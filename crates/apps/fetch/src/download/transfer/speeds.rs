//! What each place of a file brought of late: one that brings next to nothing is not waited for. No clock.

/// What is compared came in so many rounds.
const ROUNDS: u32 = 8;
/// A place that brought less than this part of what all did only makes others wait for the end of its pieces.
const LEAST_PART: u64 = 50;

/// Bytes of each place, by its number, in rounds of the same length.
#[derive(Debug, Default)]
pub(super) struct Speeds {
    rounds: u32,
    /// Bytes, and in how many rounds it was asked.
    came: Vec<(u64, u32)>,
}

impl Speeds {
    pub(super) fn note(&mut self, source: usize, bytes: u64) {
        self.slot(source).0 += bytes;
    }

    fn slot(&mut self, source: usize) -> &mut (u64, u32) {
        if self.came.len() <= source {
            self.came.resize(source + 1, (0, 0));
        }
        &mut self.came[source]
    }

    /// A round is over, in which these were asked: those that are too slow.
    pub(super) fn end_round(&mut self, asked: &[usize]) -> Vec<usize> {
        for source in asked {
            self.slot(*source).1 += 1;
        }
        self.rounds += 1;
        if self.rounds < ROUNDS {
            return Vec::new();
        }
        let came = std::mem::take(self).came;
        let all: u64 = came.iter().map(|(bytes, _)| bytes).sum();
        let is_slow = |source: &usize| {
            let (bytes, rounds) = came[*source];
            rounds == ROUNDS && bytes < all / LEAST_PART
        };
        asked.iter().copied().filter(is_slow).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_that_was_asked_all_the_time_and_brought_next_to_nothing_is_slow() {
        let mut speeds = Speeds::default();
        let mut slow = Vec::new();
        for round in 0..ROUNDS {
            speeds.note(0, 1_000_000);
            speeds.note(1, 1_000);
            speeds.note(2, 30_000);
            let asked: &[usize] = if round < 3 { &[0, 1, 2] } else { &[0, 1, 2, 3] };
            slow = speeds.end_round(asked);
        }
        assert_eq!(slow, [1]);
        // Where nothing comes at all, none is slower than the others.
        assert!((0..ROUNDS).all(|_| speeds.end_round(&[0, 1]).is_empty()));
    }
}
