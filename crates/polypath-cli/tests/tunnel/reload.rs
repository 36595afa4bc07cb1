//! A running tunnel that takes its file again.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use polypath_testbed::is_root_or_skip;

use super::hosts::{Hosts, append, command, echo, must, status, until};

#[test]
fn a_reload_says_what_has_changed() {
    if !is_root_or_skip("a tunnel that takes its file again") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    let reload = || must(&mut command(folder, "polypath tunnel reload"));
    let change = |from: &str, to: &str| {
        let file = folder.join("laptop.toml");
        let text = fs::read_to_string(&file).expect("a file");
        fs::write(&file, text.replace(from, to)).expect("a file");
    };
    assert_eq!(reload(), "nothing has changed\n");
    append(folder, "laptop.toml", "[[rules]]\nports = \"5000\"\npolicy = \"redundant\"\n");
    assert_eq!(reload(), "rules[0] is new\n");
    change("\"redundant\"", "\"low-latency\"");
    append(folder, "laptop.toml", "[uplinks]\ninterfaces = [\"path0\", \"path1,backup\"]\n");
    assert_eq!(reload(), "rules[0] has changed\nuplink path0 is new\nuplink path1 is new\n");
    change("path1,backup", "path1,metered");
    assert_eq!(reload(), "uplink path1 has changed\n");
    echo(&mut stream, 10_000);
    drop((serving, calling));
}

#[test]
fn a_budget_that_is_added_begins_with_the_reload() {
    if !is_root_or_skip("a budget that is added to a running tunnel") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 600_000);
    append(
        folder,
        "laptop.toml",
        "[uplinks]\ninterfaces = [\"path0,budget=9MB/day\", \"path1,budget=9MB\"]\n",
    );
    must(&mut command(folder, "polypath tunnel reload"));
    let used = || {
        let status = status(folder);
        [0, 1].map(|at| status[0]["budgets"][at]["used_bytes"].as_u64().expect("a count"))
    };
    let [daily, other] = used();
    assert!(daily + other < 300_000, "{daily} and {other} bytes, of what went before");
    echo(&mut stream, 600_000);
    let [daily, other] = used();
    assert!(daily + other > 1_200_000, "{daily} and {other} bytes");

    // What is for a day is on file, though there was none at the start.
    calling.kill();
    let calling = hosts.call();
    hosts.wait_for_paths(2);
    let [again, anew] = used();
    assert!(again >= daily && anew < 300_000, "{again} of {daily}, {anew} of {other} bytes");
    drop((serving, calling));
}

#[test]
fn packets_that_are_pinned_to_no_path_are_told() {
    if !is_root_or_skip("a rule for a path that is not there") {
        return;
    }
    let mut hosts = Hosts::new();
    hosts.up[1].push_str(" 2> said.txt");
    let folder = hosts.laptop.path();
    append(folder, "laptop.toml", "[[rules]]\nports = \"9000\"\nprotocol = \"udp\"\npolicy = \"pinned:7\"\n");
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let send = || {
        let socket = UdpSocket::bind("10.99.0.2:0")?;
        (0..3).try_for_each(|_| socket.send_to(b"lost", "10.99.0.1:9000").map(drop))
    };
    hosts.testbed.client.run(send).expect("the namespace").expect("it is sent");
    let peer = until("the count", || {
        let peer = status(folder)[0]["peers"][0].clone();
        (peer["pinned_dropped_packets"] == 3).then_some(peer)
    });
    assert_eq!(peer["missing_pinned_paths"], serde_json::json!([7]));
    let words = must(&mut command(folder, "polypath tunnel status"));
    assert!(words.contains("pinned packets: 3 dropped; path 7 is not there"), "{words}");
    let expected = "polypath: rules[0] pins packets for ";
    until("the line", || fs::read_to_string(folder.join("said.txt")).ok()?.contains(expected).then_some(()));
    drop((serving, calling));
}

#[test]
fn a_route_that_is_taken_is_the_answer_of_a_reload_and_the_tunnel_goes_on() {
    if !is_root_or_skip("a route that another interface has") {
        return;
    }
    let hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    let ip = |line: &str| {
        let run = || must(Command::new("ip").args(line.split(' ')));
        hosts.testbed.client.run(run).expect("the namespace")
    };
    ip("route add 10.55.0.0/24 dev path0");
    let file = folder.join("laptop.toml");
    let before = fs::read_to_string(&file).expect("a file");
    let with = "allowed-ips = [\"10.54.0.0/24\", \"10.55.0.0/24\", ";
    fs::write(&file, before.replace("allowed-ips = [", with)).expect("a file");
    let refused = command(folder, "polypath tunnel reload").output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let expected = "10.55.0.0/24 can't go through polypath-vpn: another route to it is there";
    assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    assert!(!ip("route show dev polypath-vpn").contains("10.54"), "all stays as it was");
    echo(&mut stream, 10_000);

    ip("route del 10.55.0.0/24 dev path0");
    must(&mut command(folder, "polypath tunnel reload"));
    let routes = ip("route show dev polypath-vpn");
    assert!(routes.contains("10.54.0.0/24") && routes.contains("10.55.0.0/24"), "{routes}");
    echo(&mut stream, 10_000);

    // Who begins with it is told at once.
    drop(calling);
    ip("route add 10.55.0.0/24 dev path0");
    let mut up = command(folder, &hosts.up[1]);
    let refused = hosts.testbed.client.run(|| up.output()).expect("the namespace").expect("it starts");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains(expected), "{refused:?}");
    drop(serving);
}
