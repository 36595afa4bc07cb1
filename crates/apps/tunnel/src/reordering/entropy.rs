/// Reorder entropy: −Σ *p* ln *p* of a density, the disorder of a stream in one number (Ye 2006; Kaspar 2011, eq. 2.1).
///
/// It is zero if all packets are displaced by the same number, and greatest if each displacement occurs equally often. What occurs never adds nothing.
pub fn entropy(density: impl IntoIterator<Item = f64>) -> f64 {
    // Not a negated sum, which would be −0 for a stream in order.
    density.into_iter().filter(|share| *share > 0.0).map(|share| share * share.recip().ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_disorder() {
        assert_eq!(entropy([1.0]), 0.0);
        assert_eq!(entropy([0.0, 1.0, 0.0]), 0.0);
        assert!((entropy([0.25; 4]) - 4.0_f64.ln()).abs() < 1e-12);
        assert!((entropy([0.5, 0.25, 0.25]) - 1.5 * 2.0_f64.ln()).abs() < 1e-12);
    }
}
