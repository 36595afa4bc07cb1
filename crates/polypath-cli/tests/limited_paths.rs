//! A limit of one path of `polypath proxy` while a download runs over two: the data moves to the other path, and comes back once the limit is
//! gone. Bytes are counted at the interfaces. Needs root; what is missing is said.

mod lab;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lab::servers::nginx;
use lab::{Lab, Running, has_or_skip};
use polypath_system::Namespace;
use serde_json::Value;

/// Each path's rate.
const RATE: &str = "100mbit";
/// Nothing takes longer, unless it does not come at all: how long it took is printed, and is no reason to fail.
const LIMIT: Duration = Duration::from_secs(30);
/// Rates are those of such a time.
const WINDOW: Duration = Duration::from_millis(500);
/// As long as that, nothing changes.
const STEADY: Duration = Duration::from_secs(2);
/// More than passes a limit of 5 Mbit/s, with what it drops, and less than half of what a path carries without one.
const LITTLE_MBPS: f64 = 15.0;
const MUCH_MBPS: f64 = 50.0;

/// A proxy, and what runs with it.
struct Limited<'a> {
    lab: &'a Lab,
    at: &'a Namespace,
    _proxy: Running,
}

impl<'a> Limited<'a> {
    /// One that runs in a namespace, once clients can enter.
    fn start(lab: &'a Lab, at: &'a Namespace, entrance: SocketAddr, arguments: &[&str]) -> Self {
        let mut starting = command(lab.folder());
        starting.args(["--no-config", "-q"]).args(arguments);
        starting.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut proxy = Running(at.run(|| starting.spawn()).expect("a namespace").expect("a proxy"));
        let deadline = Instant::now() + LIMIT;
        let from = &lab.testbed.client;
        while from.run(|| TcpStream::connect(entrance)).expect("a namespace").is_err() {
            let ended = proxy.0.try_wait().expect("our own child");
            assert!(ended.is_none() && Instant::now() < deadline, "{arguments:?}: {ended:?}");
            thread::sleep(Duration::from_millis(20));
        }
        Self { lab, at, _proxy: proxy }
    }

    fn ask(&self, words: &[&str]) -> Output {
        let mut asking = command(self.lab.folder());
        self.at.run(|| asking.args(words).output()).expect("a namespace").expect("it runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// What is said of what can't be.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(!output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    fn status(&self) -> Value {
        let reports: Value = serde_json::from_str(&self.done(&["status", "--json"])).expect("JSON");
        reports[0].clone()
    }

    /// Megabits a second at the client's interfaces, in the time that is to come.
    fn rates(&self, time: Duration) -> [f64; 2] {
        let (from, begun) = (self.lab.carried(), Instant::now());
        thread::sleep(time);
        let (to, seconds) = (self.lab.carried(), begun.elapsed().as_secs_f64());
        [0, 1].map(|path| (to[path] - from[path]) as f64 * 8e-6 / seconds)
    }

    /// How long it takes until the rates of a window are like that; it is over as that window begins.
    fn until(&self, what: &str, is_so: impl Fn([f64; 2]) -> bool) -> (Duration, [f64; 2]) {
        let begun = Instant::now();
        loop {
            let before = begun.elapsed();
            let rates = self.rates(WINDOW);
            if is_so(rates) {
                return (before, rates);
            }
            assert!(before < LIMIT, "{what}: {rates:?} Mbit/s after {before:?}");
        }
    }

    /// The path with this number is limited, and let go again, while a download runs that nobody else limits.
    fn moves_and_comes_back(&self, what: &str, path: usize, set: &[&str]) {
        let has_both = |rates: [f64; 2]| rates.iter().all(|&rate| rate > MUCH_MBPS);
        let has_moved = |rates: [f64; 2]| rates[path] < LITTLE_MBPS && rates[1 - path] > MUCH_MBPS;
        self.until("both paths carry", has_both);
        for _ in 0..2 {
            let before = self.rates(STEADY);
            let said = self.done(set);
            assert!(said.starts_with("limit one is new: rate 5mbit, "), "{said}");
            let (moved_after, _) = self.until("the load moves", has_moved);
            let limited = self.rates(STEADY);
            let status = self.status();
            let text = self.done(&["status"]);
            assert_eq!(self.done(&["unset", "one"]), "limit one is gone\n");
            let (back_after, _) = self.until("the load comes back", has_both);
            let after = self.rates(STEADY);
            eprintln!(
                "{what}: {before:.1?} Mbit/s; limited after {moved_after:.1?}: {limited:.1?}; without after {back_after:.1?}: {after:.1?}"
            );
            let limit = &status["limits"][0];
            assert_eq!(limit["limit"]["name"], "one");
            // Over a path there are subflows to one address of the other end, or to several.
            assert!((1..=2).contains(&limit["flows"].as_u64().expect("a number")), "{status:#}");
            let ways = [&limit["packets"]["sent"], &limit["packets"]["received"]];
            let passed = ways.map(|way| way["passed_bytes"].as_u64().expect("bytes")).into_iter().max();
            assert!(passed > Some(100_000), "{status:#}");
            assert!(text.contains("limit one, 5mbit") && text.contains(", limit one\n"), "{text}");
        }
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.arg("proxy").env("POLYPATH_RUNTIME_DIR", folder);
    command
}

/// A download without end in sight, over the lab's paths.
fn set_up(what: &str) -> Option<(Lab, Running)> {
    if !["curl", "nginx", "mptcpize"].iter().all(|program| has_or_skip(program, what)) {
        return None;
    }
    let lab = Lab::with_rate_or_skip(what, RATE)?;
    let file = fs::File::create(lab.folder().join("file")).expect("a file");
    file.set_len(1 << 40).expect("it takes no room");
    let server = nginx(&lab);
    Some((lab, server))
}

fn download(lab: &Lab, words: &[&str]) -> Running {
    let [program, words @ ..] = words else { panic!("no program") };
    let mut command = Command::new(program);
    lab.start(command.args(words).args(["-sS", "--fail", "-o", "/dev/null"]).stdin(Stdio::null()))
}

#[test]
fn a_path_to_a_server_is_limited_and_let_go() {
    let what = "a limit of a path to a server";
    let Some((lab, _server)) = set_up(what) else { return };
    lab.add_default_routes();
    let entrance = (Ipv4Addr::LOCALHOST, 1080).into();
    let proxy = Limited::start(&lab, &lab.testbed.client, entrance, &["--engine", "tun", "--socks", "1080"]);
    let _download = download(&lab, &["curl", "-x", "socks5h://127.0.0.1:1080", "http://10.77.0.2/file"]);
    let server = ["--host", "10.77.0.2", "--port", "80", "--client", "127.0.0.0/8"];
    for (path, by, who) in [(1, "path1", &[][..]), (0, "10.77.0.1", &server)] {
        let set = [&["set", "one", "--path", by, "--rate", "5mbit"][..], who].concat();
        proxy.moves_and_comes_back(&format!("{what}, by {by}"), path, &set);
    }
    proxy.done(&["set", "other", "--path", "path1", "--rate", "5mbit", "--port", "443"]);
    assert_eq!(proxy.status()["limits"][0]["flows"], 0);
    let mistake = proxy.refused(&["set", "one", "--path", "path1", "--rate", "5mbit", "--per-client"]);
    assert!(mistake.contains("limit one: ") && mistake.contains("expected no per-client"), "{mistake}");
}

#[test]
fn a_path_of_the_engine_udp_is_limited_and_let_go() {
    let what = "a limit of a path in datagrams";
    let Some((lab, _server)) = set_up(what) else { return };
    let mut serving = Command::new(env!("CARGO_BIN_EXE_polypath"));
    serving
        .args(["serve", "--no-config", "-q", "--engine", "udp", "--listen", "0.0.0.0:8080"])
        .arg(lab.folder());
    let serving = serving.env("POLYPATH_RUNTIME_DIR", lab.folder()).stdin(Stdio::null());
    let serving = serving.stdout(Stdio::null()).stderr(Stdio::null());
    let _serving =
        Running(lab.testbed.server.run(|| serving.spawn()).expect("a namespace").expect("a server"));
    let entrance = (Ipv4Addr::LOCALHOST, 1080).into();
    let arguments = ["--engine", "udp", "-I", "path0,path1", "--socks", "1080"];
    let proxy = Limited::start(&lab, &lab.testbed.client, entrance, &arguments);
    let _download = download(&lab, &["curl", "-x", "socks5h://127.0.0.1:1080", "http://10.77.0.2:8080/file"]);
    proxy.moves_and_comes_back(what, 1, &["set", "one", "--path", "path1", "--rate", "5mbit"]);
}

#[test]
fn a_path_of_a_client_is_limited_and_let_go() {
    let what = "a limit of a path of a client";
    let Some((lab, _server)) = set_up(what) else { return };
    let entrance = ([10, 77, 0, 2], 8080).into();
    let arguments = ["--engine", "tun", "-I", "path0,path1", "--accept", "engine", "--open"];
    let forward = ["--forward", "0.0.0.0:8080=127.0.0.1:80"];
    let proxy = Limited::start(&lab, &lab.testbed.server, entrance, &[&arguments[..], &forward].concat());
    let _download = download(&lab, &["mptcpize", "run", "curl", "http://10.77.0.2:8080/file"]);
    // The client, and not the server, which has an address beside it.
    let set = ["set", "one", "--peer", "10.77.1.1", "--direction", "down", "--rate", "5mbit"];
    proxy.moves_and_comes_back(what, 1, &set);
}

#[test]
fn the_kernel_has_no_limits_of_paths() {
    let what = "no limit of a path of the kernel";
    let Some((lab, _server)) = set_up(what) else { return };
    let entrance = (Ipv4Addr::LOCALHOST, 1080).into();
    let proxy =
        Limited::start(&lab, &lab.testbed.client, entrance, &["--engine", "kernel", "--socks", "1080"]);
    for paths in [["--path", "path1"], ["--peer", "10.77.1.0/24"]] {
        let mistake = proxy.refused(&[&["set", "one", "--rate", "5mbit"][..], &paths].concat());
        assert!(mistake.contains("limit one: a limit of a path: expected engine tun or udp"), "{mistake}");
    }
}
