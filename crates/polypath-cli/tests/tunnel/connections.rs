//! Connections through a tunnel, whatever becomes of its paths and ends.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use polypath_system::Netlink;
use polypath_testbed::is_root_or_skip;
use serde_json::Value;
use socket2::SockRef;

use super::hosts::{Hosts, append, attach, command, connect, echo, host, must, status, until};

#[test]
fn four_commands_make_a_tunnel_that_outlives_a_path() {
    if !is_root_or_skip("a tunnel between two machines") {
        return;
    }
    let hosts = Hosts::new();
    let running = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 3_000_000);

    // What the kernel does not take is counted.
    let unsent = || status(hosts.laptop.path())[0]["lost"]["unsent_datagrams"].as_u64().expect("a count");
    let before = unsent();
    let refuse = "nft add table inet t; nft add chain inet t o '{ type filter hook output priority 0; }'; \
                  nft add rule inet t o oifname path1 udp dport 51820 drop";
    let refused = hosts.testbed.client.run(|| Command::new("sh").args(["-c", refuse]).status());
    assert!(refused.expect("the namespace").expect("it starts").success());
    until("a datagram that is not taken", || {
        echo(&mut stream, 100_000);
        (unsent() > before).then_some(())
    });
    let again = hosts.testbed.client.run(|| Command::new("nft").args(["flush", "ruleset"]).status());
    assert!(again.expect("the namespace").expect("it starts").success());
    hosts.wait_for_paths(2);

    hosts.set_up(0, false);
    echo(&mut stream, 1_000_000);
    hosts.wait_for_paths(1);

    // What is stopped leaves nothing.
    must(&mut command(hosts.laptop.path(), "polypath tunnel down"));
    until("the end", || {
        let link = hosts.testbed.client.run(|| Netlink::new()?.link_index("polypath-vpn"));
        link.expect("the namespace").is_err().then_some(())
    });
    assert_eq!(status(hosts.laptop.path()), Value::Array(Vec::new()));
    drop(running);
}

#[test]
fn connections_go_on_when_a_killed_end_starts_again() {
    if !is_root_or_skip("tunnels that are killed") {
        return;
    }
    let hosts = Hosts::new();
    let (laptop, server) = (&hosts.testbed.client, &hosts.testbed.server);
    // Interfaces that were down have lost their addresses of IPv6: they go before the first look.
    for (path, is_up) in [(0, false), (1, false), (0, true), (1, true)] {
        hosts.set_up(path, is_up);
    }
    let before = [laptop, server].map(host);
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 100_000);

    calling.kill();
    assert_eq!(host(laptop), before[0], "what a killed tunnel left");
    let calling = hosts.call();
    echo(&mut stream, 1_000_000);
    hosts.wait_for_paths(2);

    serving.kill();
    assert_eq!(host(server), before[1], "what a killed tunnel left");
    let serving = hosts.serve();
    echo(&mut stream, 1_000_000);

    // Both paths are pulled for some seconds while data flows.
    let moving = thread::spawn(move || {
        echo(&mut stream, 1_000_000);
        stream
    });
    for path in 0..2 {
        hosts.set_up(path, false);
    }
    thread::sleep(Duration::from_secs(3));
    for path in 0..2 {
        hosts.set_up(path, true);
    }
    let mut stream = moving.join().expect("the connection goes on");
    echo(&mut stream, 100_000);
    drop((serving, calling, stream));
    until("the end", || (host(laptop) == before[0] && host(server) == before[1]).then_some(()));
}

#[test]
fn what_paths_lose_is_rebuilt() {
    if !is_root_or_skip("a tunnel that loses packets") {
        return;
    }
    let hosts = Hosts::new();
    let rule = "[[rules]]\nprotocol = \"tcp\"\npolicy = \"aggregate\"\nfec = true\n";
    append(hosts.laptop.path(), "laptop.toml", rule);
    let _running = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    let lose = "nft add table inet t; nft add chain inet t i '{ type filter hook input priority 0; }'; \
                nft add rule inet t i udp dport 51820 numgen inc mod 25 0 drop";
    let loses = hosts.testbed.server.run(|| Command::new("sh").args(["-c", lose]).status());
    assert!(loses.expect("the namespace").expect("it starts").success());
    let count = |folder: &Path, name: &str| status(folder)[0]["peers"][0][name].as_u64().expect("a count");
    until("a packet that is rebuilt", || {
        echo(&mut stream, 200_000);
        (count(hosts.server.path(), "rebuilt_packets") > 0).then_some(())
    });
    assert!(count(hosts.laptop.path(), "repair_packets_sent") > 0);
    // The server's file has no such rule.
    assert_eq!(count(hosts.server.path(), "repair_packets_sent"), 0);
    let words = must(&mut command(hosts.server.path(), "polypath tunnel status"));
    assert!(words.contains("packets rebuilt"), "{words}");
}

#[test]
fn a_lan_reaches_the_internet_through_both_ends_and_on_after_a_kill() {
    if !is_root_or_skip("a LAN behind a tunnel") {
        return;
    }
    let hosts = Hosts::new();
    let (laptop, server) = (&hosts.testbed.client, &hosts.testbed.server);
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let in_lan = attach(laptop, "lan0", address("192.168.7.1"), address("192.168.7.2"));
    // It has no route back, neither to the tunnel nor to the LAN.
    let internet = attach(server, "wan0", address("203.0.113.1"), address("203.0.113.2"));
    let lead =
        || Netlink::new()?.add_route("eth0", (address("0.0.0.0"), 0), Some(address("192.168.7.1")), None);
    in_lan.run(lead).expect("the namespace").expect("a route");
    append(hosts.server.path(), "server.toml", "[forward]\ninternet = true\n");
    append(hosts.laptop.path(), "laptop.toml", "[forward]\nlan = [\"lan0\"]\n");
    let file = hosts.laptop.path().join("laptop.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let routes = "allowed-ips = [\"10.99.0.0/24\", \"203.0.113.0/24\"]";
    fs::write(&file, text.replace("allowed-ips = [\"10.99.0.0/24\"]", routes)).expect("a file");

    let before = [laptop, server].map(host);
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let place: SocketAddr = ([203, 0, 113, 2], 7_000).into();
    let (mut stream, peer) = connect(&in_lan, &internet, place);
    assert_eq!(peer.ip(), address("203.0.113.1"), "the server's address is seen");
    echo(&mut stream, 1_000_000);
    let mss = SockRef::from(&stream).tcp_mss().expect("a connection");
    assert!(mss <= 1_360, "segments of {mss} bytes do not fit into the tunnel");
    // A connection goes on when either end is killed and starts again.
    calling.kill();
    let calling = hosts.call();
    echo(&mut stream, 100_000);
    serving.kill();
    let serving = hosts.serve();
    echo(&mut stream, 100_000);

    // What is left is undone by `down`.
    calling.kill();
    serving.kill();
    assert!(host(laptop).contains("polypath-tunnel-polypath-vpn"), "{}", host(laptop));
    // From elsewhere nothing of it can be reached, and nobody is told that it could.
    let elsewhere = server.run(|| command(hosts.laptop.path(), "polypath tunnel down polypath-vpn").output());
    let said = elsewhere.expect("the namespace").expect("it starts");
    assert!(
        !said.status.success()
            && String::from_utf8_lossy(&said.stderr).contains("in another network namespace"),
        "{said:?}"
    );
    for (namespace, folder) in [(laptop, &hosts.laptop), (server, &hosts.server)] {
        let down = namespace.run(|| command(folder.path(), "polypath tunnel down polypath-vpn").output());
        let said = down.expect("the namespace").expect("it starts");
        assert!(String::from_utf8_lossy(&said.stderr).contains("had been killed"), "{said:?}");
    }
    assert_eq!([laptop, server].map(host), before);
}
