//! Every record of a qlog file is as its schema says, and to write one changes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

fn workspace(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn schema() -> (Schemas, SchemaIndex) {
    let mut schemas = Schemas::new();
    let mut compiler = Compiler::new();
    let text = fs::read_to_string(workspace("docs/qlog.schema.json")).expect("the schema");
    let json = serde_json::from_str(&text).expect("JSON");
    compiler.add_resource("qlog.json", json).expect("a resource");
    let index = compiler.compile("qlog.json", &mut schemas).expect("a schema");
    (schemas, index)
}

/// The names of the events in a file, all of whose records are valid.
fn names(file: &Path) -> BTreeSet<String> {
    let (schemas, schema) = schema();
    let text = fs::read_to_string(file).expect("a file");
    let records: Vec<Value> = text
        .split('\u{1e}')
        .filter(|record| !record.is_empty())
        .map(|record| serde_json::from_str(record).expect("JSON"))
        .collect();
    for record in &records {
        if let Err(error) = schemas.validate(record, schema) {
            panic!("{record}\n{error:#}");
        }
    }
    let times = || records.iter().filter_map(|record| record["time"].as_f64());
    assert!(times().zip(times().skip(1)).all(|(one, next)| one <= next), "in the order of time");
    assert!(records.len() > 100 && records[0]["file_schema"].is_string());
    records.iter().filter_map(|record| record["name"].as_str().map(str::to_string)).collect()
}

/// Runs the command and returns what it prints.
fn run(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_polypath")).args(arguments).current_dir(folder).output();
    let output = output.expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

const EVENTS: [&str; 6] = [
    "mptcp:connection_started",
    "mptcp:subflow_joined",
    "mptcp:subflow_started",
    "tcp:metrics_updated",
    "tcp:packet_received",
    "tcp:packet_sent",
];

#[test]
fn the_demo_writes_what_the_schema_says() {
    let folder = tempfile::tempdir().expect("a folder");
    run(&["demo", "--virtual", "--size", "2", "--no-cut", "--qlog", "demo.qlog"], folder.path());
    let names = names(&folder.path().join("demo.qlog"));
    assert!(EVENTS.iter().all(|event| names.contains(*event)), "{names:?}");
}

#[test]
fn a_scenario_writes_what_the_schema_says_and_gives_what_it_gave() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = workspace("examples/wifi-lte.toml");
    let file = file.to_str().expect("UTF-8");
    let plain = run(&["sim", file, "--json", "--report", "1.html"], folder.path());
    let traced = run(&["sim", file, "--json", "--report", "2.html", "--qlog", "sim.qlog"], folder.path());
    assert_eq!(plain, traced);
    let names = names(&folder.path().join("sim.qlog"));
    assert!(EVENTS.iter().all(|event| names.contains(*event)), "{names:?}");
}

#[test]
fn the_description_has_every_event_of_the_schema() {
    let schema = fs::read_to_string(workspace("docs/qlog.schema.json")).expect("the schema");
    let text = fs::read_to_string(workspace("docs/qlog.md")).expect("the description");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let events = schema["$defs"].as_object().expect("definitions").values();
    let named: Vec<&str> = events.filter_map(|event| event["properties"]["name"]["const"].as_str()).collect();
    assert_eq!(named.len(), 13);
    assert!(named.iter().all(|name| text.contains(&format!("| `{name}` |"))), "{named:?}");
}
