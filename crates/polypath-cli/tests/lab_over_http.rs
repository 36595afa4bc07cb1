//! Downloads and streams of the laboratory over emulated links, from nginx: they give what the simulator gives of them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

mod lab;

use lab::has_or_skip;
use polypath_testbed::is_root_or_skip;
use serde_json::Value;

const EXPERIMENT: &str = r#"
name = "small"
title = "Small"
metrics = METRICS

[[sets]]
name = "one"
paths = [
  { rate = "4mbit", rtt = "20ms", queue = "50ms" },
  { rate = "2mbit", rtt = "30ms", queue = "50ms" },
]

[traffic]
TRAFFIC

[[variants]]
name = "segments"
in-flight = 2
segment = "50KB"

[[variants]]
name = "first path alone"
single-path = true
initial-path = "1"
"#;

fn run(name: &str, traffic: &str, metrics: &str, backend: &str) -> Value {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("lab-{name}-{backend}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder of the build's own");
    let file = folder.join("small.toml");
    fs::write(&file, EXPERIMENT.replace("METRICS", metrics).replace("TRAFFIC", traffic)).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["lab", "run", "--json", "--quiet", "--backend", backend, "--out"]).arg(&folder).arg(file);
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn downloads_and_streams_are_carried_between_namespaces() {
    let what = "downloads of lab run --backend netns";
    if !is_root_or_skip(what) || !["nginx", "openssl"].iter().all(|name| has_or_skip(name, what)) {
        return;
    }
    let download = "kind = \"download\"\nbytes = \"500KB\"\ntimeout = \"30s\"";
    let stream = "kind = \"stream\"\nduration = \"6s\"\nheld = \"4s\"";
    for (name, traffic, metrics) in [
        ("download", download, "[\"goodput\", \"startup-latency\", \"required-buffer\", \"blocked\"]"),
        ("stream", stream, "[\"goodput\", \"quality-rate\", \"stall-time\", \"top-quality\"]"),
    ] {
        let [sim, netns] = ["sim", "netns"].map(|backend| run(name, traffic, metrics, backend));
        let rows = |result: &Value| result["rows"].as_array().map(Vec::len);
        assert_eq!((rows(&netns), &netns["manifest"]["complete"]), (rows(&sim), &true.into()));
        for row in netns["rows"].as_array().expect("rows") {
            let value = row["distribution"]["median"].as_f64().expect("a number");
            assert!(value.is_finite() && value >= 0.0, "{row}");
            // No machine is so fast that it brings more than its links carry.
            let most = if row["variant"] == "segments" { 6.0 } else { 4.0 };
            assert!(row["metric"] != "goodput" || value > 0.0 && value < most, "{row}");
        }
    }
}
