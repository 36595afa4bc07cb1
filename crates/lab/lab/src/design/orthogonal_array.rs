use super::{Point, Random, place};

/// Why there is no orthogonal array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrthogonalArrayError {
    /// Squares of this order are made by arithmetic modulo a prime.
    #[error("{0} levels are not a prime number")]
    NotPrime(usize),
    /// There are no more mutually orthogonal squares.
    #[error("{factors} factors are too many for {levels} levels, which have at most {}", levels + 1)]
    TooManyFactors {
        /// Levels of each factor.
        levels: usize,
        /// Factors that were asked for.
        factors: usize,
    },
}

/// An orthogonal array of strength 2 from mutually orthogonal Latin squares of prime order (Bose 1938): `levels`²
/// points, in which any two factors have every pair of levels exactly once.
///
/// Row and column of the squares are the first two factors; square number m has (m · row + column) mod `levels`. Which
/// factor is which, and which level is which, depends on the seed.
///
/// # Errors
/// If `levels` is no prime, or there are more factors than `levels` + 1.
pub fn orthogonal_array(
    levels: usize,
    factors: usize,
    seed: u64,
) -> Result<Vec<Point>, OrthogonalArrayError> {
    if !is_prime(levels) {
        return Err(OrthogonalArrayError::NotPrime(levels));
    }
    if factors > levels + 1 {
        return Err(OrthogonalArrayError::TooManyFactors { levels, factors });
    }
    let mut random = Random::new(seed);
    let columns = random.permutation(levels + 1);
    let names: Vec<Vec<usize>> = (0..factors).map(|_| random.permutation(levels)).collect();
    let cell = |column: usize, row: usize, across: usize| match column {
        0 => row,
        square => (row * (square - 1) + across) % levels,
    };
    Ok((0..levels * levels)
        .map(|number| {
            let (row, across) = (number / levels, number % levels);
            (0..factors)
                .map(|factor| place(names[factor][cell(columns[factor], row, across)], levels))
                .collect()
        })
        .collect())
}

fn is_prime(number: usize) -> bool {
    number >= 2
        && (2..)
            .take_while(|divisor| divisor * divisor <= number)
            .all(|divisor| !number.is_multiple_of(divisor))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn any_two_factors_have_every_pair_of_levels_once() {
        for (levels, factors) in [(2, 3), (3, 4), (5, 6), (13, 14), (13, 6)] {
            let points = orthogonal_array(levels, factors, 4).unwrap();
            assert_eq!(points.len(), levels * levels);
            for one in 0..factors {
                for other in one + 1..factors {
                    let level = |value: f64| (value * (levels - 1) as f64).round() as usize;
                    let pairs: BTreeSet<(usize, usize)> =
                        points.iter().map(|point| (level(point[one]), level(point[other]))).collect();
                    assert_eq!(pairs.len(), levels * levels, "{levels} levels, factors {one} and {other}");
                }
            }
        }
    }

    #[test]
    fn refuses_what_it_can_not_make() {
        assert_eq!(orthogonal_array(6, 2, 1), Err(OrthogonalArrayError::NotPrime(6)));
        assert_eq!(orthogonal_array(1, 1, 1), Err(OrthogonalArrayError::NotPrime(1)));
        let error = orthogonal_array(3, 5, 1).unwrap_err();
        assert_eq!(error.to_string(), "5 factors are too many for 3 levels, which have at most 4");
    }
}
