use serde::{Deserialize, Serialize};

/// The value below which a share of `sorted` lies, by linear interpolation between the two nearest (Hyndman and Fan's
/// definition 7, the default of R and NumPy). Not a number if there is no value.
#[must_use]
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let weight = place - below as f64;
    // So that infinities at both places do not make a nan.
    if weight == 0.0 || sorted[below] == sorted[above] {
        return sorted[below];
    }
    sorted[below] + (sorted[above] - sorted[below]) * weight
}

/// A set of values by its percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many values.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// 1st percentile.
    pub p1: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 25th percentile.
    pub p25: f64,
    /// Median.
    pub median: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

impl Distribution {
    /// The distribution of `values`, those that are not numbers left out; `None` if nothing remains.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        if sorted.is_empty() {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let at = |share| percentile(&sorted, share);
        Some(Self {
            count: sorted.len(),
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            min: at(0.0),
            p1: at(0.01),
            p5: at(0.05),
            p25: at(0.25),
            median: at(0.5),
            p75: at(0.75),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
        })
    }

    /// The 5th, 25th, 50th, 75th and 95th percentiles.
    #[must_use]
    pub fn five(&self) -> [f64; 5] {
        [self.p5, self.p25, self.median, self.p75, self.p95]
    }
}

/// How much the 5th, 25th, 50th, 75th and 95th percentiles depend on the choice of the sets: their standard deviation
/// over several designs of equal size (Paasch 2014, §3.3). `None` below two designs.
#[must_use]
pub fn sensitivity(designs: &[Distribution]) -> Option<[f64; 5]> {
    if designs.len() < 2 {
        return None;
    }
    let count = designs.len() as f64;
    Some(std::array::from_fn(|which| {
        let values = designs.iter().map(|design| design.five()[which]);
        let mean = values.clone().sum::<f64>() / count;
        (values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        for (share, value) in [(0.0, 1.0), (0.5, 2.5), (0.25, 1.75), (0.95, 3.85), (1.0, 4.0), (2.0, 4.0)] {
            assert!((percentile(&sorted, share) - value).abs() < 1e-12, "{share}");
        }
        assert!(percentile(&[], 0.5).is_nan());
        let endless = [1.0, f64::INFINITY, f64::INFINITY];
        assert_eq!(percentile(&endless, 0.75), f64::INFINITY);
    }

    #[test]
    fn a_distribution_leaves_out_what_is_no_number() {
        let values = (0..=100).map(f64::from).chain([f64::NAN]);
        let all = Distribution::of(values).unwrap();
        assert_eq!(
            (all.count, all.min, all.p1, all.median, all.p95, all.max),
            (101, 0.0, 1.0, 50.0, 95.0, 100.0)
        );
        assert_eq!(Distribution::of([f64::NAN]), None);
    }

    #[test]
    fn sensitivity_is_the_spread_between_designs() {
        let design = |shift: f64| Distribution::of((0..=100).map(|value| f64::from(value) + shift)).unwrap();
        let spread = sensitivity(&[design(-2.0), design(0.0), design(2.0)]).unwrap();
        for deviation in spread {
            assert!((deviation - 2.0).abs() < 1e-12);
        }
        assert_eq!(sensitivity(&[design(0.0)]), None);
    }
}
