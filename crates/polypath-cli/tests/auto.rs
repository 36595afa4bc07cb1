//! `--engine auto`: what is chosen, what is said of it, and how each transfer's bytes were shared.

mod lab;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use lab::{Lab, Running, finish, has_or_skip};

const URL: &str = "http://10.77.0.2:8077/file";

/// A server of the lab's folder at the other end, on an engine of the kernel's.
fn serve(lab: &Lab, engine: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["serve", "--quiet", "--engine", engine, "--listen", "10.77.0.2:8077"]).arg(lab.folder());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = lab.testbed.server.run(|| command.spawn()).expect("a namespace").expect("the command");
    let mut server = Running(child);
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("Serving"), "{:?}", finish(server));
    server
}

/// `polypath get` with its files in the lab's folder.
fn get(lab: &Lab, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.env("POLYPATH_RUNTIME_DIR", lab.folder().join("runtime")).env("HOME", lab.folder());
    command.arg("get").args(options).arg(URL).current_dir(lab.folder()).stdin(Stdio::null());
    command
}

/// The lines on standard error of a command that succeeds.
fn said(lab: &Lab, command: &mut Command) -> Vec<String> {
    let output = lab.output(command);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).lines().map(str::to_string).collect()
}

#[test]
fn the_choice_and_the_shares_are_told() {
    let Some(lab) = Lab::new_or_skip("engine auto") else { return };
    lab.add_default_routes();
    lab.file("file", 3 << 20);
    let server = serve(&lab, "kernel");
    let lines = said(&lab, &mut get(&lab, &["-o", "copy"]));
    assert_eq!(
        lines.first().map(String::as_str),
        Some("polypath: engine tun (our own stack), over path0 and path1")
    );
    let last = lines.last().expect("lines");
    assert!(
        last.contains("path0 ") && !last.contains("100.") && !last.contains("does not speak"),
        "{lines:?}"
    );
    assert!(said(&lab, &mut get(&lab, &["-q", "-o", "copy"])).is_empty());
    let lines = said(&lab, &mut get(&lab, &["-o", "copy", "--engine", "kernel"]));
    let last = lines.last().expect("lines");
    assert!(last.contains("path0 ") && !last.contains("does not speak"), "{lines:?}");
    drop(server);
    let _server = serve(&lab, "tcp");
    for engine in [&[][..], &["--engine", "kernel"]] {
        let lines = said(&lab, &mut get(&lab, &[&["-o", "copy"], engine].concat()));
        let [.., shares, advice] = &lines[..] else { panic!("{lines:?}") };
        let expected = "path0 3.1 MB; one path only: the server does not speak Multipath TCP";
        assert!(shares.starts_with(expected) && advice.starts_with("with --ranges"), "{lines:?}");
    }
}

#[test]
fn without_rights_the_kernel_is_taken_and_the_command_for_more_is_told() {
    let Some(lab) = Lab::new_or_skip("engine auto without rights") else { return };
    if !has_or_skip("setpriv", "engine auto without rights") {
        return;
    }
    lab.add_default_routes();
    lab.file("file", 10_000);
    let _server = serve(&lab, "kernel");
    let no_rights = |options: &[&str]| {
        let command = get(&lab, options);
        let mut without = Command::new("setpriv");
        without.args(["--inh-caps=-all", "--bounding-set=-all", "--reuid=65534", "--clear-groups"]);
        without.arg(command.get_program()).args(command.get_args()).current_dir("/");
        without
    };
    let lines = said(&lab, &mut no_rights(&["-o", "/dev/null"]));
    assert!(lines[0].starts_with("polypath: engine kernel (its Multipath TCP), over path0"), "{lines:?}");
    assert!(lines[0].contains("for our own stack over path0 and path1 `"), "{lines:?}");
    let output = lab.output(&mut no_rights(&["--scheduler", "redundant"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("polypath: --scheduler is for our own stack, which can't start: "), "{said}");
    assert_eq!(output.status.code(), Some(1));
    let mut without = Command::new("setpriv");
    without.args(["--inh-caps=-all", "--bounding-set=-all", "--reuid=65534", "--clear-groups"]);
    without.arg(env!("CARGO_BIN_EXE_polypath")).args(["preload", "--engine", "tun", "--", "true"]);
    without.env("POLYPATH_PRELOAD_LIBRARY", "/etc/passwd").current_dir("/");
    let output = lab.output(&mut without);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("polypath: engine tun can't start: this user may not "), "{said}");
    assert!(said.contains("this user may not change the network (CAP_NET_ADMIN); expected"), "{said}");
    assert!(said.contains("`sudo setcap cap_net_admin+ep"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

/// A copy of the command with the capability of its file, and a device that all may open, as `run` advises.
#[test]
fn with_the_capability_of_its_file_the_command_needs_no_root() {
    let what = "engine tun without root";
    let Some(lab) = Lab::new_or_skip(what) else { return };
    if !["setpriv", "setcap", "unshare", "mknod"].iter().all(|program| has_or_skip(program, what)) {
        return;
    }
    lab.add_default_routes();
    let (copy, device) = (lab.folder().join("polypath"), lab.folder().join("tun"));
    std::fs::copy(env!("CARGO_BIN_EXE_polypath"), &copy).expect("a copy");
    for (program, arguments) in [
        ("setcap", ["cap_net_admin+ep", copy.to_str().expect("UTF-8"), "", ""]),
        ("mknod", [device.to_str().expect("UTF-8"), "c", "10", "200"]),
        ("chmod", ["0666", device.to_str().expect("UTF-8"), "", ""]),
    ] {
        let arguments = arguments.iter().filter(|argument| !argument.is_empty());
        if !Command::new(program).args(arguments).status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED {what}: {program} can't do that here");
            return;
        }
    }
    let theirs = lab.folder().join("theirs");
    std::fs::create_dir(&theirs).expect("a folder");
    std::os::unix::fs::chown(&theirs, Some(65_534), Some(65_534)).expect("root");
    let script = "mount --bind tun /dev/net/tun && exec setpriv --reuid 65534 --regid 65534 --clear-groups ./polypath run -- sh -c 'id -u >&2'";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).current_dir(lab.folder()).stdin(Stdio::null());
    command.env("POLYPATH_RUNTIME_DIR", theirs.join("runtime")).env("HOME", lab.folder());
    let auto = "polypath: engine tun (our own stack), over path0 and path1";
    assert_eq!(said(&lab, &mut command), [auto, "65534"]);
}

/// `polypath run` of a program that does nothing, with its files in the lab's folder.
fn run_nothing(lab: &Lab, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.env("POLYPATH_RUNTIME_DIR", lab.folder().join("runtime")).env("HOME", lab.folder());
    command.arg("run").args(options).args(["--", "true"]).current_dir(lab.folder()).stdin(Stdio::null());
    command
}

#[test]
fn interfaces_that_are_missing_are_told_at_once() {
    let Some(lab) = Lab::new_or_skip("interfaces that are missing") else { return };
    lab.add_default_routes();
    let missing = "typo0 is not there now (present are: path0, path1); it is used when it comes";
    for engine in ["tun", "udp"] {
        let lines = said(&lab, &mut run_nothing(&lab, &["--engine", engine, "-I", "path0", "-I", "typo0"]));
        assert_eq!(lines, [format!("polypath: {missing}")], "{engine}");
        let output = lab.output(&mut run_nothing(&lab, &["--engine", engine, "-I", "typo0"]));
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(line, "polypath: there is no interface typo0; present are: path0, path1\n", "{engine}");
        assert_eq!(output.status.code(), Some(2), "{engine}");
    }
    let auto = "polypath: engine tun (our own stack), over path0";
    let lines = said(&lab, &mut run_nothing(&lab, &["-I", "path0,typo0"]));
    assert_eq!(lines, [&format!("polypath: {missing}"), auto]);
    let setting = "[engine]\ninterfaces = [\"path0\", \"typo0\"]\n";
    std::fs::write(lab.folder().join("polypath.toml"), setting).expect("a file");
    let lines = said(&lab, &mut run_nothing(&lab, &[]));
    assert_eq!(lines, [&format!("polypath: polypath.toml:2: engine.interfaces: {missing}"), auto]);
}

#[test]
fn what_a_file_wants_of_interfaces_is_kept_or_refused() {
    let what = "wishes of a file";
    let Some(lab) = Lab::new_or_skip(what) else { return };
    lab.add_default_routes();
    let write = |interfaces: &str| {
        let text = format!("[engine]\ninterfaces = [{interfaces}]\n");
        std::fs::write(lab.folder().join("polypath.toml"), text).expect("a file");
    };
    // A name that no interface has is a mistake, whatever other engines would make of it.
    write(r#"{ name = "typo0", backup = true, budget = "2GB", hard = true }"#);
    let output = lab.output(&mut run_nothing(&lab, &[]));
    let place = "polypath: polypath.toml:2: engine.interfaces: ";
    let missing = format!("{place}there is no interface typo0; present are: path0, path1\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), missing);
    assert_eq!(output.status.code(), Some(2));
    if !has_or_skip("setpriv", what) {
        return;
    }
    lab.file("file", 10_000);
    let _server = serve(&lab, "kernel");
    let without = |options: &[&str]| {
        let command = get(&lab, &[&["-o", "/dev/null"], options].concat());
        let mut without = Command::new("setpriv");
        without.args(["--inh-caps=-net_admin", "--bounding-set=-net_admin"]);
        without.arg(command.get_program()).args(command.get_args()).current_dir(lab.folder());
        without.env("POLYPATH_RUNTIME_DIR", lab.folder().join("runtime")).env("HOME", lab.folder());
        lab.output(&mut without)
    };
    write(r#""path0,priority=1", { name = "path1", backup = true, budget = "2GB" }"#);
    let output = without(&[]);
    let line = String::from_utf8_lossy(&output.stderr);
    let wanted = format!(
        "{place}priority of path0 and backup, budget of path1 can't be kept without our own stack, which can't start: "
    );
    assert!(line.starts_with(&wanted) && line.ends_with("; --engine kernel does without\n"), "{line}");
    assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1));
    let output = without(&["--engine", "tcp"]);
    let line = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && line.contains("engine.interfaces left out"), "{output:?}");
    write(r#""path0""#);
    let output = without(&[]);
    let line = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && line.contains("engine.interfaces left out"), "{output:?}");
}

#[test]
fn an_interface_without_a_route_to_the_peer_is_told_at_once() {
    let Some(lab) = Lab::new_or_skip("interfaces without a route") else { return };
    let route = "route add default via 10.77.0.2 dev path0 metric 100";
    assert!(lab.output(Command::new("ip").args(route.split(' '))).status.success());
    lab.file("file", 10_000);
    let remedy = "add one with: ip route add default via GATEWAY dev path1 metric 200";
    let line = format!("polypath: path1 has no route to 10.77.0.2; {remedy}");
    for engine in ["tun", "udp", "auto"] {
        let output = lab.output(&mut get(&lab, &["--engine", engine, "-I", "path1", "-o", "copy"]));
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("{line}\n"), "{engine}");
        assert_eq!(output.status.code(), Some(2), "{engine}");
    }
    let _server = serve(&lab, "kernel");
    let lines = said(&lab, &mut get(&lab, &["--engine", "tun", "-I", "path0,path1", "-o", "copy"]));
    assert_eq!(lines[0], line, "{lines:?}");
    assert!(
        said(&lab, &mut get(&lab, &["--engine", "tun", "-q", "-I", "path0,path1", "-o", "copy"])).is_empty()
    );
    // Peers that only the program knows may be in its own network.
    let line = format!("polypath: path1 has no default route, and reaches its own networks alone; {remedy}");
    for engine in ["tun", "udp"] {
        assert_eq!(
            said(&lab, &mut run_nothing(&lab, &["--engine", engine, "-I", "path1"])),
            [&*line],
            "{engine}"
        );
    }
    // By a rule of its own it has one, for sockets that are bound to it.
    for words in ["route add default via 10.77.1.2 dev path1 table 77", "rule add oif path1 lookup 77"] {
        assert!(lab.output(Command::new("ip").args(words.split(' '))).status.success());
    }
    assert!(said(&lab, &mut run_nothing(&lab, &["--engine", "udp", "-I", "path1"])).is_empty());
    assert_eq!(said(&lab, &mut run_nothing(&lab, &["--engine", "tun", "-I", "path1"])), [&*line]);
}

/// Reads lines until this one comes.
fn wait_for(lines: &mut impl Iterator<Item = std::io::Result<String>>, wanted: &str) {
    let mut before = Vec::new();
    let is_there = lines.map_while(Result::ok).any(|line| {
        before.push(line);
        before.last().is_some_and(|line| line == wanted)
    });
    assert!(is_there, "{wanted} is not among {before:?}");
}

#[test]
fn a_path_that_is_lost_and_one_that_is_back_are_told() {
    let Some(lab) = Lab::with_rate_or_skip("paths that are lost", "20mbit") else { return };
    // It takes longer than this test.
    let file = std::fs::File::create(lab.folder().join("file")).expect("a file");
    file.set_len(1 << 30).expect("room for nothing");
    lab.add_default_routes();
    let _server = serve(&lab, "kernel");
    let polypath = env!("CARGO_BIN_EXE_polypath");
    let mut measuring = Command::new(polypath);
    let _measuring = lab.serve(measuring.args(["perf", "-s", "--engine", "kernel"]), 5201);
    let get = [polypath, "get", "-q", "--engine", "tcp", "--no-config", "-o", "/dev/null", URL];
    let run = [&["-v", "run", "--engine", "tun", "--"][..], &get].concat();
    let perf = ["perf", "--engine", "tun", "-c", "10.77.0.2", "-t", "60"];
    for words in [&run[..], &perf] {
        let before = lab.carried();
        let mut command = Command::new(polypath);
        command.env("POLYPATH_RUNTIME_DIR", lab.folder().join("runtime")).env("HOME", lab.folder());
        let mut running = lab.start(command.args(words).stdin(Stdio::null()));
        let mut output = running.0.stdout.take().expect("a pipe");
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let mut lines = BufReader::new(running.0.stderr.take().expect("a pipe")).lines();
        if words[0] == "-v" {
            wait_for(&mut lines, "polypath: 10.77.0.2:8077: over path0");
            wait_for(&mut lines, "polypath: 10.77.0.2:8077: over path1 too");
        }
        while lab.carried().iter().zip(before).any(|(now, before)| now - before < 200_000) {
            assert!(running.0.try_wait().expect("our own").is_none(), "{words:?} has ended");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        lab.cut(0);
        wait_for(&mut lines, "polypath: path0 is lost; path1 goes on");
        for again in ["link set path0 up", "route add default via 10.77.0.2 dev path0 metric 100"] {
            assert!(lab.output(Command::new("ip").args(again.split(' '))).status.success());
        }
        wait_for(&mut lines, "polypath: path0 is back");
        // One after the other.
        lab.cut(0);
        wait_for(&mut lines, "polypath: path0 is lost; path1 goes on");
        lab.cut(1);
        wait_for(&mut lines, "polypath: path1 is lost");
        for path in ["path0", "path1"] {
            let up = ["link", "set", path, "up"];
            assert!(lab.output(Command::new("ip").args(up)).status.success());
        }
        lab.add_default_routes();
    }
}

#[test]
fn loopback_is_the_kernel_s() {
    let Some(lab) = Lab::new_or_skip("engine auto within a machine") else { return };
    lab.add_default_routes();
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(["get", "http://127.0.0.1:1/"]).stdin(Stdio::null());
    let output = lab.output(&mut command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("polypath: engine kernel, within this machine\n"), "{said}");
}

#[test]
fn a_configuration_decides_what_the_command_line_leaves_open() {
    let Some(lab) = Lab::new_or_skip("configuration") else { return };
    lab.add_default_routes();
    lab.file("file", 10_000);
    let _server = serve(&lab, "kernel");
    let write = |text: &str| std::fs::write(lab.folder().join("polypath.toml"), text).expect("a file");
    let run = |options: &[&str], program: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.env("POLYPATH_RUNTIME_DIR", lab.folder().join("runtime")).env("HOME", lab.folder());
        command.arg("run").args(options).args(["--", program]).current_dir(lab.folder()).stdin(Stdio::null());
        said(&lab, &mut command)
    };
    write(
        "[engine]\nengine = \"tcp\"\n[[rules]]\nprogram = \"tr*\"\nengine = \"auto\"\nscheduler = \"redundant\"\n",
    );
    let lines = said(&lab, &mut get(&lab, &["-o", "copy"]));
    assert!(
        lines.last().is_some_and(|line| line.ends_with("one path only: engine tcp has no more")),
        "{lines:?}"
    );
    let auto = "polypath: engine tun (our own stack), over path0 and path1";
    assert_eq!(said(&lab, &mut get(&lab, &["--no-config", "-o", "copy"]))[0], auto);
    assert_eq!(run(&[], "true"), [auto]);
    assert!(run(&[], "sync").is_empty());
    let left_out = "polypath: polypath.toml:6: rules[0].scheduler left out: engine kernel has no such option; expected engine tun or udp with it";
    assert_eq!(run(&["--engine", "kernel"], "true"), [left_out], "what is said on the command line counts");
    assert!(run(&["-q", "--engine", "kernel"], "true").is_empty());
    write("[engine]\nudp-port = 7000\nkeepalive = \"5s\"\n");
    let left_out = |engine| {
        format!(
            "polypath: polypath.toml:2: engine.udp-port left out: engine {engine} has no such option; expected engine udp with it"
        )
    };
    assert_eq!(run(&["--engine", "kernel"], "true"), [left_out("kernel")]);
    assert_eq!(run(&["--engine", "tun"], "true"), [left_out("tun")]);
    assert!(run(&["--engine", "udp"], "true").is_empty());
    write("[engine]\nsheduler = \"redundant\"\n");
    let output = lab.output(&mut get(&lab, &[]));
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(wrong.starts_with("polypath: polypath.toml:2: engine.sheduler: unknown field"), "{wrong}");
    assert_eq!(output.status.code(), Some(2));
}
