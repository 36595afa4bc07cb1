use std::cmp::Reverse;

use polypath_units::BitRate;

/// Shares of a send vector's slots whose rounding errors are made up for in the vectors to come.
///
/// A vector alone is wrong by half a slot (Kaspar 2011, eq. 3.4), and what it gives to a path is what the monitor measures there: so it stays wrong.
#[derive(Clone, Debug)]
pub(super) struct Rounding {
    slots: u64,
    /// What each path has too few of, in slots.
    owed: Vec<f64>,
}

impl Rounding {
    pub(super) fn new(slots: u64, paths: usize) -> Self {
        Self { slots, owed: vec![0.0; paths] }
    }

    /// How many slots each path has for its rate this time. None if all rates are zero.
    pub(super) fn counts(&mut self, rates: &[BitRate]) -> Option<Vec<u64>> {
        let sum: f64 = rates.iter().map(|rate| rate.as_bps() as f64).sum();
        if sum <= 0.0 {
            return None;
        }
        let shares = rates.iter().zip(&self.owed).map(|(rate, owed)| match rate.as_bps() {
            // Who is away is owed nothing.
            0 => 0.0,
            bps => (bps as f64 / sum * self.slots as f64 + owed).max(0.0),
        });
        let wanted: Vec<f64> = shares.collect();
        let mut counts: Vec<u64> = wanted.iter().map(|wanted| *wanted as u64).collect();
        let mut by_loss: Vec<usize> = (0..wanted.len()).filter(|path| rates[*path] > BitRate::ZERO).collect();
        by_loss.sort_by_key(|path| Reverse((wanted[*path].fract() * 1e9) as u64));
        for path in by_loss.iter().cycle() {
            if counts.iter().sum::<u64>() >= self.slots {
                break;
            }
            counts[*path] += 1;
        }
        for ((owed, wanted), count) in self.owed.iter_mut().zip(&wanted).zip(&counts) {
            *owed = (wanted - *count as f64).clamp(-1.0, 1.0);
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_mean_each_path_has_its_share() {
        let rates = [500, 5500].map(BitRate::from_kbps);
        let mut rounding = Rounding::new(64, 2);
        let counts: Vec<Vec<u64>> = (0..300).filter_map(|_| rounding.counts(&rates)).collect();
        assert!(counts.iter().all(|counts| counts.iter().sum::<u64>() == 64 && [5, 6].contains(&counts[0])));
        let of_first = counts.iter().map(|counts| counts[0]).sum::<u64>() as f64 / 300.0;
        assert!((of_first - 64.0 / 12.0).abs() < 0.01, "{of_first}");
    }

    #[test]
    fn who_is_away_has_nothing_and_is_owed_nothing() {
        let mut rounding = Rounding::new(8, 3);
        let rates = [1000, 1000, 1000].map(BitRate::from_kbps);
        assert_eq!(rounding.counts(&rates).map(|counts| counts.iter().sum()), Some(8));
        for _ in 0..10 {
            let counts = rounding.counts(&[BitRate::ZERO, rates[1], BitRate::ZERO]);
            assert_eq!(counts, Some(vec![0, 8, 0]));
        }
        assert_eq!(rounding.counts(&[BitRate::ZERO; 3]), None);
    }
}
