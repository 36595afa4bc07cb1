//! The command with our policies: files and options know their names.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn polypath(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath-with-policies"));
    command.current_dir(folder).args(arguments).output().expect("the command runs")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A folder with a file of this crate in it.
fn folder_with(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::copy(file, folder.path().join(name)).expect("a copy");
    folder
}

#[test]
fn a_scenario_names_them() {
    let folder = folder_with("scenario.toml");
    let result = json(&polypath(folder.path(), &["sim", "scenario.toml", "--json", "--quiet"]));
    let connection = &result["connections"][0];
    assert_eq!((&connection["scheduler"], &connection["congestion"]), (&"largest".into(), &"steady".into()));
    assert_eq!(connection["upload"]["bytes"], 8_000_000, "{connection}");
    assert_eq!(connection["upload"]["intact"], true);
    assert!(connection["opened_at_s"].as_f64().expect("a time") > 0.5, "the box comes late: {connection}");
    let lost = &result["links"][0]["forward"]["lost_packets"];
    assert!(lost.as_u64() > Some(0), "bursts: {lost}");
    let subflows = connection["upload"]["subflows"].as_array().expect("subflows");
    let links: Vec<_> = subflows.iter().map(|subflow| subflow["link"].as_str()).collect();
    assert_eq!(links, [Some("wifi"), Some("lte")], "the other path is opened when the first one fails");
}

#[test]
fn an_experiment_names_them() {
    let folder = folder_with("experiment.toml");
    let result = json(&polypath(folder.path(), &["lab", "run", "experiment.toml", "--json", "--quiet"]));
    let rows = result["rows"].as_array().expect("rows");
    let goodput = |variant: &str| {
        let row = rows.iter().find(|row| row["variant"] == variant).expect("a variant");
        row["distribution"]["median"].as_f64().expect("a number")
    };
    // Losses mean nothing to a window that is always the same.
    assert!(goodput("ours") > 2.0 * goodput("theirs"), "{rows:?}");
}

#[test]
fn options_take_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let demo = [
        "demo",
        "--virtual",
        "--json",
        "--size",
        "2",
        "--no-cut",
        "--scheduler",
        "largest",
        "--congestion",
        "steady:50",
    ];
    assert_eq!(json(&polypath(folder.path(), &demo))["intact"], true);
}

#[test]
fn a_wrong_name_gets_the_names_and_theirs_among_them() {
    let folder = folder_with("scenario.toml");
    let text = std::fs::read_to_string(folder.path().join("scenario.toml")).expect("a file");
    std::fs::write(folder.path().join("wrong.toml"), text.replace("\"largest\"", "\"larger\""))
        .expect("a file");
    let said = |arguments: &[&str]| {
        let output = polypath(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).expect("text")
    };
    let unknown = "no scheduler \"larger\"; expected one of default, lowest-rtt";
    let in_file = said(&["sim", "wrong.toml"]);
    assert!(in_file.starts_with("polypath: wrong.toml:") && in_file.contains(unknown), "{in_file}");
    let in_option = said(&["demo", "--virtual", "--scheduler", "larger"]);
    assert!(in_option.starts_with(&format!("polypath: --scheduler: {unknown}")), "{in_option}");
    for message in [in_file, in_option] {
        assert!(message.contains("backup-aware, largest"), "{message}");
    }
}

#[test]
fn middlebox_cases_and_random_scenarios_have_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = json(&polypath(folder.path(), &["bench", "middleboxes", "--only", "latecomer", "--json"]));
    assert!(cases["cases"].as_u64() >= Some(12), "{cases}");
    assert_eq!(cases["cases"], cases["passed"], "{cases}");
    let soak = json(&polypath(folder.path(), &["soak", "--count", "20", "--json"]));
    assert_eq!(soak["passed"], 20, "{soak}");
    let told = |seed: u64| polypath(folder.path(), &["soak", "--seed", &seed.to_string()]).stdout;
    let is_ours = |seed| String::from_utf8_lossy(&told(seed)).contains("scheduler largest");
    assert!((0..40).any(is_ours), "one scenario in twelve");
}

#[test]
fn a_wrong_parameter_is_named_by_its_policy() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = polypath(folder.path(), &["demo", "--virtual", "--congestion", "steady:0"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).expect("text");
    let why = "the congestion control of \"steady:0\" has a wrong parameter: number would be zero for non-zero type";
    assert!(said.starts_with(&format!("polypath: --congestion: {why}; expected steady[:packets,")), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
}
