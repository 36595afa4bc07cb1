//! The command as people run it: results, and one clear line for each mistake.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn polypath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polypath")).args(arguments).output().expect("the command runs")
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

const SCENARIO: &str = r#"
duration = "20s"
[[hosts]]
name = "a"
[[hosts]]
name = "b"
[[hosts]]
name = "island"
[[hosts]]
name = "reef"
[[links]]
name = "ferry"
between = ["island", "reef"]
rate = "1mbit"
delay = "1ms"
[[links]]
name = "fast"
between = ["a", "b"]
rate = "10mbit"
delay = "10ms"
limit = "50ms"
[[links]]
name = "slow"
between = ["a", "b"]
rate = "5mbit"
delay = "20ms"
limit = "50ms"
[[connections]]
from = "a"
to = "b"
direction = "upload"
bytes = "2MB"
"#;

/// A scenario with one word replaced ends with exit code 2 and one line that holds all of `wanted`.
#[track_caller]
fn refuses(name: &str, replace: &str, with: &str, wanted: &[&str]) {
    let file = folder().join(format!("{name}.toml"));
    assert!(SCENARIO.contains(replace));
    fs::write(&file, SCENARIO.replacen(replace, with, 1)).expect("a file in the build's own folder");
    let output = polypath(&["sim", file.to_str().expect("a path in UTF-8"), "--quiet"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    for part in wanted.iter().chain(&[format!("{name}.toml").as_str()]) {
        assert!(message.contains(part), "\"{part}\" is not in: {message}");
    }
}

#[test]
fn mistakes_in_a_scenario_end_with_one_clear_line() {
    refuses("unknown-key", "rate = \"10mbit\"", "speed = \"10mbit\"", &["speed", "expected", "rate"]);
    refuses("negative-rate", "10mbit", "-10mbit", &["links[1].rate", "negative", "expected a rate"]);
    refuses(
        "no-unit",
        "delay = \"10ms\"",
        "delay = \"10\"",
        &["links[1].delay", "no unit", "expected a time"],
    );
    refuses("no-route", "to = \"b\"", "to = \"island\"", &["connections[0]", "island"]);
    refuses("no-host", "to = \"b\"", "to = \"c\"", &["connections[0].to", "\"c\"", "expected"]);
    refuses("no-toml", "[[hosts]]", "[[hosts", &["expected"]);
    let missing = polypath(&["sim", "/nonexistent/scenario.toml"]);
    let message = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(2));
    assert!(message.contains("scenario.toml") && message.contains("no such file"), "{message}");
}

#[test]
fn a_scenario_gives_json_and_a_report() {
    let file = folder().join("good.toml");
    let report = folder().join("good.html");
    fs::write(&file, SCENARIO).expect("a file in the build's own folder");
    let path = |path: &Path| path.to_str().expect("a path in UTF-8").to_string();
    let seed = u64::MAX.to_string();
    let output = polypath(&["sim", &path(&file), "--seed", &seed, "--report", &path(&report), "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["seed"].as_str(), Some(seed.as_str()), "whole, whoever reads it");
    let upload = &result["connections"][0]["upload"];
    assert_eq!((upload["bytes"].as_u64(), upload["intact"].as_bool()), (Some(2_000_000), Some(true)));
    assert_eq!(upload["subflows"].as_array().map(Vec::len), Some(2));
    let page = fs::read_to_string(report).expect("the report");
    assert!(page.contains("<svg") && page.contains("polyline"));
}

#[test]
fn a_scenario_from_standard_input_is_told_in_words() {
    let report = folder().join("words.html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["sim", "-", "--report"]).arg(&report);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    child.stdin.take().expect("a pipe").write_all(SCENARIO.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in
        ["a sent 2.0 MB to b in ", "Paths: fast ", ", slow ", "plain TCP over the best path alone, fast"]
    {
        assert!(text.contains(part), "\"{part}\" is not in: {text}");
    }
    assert!(fs::read_to_string(report).expect("the report").contains("plain TCP over the best path alone"));
}

#[test]
fn the_demo_goes_on_through_a_cut() {
    let (report, pcap) = (folder().join("demo.html"), folder().join("demo.pcapng"));
    let picture = folder().join("demo.svg");
    let path = |path: &Path| path.to_str().expect("a path in UTF-8").to_string();
    let output = polypath(&[
        "demo",
        "--virtual",
        "--size",
        "20",
        "--json",
        "--report",
        &path(&report),
        "--pcap",
        &path(&pcap),
        "--picture",
        &path(&picture),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["intact"].as_bool(), Some(true));
    assert!(result["aggregation_benefit_without_cut"].as_f64() > Some(0.5), "{}", result["baselines"]);
    assert!(fs::metadata(pcap).expect("the trace").len() > 20_000_000);
    // TCP under the same cut stands still until it is over, and this does not.
    let (ours, tcp) = (&result["outcome"], &result["tcp_beside"]["outcome"]);
    assert_eq!((tcp["complete"].as_bool(), result["tcp_beside"]["path"].as_u64()), (Some(true), Some(0)));
    assert!(tcp["longest_gap_s"].as_f64() > Some(3.0) && ours["longest_gap_s"].as_f64() < Some(1.0));
    assert!(tcp["duration_s"].as_f64() > ours["duration_s"].as_f64());
    let sentence = result["sentence"].as_str().expect("a sentence");
    assert!(
        sentence.starts_with("wifi was cut for 3 s") && sentence.contains("TCP over wifi froze"),
        "{sentence}"
    );
    for file in [report, picture] {
        let text = fs::read_to_string(file).expect("what was asked for");
        assert!(text.contains("TCP over wifi alone") && text.contains("wifi is down"));
    }
    for (arguments, wanted) in [
        (vec!["demo", "--path", "name=x,rate=5"], "rate"),
        (vec!["demo", "--cut", "dsl@1s..2s", "--virtual"], "expected wifi or lte"),
        (vec!["demo", "--scheduler", "fastest", "--virtual"], "lowest-rtt"),
        (
            vec!["demo", "--picture", "demo.png", "--virtual"],
            "--picture: demo.png is no SVG file; expected a name",
        ),
        (vec!["demo", "--file", "/nonexistent", "--virtual"], "expected a file"),
    ] {
        let output = polypath(&arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn mistakes_on_the_command_line_end_with_one_clear_line() {
    let same_name =
        ["demo", "--virtual", "--path", "name=a,rate=1mbit", "--path", "name=a,rate=2mbit", "--no-cut"];
    for (arguments, wanted) in [
        (&same_name[..], "two are named \"a\""),
        (&["demo", "--viritual"], "similar argument exists: '--virtual'"),
        (&["demo", "--size", "0"], "1..=4096"),
        (&["demo", "--report", "/nonexistent/report.html"], "expected a writable file"),
        (&["sim"], "<FILE.toml>"),
        (&["soak", "--count", "0"], "--count"),
        (&["lab", "list", "/nonexistent"], "such as experiments in Polypath's source: polypath lab list DIR"),
        (&["fly"], "unrecognized subcommand 'fly'"),
    ] {
        let output = polypath(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(message.starts_with("polypath: ") && message.contains(wanted), "{message}");
    }
    let help = polypath(&["--help"]);
    assert!(help.status.success() && help.stderr.is_empty() && !help.stdout.is_empty());
}

#[test]
fn a_program_that_is_not_there_is_said_as_a_shell_says_it() {
    let output = polypath(&["preload", "--", "no-such-program"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{message}");
    assert!(message.starts_with("polypath: no-such-program: command not found"), "{message}");
}

#[test]
fn colours_are_for_terminals_and_for_those_who_want_them() {
    let on_a_terminal = |variables: &[(&str, &str)]| {
        let mut script = Command::new("script");
        let line = format!("{} demo --help", env!("CARGO_BIN_EXE_polypath"));
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
        script.envs(variables.iter().copied()).output()
    };
    let Ok(output) = on_a_terminal(&[]) else {
        eprintln!("SKIPPED colours: script is missing (apt-get install bsdutils)");
        return;
    };
    assert!(output.stdout.contains(&0x1b), "{output:?}");
    let output = on_a_terminal(&[("NO_COLOR", "1")]).expect("it ran before");
    assert!(output.status.success() && !output.stdout.contains(&0x1b), "{output:?}");
    let help = polypath(&["demo", "--help"]);
    assert!(!help.stdout.contains(&0x1b), "no terminal: {help:?}");
}

#[test]
fn what_is_logged_is_said_by_options_and_the_environment() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    let output =
        command.args(["schema", "scenario", "-vvv"]).env("RUST_LOG", "polypath_netsetup=loud").output();
    let output = output.expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.starts_with("polypath: RUST_LOG: "), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
}

#[test]
fn an_unknown_option_before_a_program_is_no_program() {
    for command in ["run", "preload"] {
        let output = polypath(&[command, "--enigne", "udp", "--", "true"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("'--enigne'") && message.contains("'--engine'"), "{message}");
        // What stands behind the program is its own.
        let output = polypath(&[command, "--engine", "tcp", "/no/such/program", "--enigne"]);
        assert_eq!(output.status.code(), Some(127), "{output:?}");
    }
}
