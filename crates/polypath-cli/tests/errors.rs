//! What goes wrong on real networks ends with one clear line, and leaves nothing behind.

mod lab;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use lab::{Lab, Running, finish};
use polypath_system::{Namespace, Netlink};
use polypath_testbed::Testbed;

/// Long enough that something can happen while it is transferred, at the lab's rate.
const FILE_BYTES: usize = 16 << 20;

fn ip(namespace: &Namespace, arguments: &str) -> String {
    let output = namespace.run(|| Command::new("ip").args(arguments.split(' ')).output());
    let output = output.expect("a namespace").expect("iproute2");
    assert!(output.status.success(), "ip {arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Everything that a set-up may change: rules, routes, interfaces, tables of nftables, and switches.
fn state(namespace: &Namespace) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for what in ["rule", "-6 rule", "route show table all", "-6 route show table all", "-o link"] {
        for line in ip(namespace, what).lines() {
            // Link-local addresses come when the kernel has found its links to be up, whenever that is.
            if line.contains("fe80:") || line.contains("ff00::") {
                continue;
            }
            let line = if what == "-o link" { line.split(": ").nth(1).unwrap_or(line) } else { line };
            lines.insert(format!("{what}: {}", line.replace(" linkdown", "").trim()));
        }
    }
    let tables =
        namespace.run(|| Command::new("nft").args(["list", "ruleset"]).output()).expect("a namespace");
    if let Ok(tables) = tables {
        lines.extend(
            String::from_utf8_lossy(&tables.stdout).lines().map(|line| format!("nft: {}", line.trim())),
        );
    }
    for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/conf/all/rp_filter"] {
        let value = namespace.run(|| std::fs::read_to_string(format!("/proc/sys/{name}")));
        lines.insert(format!("{name} = {}", value.expect("a namespace").expect("a variable").trim()));
    }
    lines
}

/// A `polypath` command whose files are the test's own.
fn polypath(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(arguments).env("POLYPATH_RUNTIME_DIR", lab.folder().join("runtime")).stdin(Stdio::null());
    command
}

/// `polypath serve` at a side, with its address.
fn serve(lab: &Lab, namespace: &Namespace, options: &[&str]) -> Running {
    let mut command = polypath(lab, &["serve", "--quiet"]);
    command.args(options).arg(lab.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = namespace.run(|| command.spawn()).expect("a namespace").expect("the command");
    let mut server = Running(child);
    let mut line = String::new();
    let output = server.0.stdout.as_mut().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    if !line.starts_with("Serving") {
        panic!("it does not serve: {:?}", finish(server));
    }
    server
}

/// The message of a command that failed.
#[track_caller]
fn one_line(output: &Output, code: i32, words: &[&str]) -> String {
    let message = String::from_utf8_lossy(&output.stderr).trim_end().to_string();
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for word in words {
        assert!(message.contains(word), "\"{word}\" is not in: {message}");
    }
    message
}

#[test]
fn an_address_in_use_is_named() {
    let Some(lab) = Lab::new_or_skip("an address in use") else { return };
    lab.add_default_routes();
    for [engine, other] in [["kernel", "tcp"], ["tun", "tun"], ["kernel", "tun"], ["tun", "kernel"]] {
        let before = state(&lab.testbed.client);
        let listen = ["--listen", "10.77.0.1:8077", "--engine"];
        let first = serve(&lab, &lab.testbed.client, &[&listen[..], &[engine]].concat());
        let while_first = state(&lab.testbed.client);
        let mut second = polypath(&lab, &["serve", "--quiet"]);
        let output = lab.output(second.args(listen).arg(other).arg(lab.folder()));
        one_line(&output, 1, &["8077", "in use"]);
        assert_eq!(state(&lab.testbed.client), while_first, "{engine}: the second changes nothing");
        terminate(first);
        assert_eq!(state(&lab.testbed.client), before, "{engine}");
    }
}

/// Asks a process to end, as a service manager does.
fn terminate(mut running: Running) {
    let id = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    running.0.wait().expect("our own child");
}

#[test]
fn rules_and_tables_of_others_are_left_alone_and_a_lack_of_room_is_said() {
    let Some(lab) = Lab::new_or_skip("tables of others") else { return };
    lab.add_default_routes();
    let client = &lab.testbed.client;
    let get = |lab: &Lab| lab.output(&mut polypath(lab, &["get", "--engine", "tun", "http://10.77.0.2:1/"]));
    // One table and one rule that are in the way of the first two places.
    ip(client, "route add 192.0.2.0/24 dev path0 table 707001");
    ip(client, "rule add from 192.0.2.7 lookup 99 priority 17018");
    let before = state(client);
    one_line(&get(&lab), 1, &["refused"]);
    assert_eq!(state(client), before, "with others' in the way");
    // All places.
    for slot in 0..64 {
        ip(client, &format!("rule add from 192.0.2.8 lookup 99 priority {}", 17_000 + 16 * slot));
    }
    let before = state(client);
    one_line(&get(&lab), 1, &["places", "remove the conflicting rules"]);
    assert_eq!(state(client), before, "without room");
}

/// Starts a download by our stack over some of the lab's paths, and does something to it midway.
fn get_and(
    what: &str,
    paths: &[&str],
    disturb: impl FnOnce(&Lab, &mut Running),
) -> Option<(Lab, Output, BTreeSet<String>)> {
    let lab = Lab::with_rate_or_skip(what, "50mbit")?;
    lab.add_default_routes();
    lab.file("file", FILE_BYTES);
    let mut server = serve(&lab, &lab.testbed.server, &["--engine", "kernel", "--listen", "10.77.0.2:8077"]);
    let before = state(&lab.testbed.client);
    let to = lab.folder().join("copy").display().to_string();
    let mut get = polypath(&lab, &["get", "--engine", "tun", "-o", &to]);
    get.args(paths);
    let getting = lab.start(get.arg("http://10.77.0.2:8077/file"));
    lab.wait_until_carried(FILE_BYTES as u64 / 4);
    disturb(&lab, &mut server);
    let output = finish(getting);
    Some((lab, output, before))
}

#[test]
fn a_peer_that_goes_away_midway_is_said() {
    let what = "a peer that goes away";
    let Some((lab, output, before)) = get_and(what, &["-I", "path0"], |_, server| {
        // Its kernel resets what was under way.
        server.0.kill().expect("our own child");
    }) else {
        return;
    };
    one_line(&output, 1, &["http://10.77.0.2:8077/file"]);
    assert_eq!(state(&lab.testbed.client), before);
}

#[test]
fn a_server_that_was_killed_with_its_network_is_noticed() {
    let Some(lab) = Lab::with_rate_or_skip("a server that was killed", "50mbit") else { return };
    lab.add_default_routes();
    for path in 0..2 {
        let (interface, gateway) = (Testbed::interface(path), Testbed::client_v4(path));
        ip(
            &lab.testbed.server,
            &format!("route add default via {gateway} dev {interface} metric {}", 100 + path),
        );
    }
    lab.file("file", FILE_BYTES);
    let mut server = serve(&lab, &lab.testbed.server, &["--engine", "tun", "--listen", "[::]:8077"]);
    let before = state(&lab.testbed.client);
    let to = lab.folder().join("copy");
    let mut get = polypath(&lab, &["get", "--engine", "tun", "--stall-timeout", "1", "-o"]);
    let getting = lab.start(get.arg(&to).arg("http://10.77.0.2:8077/file"));
    lab.wait_until_carried(FILE_BYTES as u64 / 4);
    // Its stack goes with it, and nobody resets anything.
    server.0.kill().expect("our own child");
    one_line(&finish(getting), 1, &["broke off after", "--resume"]);
    assert!(!to.exists(), "what came is no file");
    assert_eq!(state(&lab.testbed.client), before);
}

#[test]
fn a_measurement_whose_peer_goes_away_says_so() {
    let Some(lab) = Lab::with_rate_or_skip("a peer of perf that goes away", "50mbit") else { return };
    lab.add_default_routes();
    for engine in ["tun", "kernel"] {
        let before = state(&lab.testbed.client);
        let mut listen = polypath(&lab, &["perf", "-s", "-i", "0", "--engine", "kernel"]);
        let listening = lab.testbed.server.run(|| listen.stdout(Stdio::piped()).spawn());
        let mut server = Running(listening.expect("a namespace").expect("the command"));
        let mut line = String::new();
        BufReader::new(server.0.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let carried: u64 = lab.carried().iter().sum();
        let mut measure =
            polypath(&lab, &["perf", "-c", "10.77.0.2", "-t", "60", "-i", "0", "--engine", engine]);
        let measuring = lab.start(&mut measure);
        lab.wait_until_carried(carried + 1_000_000);
        server.0.kill().expect("our own child");
        one_line(&finish(measuring), 1, &["lost the", "peer"]);
        assert_eq!(state(&lab.testbed.client), before, "{engine}");
    }
}

#[test]
fn a_table_of_the_firewall_with_our_name_is_left_alone() {
    let Some(lab) = Lab::new_or_skip("a firewall's table with our name") else { return };
    lab.add_default_routes();
    let client = &lab.testbed.client;
    let add = ["add", "table", "inet", "polypath0"];
    let added = client.run(|| Command::new("nft").args(add).status()).expect("a namespace").expect("nft");
    assert!(added.success());
    let before = state(client);
    let output = lab.output(&mut polypath(&lab, &["get", "--engine", "tun", "http://10.77.0.2:1/"]));
    one_line(&output, 1, &["refused"]);
    assert_eq!(state(client), before, "it is still there");
}

#[test]
fn an_interface_that_goes_away_midway_only_delays() {
    let what = "an interface that goes away";
    let paths = ["-I", "path0,path1"];
    let Some((lab, output, _)) = get_and(what, &paths, |lab, _| {
        let client = &lab.testbed.client;
        client.run(|| Netlink::new()?.set_down(&Testbed::interface(0))).unwrap().unwrap();
    }) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let copy = std::fs::read(lab.folder().join("copy")).expect("a copy");
    assert!(copy == std::fs::read(lab.folder().join("file")).expect("the file"), "it is damaged");
    assert_nothing_of_ours(&lab.testbed.client);
}

#[test]
fn an_interface_that_is_removed_leaves_nothing_behind() {
    let Some(lab) = Lab::new_or_skip("an interface that is removed") else { return };
    lab.add_default_routes();
    let client = &lab.testbed.client;
    let server = serve(&lab, client, &["--engine", "tun", "--listen", "[::]:8077"]);
    client.run(|| Netlink::new()?.remove_link(&Testbed::interface(0))).unwrap().unwrap();
    // What is left when the interface has gone, without what the server has set up.
    thread::sleep(Duration::from_millis(300));
    terminate(server);
    assert_nothing_of_ours(client);
}

/// For when an interface has gone, with what belonged to it.
#[track_caller]
fn assert_nothing_of_ours(namespace: &Namespace) {
    let after = state(namespace);
    let is_ours = |line: &&String| ["polypath", "70700", "198.18."].iter().any(|mark| line.contains(mark));
    assert_eq!(after.iter().filter(is_ours).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(after.contains("net/ipv4/ip_forward = 0"), "{after:?}");
}
