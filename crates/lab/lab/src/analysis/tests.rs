use polypath_config::Policies;

use super::*;
use crate::experiment::Form;

const TEXT: &str = r#"
name = "x"
title = "x"
repeats = 3
metrics = ["benefit-over-tcp", "goodput", "completion-ratio"]
[[sets]]
name = "one"
paths = [
  { rate = "10mbit", rtt = "20ms", queue = "50ms" },
  { rate = "30mbit", rtt = "30ms", queue = "50ms" },
]
[[sets]]
name = "other"
paths = [
  { rate = "10mbit", rtt = "20ms", queue = "50ms" },
  { rate = "10mbit", rtt = "30ms", queue = "50ms" },
]
[traffic]
kind = "transfer"
bytes = "1MB"
[[variants]]
name = "LIA"
[baseline]
congestion = "cubic"
[[published]]
text = "the best of all sets"
source = "X 2000, Fig. 1"
variant = "LIA"
statistic = "max"
value = 1.0
at-least = 0.4
[[expected]]
text = "in one set"
reason = "for the test"
variant = "LIA"
set = "one"
at-most = 0.4
[[published]]
text = "not measured here"
source = "X 2000, § 2"
"#;

fn experiment() -> Experiment {
    Experiment::parse("x.toml", TEXT, Form::Full, &Policies::default()).unwrap()
}

/// Runs with these goodputs in Mbit/s, by set, for LIA and for plain TCP on each path, with a spread over the repeats
/// that medians do not see.
fn runs(goodputs: [[f64; 3]; 2]) -> BTreeMap<RunKey, Outcome> {
    let mut runs = BTreeMap::new();
    for (set, of_set) in goodputs.iter().enumerate() {
        for (variant, mbps) in of_set.iter().enumerate() {
            for (repeat, share) in [1.0, 0.5, 1.1].into_iter().enumerate() {
                let goodput_bps = mbps * 1e6 * share;
                let completion_s = Some(8e6 / goodput_bps);
                runs.insert(
                    RunKey { set, point: 0, variant, repeat },
                    Outcome { goodput_bps, completion_s, ..Outcome::default() },
                );
            }
        }
    }
    runs
}

#[test]
fn metrics_are_medians_of_repeats_against_what_plain_tcp_gets() {
    let experiment = experiment();
    let analysis = Analysis::new(&experiment, &runs([[15.0, 5.0, 20.0], [11.0, 8.0, 8.0]]));
    // (15 − 20)/20, and (11 − 8)/(16 − 8).
    assert_eq!(analysis.sets(0, 0, 0), [-0.25, 0.375]);
    assert_eq!(analysis.sets(1, 0, 0), [15.0, 11.0]);
    assert_eq!(analysis.sets(1, 2, 0), [20.0, 8.0]);
    let ratio = analysis.sets(2, 0, 0)[0];
    assert!((ratio - 20.0 / 15.0).abs() < 1e-9, "{ratio}");
    let rows = analysis.rows();
    assert_eq!(rows.len(), 9);
    assert_eq!((rows[0].metric, rows[0].distribution.median), ("benefit-over-tcp", 0.0625));
}

#[test]
fn findings_look_at_what_the_fact_is_about() {
    let experiment = experiment();
    let analysis = Analysis::new(&experiment, &runs([[15.0, 5.0, 20.0], [11.0, 8.0, 8.0]]));
    let findings = analysis.findings();
    let found: Vec<(Option<f64>, Option<bool>)> =
        findings.iter().map(|finding| (finding.measured, finding.holds)).collect();
    assert_eq!(found, [(Some(0.375), Some(false)), (None, None), (Some(-0.25), Some(true))]);
    assert_eq!(findings[0].measure, "max of benefit-over-tcp");
}

#[test]
fn missing_runs_are_no_values() {
    let experiment = experiment();
    let mut runs = runs([[15.0, 5.0, 20.0], [11.0, 8.0, 8.0]]);
    // Without plain TCP on one path, the benefit of that set is unknown; its goodput is not.
    runs.retain(|key, _| !(key.set == 0 && key.variant == 2));
    let analysis = Analysis::new(&experiment, &runs);
    assert!(analysis.sets(0, 0, 0)[0].is_nan());
    assert_eq!(analysis.sets(1, 0, 0), [15.0, 11.0]);
    assert_eq!(analysis.distribution(0, 0, 0).unwrap().count, 1);
}

#[test]
fn a_comparison_finds_what_became_worse_and_only_that() {
    let experiment = experiment();
    let old = Analysis::new(&experiment, &runs([[15.0, 5.0, 20.0], [11.0, 8.0, 8.0]]));
    let new = Analysis::new(&experiment, &runs([[13.0, 5.0, 20.0], [11.0, 8.0, 8.0]]));
    assert!(!compare(&old, &old, 0.0).unwrap().regressed);
    let comparison = compare(&old, &new, 0.05).unwrap();
    assert!(comparison.regressed);
    let regressed: Vec<(&str, &str)> = comparison
        .differences
        .iter()
        .filter(|difference| difference.regressed)
        .map(|difference| (difference.variant.as_str(), difference.metric))
        .collect();
    assert_eq!(regressed, [("LIA", "goodput"), ("LIA", "completion-ratio")]);
    let goodput = &comparison.differences[3];
    assert_eq!(
        (goodput.metric, goodput.old_median, goodput.new_median, goodput.sets),
        ("goodput", 13.0, 12.0, 2)
    );
    assert_eq!(goodput.worse_share, 0.5);
    assert!(!compare(&new, &old, 0.05).unwrap().regressed);
    assert!(!compare(&old, &new, 0.5).unwrap().regressed);

    let other =
        Experiment::parse("x.toml", &TEXT.replacen("10mbit", "11mbit", 1), Form::Full, &Policies::default())
            .unwrap();
    let other = Analysis::new(&other, &BTreeMap::new());
    assert_eq!(compare(&old, &other, 0.1).unwrap_err(), CompareError::DifferentSets("one".into()));
    let nothing = Analysis::new(&experiment, &BTreeMap::new());
    assert_eq!(compare(&old, &nothing, 0.1).unwrap_err(), CompareError::NothingInCommon);
}

#[test]
fn a_comparison_says_what_it_leaves_out() {
    let renamed = TEXT.replace("name = \"LIA\"", "name = \"OLIA\"").replace("\"LIA\"", "\"OLIA\"");
    let renamed = Experiment::parse("x.toml", &renamed, Form::Full, &Policies::default()).unwrap();
    let experiment = experiment();
    let all = runs([[15.0, 5.0, 20.0], [11.0, 8.0, 8.0]]);
    let old = Analysis::new(&experiment, &all);
    assert!(compare(&old, &old, 0.05).unwrap().left_out.is_empty());
    let told = |comparison: &Comparison| -> Vec<(String, &str, LeftOutReason)> {
        let rows = comparison.left_out.iter();
        rows.map(|row| (row.variant.clone(), row.metric, row.reason)).collect()
    };
    let comparison = compare(&old, &Analysis::new(&renamed, &all), 0.05).unwrap();
    let metrics = ["benefit-over-tcp", "goodput", "completion-ratio"];
    let of = |variant: &str, reason| metrics.map(|metric| (variant.to_string(), metric, reason));
    let wanted = [of("LIA", LeftOutReason::OnlyInOld), of("OLIA", LeftOutReason::OnlyInNew)].concat();
    assert_eq!(told(&comparison), wanted);
    // What was interrupted: LIA in one set, and in the other set.
    let mut parts = [all.clone(), all];
    for (set, part) in parts.iter_mut().enumerate() {
        part.retain(|key, _| key.variant != 0 || key.set == set);
    }
    let [one, other] = parts.each_ref().map(|part| Analysis::new(&experiment, part));
    let comparison = compare(&one, &other, 0.05).unwrap();
    assert_eq!(told(&comparison), of("LIA", LeftOutReason::NoCommonSet));
    let comparison = compare(&old, &one, 0.05).unwrap();
    let goodput = comparison.differences.iter().find(|row| row.metric == "goodput").unwrap();
    assert_eq!((goodput.sets, goodput.one_sided_sets), (1, 1));
}

const SHARED: &str = r#"
name = "x"
title = "x"
metrics = ["fairness"]
[topology]
kind = "shared"
paths = 1
[[sets]]
name = "one"
paths = [{ rate = "4mbit", rtt = "20ms", queue = "100ms" }]
[[sets]]
name = "other"
paths = [{ rate = "8mbit", rtt = "20ms", queue = "100ms" }]
[[sets]]
name = "third"
paths = [{ rate = "9mbit", rtt = "20ms", queue = "100ms" }]
[[flows]]
name = "TCP"
paths = [1]
tcp = "reno"
[[flows]]
name = "MPTCP"
paths = [1, 1]
[traffic]
kind = "bulk"
duration = "12s"
[[variants]]
name = "LIA"
"#;

#[test]
fn more_than_a_fair_share_is_worse_and_so_is_less() {
    let experiment = Experiment::parse("x.toml", SHARED, Form::Full, &Policies::default()).unwrap();
    let runs = |fairness: [f64; 3]| -> BTreeMap<RunKey, Outcome> {
        let outcome = |fairness| Outcome { fairness: Some(fairness), ..Outcome::default() };
        let key = |set| RunKey { set, point: 0, variant: 0, repeat: 0 };
        fairness.into_iter().enumerate().map(|(set, fairness)| (key(set), outcome(fairness))).collect()
    };
    let worse_by = |old: [f64; 3], new: [f64; 3]| {
        let (old, new) = (runs(old), runs(new));
        let [old, new] = [&old, &new].map(|runs| Analysis::new(&experiment, runs));
        let comparison = compare(&old, &new, 0.05).unwrap();
        assert_eq!(comparison.regressed, comparison.differences[0].worse_by > 0.05);
        comparison.differences[0].worse_by
    };
    let fair = [1.0, 1.01, 0.99];
    assert!((worse_by(fair, [1.5, 1.5, 1.5]) - 0.49).abs() < 1e-9, "it takes from others");
    assert!((worse_by(fair, [0.5, 0.5, 0.5]) - 0.49).abs() < 1e-9, "others take from it");
    assert!((worse_by(fair, [0.5, 1.0, 1.5]) - 0.49).abs() < 1e-9, "the median alone is the same");
    assert!(worse_by([1.5, 1.5, 1.5], [1.2, 1.2, 0.8]) < -0.2);

    let runs = runs([1.3, 0.6, 1.0]);
    let worst = Analysis::new(&experiment, &runs).worst_sets(3);
    assert_eq!(worst.iter().map(|set| set.set.as_str()).collect::<Vec<_>>(), ["other", "one", "third"]);
}

#[test]
fn the_worst_sets_come_first_whichever_way_is_better() {
    let experiment = experiment();
    let runs = runs([[15.0, 5.0, 20.0], [11.0, 8.0, 8.0]]);
    let worst = Analysis::new(&experiment, &runs).worst_sets(1);
    let found: Vec<_> =
        worst.iter().map(|set| (set.metric, set.variant.as_str(), set.set.as_str())).collect();
    let wanted =
        [("benefit-over-tcp", "LIA", "one"), ("goodput", "LIA", "other"), ("completion-ratio", "LIA", "one")];
    assert_eq!(found, wanted);
    assert_eq!(worst[0].paths, "10.00 Mbit/s, 20 ms, queue 50 ms; 30.00 Mbit/s, 30 ms, queue 50 ms");
    assert_eq!(worst[0].run, "one/LIA/1", "the repeat of the median");
    assert_eq!(Analysis::new(&experiment, &runs).worst_sets(9).len(), 6, "no more than there are");
}

#[test]
fn a_group_of_sets_is_compared_with_another_and_effects_are_means_of_levels() {
    const WITH_LEVELS: &str = r#"
name = "x"
title = "x"
metrics = ["goodput"]
[factors]
rate = { from = "1mbit", to = "3mbit" }
rtt = "20ms"
queue = "50ms"
loss = { from = "0%", to = "2%" }
[parameters]
sack = ["on", "off"]
fack = ["on", "off"]
together = ["sack", "fack"]
[design]
kind = "full-factorial"
levels = 2
[topology]
paths = 1
[traffic]
kind = "bulk"
duration = "1s"
[[variants]]
name = "TCP"
split = "send-vector"
[[expected]]
text = "SACK helps"
reason = "for the test"
variant = "TCP"
statistic = "mean"
where = { sack = "on", most-loss = "1%" }
against = { sack = ["off"] }
at-least = 4.9
at-most = 5.1
"#;
    let read = |text: &str| Experiment::parse("x.toml", text, Form::Full, &Policies::default());
    let experiment = read(WITH_LEVELS).unwrap();
    let goodput = |set: usize| {
        let named = &experiment.sets[set];
        let sack = if named.level_of(&["sack"]).as_deref() == Some("on") { 6.0 } else { 1.0 };
        // Where packets are lost, nobody asks.
        if named.set.paths[0].loss > 0.01 && sack > 1.0 { 0.0 } else { sack }
    };
    let outcome = |set| Outcome { goodput_bps: goodput(set) * 1e6, ..Outcome::default() };
    let key = |set| RunKey { set, point: 0, variant: 0, repeat: 0 };
    let runs = (0..experiment.sets.len()).map(|set| (key(set), outcome(set))).collect();
    let analysis = Analysis::new(&experiment, &runs);
    let finding = analysis.findings().remove(0);
    assert_eq!(finding.holds, Some(true), "{finding:?}");
    assert_eq!(finding.measure, "mean of goodput with most-loss 1%, sack on, less that with sack off");
    let effects = analysis.effects();
    let of_sack: Vec<(&str, usize, f64)> = effects
        .iter()
        .filter(|effect| effect.parameter == "sack")
        .map(|effect| (effect.level.as_str(), effect.sets, effect.mean))
        .collect();
    assert_eq!(of_sack, [("on", 8, 3.0), ("off", 8, 1.0)]);
    let together: Vec<&str> = effects
        .iter()
        .filter(|effect| effect.parameter == "sack, fack")
        .map(|effect| &*effect.level)
        .collect();
    assert_eq!(together.len(), 2, "without SACK there is no forward acknowledgment: {together:?}");

    for (old, new, expected) in [
        ("sack = [\"off\"]", "dsack = \"off\"", "against.dsack"),
        ("most-loss = \"1%\"", "fack = \"no\"", "where.fack"),
    ] {
        let error = read(&WITH_LEVELS.replacen(old, new, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
