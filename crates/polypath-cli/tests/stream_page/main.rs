//! The page of `polypath stream` in a real browser: a film over two uplinks, of which one is cut while it plays. Needs Chromium, Node
//! and ffmpeg.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[path = "../lab/mod.rs"]
mod lab;

use lab::{Lab, has_or_skip};
use polypath_testbed::Testbed;
use serde_json::Value;

const WHAT: &str = "a film in a browser";
const PORT: u16 = 8077;
/// How long the film is, and how long it is watched.
const FILM_SECONDS: u32 = 24;
const WATCHED_SECONDS: u32 = 14;

/// Moving pictures in two qualities, in segments of two seconds; false where ffmpeg can't make what browsers play.
fn make_film(folder: &Path) -> bool {
    let source = format!("testsrc2=size=320x180:rate=25:duration={FILM_SECONDS}");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg
        .args(["-v", "error", "-f", "lavfi", "-i", &source, "-map", "0:v", "-map", "0:v", "-c:v", "libx264"]);
    ffmpeg.args([
        "-preset",
        "ultrafast",
        "-pix_fmt",
        "yuv420p",
        "-g",
        "50",
        "-keyint_min",
        "50",
        "-sc_threshold",
        "0",
    ]);
    ffmpeg.args(["-b:v:0", "300k", "-b:v:1", "900k", "-s:v:1", "640x360"]);
    ffmpeg.args(["-f", "dash", "-seg_duration", "2", "film.mpd"]).current_dir(folder);
    let output = ffmpeg.output().expect("ffmpeg");
    if !output.status.success() {
        eprintln!("SKIPPED {WHAT}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    output.status.success()
}

/// Says so where the browser is missing. Debian has it by one of these names.
fn has_chromium_or_skip() -> bool {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| names.iter().any(|name| folder.join(name).is_file()))
    });
    is_there || has_or_skip(names[0], WHAT)
}

#[test]
fn a_browser_plays_on_when_one_interface_is_cut() {
    if !has_chromium_or_skip() || !["node", "ffmpeg"].iter().all(|name| has_or_skip(name, WHAT)) {
        return;
    }
    let Some(lab) = Lab::with_rate_or_skip(WHAT, "4mbit") else { return };
    lab.add_default_routes();
    let site = lab.folder().join("site");
    fs::create_dir(&site).expect("a folder");
    if !make_film(&site) {
        return;
    }
    let mut serve = Command::new(env!("CARGO_BIN_EXE_polypath"));
    serve.args([
        "serve",
        "--quiet",
        "--no-config",
        "--engine",
        "tcp",
        "--listen",
        &format!("0.0.0.0:{PORT}"),
    ]);
    let _server = lab.serve(serve.arg(&site), PORT);

    let mut stream = Command::new(env!("CARGO_BIN_EXE_polypath"));
    stream.args(["stream", "--no-config", "--json", "--linger", "60"]);
    stream.arg(format!("http://{}:{PORT}/film.mpd", Testbed::server_v4(0))).stdin(Stdio::null());
    let mut stream = lab.start(&mut stream);
    let output = BufReader::new(stream.0.stdout.take().expect("a pipe"));
    let mut events =
        output.lines().map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("an event"));
    let mut next = |name: &str| loop {
        let event = events.next().unwrap_or_else(|| panic!("the stream ended before {name}"));
        if event["event"] == name {
            break event;
        }
    };
    let page = next("offered")["page"].as_str().expect("a page").to_string();
    next("begun");

    let mut watch = Command::new("node");
    watch.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stream_page/watch.mjs"));
    let watching = lab.start(watch.arg(page).arg(WATCHED_SECONDS.to_string()));
    // In the middle of what comes.
    (0..3).for_each(|_| drop(next("segment")));
    lab.cut(0);
    let watched = lab::finish(watching);
    let said = String::from_utf8_lossy(&watched.stderr);
    assert!(watched.status.success(), "{said}");
    let seen: Value = serde_json::from_slice(&watched.stdout).expect("one line of JSON");
    assert_eq!(seen["error"], Value::Null, "{seen}");
    // Further than what was there when the interface went. How smoothly it played is no matter of a test on a busy machine.
    assert!(seen["time"].as_f64().is_some_and(|time| time > 6.0), "{seen}");
}
