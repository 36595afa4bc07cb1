use polypath_config::Policies;

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

[[expected]]
text = "close to 1"
reason = "buffers do not limit"
variant = "LIA"
at-least = 0.9

[reduced]
sets = 5
duration = "5s"
"#;

fn mistake(old: &str, new: &str) -> String {
    assert!(SMALL.contains(old), "{old}");
    Experiment::parse("small.toml", &SMALL.replacen(old, new, 1), Form::Full, &Policies::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn an_experiment_has_its_sets_variants_and_runs() {
    let full = Experiment::parse("small.toml", SMALL, Form::Full, &Policies::default()).unwrap();
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
    let reduced = Experiment::parse("small.toml", SMALL, Form::Reduced, &Policies::default()).unwrap();
    assert_eq!(reduced.sets.len(), 10);
    assert_eq!(reduced.traffic, Traffic::Bulk { duration: Duration::from_secs(5) });
}

#[test]
fn every_run_comes_once_and_the_variants_of_a_set_share_their_luck() {
    let text = SMALL.replace("designs = 2", "designs = 1").replace("metrics", "repeats = 2\nmetrics");
    let experiment = Experiment::parse("small.toml", &text, Form::Reduced, &Policies::default()).unwrap();
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
fn a_run_has_a_name_by_which_it_is_found() {
    let sweep = "[[sweep]]\nparameter = \"buffer\"\nvalues = [\"64KB\", \"4MB\"]\n[traffic]";
    let text = SMALL.replace("[traffic]", sweep).replace("metrics", "repeats = 2\nmetrics");
    for (text, first) in [(SMALL, "1/LIA/1"), (&text, "1/64KB/LIA/1")] {
        let experiment = Experiment::parse("small.toml", text, Form::Reduced, &Policies::default()).unwrap();
        let names: std::collections::BTreeSet<String> =
            (0..experiment.run_count()).map(|index| experiment.run_name(experiment.job(index).key)).collect();
        assert_eq!(names.len(), experiment.run_count());
        assert!(names.contains(first));
        for name in &names {
            assert_eq!(experiment.run_name(experiment.run_named(name).unwrap()), *name);
        }
        // The first repeat needs no number.
        let named = experiment.run_named(first.strip_suffix("/1").unwrap());
        assert_eq!(named, experiment.run_named(first));
        let unknown = experiment.run_named("one").unwrap_err().to_string();
        assert!(unknown.starts_with("no run \"one\"; expected set/"), "{unknown}");
        assert!(unknown.ends_with(&format!("such as \"{first}\"")), "{unknown}");
    }
}

#[test]
fn a_sweep_changes_what_it_names() {
    let sweep = "[[sweep]]\nparameter = \"bytes\"\nvalues = [\"64KB\", \"4MB\"]\n\n[[sweep]]\nparameter = \"initial-path\"\nvalues = [\"best\", \"2\"]\n[traffic]";
    let text = SMALL
        .replace("[traffic]", sweep)
        .replace("kind = \"bulk\"\nduration = \"10s\"", "kind = \"transfer\"")
        .replace("initial-path = \"random\"\n", "")
        .replace("duration = \"5s\"", "");
    let experiment = Experiment::parse("small.toml", &text, Form::Full, &Policies::default()).unwrap();
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
            "small.toml:22: variants[0].congestion: no congestion control \"laia\"; expected one of reno",
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
            "small.toml:35: expected[0].variant: unknown variant \"OLIA\"",
        ),
        (
            "congestion = \"lia\"",
            "autotuning = \"no\"",
            "small.toml:22: variants[0].autotuning: invalid type: string \"no\", expected a boolean",
        ),
        (
            "congestion = \"lia\"",
            "send-buffer = \"50\"",
            "small.toml:22: variants[0].send-buffer: \"50\" has no unit; expected a size",
        ),
        (
            "congestion = \"lia\"",
            "reference = \"LIA\"",
            "small.toml:22: variants[0].reference: unknown variant \"LIA\"; expected one of \"CUBIC\", \"TCP on path 1\"",
        ),
        (
            "\"goodput\"]",
            "\"slow-start-lag\"]",
            "small.toml:4: metrics[1]: compares variants; expected one with reference",
        ),
        (
            "name = \"small\"",
            "name = \"small\"\nrecord = \"rtt\"",
            "small.toml:3: record: unknown variant `rtt`, expected `congestion-window`",
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

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    let first = "[[variants]]\nname = \"LIA\"";
    let repeats = |count: &str| format!("repeats = {count}\nmetrics");
    for (old, new, message) in [
        ("\"10s\"", "\"0s\"", "small.toml:18: traffic.duration: no time to send; expected a time such as"),
        ("\"5s\"", "\"0s\"", "small.toml:40: reduced.duration: no time to send; expected"),
        (
            "\"5s\"",
            "\"11s\"",
            "small.toml:40: reduced.duration: 11 s is longer than the whole; expected at most 10 s",
        ),
        (
            "sets = 5",
            "sets = 21",
            "small.toml:39: reduced.sets: 21 is more than the whole has; expected at most 20",
        ),
        (
            "sets = 5",
            "repeats = 2",
            "small.toml:39: reduced.repeats: 2 is more than the whole has; expected at most 1",
        ),
        (
            "sets = 5",
            "levels = 2",
            "small.toml:39: reduced.levels: 2, of what is not there; expected design.levels",
        ),
        (
            "sets = 5",
            "points = 2",
            "small.toml:39: reduced.points: 2, of what is not there; expected the values",
        ),
        ("sets = 5", "sets = 0", "small.toml:39: reduced.sets: 0; expected 1 or more"),
        (
            first,
            "[[variants]]\nname = \"CUBIC\"",
            "small.toml:26: variants[1].name: \"CUBIC\" is there twice",
        ),
        (
            first,
            "[[variants]]\nname = \"TCP on path 2\"",
            "small.toml:21: variants[0].name: \"TCP on path 2\" is what the baseline is called; expected another",
        ),
        (
            "\"goodput\"]",
            "\"completion-ratio\"]",
            "small.toml:4: metrics[1]: \"completion-ratio\" is about the last byte, which bulk has none of",
        ),
        (
            "\"goodput\"]",
            "\"completion-time\"]",
            "small.toml:4: metrics[1]: \"completion-time\" is about the last",
        ),
        (
            "\"goodput\"]",
            "\"aggregation-benefit\"]",
            "small.toml:4: metrics[1]: \"aggregation-benefit\" is metrics[0], too; expected each once",
        ),
        (
            "\"1mbit\"",
            "\"200mbit\"",
            "small.toml:7: factors.rate: from 200 Mbit/s to 100 Mbit/s; expected the smaller value in `from`",
        ),
        (
            "\"50ms\" }",
            "\"50ms\" }\nloss = { from = \"2%\", to = \"1%\" }",
            "small.toml:9: factors.loss: from 2 % to 1 %; expected the smaller value",
        ),
        (
            "metrics",
            &repeats("100000000"),
            "small.toml:4: repeats: 40 sets, 1 values of the sweep, 4 variants",
        ),
        ("metrics", &repeats("18446744073709551"), "small.toml:4: repeats: "),
        ("at-least = 0.9", "", "small.toml:32: expected[0]: expects nothing; expected at-least or at-most"),
        ("buffers do not limit", "", "small.toml:34: expected[0].reason: says nothing; expected why"),
        (
            "[reduced]",
            "[[published]]\ntext = \"x\"\nsource = \" \"\n[reduced]",
            "small.toml:40: published[0].source: says nothing; expected document, year and place",
        ),
        ("designs = 2", "designs = 0", "small.toml:14: design.designs: 0; expected 1 to 100000"),
        (
            "designs = 2",
            "designs = 50000",
            "small.toml:14: design.designs: 50000 designs of 20 sets; expected at most",
        ),
    ] {
        let found = mistake(old, new);
        assert!(found.starts_with(message), "{found}\n  expected {message}");
        assert_eq!(found.lines().count(), 1);
    }
}

/// The small one with these sweeps.
fn swept(form: Form, sweeps: &str, more: &str) -> Result<Experiment, String> {
    let text =
        SMALL.replace("[reduced]\nsets = 5", &format!("{sweeps}\n{more}\n[reduced]\nsets = 5\npoints = 2"));
    Experiment::parse("small.toml", &text, form, &Policies::default()).map_err(|error| error.to_string())
}

#[test]
fn nothing_says_twice_what_is_swept() {
    let loss = "[[sweep]]\nparameter = \"loss\"\nvalues = [\"0%\", \"1%\"]";
    let twice = swept(Form::Full, &format!("{loss}\n{loss}"), "").unwrap_err();
    assert_eq!(
        twice,
        "small.toml:42: sweep[1].parameter: \"loss\" is that of sweep[0], too; expected each once"
    );
    for (values, told) in [
        ("\"1%\", \"0%\", \"1%\"", "\"1%\" is there twice; expected each once"),
        ("\"1%\", \"1.0%\", \"2%\"", "\"1%\" and \"1.0%\" are the same; expected each once"),
    ] {
        for form in [Form::Full, Form::Reduced] {
            let sweep = format!("[[sweep]]\nparameter = \"loss\"\nvalues = [{values}]");
            let error = swept(form, &sweep, "").unwrap_err();
            assert_eq!(error, format!("small.toml:40: sweep[0].values: {told}"));
        }
    }
    let factors = "queue = \"50ms\"\nloss = \"2%\"";
    let text = SMALL.replace("queue = \"50ms\"", factors).replace("[reduced]", &format!("{loss}\n[reduced]"));
    let error = Experiment::parse("small.toml", &text, Form::Full, &Policies::default()).unwrap_err();
    assert_eq!(error.to_string(), "small.toml:10: factors.loss: is what sweep[0] sets; expected one of both");
    assert_eq!(swept(Form::Full, loss, "").unwrap().points.len(), 2);
}

#[test]
fn a_sweep_does_not_win_over_another_line() {
    let bulk = "kind = \"bulk\"\nduration = \"10s\"";
    let blocks = "kind = \"blocks\"\nblock = \"1KB\"\nduration = \"10s\"";
    let of = |traffic: &str, parameter: &str, value: &str, old: &str, new: &str| {
        let sweep =
            format!("[[sweep]]\nparameter = \"{parameter}\"\nvalues = [\"{value}\"]\n[traffic]\n{traffic}");
        let text = SMALL.replace(&format!("[traffic]\n{bulk}"), &sweep).replace(old, new);
        let text =
            if traffic == "kind = \"transfer\"" { text.replace("duration = \"5s\"", "") } else { text };
        Experiment::parse("small.toml", &text, Form::Full, &Policies::default())
            .map_err(|error| error.to_string().split_once(": ").expect("a place before it").1.to_string())
    };
    let random = "initial-path = \"random\"";
    for (traffic, parameter, value, old, new, key) in [
        ("kind = \"transfer\"\nbytes = \"1MB\"", "bytes", "2MB", "", "", "traffic.bytes"),
        (&format!("{blocks}\nload = \"2%\""), "load", "9%", "", "", "traffic.load"),
        (&format!("{blocks}\nrate = \"1mbit\""), "load", "9%", "", "", "traffic.rate"),
        (bulk, "initial-path", "best", "", "", "variants[0].initial-path"),
        (bulk, "buffer", "1MB", random, "buffer = \"stack\"", "variants[0].buffer"),
        (
            bulk,
            "buffer",
            "1MB",
            "[baseline]",
            "[defaults]\nbuffer = \"stack\"\n[baseline]",
            "defaults.buffer",
        ),
    ] {
        let error = of(traffic, parameter, value, old, new).unwrap_err();
        assert_eq!(error, format!("{key}: is what sweep[0] sets; expected one of both"));
    }
    // Alone it says everything.
    let load = of(blocks, "load", "9%", "", "").unwrap();
    assert!(matches!(load.job(0).workload, crate::Workload::Blocks { rate: Some(_), .. }));
    assert!(of("kind = \"transfer\"", "bytes", "9KB", "", "").is_ok());
    assert!(of(bulk, "initial-path", "best", random, "").is_ok());
    let none = of("kind = \"transfer\"", "bytes", "0B", "", "").unwrap_err();
    assert_eq!(none, "sweep[0].values: nothing to send; expected sizes above zero");
    let nowhere = of(bulk, "initial-path", "best", "[factors]", "[topology]\nkind = \"ring\"\n[factors]");
    assert!(nowhere.is_err());
}

#[test]
fn a_claim_is_about_a_point_that_is_there() {
    let sweep = "[[sweep]]\nparameter = \"loss\"\nvalues = [\"0%\", \"1%\", \"2%\"]";
    let at = |point: &str| {
        format!(
            "[[expected]]\ntext = \"x\"\nreason = \"y\"\nvariant = \"LIA\"\nat-least = 0.1\nat = \"{point}\""
        )
    };
    for form in [Form::Full, Form::Reduced] {
        let error = swept(form, sweep, &at("17%")).unwrap_err();
        let told =
            "expected[1].at: unknown value of the sweep \"17%\"; expected one of \"0%\", \"1%\", \"2%\"";
        assert_eq!(error, format!("small.toml:46: {told}"));
        assert_eq!(swept(form, sweep, &at("2%")).unwrap().claims[1].points.len(), 1);
    }
    assert_eq!(swept(Form::Full, sweep, &at("1%")).unwrap().claims[1].points, [Some(1)]);
    // The short form has the first and the last.
    let short = swept(Form::Reduced, sweep, &at("1%")).unwrap();
    assert_eq!(serde_json::to_value(&short.claims[1]).unwrap()["points"], serde_json::json!([null]));
    let unswept = mistake("at-least = 0.9", "at-least = 0.9\nat = \"1%\"");
    assert_eq!(unswept, "small.toml:37: expected[0].at: nothing is swept; expected [[sweep]], or no `at`");
}

#[test]
fn what_the_short_form_replaces_is_checked_as_well() {
    for (old, new, message) in [
        ("sets = 20", "sets = 0", "small.toml:13: design.sets: 0; expected 1 to 100000"),
        ("designs = 2", "designs = 0", "small.toml:14: design.designs: 0; expected 1 to 100000"),
    ] {
        let text = SMALL.replacen(old, new, 1).replace("sets = 5", "sets = 5\ndesigns = 1");
        let found = Experiment::parse("small.toml", &text, Form::Reduced, &Policies::default());
        assert_eq!(found.unwrap_err().to_string(), message);
    }
}

#[test]
fn a_design_has_no_keys_of_another_kind() {
    let wrong = "small.toml:14: design.levels: is nothing of this kind; expected sets in its place";
    assert_eq!(mistake("sets = 20", "sets = 20\nlevels = 2"), wrong);
}

#[test]
fn traffic_has_no_keys_of_another_kind() {
    let wrong = "small.toml:19: traffic.bytes: is nothing of kind \"bulk\"; expected none, or duration";
    assert_eq!(mistake("duration = \"10s\"", "duration = \"10s\"\nbytes = \"1MB\""), wrong);
    let transfer = "kind = \"transfer\"\nbytes = \"1MB\"\nduration = \"10s\"";
    let wrong =
        "small.toml:19: traffic.duration: is nothing of kind \"transfer\"; expected none, or bytes, timeout";
    assert_eq!(mistake("kind = \"bulk\"\nduration = \"10s\"", transfer), wrong);
}

#[test]
fn what_has_no_short_form_is_not_called_short() {
    let (whole, _) = SMALL.split_once("[reduced]").unwrap();
    for (text, form) in [(SMALL, Form::Reduced), (whole, Form::Full)] {
        let experiment = Experiment::parse("small.toml", text, Form::Reduced, &Policies::default()).unwrap();
        assert_eq!(experiment.form, form);
    }
}

#[test]
fn the_ranges_of_factors_are_told() {
    let experiment = Experiment::parse("small.toml", SMALL, Form::Full, &Policies::default()).unwrap();
    let told: Vec<String> =
        experiment.factors.iter().map(|(name, range)| format!("{name}: {range}")).collect();
    let wanted =
        ["Rate: 1 Mbit/s to 100 Mbit/s, by equal ratios", "Round-trip time: 0 ms to 50 ms", "Queue: 50 ms"];
    assert_eq!(told, wanted);
}

const SHARED: &str = r#"
name = "shared"
title = "Datagrams beside a connection"
metrics = ["goodput"]

[topology]
kind = "shared"
paths = 1

[[sets]]
name = "one"
paths = [{ rate = "4mbit", rtt = "100ms", queue = "200ms" }]

[[flows]]
name = "MPTCP"
paths = [1]

[[flows]]
name = "UDP"
paths = [1]
udp = { on = "500ms", off = "2s" }
rate = "2mbit"

[traffic]
kind = "bulk"
duration = "20s"

[[variants]]
name = "LIA"
"#;

#[test]
fn datagrams_are_read_and_their_mistakes_named() {
    let experiment = Experiment::parse("shared.toml", SHARED, Form::Full, &Policies::default()).unwrap();
    let Topology::Shared(timeline) = &experiment.topology else { panic!("{:?}", experiment.topology) };
    let plan = timeline.flows[1].datagrams.unwrap();
    assert_eq!((plan.rate, plan.packet_bytes, plan.shape), (BitRate::from_mbps(2), 1000, 1.5));
    assert_eq!((plan.on, plan.off), (Duration::from_millis(500), Duration::from_secs(2)));
    for (old, new, message) in [
        (
            "rate = \"2mbit\"",
            "",
            "shared.toml:21: flows[1].udp: no rate; expected rate = \"2mbit\" beside it",
        ),
        ("rate = \"2mbit\"", "rate = \"2mbit\"\ntcp = \"reno\"", "shared.toml:21: flows[1].udp: is TCP, too"),
        ("\"500ms\"", "\"0ms\"", "shared.toml:21: flows[1].udp.on: never sends; expected a time above zero"),
        ("\"2s\" }", "\"2s\", shape = 1 }", "shared.toml:21: flows[1].udp.shape: "),
        ("\"2s\" }", "\"2s\", shape = 1.0 }", "shared.toml:21: flows[1].udp.shape: has no mean; expected"),
        (
            "\"2s\" }",
            "\"2s\", packet = \"2KB\" }",
            "shared.toml:21: flows[1].udp.packet: does not fit a packet",
        ),
        ("paths = [1]\nudp", "paths = [1, 1]\nudp", "shared.toml:20: flows[1].paths: datagrams go one way"),
        ("\"500ms\"", "\"half\"", "shared.toml:21: flows[1].udp.on: \"half\" has no number; expected a time"),
    ] {
        assert!(SHARED.contains(old), "{old}");
        let found =
            Experiment::parse("shared.toml", &SHARED.replacen(old, new, 1), Form::Full, &Policies::default());
        let found = found.unwrap_err().to_string();
        assert!(found.starts_with(message), "{found}\n  expected {message}");
    }
}

#[test]
fn paths_that_change_and_short_packets_are_read_and_their_mistakes_named() {
    const CHANGE: &str = "{ rate = \"4mbit\", rtt = \"20ms\", queue = \"50ms\", change = { after = \"200ms\", rate = \"1mbit\" } }";
    let text = format!(
        "name = \"x\"\ntitle = \"X\"\nmetrics = [\"completion-time\"]\n[topology]\npaths = 1\n[[sets]]\nname = \"one\"\n\
         paths = [{CHANGE}]\n[traffic]\nkind = \"requests\"\nrequest = \"100B\"\nresponse = \"500KB\"\ncount = 1\n\
         [baseline]\ncongestion = \"cubic\"\n[[variants]]\nname = \"short\"\nmtu = \"1000B\"\n"
    );
    let parse = |text: &str| Experiment::parse("x.toml", text, Form::Full, &Policies::default());
    let experiment = parse(&text).unwrap();
    assert!(experiment.sets[0].words().ends_with("queue 50 ms, after 0.2 s 1.00 Mbit/s"));
    assert_eq!((experiment.variants[0].mtu_bytes, experiment.variants[1].mtu_bytes), (Some(1000), None));
    // 95 kB in time, the other 405 kB at 1 Mbit/s; shorter packets have a larger share of headers.
    let times = [0, 1].map(|index| experiment.job(index).run().completion_s.unwrap());
    assert!((3.2..3.8).contains(&times[1]) && times[0] > times[1], "{times:?}");
    for (old, new, message) in [
        (
            "paths = 1",
            "paths = 1\nkind = \"shared\"",
            "x.toml:9: sets[0].paths[0].change: is of paths side by side",
        ),
        (
            "\"requests\"\nrequest = \"100B\"\nresponse = \"500KB\"\ncount = 1\n",
            "\"download\"\nbytes = \"500KB\"\n",
            "x.toml:8: sets[0].paths[0].change: is nothing of this traffic",
        ),
        ("\"1000B\"", "\"9KB\"", "x.toml:18: variants[0].mtu: is no length of packets here; expected 576B"),
        ("[topology]\n", "[defaults]\nmtu = \"80B\"\n[topology]\n", "x.toml:5: defaults.mtu: is no length"),
        (
            "completion-time",
            "adaptation-time",
            "x.toml:3: metrics[0]: paths stay as they are; expected [[events]]",
        ),
    ] {
        assert!(text.contains(old), "{old}");
        let found = parse(&text.replacen(old, new, 1)).unwrap_err().to_string();
        assert!(found.starts_with(message), "{found}\n  expected {message}");
    }
}

#[test]
fn the_time_to_adapt_is_that_of_one_connection_over_paths_that_change() {
    let two = SHARED.replacen("\"goodput\"", "\"adaptation-time\"", 1);
    let parse = |text: &str| Experiment::parse("shared.toml", text, Form::Full, &Policies::default());
    let found = parse(&two).unwrap_err().to_string();
    assert!(found.contains("metrics[0]: others share the paths"), "{found}");
    let udp =
        "[[flows]]\nname = \"UDP\"\npaths = [1]\nudp = { on = \"500ms\", off = \"2s\" }\nrate = \"2mbit\"\n";
    assert!(two.contains(udp));
    let found = parse(&two.replacen(udp, "", 1)).unwrap_err().to_string();
    assert!(found.contains("metrics[0]: paths stay as they are"), "{found}");
    let event = "[[events]]\nat = \"5s\"\npath = 1\nrate = \"1mbit\"\n";
    assert!(parse(&two.replacen(udp, event, 1)).is_ok());
}

#[test]
fn middleboxes_stand_on_every_path() {
    let with = |middlebox: &str| {
        let topology = format!("[topology]\nmiddleboxes = [{middlebox}]\n\n[factors]");
        let text =
            SMALL.replace("[factors]", &topology).replace("\"10s\"", "\"2s\"").replace("\"5s\"", "\"1s\"");
        Experiment::parse("small.toml", &text, Form::Full, &Policies::default())
    };
    let paths_that_carried = |middlebox: &str| {
        let outcome = with(middlebox).unwrap().job(0).run();
        outcome.paths.iter().filter(|path| path.delivered_packets > 2).count()
    };
    assert_eq!(paths_that_carried("\"nat\""), 2);
    // Without its options a connection is plain TCP, and has one path.
    assert_eq!(paths_that_carried("\"nat\", \"strip-mptcp-syn\""), 1);
    let unknown = with("\"firewall\"").unwrap_err().to_string();
    let message =
        "small.toml:7: topology.middleboxes[0]: no middlebox \"firewall\"; expected one of nat, strip-";
    assert!(unknown.starts_with(message), "{unknown}");
    let ring =
        SMALL.replace("[factors]", "[topology]\nkind = \"ring\"\nmiddleboxes = [\"nat\"]\n\n[factors]");
    let ring =
        Experiment::parse("small.toml", &ring, Form::Full, &Policies::default()).unwrap_err().to_string();
    assert!(ring.starts_with("small.toml:8: topology.middleboxes: acknowledgments of a ring"), "{ring}");
}

#[test]
fn blocks_without_a_rate_and_fixed_buffers_are_read() {
    let blocks = "kind = \"blocks\"\nblock = \"8KB\"\nrate = \"unlimited\"\nduration = \"10s\"\n[defaults]\nautotuning = false\nsend-buffer = \"200KB\"";
    let text = SMALL
        .replace("kind = \"bulk\"\nduration = \"10s\"", blocks)
        .replace("\"aggregation-benefit\", \"goodput\"", "\"delay\"");
    let experiment = Experiment::parse("small.toml", &text, Form::Full, &Policies::default()).unwrap();
    let job = experiment.job(0);
    assert!(matches!(job.workload, crate::Workload::Blocks { block_bytes: 8000, rate: None, .. }));
    // Plain TCP, too.
    for variant in &experiment.variants {
        let config = variant.connection(&job.set);
        assert_eq!((config.receive_autotuning, config.tcp.send_buffer_bytes), (false, 200_000));
    }
    let wrong = text.replace("\"unlimited\"", "\"fast\"");
    let found =
        Experiment::parse("small.toml", &wrong, Form::Full, &Policies::default()).unwrap_err().to_string();
    let message = "small.toml:19: traffic.rate: \"fast\" has no number; expected a rate such as \"40mbit\"";
    assert!(found.starts_with(message) && found.ends_with("or \"unlimited\""), "{found}");
}

#[test]
fn small_messages_are_packets_of_their_own() {
    for (traffic, bytes, packets) in [
        // 1 Mbit/s of blocks of 100 bytes.
        ("kind = \"blocks\"\nblock = \"100B\"\nrate = \"1mbit\"\nduration = \"10s\"", 1_250_000, 12_500),
        // Two packets each.
        ("kind = \"blocks\"\nblock = \"2000B\"\nrate = \"1mbit\"\nduration = \"10s\"", 1_250_000, 1_250),
        (
            "kind = \"requests\"\nrequest = \"200B\"\nresponse = \"3000B\"\ncount = 1000\ntimeout = \"60s\"",
            3_200_000,
            4_000,
        ),
        ("kind = \"transfer\"\nbytes = \"1448KB\"", 1_448_000, 1_000),
    ] {
        let text = SMALL.replace("kind = \"bulk\"\nduration = \"10s\"", traffic);
        let text = text
            .replace("\"aggregation-benefit\", \"goodput\"", "\"goodput\"")
            .replace("duration = \"5s\"", "");
        let experiment = Experiment::parse("small.toml", &text, Form::Full, &Policies::default()).unwrap();
        let job = experiment.job(0);
        assert_eq!((job.payload_bytes(), job.packets()), (bytes, packets), "{traffic}");
    }
}

#[test]
fn queues_are_given_in_packets_or_in_bandwidth_delay_products() {
    let parse = |queue: &str, design: &str| {
        let text = SMALL.replace("queue = \"50ms\"", queue).replace("kind = \"wsp\"\nsets = 20", design);
        let text = text.replace("[reduced]\nsets = 5\n", "[reduced]\n").replace("\"0ms\"", "\"10ms\"");
        Experiment::parse("small.toml", &text, Form::Full, &Policies::default())
    };
    let held = |path: &crate::run::PathSpec| path.rate.bytes_in(path.queue);
    let wsp = "kind = \"wsp\"\nsets = 20";
    for set in parse("queue-packets = 1000", wsp).unwrap().sets {
        assert!(set.set.paths.iter().all(|path| held(path) == 1_500_000 || held(path) == 1_500_001));
    }
    // Kaspar 2011, table 5.5: 13 levels of each path's rate and round trip, and of what both have in common.
    let design = "kind = \"orthogonal-array\"\nlevels = 13";
    let products = parse("queue-products = { from = 1, to = 13 }", design).unwrap();
    assert_eq!(products.sets.len(), 2 * 169);
    assert!(products.factors.contains(&("Queue", "1 to 13 bandwidth-delay products and 5 packets".into())));
    let mut seen = std::collections::BTreeSet::new();
    for set in &products.sets {
        let [one, other] = [0, 1].map(|path| {
            let path = &set.set.paths[path];
            (held(path) as f64 - 7500.0) / path.rate.bytes_in(path.rtt) as f64
        });
        assert!((one - other).abs() < 0.01 && (one - one.round()).abs() < 0.01, "{one} {other}");
        seen.insert(one.round() as u64);
    }
    assert!(seen.into_iter().eq(1..=13));
    let error = parse("queue-packets = 3\nqueue = \"1ms\"", wsp).unwrap_err().to_string();
    assert!(error.contains("expected one of queue, queue-packets and queue-products"), "{error}");
}

#[test]
fn one_tcp_is_split_in_a_flavour() {
    use crate::run::{Flavour, VariantKind};
    let parse = |variant: &str| {
        let text = SMALL.replacen("congestion = \"lia\"", variant, 1);
        Experiment::parse("small.toml", &text, Form::Full, &Policies::default())
    };
    let split = parse("flavour = \"r50-tuned\"\nsplit = \"send-vector:128\"").unwrap();
    let variant = &split.variants[0];
    assert_eq!(variant.kind, VariantKind::SplitPackets);
    assert_eq!(variant.flavour, "r50-tuned".parse::<Flavour>().unwrap());
    assert_eq!(variant.splitter.to_string(), "send-vector:128");
    for (wrong, expected) in [
        ("flavour = \"tahoe\"", "no flavour is called \"tahoe\"; expected one of stack, "),
        ("split = \"by-turns\"", "by-turns"),
        ("split = \"round-robin\"\nsingle-path = true", "expected one of both"),
    ] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn one_tcp_is_carried_by_an_aggregator() {
    use crate::run::VariantKind;
    let parse = |variant: &str| {
        let text = SMALL.replacen("congestion = \"lia\"", variant, 1);
        Experiment::parse("small.toml", &text, Form::Full, &Policies::default())
    };
    for (single, kind) in [("", VariantKind::SplitPackets), ("\nsingle-path = true", VariantKind::SinglePath)]
    {
        let carried = parse(&format!("aggregator = \"tunnel:1400\"{single}")).unwrap();
        let variant = &carried.variants[0];
        assert_eq!((variant.kind, variant.congestion.to_string()), (kind, "cubic".to_string()));
        assert_eq!(variant.carrier.as_ref().map(ToString::to_string).as_deref(), Some("tunnel:1400"));
    }
    let error = parse("aggregator = \"tunnel\"\nsplit = \"round-robin\"").unwrap_err().to_string();
    assert!(error.contains("expected one of split and aggregator"), "{error}");
}
