//! The line with which commands end: what went over each interface.

mod lab;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use lab::{Lab, Running};

const FILE_BYTES: usize = 24 << 20;

/// A server may send each byte over both paths. What the paths bring is no gain then, which the client knows from nobody.
#[test]
fn copies_that_a_server_sends_are_no_gain() {
    let Some(lab) = Lab::with_rate_or_skip("copies of a server", "50mbit") else { return };
    lab.add_default_routes();
    lab.file("file", FILE_BYTES);
    let polypath = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.env("POLYPATH_RUNTIME_DIR", lab.folder().join("runtime")).stdin(Stdio::null());
        command
    };
    let mut serve = polypath();
    serve.args([
        "serve",
        "--quiet",
        "--engine",
        "tun",
        "--scheduler",
        "redundant",
        "--listen",
        "10.77.0.2:8077",
    ]);
    serve.arg(lab.folder()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = lab.testbed.server.run(|| serve.spawn()).expect("a namespace").expect("the command");
    let mut server = Running(child);
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("Serving"), "{line}");
    let mut get = polypath();
    get.args(["get", "--engine", "tun", "-I", "path0,path1", "-o"]).arg(lab.folder().join("copy"));
    let output = lab.output(get.arg("http://10.77.0.2:8077/file"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let shares = told.lines().find(|line| line.starts_with("path")).expect("the shares");
    assert!(shares.contains("path0 ") && shares.contains("path1 "), "{told}");
    assert!(!shares.contains("times the faster alone"), "{told}");
}
