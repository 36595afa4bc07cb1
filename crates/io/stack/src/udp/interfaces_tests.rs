//! Interfaces that are not there, or not any more.

use std::process::Command;

use polypath_testbed::{Testbed, is_root_or_skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::engine::ConnectOptions;
use crate::stack::StackStream;

const PORT: u16 = 443;

/// A client with paths over these interfaces.
fn options(interfaces: &[&str]) -> UdpOptions {
    let path = |name: &&str| UdpPath { interface: Some((*name).into()), ..UdpPath::default() };
    UdpOptions {
        paths: interfaces.iter().map(path).collect(),
        keep_alive: Some(Duration::from_millis(60)),
        ..UdpOptions::default()
    }
}

/// Plugs a modem in: it leads to the server's first address too.
fn plug_in(testbed: &Testbed) {
    let client = || {
        let netlink = Netlink::new()?;
        netlink.add_veth("usb0", "usb1", Some(&testbed.server))?;
        netlink.add_address("usb0", [10, 77, 9, 1].into(), 24)?;
        netlink.set_up("usb0")
    };
    testbed.client.run(client).expect("enters").expect("an interface");
    let server = || {
        let netlink = Netlink::new()?;
        netlink.add_address("usb1", [10, 77, 9, 2].into(), 24)?;
        netlink.set_up("usb1")
    };
    testbed.server.run(server).expect("enters").expect("an interface");
    let route = ["route", "add", "10.77.0.2", "via", "10.77.9.2", "dev", "usb0", "metric", "9"];
    let added = testbed.client.run(|| Command::new("ip").args(route).status());
    assert!(added.expect("enters").expect("runs").success());
}

fn unplug(testbed: &Testbed) {
    testbed.client.run(|| Netlink::new()?.remove_link("usb0")).expect("enters").expect("it was there");
}

fn server(testbed: &Testbed) -> Stack {
    for interfaces in ["all", "default", "path0"] {
        testbed
            .server
            .set_variable(&format!("net/ipv4/conf/{interfaces}/rp_filter"), "0")
            .expect("a variable");
    }
    Stack::udp(&testbed.server, &UdpOptions::server()).expect("a stack")
}

async fn pair(client: &Stack, server: &Stack) -> (StackStream, StackStream) {
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let as_usual = ConnectOptions::default();
    let to = (Testbed::server_v4(0), PORT).into();
    let (connected, accepted) = tokio::join!(client.connect(to, &as_usual), listener.accept());
    (connected.expect("connects"), accepted.expect("is accepted").0)
}

async fn exchange(from: &mut StackStream, to: &mut StackStream, len: usize) {
    let mut received = vec![0; len];
    let content = vec![7; len];
    let (sent, got) = tokio::join!(from.write_all(&content), to.read_exact(&mut received));
    sent.expect("writes");
    got.expect("reads");
}

/// Whatever a path of the client has carried.
fn carried(stream: &StackStream, path: u8) -> u64 {
    let subflows = stream.connection_info().expect("it lives").subflows;
    let of_path = subflows.iter().filter(|subflow| subflow.tuple.local.addr == OwnPath(path).addr());
    of_path.map(|subflow| subflow.tcp.bytes_acked).sum()
}

/// Sends until a path has carried more than before.
async fn until_used(near: &mut StackStream, far: &mut StackStream, path: u8) {
    let before = carried(near, path);
    while carried(near, path) <= before {
        exchange(near, far, 1 << 20).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn without_any_of_its_interfaces_a_stack_does_not_start() {
    let here = Namespace::current().expect("this one");
    let error = Stack::udp(&here, &options(&["none0", "none1"])).expect_err("they are not there");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.starts_with("can't use the interface none0: No such device"), "{text}");
}

#[tokio::test]
async fn an_interface_that_goes_and_comes_again_carries_the_connection_on() {
    if !is_root_or_skip("an interface that comes again") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    let server = server(&testbed);
    plug_in(&testbed);
    let client = Stack::udp(&testbed.client, &options(&["usb0"])).expect("a stack");
    let (mut near, mut far) = pair(&client, &server).await;
    exchange(&mut near, &mut far, 100_000).await;
    for _ in 0..2 {
        unplug(&testbed);
        plug_in(&testbed);
        exchange(&mut near, &mut far, 1 << 20).await;
        exchange(&mut far, &mut near, 1 << 20).await;
    }
    // And a new connection can be opened.
    drop((near, far));
    let (mut near, mut far) = pair(&client, &server).await;
    exchange(&mut near, &mut far, 100_000).await;
}

#[tokio::test]
async fn an_interface_that_is_missing_at_first_is_used_once_it_comes() {
    if !is_root_or_skip("an interface that comes late") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    let server = server(&testbed);
    let client = Stack::udp(&testbed.client, &options(&["path0", "usb0"])).expect("the first is there");
    assert_eq!(client.paths().len(), 1);
    let (mut near, mut far) = pair(&client, &server).await;
    exchange(&mut near, &mut far, 1 << 20).await;
    for _ in 0..2 {
        plug_in(&testbed);
        until_used(&mut near, &mut far, 2).await;
        assert_eq!(client.paths().len(), 2);
        unplug(&testbed);
        exchange(&mut near, &mut far, 1 << 20).await;
    }
}

#[tokio::test]
async fn an_uplink_that_comes_after_the_start_is_used() {
    if !is_root_or_skip("an uplink that comes late") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    let server = server(&testbed);
    let route = |via: &str, dev: &str, metric: &str| {
        let route = ["route", "add", "default", "via", via, "dev", dev, "metric", metric];
        let added = testbed.client.run(|| Command::new("ip").args(route).status());
        assert!(added.expect("enters").expect("runs").success());
    };
    let first = Testbed::interface(0);
    route(&Testbed::server_v4(0).to_string(), &first, "100");
    let mut options = UdpOptions { keep_alive: Some(Duration::from_millis(60)), ..UdpOptions::default() };
    options.use_uplinks(&testbed.client).expect("a choice");
    let client = Stack::udp(&testbed.client, &options).expect("a stack");
    assert_eq!(client.paths().len(), 1);
    let (mut near, mut far) = pair(&client, &server).await;
    exchange(&mut near, &mut far, 1 << 20).await;
    for _ in 0..2 {
        plug_in(&testbed);
        route("10.77.9.2", "usb0", "200");
        until_used(&mut near, &mut far, 2).await;
        let names = client.paths().iter().map(|path| client.path_name(path.addr)).collect::<Vec<_>>();
        assert_eq!(names, [Some(first.clone()), Some("usb0".into())]);
        unplug(&testbed);
        exchange(&mut near, &mut far, 1 << 20).await;
    }
}

#[tokio::test]
async fn that_the_kernel_has_no_route_is_known_until_it_has_one() {
    if !is_root_or_skip("routes") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    let runtime = tokio::runtime::Handle::current();
    let port = testbed.client.run(|| {
        let _entered = runtime.enter();
        Port::open(true, 0, None, None)
    });
    let port = port.expect("enters").expect("a socket");
    let send = |to: IpAddr| port.send((to, 9).into(), None, b"x", None).expect("that is not fatal");
    assert!(!port.has_no_route());
    send([192, 0, 2, 1].into());
    // Whoever asks second is told, too.
    assert!(port.has_no_route() && port.has_no_route());
    send(Testbed::server_v4(0).into());
    assert!(!port.has_no_route());
}

#[tokio::test]
async fn the_path_that_follows_routes_has_the_name_of_the_interface_where_they_lead() {
    if !is_root_or_skip("a default route that moves") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    plug_in(&testbed);
    let ip = |words: &str| {
        let run = testbed.client.run(|| Command::new("ip").args(words.split(' ')).status());
        assert!(run.expect("enters").expect("runs").success(), "ip {words}");
    };
    let first = Testbed::interface(0);
    let route = format!("route add default via {} dev {first} metric 100", Testbed::server_v4(0));
    ip(&route);
    ip("route add default via 10.77.9.2 dev usb0 metric 200");
    let mut options = UdpOptions::default();
    options.use_uplinks(&testbed.client).expect("a choice");
    let client = Stack::udp(&testbed.client, &options).expect("a stack");
    let are_called = async |expected: [&str; 2]| {
        let expected = expected.map(|name| Some(name.to_owned()));
        let names = || client.paths().iter().map(|path| client.path_name(path.addr)).collect::<Vec<_>>();
        while names() != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    are_called([&first, "usb0"]).await;
    ip(&format!("link set {first} down"));
    are_called(["usb0", "usb0"]).await;
    ip(&format!("link set {first} up"));
    ip(&route);
    are_called([&first, "usb0"]).await;
}

#[tokio::test]
async fn a_connection_starts_where_its_options_say() {
    if !is_root_or_skip("connections from an address of the host") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    let server = server(&testbed);
    plug_in(&testbed);
    let client = Stack::udp(&testbed.client, &options(&["path0", "usb0"])).expect("a stack");
    let _listener = server.listen((Testbed::server_v4(0), PORT).into()).expect("a listener");
    for (local, own) in [([10, 77, 9, 1], 2), (Testbed::client_v4(0).octets(), 1)] {
        let options = ConnectOptions { local: Some((local, 0).into()), ..ConnectOptions::default() };
        let near = client.connect((Testbed::server_v4(0), PORT).into(), &options).await.expect("connects");
        assert_eq!(near.local_addr().expect("it lives").ip(), OwnPath(own).addr());
    }
    let options = ConnectOptions { local: Some(([192, 0, 2, 9], 0).into()), ..ConnectOptions::default() };
    let error = client.connect((Testbed::server_v4(0), PORT).into(), &options).await.expect_err("no path's");
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    let expected = "can't connect from 192.0.2.9: expected an address of a path's interface: path0, usb0";
    assert_eq!(error.to_string(), expected);
}
