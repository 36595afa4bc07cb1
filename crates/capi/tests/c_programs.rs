//! The header and the library, as C programs use them.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polypath_net::testbed::{Testbed, is_root_or_skip};

fn libraries() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    let built = build.args(["build", "--quiet", "--profile", "test", "-p", "polypath-capi"]).status();
    assert!(built.expect("cargo").success(), "the library builds");
    // target/PROFILE/deps/c_programs-HASH
    let test = std::env::current_exe().expect("this test");
    test.ancestors().nth(2).expect("a target directory").to_path_buf()
}

/// Compiles a C source against the header and the shared library.
fn compile(source: &str, to: &Path) {
    let (folder, libraries) = (Path::new(env!("CARGO_MANIFEST_DIR")), libraries());
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(folder.join("include"));
    cc.arg(folder.join(source)).arg("-o").arg(to).arg("-L").arg(&libraries).arg("-lpolypath");
    cc.arg(format!("-Wl,-rpath,{}", libraries.display()));
    assert!(cc.status().expect("cc").success(), "{source} compiles");
}

fn can_run(what: &str) -> bool {
    let has_compiler = Command::new("cc").arg("--version").output().is_ok();
    if !has_compiler {
        eprintln!("SKIPPED {what}: cc is missing");
    }
    has_compiler && is_root_or_skip(what)
}

/// The server and one client, as processes in their namespaces; what each printed last.
fn talk(server: &Path, client: &Path, client_words: &[&str]) -> (String, String) {
    let testbed = Testbed::new(1).expect("namespaces");
    let addr = Testbed::server_v4(0).to_string();
    let mut serve = Command::new(server);
    serve.args(["serve", &addr]).stdout(Stdio::piped());
    let mut serving = testbed.server.run(|| serve.spawn()).expect("the namespace").expect("the server");
    let mut printed = BufReader::new(serving.stdout.take().expect("a pipe"));
    let mut port = String::new();
    printed.read_line(&mut port).expect("the server's port");
    let words = client_words.iter().map(|word| match *word {
        "ADDR" => addr.as_str(),
        "PORT" => port.trim(),
        word => word,
    });
    let mut command = Command::new(client);
    command.args(words);
    let output = testbed.client.run(|| command.output()).expect("the namespace").expect("the client");
    if !output.status.success() {
        // It waits for a client that won't come.
        let _ = serving.kill();
    }
    let status = serving.wait().expect("the server ends");
    let mut served = String::new();
    printed.read_to_string(&mut served).expect("what the server printed");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && status.success(), "client: {said}; server: {served}");
    (said.trim().to_string(), served.trim().to_string())
}

#[test]
fn c_programs_speak_multipath_tcp_blocking_and_not() {
    if !can_run("C programs") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("calls");
    compile("tests/calls.c", &program);
    for kind in ["get", "poll"] {
        let (client, server) = talk(&program, &program, &[kind, "ADDR", "PORT"]);
        assert_eq!(client, "question multipath=1 subflows=1", "{kind}");
        assert_eq!(server, "question multipath=1 subflows=1", "{kind}");
    }
}

#[test]
fn the_example_works() {
    if !can_run("example in C") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (server, example) = (folder.path().join("calls"), folder.path().join("get"));
    compile("tests/calls.c", &server);
    compile("../../examples/c/get.c", &example);
    let (client, _) = talk(&server, &example, &["ADDR", "PORT", "hello"]);
    assert_eq!(client, "hellomultipath=1 subflows=1");
}
