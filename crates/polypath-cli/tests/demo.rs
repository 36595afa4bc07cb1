//! The demo between network namespaces, small: nginx on the kernel's Multipath TCP sends, our stack receives.

mod lab;

use std::process::Command;

use lab::has_or_skip;
use polypath_testbed::is_root_or_skip;
use serde_json::Value;

/// `polypath demo --netns` with options, its report in a folder of the test.
fn demo(folder: &tempfile::TempDir, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["demo", "--netns"]).args(options).arg("--report").arg(folder.path().join("report.html"));
    command
}

#[test]
fn a_file_from_nginx_arrives_over_both_paths_though_one_is_cut() {
    let what = "the demo between namespaces";
    if !is_root_or_skip(what) || !["nginx", "mptcpize", "ip"].iter().all(|name| has_or_skip(name, what)) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let fast = ["--path", "name=fast,rate=80mbit,rtt=10ms,queue=50ms"];
    let slow = ["--path", "name=slow,rate=40mbit,rtt=20ms,queue=50ms"];
    let options = [&fast[..], &slow[..], &["--size", "6", "--cut", "fast@200ms..500ms", "--json"]].concat();
    let output = demo(&folder, &options).output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["intact"], true);
    assert_eq!(result["outcome"]["received_bytes"], 6_000_000);
    let samples = result["outcome"]["samples"].as_array().expect("samples");
    assert!(samples.iter().any(|sample| sample["paths"][0]["down"] == true), "the cut shows");
    let last = samples.last().expect("a sample");
    for path in 0..2 {
        let carried = last["paths"][path]["acked_bytes"].as_u64().expect("bytes");
        assert!(carried > 500_000, "path {path}: {carried}");
        // The sender's own view, which its kernel tells.
        let windows = samples.iter().filter_map(|sample| sample["paths"][path]["cwnd_bytes"].as_u64());
        assert!(windows.max() > Some(10_000), "path {path}");
        assert!(result["baselines"]["tcp_alone_bps"][path].as_f64() > Some(1e6), "path {path}");
    }
    assert_eq!(result["baselines"]["provenance"], "namespaces");
    assert!(result["baselines"]["kernel"]["with_cut_bps"].as_f64() > Some(1e6));
    let tcp = &result["tcp_beside"];
    assert_eq!((tcp["path"].as_u64(), tcp["outcome"]["received_bytes"].as_u64()), (Some(0), Some(6_000_000)));
    assert!(tcp["outcome"]["longest_gap_s"].as_f64() > Some(0.2), "it can't send while its path is down");
    let report = std::fs::read_to_string(folder.path().join("report.html")).expect("a report");
    assert!(report.contains("nginx/") && report.contains("kernel's client"), "who took part");
}

#[test]
fn what_is_missing_is_said_in_a_line() {
    if !is_root_or_skip("the demo without nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Nothing is found in an empty folder, nor in those of servers if their programs are not there either.
    let output = demo(&folder, &[]).env("PATH", folder.path()).output().expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    assert!(message.contains("is not installed") && message.contains("install the package"), "{message}");
}

#[test]
fn choices_of_the_sender_are_refused_as_the_kernel_sends() {
    let folder = tempfile::tempdir().expect("a folder");
    for option in [["--scheduler", "redundant"], ["--congestion", "cubic"], ["--pcap", "x.pcapng"]] {
        let output = demo(&folder, &option).output().expect("the command runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(option[0]) && message.trim_end().lines().count() == 1, "{message}");
    }
}
