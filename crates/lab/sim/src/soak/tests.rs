use polypath_wire::MptcpVersion;

use super::scenario::NOT_DRAWN;
use super::*;

fn scenario(seed: u64) -> SoakScenario {
    SoakScenario::from_seed(seed, &Policies::default())
}

#[test]
fn scenarios_cover_what_they_are_to_cover() {
    let scenarios: Vec<SoakScenario> = (0..2_000).map(scenario).collect();
    for scenario in &scenarios {
        assert!((1..=4).contains(&scenario.paths.len()));
        assert!((4096..=16 << 20).contains(&scenario.window_bytes));
        assert!(scenario.up_bytes <= 20_000_000 && scenario.down_bytes <= 20_000_000);
        assert!(scenario.paths.iter().all(|path| path.loss <= 0.05));
    }
    let share = |holds: &dyn Fn(&SoakScenario) -> bool| {
        scenarios.iter().filter(|scenario| holds(scenario)).count() as f64 / scenarios.len() as f64
    };
    assert!(scenarios.iter().all(|scenario| (4096..=16 << 20).contains(&scenario.receive_bytes)));
    assert!(share(&|s| s.receive_bytes <= 65_536) > 0.4);
    assert!(share(&|s| s.receive_bytes <= 8192 && s.lost_window_updates > 0.3) > 0.02);
    assert!(share(&|s| s.up_bytes == 0) > 0.05);
    assert!(share(&|s| s.up_bytes > 10_000_000) > 0.01);
    assert!(share(&|s| s.paths.len() == 4) > 0.1);
    assert!(share(&|s| s.version == MptcpVersion::V0) > 0.4);
    assert!(share(&|s| s.ending.is_abort()) > 0.1);
    assert!(share(&|s| s.paths.iter().any(|path| !path.cuts.is_empty())) > 0.2);
    assert_eq!(format!("{:?}", scenario(7)), format!("{:?}", scenario(7)));
}

#[test]
fn random_scenarios_deliver_everything_and_leave_nothing() {
    let failures: Vec<String> = (0..500)
        .filter_map(|seed| run(seed, &Policies::default()).err())
        .map(|failure| failure.to_string())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn congestion_controls_that_no_seed_draws_deliver_everything_too() {
    let drawn: Vec<&str> = (0..200).map(|seed| scenario(seed).congestion.name()).collect();
    let mut failures = Vec::new();
    for (name, first_seed) in NOT_DRAWN.into_iter().zip((0..).step_by(15)) {
        assert!(!drawn.contains(&name), "{name}");
        for seed in first_seed..first_seed + 15 {
            let congestion = Policies::default().find(name).expect("one of ours");
            let scenario = SoakScenario { congestion, ..scenario(seed) };
            failures.extend(scenario.run(false).err().map(|failure| format!("{name}: {failure}")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_seed_gives_the_same_trace_again() {
    for seed in [1, 5, 11] {
        let outcome = run_twice(seed, &Policies::default()).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(outcome.trace_hash.is_some());
    }
}

/// The client breaks before it makes while the last words are on their way.
#[test]
fn a_handover_at_the_very_end_is_no_reset() {
    for seed in [2144, 8042, 10_181] {
        run(seed, &Policies::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn what_a_program_adds_is_drawn_too_and_is_what_runs() {
    use polypath_mptcp::scheduler::Policy;
    let lowest = || Policy::by_name("lowest-rtt").expect("ours");
    let policies = Policies::default().with(Policy::from_fn("theirs", move |()| lowest().build()));
    let scenario = (0..100).map(|seed| SoakScenario::from_seed(seed, &policies));
    let scenario = scenario.into_iter().find(|scenario| scenario.scheduler.name() == "theirs");
    let outcome = scenario.expect("one of a hundred").run(false);
    assert!(outcome.is_ok(), "{outcome:?}");
}
