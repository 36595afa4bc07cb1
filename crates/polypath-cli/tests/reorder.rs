//! `polypath reorder` as people run it, on what the simulator captures of two paths.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A file over two paths of which one takes 30 ms longer, captured where it comes.
const SCENARIO: &str = r#"
duration = "20s"
[[hosts]]
name = "phone"
[[hosts]]
name = "server"
[[links]]
name = "wifi"
between = ["phone", "server"]
rate = "10mbit"
delay = "10ms"
limit = "500ms"
[[links]]
name = "lte"
between = ["phone", "server"]
rate = "10mbit"
delay = "40ms"
limit = "500ms"
[[connections]]
from = "phone"
to = "server"
direction = "download"
bytes = "1MB"
"#;

fn polypath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polypath")).args(arguments).output().expect("the command runs")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// What a test writes, in the build's own folder.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn captured(name: &str) -> PathBuf {
    let (scenario, capture) = (file(&format!("{name}.toml")), file(&format!("{name}.pcapng")));
    fs::write(&scenario, SCENARIO).expect("a scenario");
    let output = polypath(&["sim", "--quiet", "--pcap", path(&capture), path(&scenario)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    capture
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn subflows_are_in_order_and_their_data_is_not() {
    let capture = captured("reorder-paths");
    let by_flow = json(&polypath(&["reorder", path(&capture), "--json"]));
    assert_eq!(by_flow["flows"].as_array().map(Vec::len), Some(2), "{by_flow}");
    assert_eq!(by_flow["total"]["reordered"], 0, "each path keeps the order");
    let page = file("reorder-paths.html");
    let output =
        polypath(&["reorder", path(&capture), "--sequence", "mptcp", "--json", "--report", path(&page)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let whole = json(&output);
    let total = &whole["total"];
    assert_eq!(whole["flows"].as_array().map(Vec::len), Some(1));
    assert_eq!((total["lost"].as_u64(), whole["order"].as_str()), (Some(0), Some("mptcp")));
    assert!(total["packets"].as_u64() > Some(600), "1 MB in packets: {total}");
    assert!(total["reordered_ratio"].as_f64() > Some(0.05), "{total}");
    // What is late comes as much later as its path is longer, and what it waits in a queue.
    let late = total["late_seconds"]["greatest"].as_f64().expect("a time");
    assert!((0.01..0.6).contains(&late), "{late}");
    let sum = |name: &str| {
        let density = total[name].as_array().expect("a density");
        density.iter().filter_map(|point| point[1].as_f64()).sum::<f64>()
    };
    assert!((sum("reorder_density") - 1.0).abs() < 1e-9 && (sum("buffer_density") - 1.0).abs() < 1e-9);
    let page = fs::read_to_string(page).expect("the page");
    for part in
        ["Reorder density", "Buffer-occupancy density", "packets that wait for others", "<svg", "Entropy"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains(">\nseconds\n<"));
}

#[test]
fn a_capture_that_is_cut_off_gives_figures_and_exit_code_1() {
    let whole = fs::read(captured("reorder-cut")).expect("a capture");
    let cut = file("reorder-cut-off.pcapng");
    fs::write(&cut, &whole[..whole.len() / 2 + 5]).expect("a capture");
    let output = polypath(&["reorder", path(&cut)]);
    let (text, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        text.contains("2 flows, each a stream of its own, by tcp") && text.contains("reordered"),
        "{text}"
    );
    assert!(message.contains("cut off behind packet "), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
}

#[test]
fn two_captures_of_one_run_are_the_same_in_order() {
    let capture = captured("reorder-twice");
    let output = polypath(&["reorder", path(&capture), path(&capture), "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = json(&output);
    assert_eq!(
        (found["total"]["reordered"].as_u64(), found["total_is_one_stream"].as_bool()),
        (Some(0), Some(true))
    );
    assert!(found["total"]["packets"].as_u64() > Some(600));
}

#[test]
fn mistakes_end_with_one_clear_line() {
    let text = file("reorder.txt");
    fs::write(&text, "no capture at all, but some text").expect("a file");
    let text = path(&text);
    for (arguments, wanted) in [
        (&["reorder"][..], "<CAPTURE>"),
        (&["reorder", "/nonexistent.pcapng"], "/nonexistent.pcapng: no such file; expected a capture"),
        (&["reorder", "/tmp"], "/tmp: can't be read"),
        (&["reorder", text], "is no capture; expected pcapng or pcap"),
        (&["reorder", text, text], "is no capture; expected pcapng or pcap"),
        (&["reorder", text, "-"], "expected two files"),
        (&["reorder", text, "--sequence", "udp"], "\"udp\" is not known; expected tcp, mptcp"),
        (&["reorder", text, text, "--sequence", "tcp"], "--sequence"),
        (&["reorder", text, "--translated"], "<RECEIVED>"),
        (&["reorder", text, "--window", "0"], "1..=65536"),
        (&["reorder", text, "--to", "here"], "--to"),
        (&["reorder", text, "--report", "/nonexistent/page.html"], "expected a writable file"),
    ] {
        let output = polypath(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(message.contains(wanted), "{arguments:?}: {message}");
    }
}
