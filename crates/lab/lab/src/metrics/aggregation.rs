/// How much of what several paths offer is had, from −1 (nothing arrives) over 0 (the best path alone) to 1 (the sum
/// of all paths), after Kaspar 2011, §3.6: (g − max C) / (Σ C − max C) if g ≥ max C, else (g − max C) / max C.
///
/// `capacities` and `goodput` have the same unit. A goodput that is a rounding above the sum stays above 1. With one
/// path there is nothing to aggregate: what the path gives beyond its capacity counts as 0.
#[must_use]
pub fn aggregation_benefit(goodput: f64, capacities: &[f64]) -> f64 {
    let best = capacities.iter().copied().fold(0.0, f64::max);
    let sum: f64 = capacities.iter().sum();
    if goodput < best {
        (goodput - best) / best
    } else if sum > best {
        (goodput - best) / (sum - best)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_points_of_the_formula() {
        let capacities = [10.0, 30.0];
        for (goodput, benefit) in
            [(40.0, 1.0), (30.0, 0.0), (0.0, -1.0), (35.0, 0.5), (15.0, -0.5), (41.0, 1.1)]
        {
            assert!((aggregation_benefit(goodput, &capacities) - benefit).abs() < 1e-12, "{goodput}");
        }
        assert!((aggregation_benefit(50.0, &[20.0, 30.0, 50.0])).abs() < 1e-12);
        assert!((aggregation_benefit(5.0, &[10.0]) + 0.5).abs() < 1e-12);
        assert!((aggregation_benefit(10.0, &[10.0])).abs() < 1e-12);
        assert!((aggregation_benefit(0.0, &[0.0, 0.0])).abs() < 1e-12);
    }
}
