//! Unmodified programs under the library, seen from the peer's kernel.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use polypath_net::engine::socket_info;
use polypath_net::testbed::{Testbed, is_root_or_skip};
use socket2::{Domain, Protocol, Socket, Type};

fn library() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    let built = build.args(["build", "--quiet", "--profile", "test", "-p", "polypath-preload"]).status();
    assert!(built.expect("cargo").success(), "the library builds");
    // target/PROFILE/deps/programs-HASH
    let test = std::env::current_exe().expect("this test");
    test.ancestors().nth(2).map(|folder| folder.join("libpolypath_preload.so")).expect("a target directory")
}

fn listen() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()).expect("an address");
    socket.listen(8).expect("a listener");
    socket.into()
}

/// Runs a program in the client's namespace, with `URL` and `PORT` in its arguments replaced, against a server of the
/// kernel's Multipath TCP; gives what it printed and whether its connection was Multipath TCP at the server.
fn fetch(library: Option<&Path>, program: &[&str]) -> (Output, bool) {
    let testbed = Testbed::new(1).expect("namespaces");
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
        command.env("LD_PRELOAD", library);
    }
    let output =
        testbed.client.run(|| command.output()).expect("the client's namespace").expect("the program");
    assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
    (output, serving.join().expect("the server"))
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
        for (library, expected) in [(Some(library.as_path()), true), (None, false)] {
            let (output, is_multipath) = fetch(library, program);
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "hello", "{program:?}");
            assert_eq!(is_multipath, expected, "{program:?} with {library:?}");
        }
    }
}

#[test]
fn unsupported_options_are_refused_rather_than_ignored() {
    let output = Command::new("curl")
        .args(["-sS", "-m", "5", "http://127.0.0.1:9/"])
        .env("LD_PRELOAD", library())
        .env("POLYPATH_PRELOAD_OPTIONS", "engine=tun")
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED options of preload: curl is not installed");
        return;
    };
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(says.contains("engine=tun: unsupported in this build; expected engine=kernel"), "{says}");
}
