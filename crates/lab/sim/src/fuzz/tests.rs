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

/// Runs that found something once, in the stack or in the rules by which it is judged.
const FOUND: [u64; 41] = [
    1_005_393,
    1_009_319,
    1_036_818,
    1_039_423,
    1_041_023,
    1_048_616,
    1_054_801,
    2_005_279,
    2_026_937,
    2_031_085,
    2_041_842,
    2_053_295,
    2_058_844,
    8_022_459,
    1_000_008,
    1_002_037,
    1_010_196,
    1_057_172,
    2_002_328,
    2_010_412,
    2_011_238,
    2_013_006,
    2_017_849,
    2_021_295,
    2_051_578,
    2_054_698,
    5_022_700,
    30_017_753,
    50_503_655,
    50_305_983,
    50_905_922,
    50_908_648,
    700_003_558,
    701_002_239,
    705_004_039,
    1_005_003_139,
    1_201_003_182,
    1_205_001_832,
    1_308_000_699,
    1_403_000_068,
    1_604_000_208,
];

#[test]
fn what_was_found_once_is_not_found_again() {
    for seed in FOUND {
        if let Err(failure) = Case::from_seed(seed).run() {
            panic!("seed {seed}: {failure}; polypath bench fuzz --seed {seed} --shrink");
        }
    }
}
