//! The header and the library, as C programs use them.

mod compiler;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use compiler::{SONAME, compile, has_compiler};
use polypath_system::Namespace;
use polypath_testbed::{Testbed, built, is_root_or_skip};

/// A user without privileges.
const NOBODY: u32 = 65_534;

/// Among a client's words: the server is to leave its engine to the program's end.
const LEAVES: &str = "LEAVES";
/// The same: another thread is to free it meanwhile.
const FREES: &str = "FREES";
/// The same: the client frees its engine in the middle of what the server writes.
const CUTS: &str = "CUTS";

fn can_run(what: &str) -> bool {
    has_compiler(what) && is_root_or_skip(what)
}

/// The server and one client, as processes in their namespaces, with the kernel's engine; what each printed last.
fn talk(server: &Path, client: &Path, client_words: &[&str]) -> (String, String) {
    let testbed = Testbed::new(1).expect("namespaces");
    talk_in(
        [&testbed.server, &testbed.client],
        Testbed::server_v4(0),
        [(server, ""), (client, "")],
        client_words,
        false,
    )
}

/// The same in two namespaces with the server at an address, each with a choice of engine.
fn talk_in(
    [server_side, client_side]: [&Namespace; 2],
    addr: Ipv4Addr,
    [(server, serving_engine), (client, calling_engine)]: [(&Path, &str); 2],
    client_words: &[&str],
    is_unprivileged: bool,
) -> (String, String) {
    let addr = addr.to_string();
    // It is never read.
    let silence =
        addr.starts_with("127.").then(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket"));
    let silent = silence.as_ref().map(|socket| socket.local_addr().expect("a port").port());
    let folder = tempfile::tempdir().expect("a folder");
    let is_root = fs::metadata(folder.path()).expect("a folder").uid() == 0;
    let program = |path: &Path, engine: &str| {
        let mut command = Command::new(path);
        if !engine.is_empty() {
            command.env("ENGINE", engine);
        }
        command.env("POLYPATH_RUNTIME_DIR", folder.path());
        for word in [LEAVES, FREES, CUTS].into_iter().filter(|word| client_words.contains(word)) {
            command.env(word, "1");
        }
        if is_unprivileged && is_root {
            command.uid(NOBODY).gid(NOBODY).env("LD_LIBRARY_PATH", path.parent().expect("its folder"));
        }
        if let Some(port) = silent {
            command.env("SILENT_ENGINE", format!("engine=udp,udp_port={port}"));
        }
        command
    };
    let mut serve = program(server, serving_engine);
    serve.args(["serve", &addr]).stdout(Stdio::piped()).stdin(Stdio::piped());
    let mut serving = server_side.run(|| serve.spawn()).expect("the namespace").expect("the server");
    let mut printed = BufReader::new(serving.stdout.take().expect("a pipe"));
    let mut port = String::new();
    printed.read_line(&mut port).expect("the server's port");
    let words =
        client_words.iter().filter(|word| ![LEAVES, FREES, CUTS].contains(*word)).map(|word| match *word {
            "ADDR" => addr.as_str(),
            "PORT" => port.trim(),
            word => word,
        });
    let mut command = program(client, calling_engine);
    command.args(words);
    let output = client_side.run(|| command.output()).expect("the namespace").expect("the client");
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
fn the_examples_work() {
    if !can_run("examples in C") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [server, client] = ["serve", "get"].map(|name| {
        let program = folder.path().join(name);
        compile(&format!("../../../examples/c/{name}.c"), &program);
        program
    });
    let testbed = Testbed::new(1).expect("namespaces");
    let address = Testbed::server_v4(0).to_string();
    let mut serve = Command::new(server);
    serve.args([address.as_str(), "0"]).stdout(Stdio::piped());
    let mut serving = testbed.server.run(|| serve.spawn()).expect("the namespace").expect("the server");
    let mut port = String::new();
    let printed = serving.stdout.take().expect("a pipe");
    BufReader::new(printed).read_line(&mut port).expect("the server's port");
    // It goes on for the next client.
    let said = ["hello", "again"].map(|text| {
        let mut get = Command::new(&client);
        get.args([address.as_str(), port.trim(), text]);
        let output = testbed.client.run(|| get.output()).expect("the namespace").expect("the client");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    });
    serving.kill().and_then(|()| serving.wait()).expect("the server ends");
    assert_eq!(
        said.each_ref().map(|text| text.trim()),
        ["hello", "again"].map(|text| format!("{text}multipath=1 subflows=1"))
    );
}

#[test]
fn our_own_stack_carries_over_udp() {
    over_udp(false);
}

/// As the user nobody, whom some kernels refuse the filters that root may use.
#[test]
fn our_own_stack_over_udp_needs_no_privileges() {
    over_udp(true);
}

fn over_udp(is_unprivileged: bool) {
    if !has_compiler("C programs over UDP") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["calls", "bulk", "trouble", "scarce", "crowd", "waits"];
    let [calls, bulk, trouble, scarce, crowd, waits] = names.map(|name| {
        let program = folder.path().join(name);
        compile(&format!("tests/{name}.c"), &program);
        program
    });
    // Where nobody in particular gets at it.
    let library = folder.path().join(SONAME);
    fs::remove_file(&library).expect("a link");
    fs::copy(built().join("libpolypath.so"), library).expect("the library");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
    let here = Namespace::current().expect("this one");
    let here = [&here, &here];
    let port = || {
        let free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
        free.local_addr().expect("a port").port()
    };
    let talk = |program: &Path, words: &[&str]| {
        let port = port();
        let server = format!("engine=udp,reachable,udp_port={port}");
        let client = format!("engine=udp,udp_port={port}");
        talk_in(here, Ipv4Addr::LOCALHOST, [(program, &server), (program, &client)], words, is_unprivileged)
    };
    for kind in ["get", "poll"] {
        let (client, server) = talk(&calls, &[kind, "ADDR", "PORT"]);
        assert!(
            client.starts_with("question multipath=1") && server.starts_with("question multipath=1"),
            "{kind}: {client}"
        );
    }
    let (client, server) = talk(&bulk, &["client", "ADDR", "PORT", "20000000"]);
    assert_eq!((&*client, &*server), ("bytes=20000000 busy=1", "echoed"));
    let mut open = Command::new(&scarce);
    open.arg("open").env("ENGINE", "engine=udp").env("POLYPATH_RUNTIME_DIR", folder.path());
    let opened = open.output().expect("the program");
    assert!(
        opened.status.success() && opened.stdout == b"done\n",
        "{}",
        String::from_utf8_lossy(&opened.stderr)
    );
    for (program, words) in [
        (&trouble, &["client", "ADDR", "PORT", "1", "127.0.0.1"][..]),
        (&scarce, &["client", "ADDR", "PORT"]),
        (&crowd, &["client", "ADDR", "PORT"]),
        (&waits, &["client", "ADDR", "PORT"]),
        (&waits, &["client", "ADDR", "PORT", LEAVES]),
        (&waits, &["client", "ADDR", "PORT", FREES]),
        (&waits, &["client", "ADDR", "PORT", CUTS]),
    ] {
        let (client, _) = talk(program, words);
        assert_eq!(client, "done");
    }
}

/// Default routes by every path, towards the other side.
fn add_default_routes(testbed: &Testbed) {
    for (namespace, other) in [(&testbed.client, 2), (&testbed.server, 1)] {
        for path in 0..testbed.paths() {
            let words =
                format!("route add default via 10.77.{path}.{other} dev path{path} metric {}", 100 + path);
            let added = namespace.run(|| Command::new("ip").args(words.split(' ')).status());
            assert!(added.expect("the namespace").expect("iproute2").success(), "ip {words}");
        }
    }
}

#[test]
fn our_own_stack_on_the_uplinks_carries_over_both() {
    if !can_run("C programs over TUN") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [bulk, trouble, waits] = ["bulk", "trouble", "waits"].map(|name| {
        let program = folder.path().join(name);
        compile(&format!("tests/{name}.c"), &program);
        program
    });
    let testbed = Testbed::new(2).expect("namespaces");
    add_default_routes(&testbed);
    let talk = |program: &Path, words: &[&str]| {
        let both = [(program, "engine=tun"), (program, "engine=tun,interface=path0,interface=path1")];
        talk_in([&testbed.server, &testbed.client], Testbed::server_v4(0), both, words, false)
    };
    let (client, server) = talk(&bulk, &["client", "ADDR", "PORT", "60000000"]);
    // Both from each of the client's uplinks, and to each of the server's, which it announces.
    let busy = client.strip_prefix("bytes=60000000 busy=").and_then(|count| count.parse().ok());
    assert!(
        busy.is_some_and(|count: u32| (2..=4).contains(&count)) && server == "echoed",
        "{client}, {server}"
    );
    let (client, _) = talk(&trouble, &["client", "ADDR", "PORT", "1", "10.77.0.99"]);
    assert_eq!(client, "done");
    for words in [
        &["client", "ADDR", "PORT"][..],
        &["client", "ADDR", "PORT", LEAVES],
        &["client", "ADDR", "PORT", FREES],
        &["client", "ADDR", "PORT", CUTS],
    ] {
        let (client, _) = talk(&waits, words);
        assert_eq!(client, "done", "{words:?}");
    }
    for namespace in [&testbed.client, &testbed.server] {
        let rules =
            namespace.run(|| Command::new("ip").arg("rule").output()).expect("the namespace").expect("ip");
        let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
        assert_eq!(rules.lines().count(), 3, "nothing stays behind: {rules}");
    }
}

fn words_of(what: &str, words: &[&str], namespace: &Namespace) -> String {
    let output = namespace.run(|| Command::new(what).args(words).output());
    String::from_utf8_lossy(&output.expect("the namespace").expect(what).stdout).into_owned()
}

#[test]
fn what_a_program_does_not_free_ends_with_it_and_a_child_is_told_that_it_has_none() {
    if !can_run("engines that are not freed") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("leave");
    compile("tests/leave.c", &program);
    let testbed = Testbed::new(1).expect("namespaces");
    add_default_routes(&testbed);
    for (engine, what) in [
        ("engine=tun", "exit"),
        ("engine=auto", "exit"),
        ("engine=tun", "fork"),
        ("engine=udp", "fork"),
        ("engine=tun", "close"),
        ("engine=tun", "busy"),
    ] {
        let mut command = Command::new(&program);
        command.arg(what).env("ENGINE", engine).env("POLYPATH_RUNTIME_DIR", folder.path());
        let output = testbed.client.run(|| command.output()).expect("the namespace").expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"done\n", "{engine} {what}: {said}");
        let rules = words_of("ip", &["rule"], &testbed.client);
        assert_eq!(rules.lines().count(), 3, "{engine} {what} leaves nothing: {rules}");
        let tables = words_of("nft", &["list", "tables"], &testbed.client);
        assert_eq!(tables, "", "{engine} {what}");
    }
}
