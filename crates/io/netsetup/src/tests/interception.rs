//! Connections of clients that are led to a listener.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use polypath_testbed::is_root_or_skip;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::super::interception::{Intercept, InterceptBy, Interception};
use super::*;

/// Of clients behind an interface, to ports of the Web.
fn web(by: InterceptBy, port: u16) -> Intercept {
    Intercept {
        by,
        at: vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()],
        ports: vec![80..=80, 8000..=8080],
        interfaces: vec!["path0".into()],
        clients: Vec::new(),
    }
}

fn open(host: &Host) -> Interception {
    Interception::open_in(&host.testbed.client, None, host.directory.path()).expect("an interception")
}

#[test]
fn connections_are_intercepted_as_long_as_it_lasts_and_nothing_is_left() {
    if !is_root_or_skip("interception") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let mut interception = open(&host);
    interception.set(vec![web(InterceptBy::Tproxy, 8877)]).expect("it is set");
    let during = host.snapshot();
    for line in [
        "fib daddr type local return",
        "ip saddr 198.18.0.0/18 return",
        "ip6 saddr fd70:6f6c:7970::/48 return",
        "meta nfproto ipv4 iifname \"path0\" tcp dport { 80, 8000-8080 } tproxy ip to 127.0.0.1:8877 meta mark set 0x70700000 accept",
        "meta nfproto ipv6 iifname \"path0\" tcp dport { 80, 8000-8080 } tproxy ip6 to [::1]:8877 meta mark set 0x70700000 accept",
        "socket transparent 1 socket wildcard 1 return",
        "socket transparent 1 meta mark set 0x70700000 accept",
        "from all fwmark 0x70700000 lookup 707000",
        "local default dev lo table 707000 proto static scope host",
        "local default dev lo table 707000 proto static metric 1024",
    ] {
        assert!(during.contains(line), "{line} is not in {during}");
    }
    assert!(!during.contains("type nat"), "{during}");

    interception.set(vec![web(InterceptBy::Redirect, 8878)]).expect("it is set");
    let after = host.snapshot();
    for line in [
        "tcp dport { 80, 8000-8080 } redirect to :8878",
        "ct status dnat accept",
        "tcp dport 8878 reject with tcp reset",
        // For connections that have begun.
        "socket transparent 1 socket wildcard 1 return",
        "socket transparent 1 meta mark set 0x70700000 accept",
    ] {
        assert!(after.contains(line), "{line} is not in {after}");
    }
    assert!(!after.contains("tproxy ip"), "{after}");
    interception.update().expect("the same again");
    assert_eq!(host.snapshot(), after);
    interception.close().expect("it is taken down");
    assert_eq!(host.snapshot(), before);
    assert_eq!(host.directory.path().read_dir().expect("a folder").count(), 0);
}

#[test]
fn what_a_killed_process_intercepted_is_undone() {
    if !is_root_or_skip("interception") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let mut interception = open(&host);
    interception
        .set(vec![web(InterceptBy::Tproxy, 8877), web(InterceptBy::Redirect, 8878)])
        .expect("it is set");
    host.pretend_death();
    let cleared = host.testbed.client.run(|| guardian::clear_in(host.directory.path()));
    cleared.expect("the namespace").expect("it is cleared");
    assert_eq!(host.snapshot(), before);
}

#[test]
fn clients_are_those_behind_interfaces_that_lead_nowhere() {
    if !is_root_or_skip("interception") {
        return;
    }
    let host = Host::new();
    let any = || Intercept { interfaces: Vec::new(), ports: Vec::new(), ..web(InterceptBy::Tproxy, 8877) };
    let mut interception = open(&host);
    let refused = interception.set(vec![any()]).expect_err("both lead to the Internet");
    assert!(matches!(refused, SetupError::NoLan), "{refused}");
    host.shell("ip route del default dev path1");
    interception.set(vec![any()]).expect("it is set");
    assert!(host.snapshot().contains("iifname \"path1\" tproxy ip to"), "{}", host.snapshot());
    host.shell("ip link add lan0 type veth peer name lan1");
    interception.update().expect("it follows");
    let during = host.snapshot();
    assert!(during.contains("iifname { \"lan0\", \"lan1\", \"path1\" } tproxy ip to"), "{during}");

    let network = Intercept { clients: vec![(addr("10.77.0.0"), 24)], ..any() };
    interception.set(vec![network]).expect("it is set");
    let during = host.snapshot();
    assert!(during.contains("iifname != \"polypath*\" ip saddr 10.77.0.0/24 tproxy ip to"), "{during}");
    assert!(!during.contains("tproxy ip6 to"), "{during}");

    let nowhere = Intercept { interfaces: vec!["lan7".into()], ..any() };
    let refused = interception.set(vec![nowhere]).expect_err("it is not there");
    assert!(refused.to_string().contains("there is no interface lan7; present are: path0"), "{refused}");
    assert_eq!(host.snapshot(), during, "what fails changes nothing");
}

/// A listener on the host, for connections to whatever address.
fn listen(host: &Host, at: SocketAddr, is_transparent: bool, protocol: Protocol) -> TcpListener {
    let listen = || {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(protocol))?;
        socket.set_reuse_address(true)?;
        match at {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(is_transparent)?,
            SocketAddr::V6(_) => {
                socket.set_ip_transparent_v6(is_transparent)?;
                socket.set_only_v6(true)?;
            }
        }
        socket.bind(&at.into())?;
        socket.listen(16).map(|()| TcpListener::from(socket))
    };
    host.testbed.client.run(listen).expect("the namespace").expect("a listener")
}

/// One that is lost is no reason to wait for ever.
fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    stream
}

/// A connection from behind the host.
fn connect(host: &Host, to: SocketAddr) -> std::io::Result<TcpStream> {
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(20)).map(patient);
    host.testbed.server.run(connect).expect("the namespace")
}

fn say(mut from: &TcpStream, mut to: &TcpStream, word: &[u8]) {
    from.write_all(word).expect("it is sent");
    let mut heard = vec![0; word.len()];
    to.read_exact(&mut heard).expect("it comes");
    assert_eq!(heard, word);
}

/// A host whose clients are at the other end of its first path, and have no other way to anywhere.
fn router() -> Host {
    let host = Host::new();
    let routes = || {
        let script = "ip route add default via 10.77.0.1; ip -6 route add default via fd77::1";
        Command::new("sh").args(["-ec", script]).status()
    };
    assert!(host.testbed.server.run(routes).expect("the namespace").expect("the shell").success());
    host
}

/// Where nobody is.
const ELSEWHERE: [&str; 2] = ["192.0.2.9:80", "[2001:db8::9]:80"];

#[test]
fn what_is_handed_over_has_its_own_destination_and_lives_on_when_the_rules_change() {
    if !is_root_or_skip("interception") {
        return;
    }
    let host = router();
    let mut interception = open(&host);
    for protocol in [Protocol::TCP, Protocol::MPTCP] {
        let of = web(InterceptBy::Tproxy, 8877);
        let listeners: Vec<_> = of.at.iter().map(|at| listen(&host, *at, true, protocol)).collect();
        interception.set(vec![of]).expect("it is set");
        for (listener, to) in listeners.iter().zip(ELSEWHERE) {
            let to: SocketAddr = to.parse().expect("an address");
            let client = connect(&host, to).expect("somebody takes it");
            let (server, _) = listener.accept().expect("it comes");
            let server = patient(server);
            assert_eq!(server.local_addr().expect("its address"), to);
            say(&client, &server, b"asked");
            say(&server, &client, b"answered");

            let others = Intercept { ports: vec![81..=81], ..web(InterceptBy::Tproxy, 8877) };
            interception.set(vec![others]).expect("it is set");
            say(&client, &server, b"still there");
            interception.set(Vec::new()).expect("it is set");
            say(&server, &client, b"and still");
            interception.set(vec![web(InterceptBy::Tproxy, 8877)]).expect("it is set");
        }
    }
}

#[test]
fn what_is_redirected_knows_its_destination_and_nobody_else_reaches_the_listener() {
    if !is_root_or_skip("interception") {
        return;
    }
    let host = router();
    let mut interception = open(&host);
    let of = web(InterceptBy::Redirect, 8878);
    let everywhere: [SocketAddr; 2] =
        [(Ipv4Addr::UNSPECIFIED, 8878).into(), (Ipv6Addr::UNSPECIFIED, 8878).into()];
    let listeners = everywhere.map(|at| listen(&host, at, false, Protocol::TCP));
    interception.set(vec![of]).expect("it is set");
    for (listener, to) in listeners.iter().zip(ELSEWHERE) {
        let to: SocketAddr = to.parse().expect("an address");
        let client = connect(&host, to).expect("somebody takes it");
        let (server, _) = listener.accept().expect("it comes");
        let server = patient(server);
        let asked = SockRef::from(&server);
        let original = if to.is_ipv4() { asked.original_dst_v4() } else { asked.original_dst_v6() };
        assert_eq!(original.expect("it is known").as_socket(), Some(to));
        say(&client, &server, b"asked");
        interception.set(Vec::new()).expect("it is set");
        say(&server, &client, b"answered");
        interception.set(vec![web(InterceptBy::Redirect, 8878)]).expect("it is set");
    }
    for own in ["10.77.0.1:8878", "[fd77::1]:8878"] {
        let refused = connect(&host, own.parse().expect("an address")).expect_err("nobody may");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{own}");
    }
}
