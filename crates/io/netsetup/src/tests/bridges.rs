//! Networks behind bridges that others set up while an instance runs, as for containers and virtual machines.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;

/// The bridge, for which its owner has the system forward and translate: what leaves it, and what comes for one port.
const BRIDGE: &str = "ip link add late type bridge; ip addr add 172.30.0.1/24 dev late; ip link set late up
    ip link set port master late up; echo 1 >/proc/sys/net/ipv4/conf/late/forwarding
    nft add table ip others
    nft 'add chain ip others post { type nat hook postrouting priority 100; }'
    nft add rule ip others post ip saddr 172.30.0.0/24 oifname != late masquerade
    nft 'add chain ip others pre { type nat hook prerouting priority -100; }'
    nft add rule ip others pre tcp dport 7070 dnat to 172.30.0.2";

fn listen(at: &Namespace, port: u16) -> TcpListener {
    at.run(|| TcpListener::bind(("0.0.0.0", port))).expect("the namespace").expect("listens")
}

fn reaches(from: &Namespace, to: impl Into<SocketAddr>) -> bool {
    let to = to.into();
    let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(1500));
    from.run(connect).expect("the namespace").is_ok()
}

#[test]
fn bridges_that_come_later_forward_as_their_owners_want() {
    if !is_root_or_skip("bridges of others") {
        return;
    }
    let host = Host::new();
    let tun = host.tun();
    let mut setup = host.apply(&tun, SetupOptions::default()).expect("set-up");
    let (inside, outside) = (Namespace::create().expect("a namespace"), &host.testbed.server);
    host.testbed.client.run(|| Netlink::new()?.add_veth("port", "eth0", Some(&inside))).unwrap().unwrap();
    host.shell(BRIDGE);
    let shell = |at: &Namespace, script: &str| {
        let run = || Command::new("sh").args(["-ec", script]).status();
        assert!(at.run(run).expect("the namespace").expect("the shell").success(), "{script}");
    };
    shell(
        &inside,
        "ip addr add 172.30.0.2/24 dev eth0; ip link set eth0 up; ip route add default via 172.30.0.1",
    );
    shell(outside, "ip route add 172.30.0.0/24 via 10.77.0.1");
    let (_web, _service) = (listen(outside, 7071), listen(&inside, 7072));
    let _published = listen(&inside, 7070);
    for is_router in [false, true] {
        // At once, and when the bridge is known.
        for _ in 0..2 {
            assert!(reaches(&inside, (Testbed::server_v4(0), 7071)), "out, {is_router}");
            assert!(reaches(outside, (Testbed::client_v4(0), 7070)), "in by its port, {is_router}");
            // Nobody is led past the owner's rules because of us.
            assert_eq!(reaches(outside, ([172, 30, 0, 2], 7072)), is_router);
            setup.update().unwrap();
        }
        // Whoever makes the whole system forward answers for that.
        host.shell("echo 1 >/proc/sys/net/ipv4/ip_forward");
        setup.update().unwrap();
    }
    setup.remove().unwrap();
    let values = host.shell("cd /proc/sys/net/ipv4/conf; cat path0/forwarding late/forwarding");
    assert_eq!(values, "1\n1\n", "it is theirs now");
}
