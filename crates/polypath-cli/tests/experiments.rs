//! `polypath lab` as people run it: results, resumption, comparison, and one clear line for each mistake.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polypath_config::Policies;
use polypath_lab::result::Results;

const EXPERIMENT: &str = r#"
name = "two-sets"
title = "Two sets"
metrics = ["benefit-over-tcp", "goodput"]

[[sets]]
name = "one"
paths = [
  { rate = "4mbit", rtt = "20ms", queue = "50ms" },
  { rate = "2mbit", rtt = "30ms", queue = "50ms" },
]

[[sets]]
name = "other"
paths = [
  { rate = "3mbit", rtt = "10ms", queue = "50ms" },
  { rate = "3mbit", rtt = "40ms", queue = "50ms" },
]

[traffic]
kind = "bulk"
duration = "10s"

[[variants]]
name = "LIA"
congestion = "lia"

[baseline]
congestion = "cubic"

[[expected]]
text = "better than the better path"
reason = "two paths carry more than one"
variant = "LIA"
at-least = 0.2
"#;

fn polypath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polypath")).args(arguments).output().expect("the command runs")
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder of the build's own");
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Runs the experiment with `change` of its text, and returns the folder and what the command printed.
fn run(folder: &Path, change: (&str, &str)) -> (PathBuf, serde_json::Value) {
    let file = folder.join("two-sets.toml");
    assert!(EXPERIMENT.contains(change.0));
    fs::write(&file, EXPERIMENT.replacen(change.0, change.1, 1)).expect("a file");
    let output = polypath(&["lab", "run", text(&file), "--out", text(folder), "--json", "--quiet"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    (PathBuf::from(json["folder"].as_str().expect("a folder")), json)
}

#[test]
fn a_run_gives_numbers_a_table_and_a_report_and_is_not_repeated() {
    let folder = folder("lab-run");
    let (results, json) = run(&folder, ("10s", "10s"));
    assert_eq!((&json["manifest"]["complete"], &json["manifest"]["runs"]), (&true.into(), &6.into()));
    assert_eq!(json["findings"][0]["holds"], true, "{json}");
    for file in ["runs.parquet", "report.html", "manifest.json", "experiment.toml"] {
        assert!(results.join(file).exists(), "{file}");
    }
    let (again, same) = run(&folder, ("10s", "10s"));
    assert_eq!((&again, &same), (&results, &json));
    let shown = polypath(&["lab", "show", text(&results)]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("✓ better than the better path") && shown.contains("TCP on path 2"), "{shown}");
    let listed = polypath(&["lab", "list", text(&folder), "--out", text(&folder)]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("two-sets") && listed.contains(text(&results)), "{listed}");
}

#[test]
fn one_run_is_played_again_with_the_command_that_the_results_give() {
    let folder = folder("lab-only");
    let (results, json) = run(&folder, ("10s", "10s"));
    let row = &json["rows"][0];
    assert_eq!((&row["experiment"], &row["metric"]), (&"two-sets".into(), &"benefit-over-tcp".into()));
    assert_eq!((&row["duration_s"], &row["traffic"]), (&10.0.into(), &"bulk for 10 s".into()));
    assert_eq!(row["build"], json["manifest"]["build"]);
    let shown = polypath(&["lab", "show", text(&results), "--worst", "1"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let command = shown.lines().find_map(|line| line.strip_prefix("  polypath ")).expect("a command");
    let page = fs::read_to_string(results.join("report.html")).expect("the report");
    assert!(page.contains(&format!("<code>polypath {command}</code>")), "{command}");
    let words: Vec<&str> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
    let again = polypath(&[&words[..], &["--json", "--quiet"]].concat());
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert!(words.contains(&again["run"].as_str().expect("a name")), "{}", again["run"]);
    // The comparison needs other runs; the rest is that of the results.
    assert_eq!(
        (&again["metrics"][0]["value"], &again["metrics"][1]["unit"]),
        (&serde_json::Value::Null, &"Mbit/s".into())
    );
    assert!(again["metrics"][1]["value"].as_f64().is_some_and(|mbps| mbps > 1.0));
    let own = Path::new(again["folder"].as_str().expect("a folder"));
    assert_eq!(own.parent(), Some(results.as_path()));
    for (file, begins) in [
        ("packets.pcapng", &b"\x0a\x0d\x0d\x0a"[..]),
        ("events.qlog", b"\x1e{"),
        ("packets.txt", b"0"),
        ("report.html", b"<!"),
        ("run.json", b"{"),
    ] {
        let content = fs::read(own.join(file)).expect(file);
        assert!(content.starts_with(begins) && content.len() > 1000, "{file}");
    }
    // Who wants the report alone is not left with the packets.
    fs::remove_dir_all(own).expect("the folder of the run");
    let short = polypath(&[&words[..], &["--report-only"]].concat());
    assert!(short.status.success(), "{}", String::from_utf8_lossy(&short.stderr));
    let mut kept: Vec<_> =
        fs::read_dir(own).expect("it").map(|file| file.expect("a file").file_name()).collect();
    kept.sort();
    assert_eq!(kept, ["report.html", "run.json"]);
    // The folder of a run is none of results.
    let unknown = polypath(&["lab", "run", text(&results.join("experiment.toml")), "--only", "one/CUBIC"]);
    let message = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(2), "{message}");
    let wanted = "--only: no run \"one/CUBIC\"; expected set/variant/repeat, such as \"one/LIA/1\"";
    assert!(message.contains(wanted), "{message}");
}

#[test]
fn the_version_says_what_the_build_of_results_is() {
    let long = polypath(&["--version"]);
    let long = String::from_utf8_lossy(&long.stdout).into_owned();
    let version = env!("CARGO_PKG_VERSION");
    assert!(long.starts_with(&format!("polypath {version}\nbuild {version}+")), "{long}");
    assert!(long.contains("SHA-256"), "{long}");
    let short = polypath(&["-V"]);
    assert_eq!(String::from_utf8_lossy(&short.stdout), format!("polypath {version}\n"));
    let folder = folder("lab-version");
    let (_, json) = run(&folder, ("10s", "1s"));
    let build = json["manifest"]["build"].as_str().expect("a build");
    assert!(long.contains(&format!("build {build}:")), "{long} is not of {build}");
}

/// A copy of results that lacks the last run.
fn interrupt(complete: &Path, copy: &Path) -> PathBuf {
    fs::create_dir_all(copy).expect("a folder");
    let results = Results::load(complete, &Policies::default()).expect("results");
    let lines: Vec<String> = results
        .runs
        .iter()
        .take(results.runs.len() - 1)
        .map(|(key, outcome)| {
            let mut line = serde_json::to_value(key).expect("a key");
            line["outcome"] = serde_json::to_value(outcome).expect("an outcome");
            format!("{line}\n")
        })
        .collect();
    fs::write(copy.join("runs.jsonl"), lines.concat()).expect("the log");
    fs::copy(complete.join("experiment.toml"), copy.join("experiment.toml")).expect("the experiment");
    let manifest = fs::read_to_string(complete.join("manifest.json")).expect("the manifest");
    let manifest = manifest.replace("\"complete\": true", "\"complete\": false");
    fs::write(copy.join("manifest.json"), manifest).expect("the manifest");
    copy.to_path_buf()
}

#[test]
fn a_comparison_fails_when_a_median_became_worse() {
    let folder = folder("lab-compare");
    let (coupled, _) = run(&folder, ("\"lia\"", "\"lia\""));
    // The window of one segment that a tiny buffer allows.
    let (limited, _) = run(&folder, ("congestion = \"lia\"", "congestion = \"lia\"\nbuffer = \"4KB\""));
    assert_ne!(coupled, limited);
    let same = polypath(&["lab", "compare", text(&coupled), text(&coupled)]);
    assert_eq!(same.status.code(), Some(0));
    let worse = polypath(&["lab", "compare", text(&coupled), text(&limited), "--threshold", "0.1"]);
    let message = String::from_utf8_lossy(&worse.stderr).into_owned();
    assert_eq!(worse.status.code(), Some(1), "{message}");
    assert!(message.contains("medians became worse by more than 0.1"), "{message}");
    let better = polypath(&["lab", "compare", text(&limited), text(&coupled), "--threshold", "0.1"]);
    assert_eq!(better.status.code(), Some(0));
    let interrupted = interrupt(&coupled, &folder.join("interrupted"));
    let missing = polypath(&["lab", "compare", text(&coupled), text(&interrupted)]);
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(2), "{message}");
    assert!(message.contains("is not complete: 1 of 6 runs is missing"), "{message}");
    let (others, _) = run(&folder, ("4mbit", "5mbit"));
    let (different, _) = run(&folder, ("name = \"two-sets\"", "name = \"others\""));
    for (other, wanted) in [
        (others, "different sets: \"one\" is not the same in both"),
        (different, "results of two experiments, two-sets and others; expected two of one"),
    ] {
        let refused = polypath(&["lab", "compare", text(&coupled), text(&other)]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2));
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn a_mistake_is_one_line_with_file_line_and_key() {
    let folder = folder("lab-mistakes");
    let file = folder.join("wrong.toml");
    fs::write(&file, EXPERIMENT.replace("congestion = \"lia\"", "congestion = \"lai\"")).expect("a file");
    let missing = folder.join("nothing.toml");
    for (arguments, wanted) in [
        (["lab", "run", text(&file)], "wrong.toml:26: variants[0].congestion: no congestion control \"lai\""),
        (["lab", "run", text(&missing)], "nothing.toml: no such file; expected an experiment in TOML"),
        (["lab", "show", text(&folder)], "there are no results; expected"),
        (["lab", "list", text(&missing)], "expected a folder of experiments"),
    ] {
        let output = polypath(&arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains(wanted), "{message}");
    }
}

/// Streams open connections of their own, of which the simulator knows nothing.
#[test]
fn one_run_of_a_stream_tells_what_came() {
    const STREAM: &str = r#"
name = "film"
title = "A film"
metrics = ["top-quality"]
[[sets]]
name = "one"
paths = [
  { rate = "2mbit", rtt = "20ms", queue = "200ms" },
  { rate = "1mbit", rtt = "20ms", queue = "200ms" },
]
[traffic]
kind = "stream"
duration = "20s"
held = "4s"
[[variants]]
name = "both"
adaptation = "measured-speed"
"#;
    let folder = folder("lab-stream");
    let file = folder.join("film.toml");
    fs::write(&file, STREAM).expect("the experiment");
    let words = ["lab", "run", text(&file), "--out", text(&folder), "--only", "one/both", "--report-only"];
    let output = polypath(&words);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let first = told.lines().next().expect("a line");
    assert!(first.contains(" MB received by the application, ") && !first.contains(" 0.0 MB"), "{told}");
    let own = fs::read_dir(&folder).expect("it").flatten().map(|entry| entry.path());
    let results = own.filter(|path| path.is_dir()).find_map(|path| fs::read_dir(path).ok()?.flatten().next());
    let page = fs::read_to_string(results.expect("the run").path().join("report.html")).expect("the report");
    assert!(page.contains("received by the application") && !page.contains("every byte compared"));
}

#[test]
fn files_come_from_standard_input_too() {
    let folder = folder("lab-input");
    let given = |arguments: &[&str], content: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_polypath"))
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the command runs");
        child.stdin.take().expect("a pipe").write_all(content.as_bytes()).expect("it reads");
        child.wait_with_output().expect("a child")
    };
    let arguments = ["lab", "run", "-", "--out", text(&folder), "--json", "--quiet", "--only", "one/LIA"];
    let output = given(&arguments, &EXPERIMENT.replace("10s", "1s"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["run"], "one/LIA/1");
    for (arguments, content, wanted) in [
        (&["lab", "run", "-"][..], "name = 1", "standard input:1: name: "),
        (&["emulate", "-"], "links = []", "standard input:1: links: is empty"),
        (&["sim", "-"], "seed = 1\nduration = \"0s\"\n[[hosts]]", "standard input:3: hosts[0]: "),
    ] {
        let output = given(arguments, content);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn a_list_says_what_is_no_experiment_and_goes_on() {
    let folder = folder("lab-list");
    let document = "title = \"Two sets\"\nfigure = \"X Fig. 1\"\ndocument = \"X: Someone, Something, 2000\"";
    fs::write(folder.join("two-sets.toml"), EXPERIMENT.replace("title = \"Two sets\"", document))
        .expect("a file");
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/wifi-lte.toml");
    fs::copy(scenario, folder.join("a-scenario.toml")).expect("a file");
    let listed = polypath(&["lab", "list", text(&folder)]);
    let [out, message] =
        [&listed.stdout, &listed.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(listed.status.success(), "{message}");
    assert!(
        message.ends_with("a-scenario.toml: no experiment, but a scenario, which `polypath sim` runs\n"),
        "{message}"
    );
    assert!(out.contains("two-sets") && out.contains("(X Fig. 1)"), "{out}");
    assert!(out.ends_with("\nX: Someone, Something, 2000\n"), "{out}");
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let folder = folder("lab-kill");
    let file = folder.join("two-sets.toml");
    // Long enough to be killed in the middle: some runs are done, others are not.
    let long =
        EXPERIMENT.replace("10s", "120s").replace("mbit", "0mbit").replace("metrics", "repeats = 8\nmetrics");
    fs::write(&file, long).expect("a file");
    let arguments = ["lab", "run", text(&file), "--out", text(&folder), "--jobs", "1", "--quiet", "--full"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_polypath"))
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the command runs");
    let log = || {
        let mut folders = fs::read_dir(&folder).expect("the folder").flatten().map(|entry| entry.path());
        let log = folders.find_map(|path| fs::read_to_string(path.join("runs.jsonl")).ok());
        log.unwrap_or_default()
    };
    while log().lines().count() < 2 && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().expect("to kill it");
    child.wait().expect("a child");
    let kept = log();
    let kept: Vec<&str> = kept.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
    assert!((2..48).contains(&kept.len()), "{} runs", kept.len());
    // What it had is not done again: the log goes on after it. Killed once more, for the log is gone at the end, this time
    // while two runs go on at once.
    let arguments = ["lab", "run", text(&file), "--out", text(&folder), "--jobs", "2", "--quiet", "--full"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_polypath"))
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the command runs");
    while log().lines().count() < kept.len() + 2 && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().expect("to kill it");
    child.wait().expect("a child");
    let later = log();
    assert!(later.starts_with(&kept.concat()), "{later}");
    assert!(later.lines().count() >= kept.len() + 2);
    // The rest is done, and no more than that; then there is what a run that nobody disturbs gives.
    let whole = later.split_inclusive('\n').filter(|line| line.ends_with('\n')).count();
    let arguments = ["lab", "run", text(&file), "--out", text(&folder), "--quiet", "--full", "--json"];
    let rest = polypath(&arguments);
    let message = String::from_utf8_lossy(&rest.stderr).into_owned();
    assert_eq!(message.trim_end(), format!("polypath: {whole} of 48 runs were done before"));
    let undisturbed = polypath(&[&arguments[..4], &[text(&folder.join("other"))], &arguments[5..]].concat());
    assert_eq!(String::from_utf8_lossy(&undisturbed.stderr), "");
    let [rest, undisturbed] = [rest, undisturbed].map(|output| -> serde_json::Value {
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).expect("JSON")
    });
    assert_eq!((&rest["rows"], &rest["manifest"]["complete"]), (&undisturbed["rows"], &true.into()));
}

#[test]
fn a_transfer_between_namespaces_gives_what_the_simulator_gives() {
    if !polypath_testbed::is_root_or_skip("lab run --backend netns") {
        return;
    }
    let folder = folder("lab-netns");
    let file = folder.join("two-sets.toml");
    let bulk = "kind = \"bulk\"\nduration = \"10s\"";
    assert!(EXPERIMENT.contains(bulk));
    let transfer = "kind = \"transfer\"\nbytes = \"100KB\"\ntimeout = \"30s\"";
    let metrics = "metrics = [\"completion-time\", \"goodput\"]";
    let small = EXPERIMENT
        .replace(bulk, transfer)
        .replace("metrics = [\"benefit-over-tcp\", \"goodput\"]", metrics)
        .split("[[expected]]")
        .next()
        .map(String::from);
    fs::write(&file, small.expect("a text")).expect("a file");
    let run = |backend: &str| -> serde_json::Value {
        let arguments = ["lab", "run", text(&file), "--out", text(&folder), "--json", "--quiet"];
        let output = polypath(&[&arguments[..], &["--backend", backend]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let [sim, netns] = ["sim", "netns"].map(run);
    // Results of different backends are never mixed.
    assert_ne!(sim["folder"], netns["folder"]);
    for result in [&sim, &netns] {
        assert_eq!(result["manifest"]["complete"], true);
        for row in result["rows"].as_array().expect("rows") {
            let least = row["distribution"]["min"].as_f64();
            // 100 KB over 6 Mbit/s, which is the sum of both paths, take 0.13 s at least, whatever the machine does.
            let bound = if row["metric"] == "completion-time" { 0.13 } else { 0.0 };
            assert!(least.is_some_and(|least| least > bound && least.is_finite()), "{row}");
        }
    }
    let rows = |result: &serde_json::Value| result["rows"].as_array().map(Vec::len);
    assert_eq!(rows(&sim), rows(&netns));
}

#[test]
fn what_a_backend_can_not_do_is_said_before_anything_runs() {
    let folder = folder("lab-unfit");
    let file = folder.join("unfit.toml");
    let blocks = "kind = \"blocks\"\nblock = \"8KB\"\nload = \"20%\"\nduration = \"10s\"";
    let metrics = "metrics = [\"delay\"]";
    let of_blocks = EXPERIMENT
        .replace("kind = \"bulk\"\nduration = \"10s\"", blocks)
        .replace("metrics = [\"benefit-over-tcp\", \"goodput\"]", metrics);
    let of_blocks = of_blocks.split("[[expected]]").next().expect("a text");
    for (content, backend, wanted) in [
        (
            of_blocks,
            "netns",
            "set 1, LIA: this backend carries bulk and transfer traffic, downloads and streams, no blocks",
        ),
        (EXPERIMENT, "netns-kernel", "set 1, LIA: this kernel has no lia; it has"),
    ] {
        fs::write(&file, content).expect("a file");
        let out = folder.join("out");
        let arguments = ["lab", "run", text(&file), "--out", text(&out), "--backend", backend];
        let output = polypath(&arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains(wanted), "{message}");
        assert!(!out.exists());
    }
}

/// The names that a message offers behind "expected one of", without their parameters.
fn offered(message: &str) -> Vec<String> {
    let (_, list) = message.split_once("expected one of ").unwrap_or_else(|| panic!("{message}"));
    let mut depth = 0;
    let bare: String = list
        .trim()
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '[') - i32::from(*letter == ']');
            depth == 0 && *letter != ']'
        })
        .collect();
    bare.split(", ").map(|name| name.trim_matches('"').to_string()).collect()
}

#[test]
fn the_page_of_what_is_measured_has_each_name() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md");
    let page = fs::read_to_string(page).expect("the page");
    let folder = folder("lab-names");
    let file = folder.join("wrong.toml");
    let scenario = |key: &str| {
        format!(
            "name = \"x\"\nduration = \"1s\"\nseed = 1\n[[hosts]]\nname = \"a\"\n[[hosts]]\nname = \"b\"\n[[links]]\n\
             name = \"l\"\nbetween = [\"a\", \"b\"]\nrate = \"4mbit\"\ndelay = \"1ms\"\n{key} = [\"wrong\"]\n\
             [[connections]]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1MB\"\n"
        )
    };
    let metrics =
        EXPERIMENT.replace("metrics = [\"benefit-over-tcp\", \"goodput\"]", "metrics = [\"wrong\"]");
    for (content, command, least) in [
        (metrics, &["lab", "run"][..], 14),
        (scenario("middleboxes"), &["sim"], 16),
        (scenario("impairments"), &["sim"], 6),
    ] {
        fs::write(&file, content).expect("a file");
        let output = polypath(&[command, &[text(&file)]].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let names = offered(&message);
        assert!(names.len() >= least, "{names:?}");
        for name in names {
            assert!(page.contains(&format!("`{name}`")), "docs/lab.md has no `{name}`");
        }
    }
}

#[test]
fn damaged_bytes_are_a_failure_of_sim_and_a_report_that_nobody_asked_for_is_none() {
    let folder = folder("sim-damaged");
    let file = folder.join("damaged.toml");
    let links = ["wifi", "lte"].map(|name| {
        format!(
            "[[links]]\nname = \"{name}\"\nbetween = [\"a\", \"b\"]\nrate = \"4mbit\"\ndelay = \"1ms\"\n\
             middleboxes = [\"rewrite-payload\"]\n"
        )
    });
    let content = format!(
        "name = \"x\"\nduration = \"20s\"\nseed = 1\n[[hosts]]\nname = \"a\"\n[[hosts]]\nname = \"b\"\n{}[[connections]]\n\
         from = \"a\"\nto = \"b\"\nbytes = \"1MB\"\nmptcp = false\n",
        links.concat()
    );
    fs::write(&file, content).expect("a file");
    // A folder stands where the report would go.
    fs::create_dir(folder.join("damaged.html")).expect("a folder");
    let output = polypath(&["sim", text(&file)]);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{error}");
    assert!(out.contains("BYTES ARRIVED DAMAGED"), "{out}");
    assert!(error.contains("there is no report") && error.contains("bytes arrived damaged"), "{error}");
}
