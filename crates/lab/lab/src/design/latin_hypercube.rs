use super::{Point, Random};

/// A Latin hypercube (McKay, Beckman and Conover 1979): each factor's range is cut into `sets` equal parts, and each
/// part holds exactly one point.
#[must_use]
pub fn latin_hypercube(sets: usize, factors: usize, seed: u64) -> Vec<Point> {
    let mut random = Random::new(seed);
    let columns: Vec<Vec<f64>> = (0..factors)
        .map(|_| {
            let order = random.permutation(sets);
            order.into_iter().map(|part| (part as f64 + random.unit()) / sets as f64).collect()
        })
        .collect();
    (0..sets).map(|set| columns.iter().map(|column| column[set]).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_every_factor_has_one_point() {
        let points = latin_hypercube(40, 5, 1);
        for factor in 0..5 {
            let mut parts: Vec<usize> =
                points.iter().map(|point| (point[factor] * 40.0).floor() as usize).collect();
            parts.sort_unstable();
            assert!(parts.into_iter().eq(0..40));
        }
        assert_ne!(points, latin_hypercube(40, 5, 2));
        assert_eq!(latin_hypercube(0, 5, 1), Vec::<Point>::new());
    }
}
