use super::*;

const SMALL: &str = r#"
name = "small"
title = "A small one"
metrics = ["aggregation-benefit", "goodput"]

[factors]
rate = { from = "1mbit", to = "100mbit", scale = "log" }
rtt = { from = "0ms", to = "50ms" }
queue = "50ms"

[design]
kind = "wsp"
sets = 20
designs = 2

[traffic]
kind = "bulk"
duration = "10s"

[[variants]]
name = "LIA"
congestion = "lia"
initial-path = "random"

[[variants]]
name = "CUBIC"
congestion = "cubic"

[baseline]
congestion = "cubic"

[[published]]
text = "close to 1"
variant = "LIA"
at-least = 0.9

[reduced]
sets = 5
duration = "5s"
"#;

fn mistake(old: &str, new: &str) -> String {
    assert!(SMALL.contains(old), "{old}");
    Experiment::parse("small.toml", &SMALL.replacen(old, new, 1), Form::Full).unwrap_err().to_string()
}

#[test]
fn an_experiment_has_its_sets_variants_and_runs() {
    let full = Experiment::parse("small.toml", SMALL, Form::Full).unwrap();
    assert_eq!((full.sets.len(), full.design_count(), full.variants.len()), (40, 2, 4));
    assert_eq!(full.compared_variants().len(), 2);
    assert_eq!(full.run_count(), 160);
    for set in &full.sets {
        for path in &set.set.paths {
            assert!((1e6..=100e6).contains(&(path.rate.as_bps() as f64)));
            assert!(path.rtt <= Duration::from_millis(50));
            assert_eq!((path.queue, path.loss), (Duration::from_millis(50), 0.0));
        }
    }
    let reduced = Experiment::parse("small.toml", SMALL, Form::Reduced).unwrap();
    assert_eq!(reduced.sets.len(), 10);
    assert_eq!(reduced.traffic, Traffic::Bulk { duration: Duration::from_secs(5) });
}

#[test]
fn every_run_comes_once_and_the_variants_of_a_set_share_their_luck() {
    let text = SMALL.replace("designs = 2", "designs = 1").replace("metrics", "repeats = 2\nmetrics");
    let experiment = Experiment::parse("small.toml", &text, Form::Reduced).unwrap();
    let jobs: Vec<Job> = (0..experiment.run_count()).map(|index| experiment.job(index)).collect();
    let keys: std::collections::BTreeSet<RunKey> = jobs.iter().map(|job| job.key).collect();
    assert_eq!((jobs.len(), keys.len()), (40, 40));
    for pair in jobs.chunks(4) {
        assert!(pair.iter().all(|job| job.seed == pair[0].seed && job.set == pair[0].set));
    }
    let seeds: std::collections::BTreeSet<u64> = jobs.iter().map(|job| job.seed).collect();
    assert_eq!(seeds.len(), 10);
}

#[test]
fn a_sweep_changes_what_it_names() {
    let sweep = "[[sweep]]\nparameter = \"bytes\"\nvalues = [\"64KB\", \"4MB\"]\n\n[[sweep]]\nparameter = \"initial-path\"\nvalues = [\"best\", \"2\"]\n[traffic]";
    let text = SMALL
        .replace("[traffic]", sweep)
        .replace("kind = \"bulk\"\nduration = \"10s\"", "kind = \"transfer\"\nbytes = \"1MB\"");
    let experiment = Experiment::parse("small.toml", &text, Form::Full).unwrap();
    let labels: Vec<&str> = experiment.points.iter().map(|point| point.label.as_str()).collect();
    assert_eq!(labels, ["64KB, best", "64KB, 2", "4MB, best", "4MB, 2"]);
    assert_eq!(experiment.points[2].value, Some(4e6));
    let job = experiment.job(3 * 4);
    assert_eq!(job.key, RunKey { set: 0, point: 3, variant: 0, repeat: 0 });
    assert!(matches!(job.workload, crate::Workload::Transfer { bytes: 4_000_000, .. }));
    assert_eq!(job.variant.initial, InitialPath::Number(1));
    // The baseline stays on its own path.
    assert_eq!(experiment.job(3 * 4 + 2).variant.initial, InitialPath::Number(0));
}

#[test]
fn a_mistake_names_file_line_and_key() {
    for (old, new, message) in [
        ("sets = 20", "sets = 0", "small.toml:13: design.sets: 0; expected 1 to 100000"),
        ("sets = 20", "stes = 20", "small.toml:13: design.stes: unknown field `stes`, expected one of"),
        ("kind = \"wsp\"", "kind = \"grid\"", "small.toml:12: design.kind: unknown variant `grid`"),
        ("\"1mbit\"", "\"1mbps\"", "small.toml:7: factors.rate.from: \"1mbps\" is ambiguous"),
        (
            "queue = \"50ms\"",
            "queue = 5",
            "small.toml:9: factors.queue: invalid type: integer `5`, expected a time",
        ),
        (
            "congestion = \"lia\"",
            "congestion = \"laia\"",
            "small.toml:22: variants[0].congestion: unknown congestion control \"laia\"; expected one of \"reno\"",
        ),
        (
            "\"random\"",
            "\"3\"",
            "small.toml:23: variants[0].initial-path: unknown path \"3\"; expected \"first\"",
        ),
        ("\"goodput\"]", "\"speed\"]", "small.toml:4: metrics[1]: unknown metric \"speed\"; expected one of"),
        (
            "\"goodput\"]",
            "\"delay\"]",
            "small.toml:4: metrics[1]: \"delay\" looks at blocks; expected traffic.kind",
        ),
        (
            "variant = \"LIA\"",
            "variant = \"OLIA\"",
            "small.toml:34: published[0].variant: unknown variant \"OLIA\"",
        ),
        ("duration = \"10s\"", "", "small.toml:16: traffic: no duration; expected duration = \"60s\""),
        ("name = \"small\"", "name = \"../x\"", "small.toml:2: name: is part of a path; expected letters"),
        ("[factors]", "[factors", "small.toml:6: "),
    ] {
        let found = mistake(old, new);
        assert!(found.starts_with(message), "{found}\n  expected {message}");
        assert_eq!(found.lines().count(), 1);
    }
}
