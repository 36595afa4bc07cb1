use super::{Point, Random};

/// Candidates for each point that is to remain; more of them fill space more evenly and take longer.
const CANDIDATES_PER_SET: usize = 10;
const LEAST_CANDIDATES: usize = 2000;
/// Bisections of one cloud of candidates before the next is tried, and clouds before a surplus is cut off.
const BISECTIONS: usize = 30;
const CLOUDS: u64 = 4;

/// A space-filling design after Wootton, Sergent and Phan-Tan-Luu (Santiago, Claeys-Bruno and Sergent 2012): of many
/// uniform random candidates, begin with the one that is nearest to the centre, drop all that are nearer than d_min to
/// it, go on from the nearest that is left. d_min is found by bisection so that `sets` points remain.
///
/// No two points are nearer to each other than d_min, and no candidate is farther than d_min from all of them.
#[must_use]
pub fn wsp(sets: usize, factors: usize, seed: u64) -> Vec<Point> {
    if sets == 0 || factors == 0 {
        return vec![Point::new(); sets];
    }
    let mut closest: Option<Vec<Point>> = None;
    for cloud in 0..CLOUDS {
        let mut random = Random::new(seed.wrapping_add(cloud << 32));
        let count = (CANDIDATES_PER_SET * sets).max(LEAST_CANDIDATES);
        let candidates: Vec<Point> = (0..count).map(|_| random.point(factors)).collect();
        // At zero distance all remain; at the cube's diagonal one does.
        let (mut low, mut high) = (0.0, (factors as f64).sqrt());
        for _ in 0..BISECTIONS {
            let distance = f64::midpoint(low, high);
            // More than twice as many is too many, whatever the number.
            let chain = chain(&candidates, distance, 2 * sets);
            match chain.len().cmp(&sets) {
                std::cmp::Ordering::Equal => return pick(&candidates, &chain),
                std::cmp::Ordering::Less => high = distance,
                std::cmp::Ordering::Greater => {
                    low = distance;
                    if closest.as_ref().is_none_or(|points| chain.len() < points.len()) {
                        closest = Some(pick(&candidates, &chain));
                    }
                }
            }
        }
    }
    // No distance gave the number: the least surplus goes from the end, where the chain fills gaps.
    let mut points = closest.unwrap_or_default();
    points.truncate(sets);
    points
}

fn pick(candidates: &[Point], chain: &[usize]) -> Vec<Point> {
    chain.iter().map(|index| candidates[*index].clone()).collect()
}

fn square_distance(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| (one - other) * (one - other)).sum()
}

/// The candidates that remain with this distance, in the order of the chain; no more than `most`.
fn chain(candidates: &[Point], distance: f64, most: usize) -> Vec<usize> {
    let centre = vec![0.5; candidates[0].len()];
    let square = distance * distance;
    let mut left: Vec<usize> = (0..candidates.len()).collect();
    let mut chain = Vec::new();
    let mut next = nearest(candidates, &mut left, &centre, 0.0);
    while let Some(current) = next {
        chain.push(current);
        if chain.len() >= most {
            break;
        }
        // The current one is at distance zero from itself, and drops out too.
        next = nearest(candidates, &mut left, &candidates[current], square.max(f64::MIN_POSITIVE));
    }
    chain
}

/// Drops those that are nearer than a distance to `from`, and finds the nearest of the rest.
fn nearest(candidates: &[Point], left: &mut Vec<usize>, from: &[f64], square: f64) -> Option<usize> {
    let mut best = None;
    let mut best_square = f64::INFINITY;
    left.retain(|index| {
        let away = square_distance(&candidates[*index], from);
        if away < square {
            return false;
        }
        if away < best_square {
            (best, best_square) = (Some(*index), away);
        }
        true
    });
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least_distance(points: &[Point]) -> f64 {
        let mut least = f64::INFINITY;
        for (index, one) in points.iter().enumerate() {
            for other in &points[index + 1..] {
                least = least.min(square_distance(one, other));
            }
        }
        least.sqrt()
    }

    #[test]
    fn gives_the_number_of_points_inside_the_cube_by_the_seed() {
        for (sets, factors) in [(1, 1), (2, 6), (50, 2), (200, 6), (169, 3)] {
            let points = wsp(sets, factors, 1);
            assert_eq!(points.len(), sets, "{sets} x {factors}");
            assert!(points.iter().all(|point| point.len() == factors));
            assert!(points.iter().flatten().all(|value| (0.0..1.0).contains(value)));
        }
        assert_eq!(wsp(50, 6, 3), wsp(50, 6, 3));
        assert_ne!(wsp(50, 6, 3), wsp(50, 6, 4));
        assert_eq!(wsp(0, 3, 1), Vec::<Point>::new());
    }

    #[test]
    fn points_keep_apart_far_more_than_random_ones() {
        let points = wsp(200, 6, 1);
        let mut random = Random::new(9);
        let scattered: Vec<Point> = (0..200).map(|_| random.point(6)).collect();
        assert!(least_distance(&points) > 2.0 * least_distance(&scattered));
    }

    #[test]
    fn no_hole_is_much_larger_than_the_distance() {
        let points = wsp(200, 2, 5);
        let apart = least_distance(&points);
        let mut random = Random::new(10);
        for _ in 0..2000 {
            let probe = random.point(2);
            let nearest =
                points.iter().map(|point| square_distance(point, &probe)).fold(f64::INFINITY, f64::min);
            // Candidates are dense, not everywhere: a hole between them is part of the answer.
            assert!(nearest.sqrt() < 2.0 * apart, "{} {apart}", nearest.sqrt());
        }
    }

    #[test]
    fn a_thousand_sets_of_eight_factors_are_no_burden() {
        let points = wsp(1000, 8, 1);
        assert_eq!(points.len(), 1000);
        assert!(least_distance(&points) > 0.3);
    }
}
