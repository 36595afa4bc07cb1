//! Files, and what is wrong with them. Needs no root, but for a port.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::Stdio;

use polypath_testbed::is_root_or_skip;
use socket2::{Domain, Socket, Type};

use super::hosts::{Hosts, command, must};

#[test]
fn a_peers_file_is_drawn_and_addresses_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    must(&mut command(
        folder,
        "polypath tunnel keygen server.toml --endpoint vpn.test --address 10.99.0.1/30",
    ));
    let file = folder.join("server.toml");
    let text = fs::read_to_string(&file).expect("a file");
    fs::write(&file, format!("# Mine.\n{text}")).expect("a file");
    let line = "polypath tunnel add-peer server.toml --label phone --wireguard --dns 10.99.0.1 --qr";
    let drawn = must(&mut command(folder, line));
    let (text, code) = drawn.split_once("PersistentKeepalive = 25\n").expect("WireGuard's file");
    assert!(text.contains("Address = 10.99.0.2/30\nDNS = 10.99.0.1\nMTU = 1400\n"), "{text}");
    let widths: Vec<_> = code.lines().map(|line| line.chars().count()).collect();
    assert!(widths.len() > 20 && widths.iter().all(|width| *width == widths[0]), "{code}");
    // A file that can't be written leaves no peer behind.
    let before = fs::read_to_string(&file).expect("a file");
    let line = "polypath tunnel add-peer server.toml --out server.toml";
    assert!(!command(folder, line).output().expect("it starts").status.success());
    assert_eq!(fs::read_to_string(&file).expect("a file"), before);
    // What people wrote stays.
    let text = fs::read_to_string(&file).expect("a file");
    assert!(text.starts_with("# Mine.\n") && text.contains("name = \"phone\""), "{text}");

    // Each has a name of its own.
    for (label, expected) in [
        ("phone", "--label: a peer of server.toml is called \"phone\" already: expected another name"),
        ("''", "--label: is empty: expected what the peer is called"),
        ("' '", "--label: is empty"),
    ] {
        let line = format!("polypath tunnel add-peer server.toml --label {label}");
        let refused = command(folder, &line).output().expect("it starts");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(fs::read_to_string(&file).expect("a file"), text);

    let full = command(folder, "polypath tunnel add-peer server.toml").output().expect("it starts");
    let said = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(2), "{full:?}");
    assert!(said.contains("server.toml, interface.addresses: no address of 10.99.0.1/30 is free"), "{said}");
}

#[test]
fn mistakes_are_one_clear_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |line: &str| {
        let output = command(folder.path(), line).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    fs::write(folder.path().join("wrong.toml"), "[interface]\nprivate-key = \"x\"\naddresses = []\n")
        .expect("a file");
    assert!(
        said("polypath tunnel up wrong.toml").contains("wrong.toml, interface.private-key: expected a key")
    );
    assert!(said("polypath tunnel up none.toml").contains("none.toml: No such file"));
    for endpoint in ["'[2001:db8::1]'", "'foo bar'", "vpn:0"] {
        let line = format!("polypath tunnel keygen server.toml --endpoint {endpoint}");
        let message = said(&line);
        assert!(
            message.contains("--endpoint: \"") && message.contains("\" is no endpoint: expected a host"),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    must(&mut command(folder.path(), "polypath tunnel keygen server.toml"));
    assert!(said("polypath tunnel keygen server.toml").contains("is there already"));
    assert!(said("polypath tunnel add-peer server.toml").contains("interface.endpoints: none"));
}

#[test]
fn a_port_that_another_has_is_told_for_both_families() {
    if !is_root_or_skip("a port of IPv6 that is taken") {
        return;
    }
    let hosts = Hosts::new();
    let taken = || {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
        socket.set_only_v6(true)?;
        socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 51_820)).into()).map(|()| socket)
    };
    let taken = hosts.testbed.server.run(taken).expect("the namespace").expect("a socket");
    let mut up = command(hosts.server.path(), &hosts.up[0]);
    let refused = hosts.testbed.server.run(|| up.output()).expect("the namespace").expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said.contains("can't use UDP port 51820: Address") && said.lines().count() == 1, "{said}");
    drop(taken);
}

#[test]
fn peers_that_are_added_at_once_are_all_there() {
    let folder = tempfile::tempdir().expect("a folder");
    must(&mut command(folder.path(), "polypath tunnel keygen server.toml --endpoint vpn.test"));
    let add = |number: u32| {
        let line =
            format!("polypath tunnel add-peer server.toml --label peer{number} --out peer{number}.toml");
        command(folder.path(), &line).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    for adding in (0..8).map(add).collect::<Vec<_>>() {
        let output = adding.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
    }
    let server = fs::read_to_string(folder.path().join("server.toml")).expect("a file");
    let mut own: Vec<_> = server.lines().filter(|line| line.starts_with("allowed-ips")).collect();
    own.sort();
    own.dedup();
    assert_eq!(own.len(), 8, "{server}");
    for number in 0..8 {
        assert!(server.contains(&format!("name = \"peer{number}\"")), "{server}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 9, "nothing else is left");
}
