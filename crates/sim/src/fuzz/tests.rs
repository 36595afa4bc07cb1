use super::*;

/// Runs of a few seconds; `polypath bench fuzz` runs more.
const SEEDS: u64 = 1500;

#[test]
fn what_happens_breaks_no_invariant() {
    let mut packets = 0;
    for seed in 0..SEEDS {
        let case = Case::from_seed(seed);
        match case.run() {
            Ok(outcome) => packets += outcome.packets,
            Err(failure) if known(&failure).is_some() => {}
            Err(failure) => panic!("seed {seed}: {failure}; polypath bench fuzz --seed {seed} --shrink"),
        }
    }
    assert!(packets > 10 * SEEDS, "only {packets} packets");
}

#[test]
fn bytes_give_the_same_run_again() {
    for seed in 0..20 {
        let case = Case::from_seed(seed);
        assert_eq!(case.run_traced(), Case::from_bytes(&case.to_bytes()).run_traced(), "seed {seed}");
    }
}
