//! `polypath perf` as people run it, and the shape of its JSON beside that of iperf3.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv6Addr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal};
use serde_json::Value;

struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    port: String,
}

impl Server {
    fn new(options: &[&str]) -> Self {
        Self::with_errors(options, Stdio::inherit())
    }

    fn with_errors(options: &[&str], errors: Stdio) -> Self {
        let port = free_port();
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

/// Paths of all keys in a value with the kinds of what is there; arrays by all their elements.
fn keys(value: &Value, prefix: &str, found: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                keys(value, &format!("{prefix}/{name}"), found);
            }
            "object"
        }
        Value::Array(elements) => {
            for element in elements {
                keys(element, &format!("{prefix}/*"), found);
            }
            "array"
        }
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    };
    found.insert(prefix.into(), kind);
}

fn has_iperf3(what: &str) -> bool {
    let is_there =
        Command::new("iperf3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("SKIPPING {what}: iperf3 is not installed");
    }
    is_there
}

/// A program that measures, at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Ours,
    Iperf3,
}

impl Program {
    fn command(self) -> Command {
        match self {
            Self::Iperf3 => Command::new("iperf3"),
            Self::Ours => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
                command.args(["perf", "--engine", "tcp"]);
                command
            }
        }
    }

    /// The same, ended if it takes a minute: a test that waits for it fails.
    fn bounded(self) -> Command {
        let command = self.command();
        let mut bounded = Command::new("timeout");
        bounded.args(["--signal=KILL", "60"]).arg(command.get_program()).args(command.get_args());
        bounded
    }
}

/// It was free a moment ago, and no two tests are given the same. The system chooses none of these for a client: one that comes before its server
/// would be connected to itself.
fn free_port() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ports = (0..10_000).map(|_| {
        let number = std::process::id().wrapping_mul(16) + NEXT.fetch_add(1, Ordering::Relaxed);
        20_000 + u16::try_from(number % 10_000).expect("a port")
    });
    let is_free = |port: &u16| std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).is_ok();
    let mut free = ports.filter(is_free);
    free.next().expect("a port").to_string()
}

/// One test between two programs: what the client printed, and what the server did.
fn between(client: Program, server: Program, at_server: &[&str], options: &[&str]) -> (Output, Output) {
    let port = free_port();
    let mut serving = server.bounded();
    serving.args(["-s", "-1", "-p", &port]).args(at_server).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut serving = Ended(serving.spawn().expect("the server runs"));
    let mut sent = None;
    // The server takes a moment to start.
    for _ in 0..100 {
        let mut command = client.bounded();
        command.args(["-c", "127.0.0.1", "-p", &port]).args(options);
        let output = command.output().expect("the client runs");
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        let is_early = said.contains("refused") && said.contains("onnect");
        sent = Some(output);
        if !is_early {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    serving.0.stdout.take().expect("its output").read_to_end(&mut stdout).expect("its output");
    serving.0.stderr.take().expect("its errors").read_to_end(&mut stderr).expect("its errors");
    let status = serving.0.wait().expect("its end");
    (sent.expect("an attempt"), Output { status, stdout, stderr })
}

/// The same with JSON of both.
fn reports(client: Program, server: Program, options: &[&str]) -> (Value, Value) {
    let (sent, served) = between(client, server, &["-J"], &[options, &["-J"]].concat());
    for (end, output) in [("client", &sent), ("server", &served)] {
        let said = || String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert_ne!(
            output.status.code(),
            None,
            "{client:?} to {server:?} {options:?}: the {end} hangs: {}",
            said()
        );
    }
    let (sent, served) = (json(&sent), json(&served));
    for report in [&sent, &served] {
        assert!(report.get("error").is_none(), "{client:?} to {server:?} {options:?}: {report}");
    }
    (sent, served)
}

const PAIRS: [(Program, Program); 3] =
    [(Program::Ours, Program::Iperf3), (Program::Iperf3, Program::Ours), (Program::Ours, Program::Ours)];

/// What the receiving end has counted is the same in both reports; what the sending end has counted, too, where the server prints it:
/// iperf3's prints before it has heard what the client counted.
fn check_bytes(sent: &Value, served: &Value, what: &str) {
    let bytes = |report: &Value, sum: &str| report["end"][sum]["bytes"].as_u64();
    let is_reverse = sent["start"]["test_start"]["reverse"] == 1;
    let upload = ("sum_received", !is_reverse);
    let mut compared = 0;
    for (sum, is_known) in [upload, ("sum_sent", is_reverse), ("sum_sent_bidir_reverse", true)] {
        if let Some(there) = bytes(served, sum).filter(|_| is_known) {
            assert_eq!(bytes(sent, sum), Some(there), "{what}: {sum}");
            assert!(there > 0, "{what}: {sum}");
            compared += 1;
        }
    }
    assert!(compared > 0, "{what}: nothing to compare in {served}");
}

#[test]
fn both_ends_talk_to_iperf3_and_agree() {
    if !has_iperf3("tests between polypath perf and iperf3") {
        return;
    }
    for (client, server) in PAIRS {
        for options in [
            &["-n", "3M"][..],
            &["-n", "3M", "-R", "-P", "2"],
            &["-t", "0.3", "--bidir", "-P", "2", "-i", "0.1"],
            &["-k", "20", "-l", "10K", "-N", "-w", "64K", "-S", "16"],
            &["-u", "-n", "100K", "-b", "10M", "-l", "1000"],
            &["-u", "-k", "50", "-b", "10M", "-l", "1000", "-R", "-P", "2", "--udp-counters-64bit"],
            &["-u", "-t", "0.3", "-b", "10M", "--bidir"],
        ] {
            // iperf3 takes whole seconds.
            let whole = options.iter().map(|word| if *word == "0.3" { "1" } else { *word });
            let options: Vec<&str> = match client {
                Program::Iperf3 => whole.collect(),
                Program::Ours => options.to_vec(),
            };
            let what = format!("{client:?} to {server:?} {options:?}");
            let (sent, served) = reports(client, server, &options);
            check_bytes(&sent, &served, &what);
            assert_eq!(sent["start"]["cookie"], served["start"]["cookie"], "{what}");
            for field in ["protocol", "num_streams", "blksize", "bytes", "blocks", "reverse"] {
                let of = |report: &Value| report["start"]["test_start"][field].clone();
                assert_eq!(of(&sent), of(&served), "{what}: {field}");
            }
            if options.contains(&"-u") {
                let packets = |report: &Value| report["end"]["sum"]["packets"].as_u64();
                assert!(packets(&sent) > Some(0) && packets(&served) > Some(0), "{what}: {sent} {served}");
            }
        }
    }
}

#[test]
fn every_field_of_iperf3_is_there_at_both_ends() {
    if !has_iperf3("the comparison of fields with iperf3") {
        return;
    }
    for options in [
        &["-n", "3M", "-T", "a title", "--extra-data", "more"][..],
        &["-t", "1", "-R", "-P", "2"],
        &["-t", "1", "--bidir", "-O", "1"],
        &["-k", "10", "-M", "1400", "-C", "reno"],
        &["-u", "-t", "1"],
        &["-u", "-n", "100K", "-b", "10M", "-R"],
        &["-u", "-t", "1", "--bidir"],
        &["-n", "1M", "--get-server-output"],
    ] {
        let theirs = reports(Program::Iperf3, Program::Iperf3, options);
        let ours = reports(Program::Ours, Program::Ours, options);
        for (end, theirs, ours) in [("client", theirs.0, ours.0), ("server", theirs.1, ours.1)] {
            let (mut wanted, mut found) = (BTreeMap::new(), BTreeMap::new());
            keys(&theirs, "", &mut wanted);
            keys(&ours, "", &mut found);
            let missing: Vec<_> =
                wanted.iter().filter(|(path, kind)| found.get(*path) != Some(*kind)).collect();
            assert!(missing.is_empty(), "{options:?} at the {end}: {missing:?} in {ours}");
            for path in
                ["/start/test_start/reverse", "/start/test_start/num_streams", "/title", "/extra_data"]
            {
                assert_eq!(ours.pointer(path), theirs.pointer(path), "{options:?} at the {end}: {path}");
            }
        }
    }
}

#[test]
fn a_busy_server_turns_iperf3_away_as_its_own_does() {
    if !has_iperf3("a busy server") {
        return;
    }
    let mut server = Server::new(&["-i", "0.1"]);
    let mut first = Command::new("iperf3");
    first.args(["-c", "127.0.0.1", "-t", "60", "-p", &server.port]).stdout(Stdio::null());
    let mut first = Ended(first.spawn().expect("iperf3 runs"));
    let mut line = String::new();
    while !line.contains("bits/sec") {
        line.clear();
        assert!(server.output.read_line(&mut line).expect("a line") > 0, "the server ended");
    }
    let second = Command::new("iperf3").args(["-c", "127.0.0.1", "-J", "-p", &server.port]).output();
    let said = json(&second.expect("iperf3 runs"));
    assert!(said["error"].as_str().is_some_and(|error| error.contains("busy")), "{said}");
    let ours = server.client(&["-n", "1M"]);
    assert!(String::from_utf8_lossy(&ours.stderr).contains("it runs another test"), "{ours:?}");
    // It says why it goes, and the server serves the next.
    rustix::process::kill_process(Pid::from_child(&first.0), Signal::INT).expect("our own child");
    first.0.wait().expect("its end");
    while !line.contains("Server listening") {
        line.clear();
        assert!(server.output.read_line(&mut line).expect("a line") > 0, "the server ended");
    }
    assert!(server.client(&["-n", "1M"]).status.success());
}

#[test]
fn json_comes_as_a_stream_or_into_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let server = Server::new(&[]);
    let output = server.client(&["-n", "1M", "--json-stream"]);
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let events: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(events, ["start", "interval", "end"]);
    assert_eq!(lines[2]["data"]["sum_received"]["bytes"], 1 << 20);
    let options = ["-n", "1M", "-Z", "-T", "one", "--logfile", log.to_str().expect("a path")];
    let output = server.client(&options);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.lines().all(|line| line.starts_with("one:  ")) && said.contains("Done."), "{said}");
}

#[test]
fn a_server_goes_to_the_background() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, pid) = (folder.path().join("log"), folder.path().join("pid"));
    let port = free_port();
    let mut command = Program::Ours.command();
    command.args(["-s", "-D", "-1", "-B", "127.0.0.1", "-p", &port]);
    command.arg("--logfile").arg(&log).arg("--pidfile").arg(&pid);
    let started = command.output().expect("the command runs");
    assert!(started.status.success() && started.stdout.is_empty(), "{started:?}");
    let number: i32 = std::fs::read_to_string(&pid).expect("its number").trim().parse().expect("a number");
    assert_eq!(std::fs::read_to_string(format!("/proc/{number}/comm")).expect("it runs"), "polypath\n");
    // A second one finds the port taken.
    let mut second = Program::Ours.command();
    second.args(["-s", "-D", "-1", "-B", "127.0.0.1", "-p", &port]);
    let second = second.output().expect("the command runs");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.lines().count() == 1 && said.contains("can't listen"), "{second:?}");
    assert_eq!(second.status.code(), Some(1));
    // Nor is its file another's, whatever the port.
    let mut third = Program::Ours.command();
    third.args(["-s", "-D", "-1", "-B", "127.0.0.1", "-p", &free_port(), "--pidfile"]).arg(&pid);
    let third = third.output().expect("the command runs");
    let said = String::from_utf8_lossy(&third.stderr);
    assert!(said.contains(&format!("process {number}, which it names, still runs")), "{third:?}");
    assert_eq!(third.status.code(), Some(1));
    let mut client = Program::Ours.command();
    client.args(["-c", "127.0.0.1", "-p", &port, "-n", "1M"]);
    let sent = client.output().expect("the command runs");
    assert!(sent.status.success(), "{sent:?}");
    let alive =
        || std::fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    for _ in 0..1000 {
        if !alive() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!alive(), "it ends after one client");
    assert!(!pid.exists(), "its number is of no use any more");
    assert!(std::fs::read_to_string(&log).expect("a log").contains("receiver"));
}

#[test]
fn only_files_are_written_to_and_links_lead_to_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe");
    std::fs::write(at("longer"), "something longer than a number of a process").expect("a file");
    std::os::unix::fs::symlink(at("longer"), at("link")).expect("a link");
    for option in ["--pidfile", "--logfile"] {
        for name in [at("pipe"), "/dev/full".into(), folder.path().into()] {
            let mut command = Program::Ours.command();
            command.args(["-s", "-1", "-B", "127.0.0.1", "-p", &free_port(), option]).arg(&name);
            let output = command.output().expect("the command runs");
            let said = String::from_utf8_lossy(&output.stderr);
            let wanted = format!("{option} {}: no regular file", name.display());
            assert!(said.lines().count() == 1 && said.contains(&wanted), "{output:?}");
            assert_eq!(output.status.code(), Some(2), "{output:?}");
        }
    }
    let server = Server::new(&["-1", "--pidfile", at("link").to_str().expect("a path")]);
    let written = std::fs::read_to_string(at("longer")).expect("the number");
    assert_eq!(written, format!("{}\n", server.child.id()));
    assert!(at("link").is_symlink());
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
fn what_is_the_clients_choice_is_refused_at_a_server() {
    for option in ["--time=5", "--omit=0", "--parallel=2", "--length=1K", "--congestion=cubic"] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_polypath"));
        server.args(["perf", "-s", "-1", "-B", "127.0.0.1", "-p", &free_port(), "--engine", "tcp", option]);
        let output = server.output().expect("the command runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let name = option.split('=').next().unwrap_or_default();
        assert_eq!(said, format!("polypath: {name} is the client's choice; expected it with --client\n"));
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn mistakes_end_with_one_clear_line() {
    for (options, code, wanted) in [
        (&["-t", "1", "-p", "1"][..], 1, "can't connect to 127.0.0.1:1"),
        (&["-n", "1X"], 2, "expected a number, such as 500 or 1.5M"),
        (&["-t", "soon"], 2, "expected seconds"),
        (&["-P", "1000"], 2, "128"),
        (&["-S", "256"], 2, "expected 0 to 255"),
        (&["-w", "1G"], 2, "expected 1 to 512M"),
        (&["-u", "-l", "8"], 2, "expected 16 to 65507"),
        (&["-u", "-Z"], 2, "cannot be used with"),
        (&["-k", "5", "-n", "1M"], 2, "cannot be used with"),
        (&["-b", "1M/0"], 2, "after the slash"),
        (&["--logfile", "/dev/null/log"], 2, "expected a file that can be written"),
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
