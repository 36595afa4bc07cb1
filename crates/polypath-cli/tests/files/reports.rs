//! `--json` and `--report` of `polypath get` and `cp`.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::site::Site;

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn as_http(url: &str) -> String {
    url.replace("polypath://", "http://")
}

#[test]
fn what_became_of_each_file_is_one_object() {
    let site = Site::new(&["--quiet"]);
    let (big, none) = (site.url("/big.bin"), site.url("/nosuch"));
    let output = site.run(&["get", "-q", "--json", &big, &none]);
    assert_eq!(output.status.code(), Some(1));
    let told = report(&output);
    assert_eq!(told["engine"], "tcp");
    assert!(told["shares"].is_null() && told["fallback"].is_null(), "{told}");
    let (first, second) = (&told["files"][0], &told["files"][1]);
    assert_eq!((&first["from"], &first["to"]), (&as_http(&big).into(), &"big.bin".into()));
    assert_eq!((&first["bytes"], &first["sha256_verified"]), (&3_000_000.into(), &true.into()));
    assert!(
        first["sha256"].as_str().is_some_and(|sum| sum.len() == 64) && first["seconds"].is_f64(),
        "{told}"
    );
    assert!(first.get("error").is_none() && second["error"] == told["error"], "{told}");
    assert!(told["error"].as_str().is_some_and(|error| error.contains("404")), "{told}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, format!("polypath: {}\n", told["error"].as_str().expect("text")));
    // What was not compared is not called so.
    let told = report(&site.succeeds(&["get", "--json", "--no-verify", &big]));
    assert_eq!((&told["files"][0]["sha256_verified"], told.get("error")), (&false.into(), None));
    // What is there already is no traffic.
    let told = report(&site.succeeds(&["get", "--json", "-C", &big]));
    assert_eq!((&told["files"][0]["bytes"], &told["files"][0]["sha256_verified"]), (&0.into(), &true.into()));
    let refused = site.run(&["get", "--json", "ftp://127.0.0.1/x"]);
    assert_eq!(
        (refused.status.code(), report(&refused)["files"].as_array().map(Vec::len)),
        (Some(2), Some(0))
    );
}

#[test]
fn a_file_on_standard_output_has_its_report_elsewhere() {
    let site = Site::new(&["--quiet"]);
    let page = site.url("/sub/");
    site.fails(&["get", "--json", "-o", "-", &page], 2, "expected --json-file");
    site.fails(&["get", "--json-file", "/nonexistent/x", &page], 2, "can't be written");
    let output = site.succeeds(&["get", "--json-file", "report.json", "-o", "-", &page]);
    assert_eq!(output.stdout, b"<p>index</p>");
    let text = fs::read_to_string(site.out("report.json")).expect("a report");
    let told: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&told["files"][0]["to"], &told["files"][0]["bytes"]), (&"-".into(), &12.into()));
}

#[test]
fn a_page_has_each_file_and_needs_nothing_else() {
    let site = Site::new(&["--quiet"]);
    let (big, none) = (site.url("/big.bin"), site.url("/nosuch"));
    for (words, wanted) in [
        (&["--report", "/nonexistent/x"][..], "/nonexistent/x: can't be written"),
        (&["--report", "x", "--json-file", "x"], "name one file"),
        (&["--report", "x", "-o", "./x"], "the file of --report, too"),
    ] {
        site.fails(&[&["get"], words, &[&big]].concat(), 2, wanted);
    }
    site.fails(&["get", &big, "--report"], 2, "--report");
    site.fails(&["get", &big, "--json-file", "big.bin"], 1, "the file of --json-file, too");
    let page = |name: &str| fs::read_to_string(site.out(name)).expect("a page");
    let output = site.succeeds(&["get", "-q", "--json", "--report", "one.html", "-o", "<b>.bin", &big]);
    let one = page("one.html");
    for part in ["&lt;b&gt;.bin</td><td>3000000</td>", "whole, compared", "Startup latency", "head-of-line"] {
        assert!(one.contains(part), "{part}");
    }
    assert!(one.starts_with("<!doctype html>") && !one.contains("<b>.bin"));
    for foreign in ["<script", "src=", "href=", "@import", "url("] {
        assert!(!one.contains(foreign), "{foreign}");
    }
    for element in ["section", "svg", "table", "tr", "td", "dl", "dd", "div", "figure", "text"] {
        let (begins, ends) = (format!("<{element}"), format!("</{element}>"));
        let begun =
            one.match_indices(&begins).filter(|(at, _)| one[at + begins.len()..].starts_with([' ', '>']));
        assert_eq!(begun.count(), one.matches(&ends).count(), "{element}");
    }
    let playback = &report(&output)["files"][0]["playback"];
    assert!(playback["sustainable_bps"].as_f64().is_some_and(|rate| rate > 0.0), "{playback}");
    assert!(playback["startup_latency_seconds"].is_f64() && playback["required_buffer_bytes"].is_u64());
    // Over one connection they come in order.
    assert_eq!(playback["most_blocked_bytes"], 0);
    // In ranges, and what failed.
    let mut ranges = Command::new(env!("CARGO_BIN_EXE_polypath"));
    ranges.args(["get", "-q", "--ranges", "--report", "two.html", &as_http(&big), &as_http(&none)]);
    let output = ranges.current_dir(site.out("")).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(1));
    let two = page("two.html");
    for part in [
        "files are whole, in ranges",
        "big.bin</td>",
        "<td>failed</td>",
        "nosuch: http",
        "What was there of big.bin",
    ] {
        assert!(two.contains(part), "{part}");
    }
    site.succeeds(&["cp", "-q", "--report", "copy.html", &big, "copy.bin"]);
    assert!(page("copy.html").contains("copy.bin</td><td>3000000</td>"));
}

#[test]
fn copies_are_told_in_both_directions() {
    let site = Site::new(&["--quiet", "--writable"]);
    let told = report(&site.succeeds(&["cp", "-q", "--json", "-r", &site.url("/sub"), "."]));
    let names: Vec<_> = told["files"].as_array().expect("files").iter().map(|file| &file["to"]).collect();
    assert_eq!(names, ["./sub/deep/a b%.txt", "./sub/index.html"], "{told}");
    let told = report(&site.succeeds(&["cp", "-q", "--json", "sub/index.html", &site.url("/new")]));
    let file = &told["files"][0];
    assert_eq!((&file["from"], &file["to"]), (&"sub/index.html".into(), &as_http(&site.url("/new")).into()));
    assert_eq!((&file["bytes"], &file["sha256_verified"]), (&12.into(), &true.into()));
    let output = site.run(&["cp", "--json", "nosuch", &site.url("/")]);
    let told = report(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(told["error"].as_str().is_some_and(|error| error.contains("nosuch: can't be read")), "{told}");
}
