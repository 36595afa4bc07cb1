use super::{Point, place};

/// Every combination of `levels` equally spaced levels of every factor, both ends of its range included. The last
/// factor changes fastest.
#[must_use]
pub fn full_factorial(levels: usize, factors: usize) -> Vec<Point> {
    let mut points = vec![Point::new()];
    for _ in 0..factors {
        points = points
            .into_iter()
            .flat_map(|point| {
                (0..levels).map(move |level| {
                    let mut longer = point.clone();
                    longer.push(place(level, levels));
                    longer
                })
            })
            .collect();
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_comes_once() {
        let points = full_factorial(3, 4);
        assert_eq!(points.len(), 81);
        let mut names: Vec<String> = points.iter().map(|point| format!("{point:?}")).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 81);
        assert_eq!(points[0], [0.0; 4]);
        assert_eq!(points[1], [0.0, 0.0, 0.0, 0.5]);
        assert_eq!(points[80], [1.0; 4]);
        assert_eq!(full_factorial(1, 2), [[0.5, 0.5]]);
    }
}
