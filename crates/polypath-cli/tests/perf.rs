//! `polypath perf` as people run it, and the shape of its JSON beside that of iperf3.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;

struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    port: String,
}

impl Server {
    /// At a port that was free a moment ago.
    fn new(options: &[&str]) -> Self {
        Self::with_errors(options, Stdio::inherit())
    }

    fn with_errors(options: &[&str], errors: Stdio) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port().to_string();
        drop(free);
        let mut child = Command::new(env!("CARGO_BIN_EXE_polypath"))
            .args(["perf", "-s", "-B", "127.0.0.1", "--engine", "tcp", "-p", &port])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("the command runs");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        while !line.contains("Server listening") {
            line.clear();
            assert!(output.read_line(&mut line).expect("a line") > 0, "the server ended");
        }
        Self { child, output, port }
    }

    fn client(&self, options: &[&str]) -> Output {
        let fixed = ["perf", "-c", "127.0.0.1", "--engine", "tcp", "-p", &self.port];
        Command::new(env!("CARGO_BIN_EXE_polypath"))
            .args(fixed)
            .args(options)
            .output()
            .expect("the command runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does not outlive its test, whatever comes of that.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// Paths of all keys in a value, arrays by their first element.
fn keys(value: &Value, prefix: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{prefix}/{name}");
                keys(value, &path, found);
                found.push(path);
            }
        }
        Value::Array(elements) => {
            if let Some(first) = elements.first() {
                keys(first, prefix, found);
            }
        }
        _ => {}
    }
}

/// What iperf3 says of its socket and we don't: no engine but the kernel has it.
const OF_THE_SOCKET: &[&str] = &[
    "tcp_mss_default",
    "sock_bufsize",
    "sndbuf_actual",
    "rcvbuf_actual",
    "snd_wnd",
    "max_snd_wnd",
    "rttvar",
    "pmtu",
];

#[test]
fn the_json_has_the_fields_of_iperf3() {
    let is_there =
        Command::new("iperf3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("SKIPPED comparison with iperf3: it is not installed");
        return;
    }
    let ours = Server::new(&[]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
    let theirs = Command::new("iperf3").args(["-s", "-p", &port]).stdout(Stdio::null()).spawn();
    let _theirs = Ended(theirs.expect("iperf3 runs"));
    for options in [&["-P", "2"][..], &["-R"], &["--bidir"], &["-n", "1M"]] {
        let common = [options, &["-J", "-i", "0.2"]].concat();
        let common = if options[0] == "-n" { common } else { [&common[..], &["-t", "1"]].concat() };
        let mut reference = Value::Null;
        // The server takes a moment to start.
        for _ in 0..50 {
            let fixed = ["-c", "127.0.0.1", "-p", &port];
            let output = Command::new("iperf3").args(fixed).args(&common).output().expect("iperf3 runs");
            reference = json(&output);
            if reference.get("error").is_none() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        assert!(reference.get("error").is_none(), "{reference}");
        let report = json(&ours.client(&common));
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        keys(&reference, "", &mut wanted);
        keys(&report, "", &mut found);
        let missing: Vec<_> = wanted
            .iter()
            .filter(|path| !OF_THE_SOCKET.iter().any(|known| path.ends_with(&format!("/{known}"))))
            .filter(|path| !found.contains(path))
            .collect();
        assert!(missing.is_empty(), "{options:?}: {missing:?}");
        for path in ["/end/sum_sent/sender", "/start/test_start/reverse", "/start/test_start/num_streams"] {
            assert_eq!(report.pointer(path), reference.pointer(path), "{options:?}: {path}");
        }
    }
}

/// Starts an endless measurement, interrupts it when the server has seen data, and waits for its end.
fn interrupted(server: &mut Server, options: &[&str], signal: Signal) -> Output {
    let port = server.port.clone();
    let mut client = Command::new(env!("CARGO_BIN_EXE_polypath"));
    client.args(["perf", "-c", "127.0.0.1", "--engine", "tcp", "-t", "3600", "-p", &port]).args(options);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    while !line.contains("bits/sec") {
        line.clear();
        assert!(server.output.read_line(&mut line).expect("a line") > 0, "the server ended");
    }
    rustix::process::kill_process(Pid::from_child(&client), signal).expect("our own child");
    let output = client.wait_with_output().expect("its end");
    while !line.contains("Server listening") {
        line.clear();
        assert!(server.output.read_line(&mut line).expect("a line") > 0, "the server ended");
    }
    output
}

#[test]
fn an_interrupted_server_ends_as_iperf3_does() {
    let mut server = Server::with_errors(&[], Stdio::piped());
    rustix::process::kill_process(Pid::from_child(&server.child), Signal::INT).expect("our own child");
    assert_eq!(server.child.wait().expect("its end").code(), Some(1));
    let mut said = String::new();
    server.child.stderr.take().expect("its errors").read_to_string(&mut said).expect("UTF-8");
    assert_eq!(said, "polypath: interrupt - the server has terminated\n");
}

#[test]
fn an_interrupted_measurement_says_so_as_iperf3_does() {
    let mut server = Server::new(&["-i", "0.1"]);
    let words = "interrupt - the client has terminated";
    for signal in [Signal::INT, Signal::TERM] {
        let output = interrupted(&mut server, &["-J"], signal);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let report = json(&output);
        assert_eq!(report["error"], words);
        assert!(report["end"]["sum_sent"]["bytes"].as_u64() > Some(0), "{report}");
        assert!(report["end"]["sum_received"]["bytes"].as_u64() > Some(0), "{report}");
        assert!(!report["intervals"].as_array().expect("intervals").is_empty(), "{report}");
    }
    let output = interrupted(&mut server, &[], Signal::INT);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("receiver") && !out.contains("Done."), "{out}");
    assert_eq!((output.status.code(), err.trim()), (Some(1), &*format!("polypath: {words}")));
}

#[test]
fn text_has_the_familiar_columns_and_a_line_for_each_path() {
    let mut server = Server::new(&["-1"]);
    let output = server.client(&["-n", "5M", "-P", "2", "-f", "m", "-C", "reno"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for wanted in [
        "Connecting to host 127.0.0.1, port",
        "[  5] local 127.0.0.1 port",
        "[ ID] Interval           Transfer     Bitrate",
        "5.00 MBytes",
        "Mbits/sec",
        "[SUM]",
        "sender",
        "receiver",
        "[  7] TCP 127.0.0.1:",
    ] {
        assert!(text.contains(wanted), "\"{wanted}\" is not in:\n{text}");
    }
    let mut said = String::new();
    server.output.read_to_string(&mut said).expect("its output");
    assert!(server.child.wait().expect("it ends").success());
    assert!(said.contains("Accepted connection from 127.0.0.1") && said.contains("receiver"), "{said}");
}

#[test]
fn mistakes_end_with_one_clear_line() {
    for (options, code, wanted) in [
        (&["-t", "1", "-p", "1"][..], 1, "can't connect to 127.0.0.1:1"),
        (&["-n", "1X"], 2, "expected a number, such as 500 or 1.5M"),
        (&["-t", "soon"], 2, "expected seconds"),
        (&["-P", "1000"], 2, "128"),
        (&["-l", "2M"], 2, "expected 1 to 1M"),
        (&["--scheduler", "fastest"], 2, "lowest-rtt"),
        (&["--scheduler", "round-robin"], 2, "expected --engine tun or udp"),
        (&["-R", "--bidir"], 2, "cannot be used with"),
        (&["-s"], 2, "cannot be used with"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_polypath"))
            .args(["perf", "-c", "127.0.0.1", "--engine", "tcp"])
            .args(options)
            .output()
            .expect("the command runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {message}");
        assert!(
            message.trim_end().lines().count() == 1 && message.contains(wanted),
            "{options:?}: {message}"
        );
    }
    let output = Command::new(env!("CARGO_BIN_EXE_polypath"))
        .args(["perf", "-c", "127.0.0.1", "--engine", "tcp", "-p", "1", "-J"])
        .output()
        .expect("the command runs");
    assert!(json(&output)["error"].as_str().is_some_and(|error| error.contains("can't connect")));
}
