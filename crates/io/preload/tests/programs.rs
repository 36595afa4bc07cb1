//! Unmodified programs under the library, seen from the peer's kernel.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use polypath_stack::engine::socket_info;
use polypath_system::Namespace;
use polypath_testbed::{Testbed, built, is_root_or_skip};
use socket2::{Domain, Protocol, Socket, Type};

fn library() -> PathBuf {
    built().join("libpolypath_preload.so")
}

fn listen() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()).expect("an address");
    socket.listen(8).expect("a listener");
    socket.into()
}

/// Runs a program in the client's namespace, with `URL` and `PORT` in its arguments replaced, against a server of the
/// kernel's Multipath TCP; gives what it printed and whether its connection was Multipath TCP at the server.
fn fetch(library: Option<&Path>, engine: &str, program: &[&str]) -> (Output, bool) {
    let testbed = Testbed::new(1).expect("namespaces");
    add_default_route(&testbed);
    let listener = testbed.server.run(listen).expect("the server's namespace");
    let addr = Testbed::server_v4(0);
    let port = listener.local_addr().expect("an address").port();
    let serving = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        let mut request = [0; 1024];
        let length = connection.read(&mut request).expect("a request");
        assert!(request[..length].starts_with(b"GET "));
        let info = socket_info(&connection).expect("the connection's state");
        connection.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello").expect("an answer");
        info.is_multipath
    });
    let mut command = Command::new(program[0]);
    command.args(program[1..].iter().map(|word| word.replace("URL", &format!("http://{addr}:{port}/"))));
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).env("POLYPATH_PRELOAD_OPTIONS", engine);
    }
    let runtime = tempfile::tempdir().expect("a folder");
    command.env("POLYPATH_RUNTIME_DIR", runtime.path());
    let output =
        testbed.client.run(|| command.output()).expect("the client's namespace").expect("the program");
    assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
    (output, serving.join().expect("the server"))
}

fn run(namespace: &Namespace, program: &str, words: &str) -> Output {
    let mut command = Command::new(program);
    let output = namespace.run(|| command.args(words.split(' ')).output());
    let output = output.expect("the namespace").expect("the program");
    assert!(output.status.success(), "{program} {words}: {output:?}");
    output
}

/// What an uplink needs.
fn add_default_route(testbed: &Testbed) {
    run(&testbed.client, "ip", "route add default via 10.77.0.2 dev path0");
}

const PYTHON: &str =
    "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())";

#[test]
fn programs_speak_multipath_tcp_only_with_the_library() {
    if !is_root_or_skip("preload") {
        return;
    }
    let library = library();
    for program in [&["curl", "-sS", "-m", "20", "URL"][..], &["python3", "-c", PYTHON, "URL"]] {
        if Command::new(program[0]).arg("--version").output().is_err() {
            eprintln!("SKIPPED preload with {}: it is not installed", program[0]);
            continue;
        }
        let library = Some(library.as_path());
        for (library, engine, expected) in
            [(library, "engine=kernel", true), (library, "engine=tun", true), (None, "", false)]
        {
            let (output, is_multipath) = fetch(library, engine, program);
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "hello", "{program:?}");
            assert_eq!(is_multipath, expected, "{program:?} with {library:?} {engine}");
        }
    }
}

#[test]
fn unsupported_options_are_refused_rather_than_ignored() {
    let output = Command::new("curl")
        .args(["-sS", "-m", "5", "http://127.0.0.1:9/"])
        .env("LD_PRELOAD", library())
        .env("POLYPATH_PRELOAD_OPTIONS", "engine=udp,colour=red")
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED options of preload: curl is not installed");
        return;
    };
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(says.contains("POLYPATH_PRELOAD_OPTIONS: 'colour=red': expected interface=NAME"), "{says}");
}

/// Ends the process when the test does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It is our own child, which may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_and_a_client_talk_in_datagrams_where_tcp_is_blocked() {
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    if !is_root_or_skip("preload over UDP") {
        return;
    }
    if let Some(missing) = ["curl", "python3", "nft"].iter().find(|program| !is_there(program)) {
        eprintln!("SKIPPED preload over UDP: {missing} is not installed");
        return;
    }
    let (library, folder) = (library(), tempfile::tempdir().expect("a folder"));
    let content: Vec<u8> =
        (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.path().join("file"), &content).expect("a file");
    let testbed = Testbed::new(1).expect("namespaces");
    run(&testbed.server, "nft", "add table inet test");
    run(&testbed.server, "nft", "add chain inet test in { type filter hook input priority 0 ; }");
    run(&testbed.server, "nft", "add rule inet test in iifname path0 meta l4proto tcp drop");
    let preloaded = |program: &str, options: &str| {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &library).env("POLYPATH_PRELOAD_OPTIONS", options);
        command.env("POLYPATH_RUNTIME_DIR", folder.path()).current_dir(folder.path());
        command
    };
    let mut serve = preloaded("python3", "engine=udp,reachable");
    serve.args(["-u", "-m", "http.server", "8080"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let serving = testbed.server.run(|| serve.spawn()).expect("the namespace").expect("python3");
    let mut serving = Running(serving);
    let mut line = String::new();
    BufReader::new(serving.0.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("Serving"), "{line}");
    let url = format!("http://{}:8080/file", Testbed::server_v4(0));
    let curl = |options: &str, more: &[&str]| {
        let mut command = preloaded("curl", options);
        command.args(["-sS", "-m", "20", "-w", "%{stderr}%{remote_ip}"]).args(more).arg(&url);
        testbed.client.run(|| command.output()).expect("the namespace").expect("curl")
    };
    let output = curl("engine=udp", &[]);
    assert!(
        output.status.success() && output.stdout == content,
        "{:?}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), Testbed::server_v4(0).to_string());
    let plain = curl("engine=tcp", &["--connect-timeout", "0.5"]);
    assert!(!plain.status.success(), "TCP is blocked");
    // The program's own listener goes on taking connections of this machine.
    let mut local = Command::new("curl");
    local.args(["-sS", "-m", "20", "http://127.0.0.1:8080/file"]);
    let local = testbed.server.run(|| local.output()).expect("the namespace").expect("curl");
    assert!(local.stdout == content);
}
