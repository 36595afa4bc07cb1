//! Peers that come and move while a tunnel runs.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use polypath_system::Netlink;
use polypath_testbed::{Testbed, is_root_or_skip};

use super::hosts::{
    Hosts, INSIDE, append, attach, command, connect, echo, must, path_over, start, status, until, used_paths,
};

#[test]
fn a_running_server_takes_a_new_peer() {
    if !is_root_or_skip("a peer that is added to a running tunnel") {
        return;
    }
    let hosts = Hosts::new();
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    let handshake = || status(hosts.server.path())[0]["peers"][0]["keys_age_seconds"].as_f64().expect("keys");
    let before = handshake();

    let folder = hosts.server.path();
    let line = "polypath tunnel add-peer server.toml --label second --out second.toml";
    let added = command(folder, line).output().expect("it starts");
    let said = String::from_utf8_lossy(&added.stderr);
    assert!(said.contains("added 10.99.0.3 to server.toml; polypath-vpn has taken it"), "{said}");
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let second = attach(&hosts.testbed.server, "cable0", address("10.78.0.1"), address("10.78.0.2"));
    let lead =
        || Netlink::new()?.add_route("eth0", (address("0.0.0.0"), 0), Some(address("10.78.0.1")), None);
    second.run(lead).expect("the namespace").expect("a route");
    let place = tempfile::tempdir().expect("a folder");
    fs::copy(folder.join("second.toml"), place.path().join("second.toml")).expect("a file");
    let also_calling = start(&second, &mut command(place.path(), "polypath tunnel up second.toml"));
    until("the new peer's path", || (used_paths(place.path()) > 0).then_some(()));
    let beside = SocketAddr::new(INSIDE.ip(), INSIDE.port() + 1);
    echo(&mut connect(&second, &hosts.testbed.server, beside).0, 10_000);

    // The other's session has not begun anew.
    echo(&mut stream, 10_000);
    assert!(handshake() >= before, "{} s, and {before} s before", handshake());

    // It is taken out again.
    let file = folder.join("server.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let (without, _) = text.split_at(text.rfind("[[peers]]").expect("a peer"));
    fs::write(&file, without).expect("a file");
    assert_eq!(must(&mut command(folder, "polypath tunnel reload")), "second is gone\n");
    assert_eq!(status(folder)[0]["peers"].as_array().map(Vec::len), Some(1));
    echo(&mut stream, 10_000);
    fs::write(&file, "wrong").expect("a file");
    let refused = command(folder, "polypath tunnel reload").output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    echo(&mut stream, 10_000);
    drop((serving, calling, also_calling));
}

#[test]
fn a_name_is_looked_up_again_when_the_peer_is_silent() {
    if !is_root_or_skip("a server whose address changes") {
        return;
    }
    let mut hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let file = folder.join("laptop.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let (before, after) = (text.find("endpoints").expect("a key"), text.find("allowed-ips").expect("a key"));
    let text = format!("{}endpoints = [\"vpn.test\"]\n{}", &text[..before], &text[after..]);
    fs::write(&file, text).expect("a file");
    let names = folder.join("hosts");
    let name = |path| fs::write(&names, format!("{} vpn.test\n", Testbed::server_v4(path))).expect("a file");
    name(0);
    // A view of the file system in which names are known by that file.
    let program = env!("CARGO_BIN_EXE_polypath");
    let script = format!("mount --bind hosts /etc/hosts && exec {program} tunnel up laptop.toml");
    hosts.up[1] = format!("unshare --mount bash -c '{script}'");
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(1);
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    assert_eq!(path_over(&status(hosts.laptop.path()), "path0")["state"], "used");

    let gone = || Netlink::new()?.remove_address("path0", Testbed::server_v4(0).into());
    hosts.testbed.server.run(gone).expect("the namespace").expect("the address goes");
    name(1);
    echo(&mut stream, 10_000);
    assert_eq!(path_over(&status(hosts.laptop.path()), "path1")["state"], "used");
    drop((serving, calling));
}

#[test]
fn a_name_that_nobody_knows_holds_up_neither_other_peers_nor_the_end() {
    if !is_root_or_skip("a name server that does not answer") {
        return;
    }
    let mut hosts = Hosts::new();
    let folder = hosts.laptop.path();
    let bind = || UdpSocket::bind((Testbed::server_v4(0), 53));
    let mute = hosts.testbed.server.run(bind).expect("the namespace").expect("a socket");
    fs::write(folder.join("names"), format!("nameserver {}\noptions timeout:30\n", Testbed::server_v4(0)))
        .expect("a file");
    let keys = must(&mut command(folder, "polypath tunnel keygen"));
    let public = keys.lines().find(|line| line.starts_with("public-key")).expect("a key");
    let peer = format!("{public}\nendpoints = [\"slow.test\"]\nallowed-ips = [\"10.98.0.0/24\"]\n");
    append(folder, "laptop.toml", &format!("[[peers]]\nname = \"slow\"\n{peer}"));
    let program = env!("CARGO_BIN_EXE_polypath");
    let script = format!("mount --bind names /etc/resolv.conf && exec {program} tunnel up laptop.toml");
    hosts.up[1] = format!("unshare --mount bash -c '{script}'");
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    mute.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    mute.recv(&mut [0; 512]).expect("the name is asked for");
    must(&mut command(hosts.laptop.path(), "polypath tunnel down"));
    drop((serving, calling));
}
