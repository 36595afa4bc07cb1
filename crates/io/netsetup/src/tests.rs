//! Set-up in namespaces: what is there before is there afterwards, and nothing else.

use std::net::Ipv4Addr;
use std::process::Command;

use polypath_system::tun::{Tun, TunConfig};
use polypath_testbed::{Testbed, is_root_or_skip};

use super::*;

mod bridges;
mod gateway;
mod interception;
mod outages;
mod planning;
mod records;

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A client with two uplinks to a server, which are all that it has.
struct Host {
    testbed: Testbed,
    directory: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let testbed = Testbed::new(2).expect("namespaces");
        testbed
            .client
            .run(|| {
                let netlink = Netlink::new()?;
                for path in 0..2 {
                    let link = Testbed::interface(path);
                    // Two default routes need two metrics; that is how systems set them up.
                    let gateway = Testbed::server_v4(path);
                    let metric = (100 + u32::from(path)).to_string();
                    let args = [
                        "route",
                        "add",
                        "default",
                        "via",
                        &gateway.to_string(),
                        "dev",
                        &link,
                        "metric",
                        &metric,
                    ];
                    assert!(Command::new("ip").args(args).status()?.success());
                }
                drop(netlink);
                Ok::<_, io::Error>(())
            })
            .unwrap()
            .unwrap();
        Self { testbed, directory: tempfile::tempdir().expect("a directory") }
    }

    /// Everything that set-up may touch, as text.
    fn snapshot(&self) -> String {
        let commands = [
            "ip -o link",
            "ip rule",
            "ip -6 rule",
            "ip route show table all",
            "ip -6 route show table all",
            "nft list ruleset",
            "grep -H . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding",
            "grep -H . /proc/sys/net/ipv4/conf/*/forwarding /proc/sys/net/ipv6/conf/*/force_forwarding",
        ];
        let run = |command: &&str| {
            let output = Command::new("sh").args(["-c", command]).output().expect("the shell");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        self.testbed.client.run(|| commands.iter().map(run).collect::<Vec<_>>().join("\n")).unwrap()
    }

    /// As [`Host::snapshot`] was. A child that another test is just starting may hold a device until it has become its program.
    fn assert_becomes(&self, before: &str) {
        for _ in 0..100 {
            if self.snapshot() == before {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(self.snapshot(), before);
    }

    fn shell(&self, script: &str) -> String {
        let run = || Command::new("sh").args(["-ec", script]).output().expect("the shell");
        let output = self.testbed.client.run(run).unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes the directory's files name a process that is not there, as if this one had died.
    fn pretend_death(&self) {
        for entry in std::fs::read_dir(self.directory.path()).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let pid = format!("\"pid\": {}", std::process::id());
            assert!(text.contains(&pid), "{text}");
            std::fs::write(&path, text.replace(&pid, "\"pid\": 4194305")).unwrap();
        }
    }

    fn tun(&self) -> Tun {
        self.testbed.client.run(|| Tun::create(&TunConfig::default())).unwrap().expect("a TUN device")
    }

    fn apply(&self, tun: &Tun, options: SetupOptions) -> Result<NetworkSetup, SetupError> {
        NetworkSetup::apply_with(&self.testbed.client, tun, options, None, self.directory.path())
    }
}

#[test]
fn two_instances_come_and_go_and_leave_nothing() {
    if !is_root_or_skip("network set-up") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let (first_tun, second_tun) = (host.tun(), host.tun());
    let options = SetupOptions { exposed_ports: vec![80], ..SetupOptions::default() };
    let first = host.apply(&first_tun, options).expect("the first");
    let second = host.apply(&second_tun, SetupOptions::default()).expect("the second");
    assert_eq!((first.slot(), second.slot()), (0, 1));
    assert_eq!(first.paths().len(), 2);
    let during = host.snapshot();
    for part in [
        "198.18.0.2 dev polypath0",
        "198.18.1.1 dev polypath1",
        "snat ip to 10.77.0.1",
        "dnat ip to 198.18.0.1:80",
        "lookup 707001",
    ] {
        assert!(during.contains(part), "{part} is missing in\n{during}");
    }
    first.remove().expect("removes everything");
    let forwarding = "cat /proc/sys/net/ipv4/conf/path0/forwarding /proc/sys/net/ipv4/ip_forward";
    assert_eq!(host.shell(forwarding), "1\n0\n", "the second needs it still, and nobody else does");
    drop(second);
    drop((first_tun, second_tun));
    host.assert_becomes(&before);
}

#[test]
fn an_uplink_that_goes_and_comes_back_is_followed() {
    if !is_root_or_skip("following uplinks") {
        return;
    }
    let host = Host::new();
    let tun = host.tun();
    let mut setup = host.apply(&tun, SetupOptions::default()).expect("set-up");
    assert_eq!(setup.update().unwrap(), PathChanges::default());
    let set = |up: bool| {
        let netlink = Netlink::new()?;
        if up { netlink.set_up("path1") } else { netlink.set_down("path1") }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut watch = Watch::new(&host.testbed.client).expect("a watch");
        host.testbed.client.run(|| set(false)).unwrap().unwrap();
        watch.changed().await.expect("a change");
    });
    let gone = setup.update().unwrap();
    let removed = ["198.18.0.2", "fd70:6f6c:7970::2"].map(addr).to_vec();
    assert_eq!((gone.removed, gone.added), (removed, vec![]));
    host.testbed.client.run(|| set(true)).unwrap().unwrap();
    let add = ["route", "add", "default", "via", "10.77.1.2", "dev", "path1", "metric", "101"];
    host.testbed.client.run(|| Command::new("ip").args(add).status()).unwrap().unwrap();
    let back = setup.update().unwrap();
    assert_eq!(
        back.added.iter().map(|path| path.stack_v4).collect::<Vec<_>>(),
        [Some(Ipv4Addr::new(198, 18, 0, 2))]
    );
    assert!(back.removed.is_empty());
}

#[test]
fn without_uplinks_the_error_says_so_and_nothing_is_left() {
    if !is_root_or_skip("no uplinks") {
        return;
    }
    let host = Host::new();
    let flush = ["-c", "ip addr flush dev path0; ip addr flush dev path1"];
    host.testbed.client.run(|| Command::new("sh").args(flush).status()).unwrap().unwrap();
    let before = host.snapshot();
    let tun = host.tun();
    assert!(matches!(host.apply(&tun, SetupOptions::default()), Err(SetupError::NoUplink)));
    // Named beside one that is there, too.
    let options = SetupOptions { uplinks: vec!["eth0".into(), "lo".into()], ..SetupOptions::default() };
    assert!(matches!(host.apply(&tun, options), Err(SetupError::Loopback { name, .. }) if name == "lo"));
    drop(tun);
    host.assert_becomes(&before);
}

#[test]
fn what_changes_nothing_for_the_stack_leaves_its_paths_alone() {
    if !is_root_or_skip("paths that go on") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let tun = host.tun();
    let mut setup =
        host.apply(&tun, SetupOptions { exposed_ports: vec![80], ..SetupOptions::default() }).unwrap();
    let in_use = host.snapshot();
    let update = |setup: &mut NetworkSetup| assert_eq!(setup.update().unwrap(), PathChanges::default());
    // An address more, as IPv6's privacy extensions give every day.
    host.shell("ip addr add 10.77.1.9/24 dev path1");
    update(&mut setup);
    assert!(host.snapshot().contains("{ 10.77.1.1, 10.77.1.9 } tcp dport 80"), "{}", host.snapshot());
    host.shell("ip addr del 10.77.1.9/24 dev path1");
    update(&mut setup);
    assert_eq!(host.snapshot(), in_use);
    // Another gateway, as after a move to another access point.
    let to = |gateway: &str| format!("ip route replace default via {gateway} dev path1 metric 101");
    host.shell(&to("10.77.1.3"));
    update(&mut setup);
    assert!(host.shell("ip route show table 707001").contains("default via 10.77.1.3"));
    host.shell(&to("10.77.1.2"));
    update(&mut setup);
    // Down and up again before anybody looked: the routes went with it, and the address of IPv6, which reached neighbours.
    host.shell(&format!("ip link set path1 down; ip link set path1 up; {}", to("10.77.1.2")));
    assert!(!host.shell("ip route show table all").contains("table 707001"));
    let changes = setup.update().unwrap();
    let removed = vec![addr("fd70:6f6c:7970::2")];
    assert_eq!(changes, PathChanges { removed, ..PathChanges::default() });
    assert!(host.shell("ip route show table 707001").contains("default via 10.77.1.2"));
    setup.remove().unwrap();
    drop(tun);
    // The interface lost its IPv6 address when it went down.
    let without = |text: String| {
        let lines = text.lines().filter(|line| !line.contains("fd77:1:") && !line.contains("fe80:"));
        lines.map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(without(host.snapshot()), without(before));
}

#[test]
fn a_gateway_outside_every_prefix_is_used() {
    if !is_root_or_skip("a gateway on the link") {
        return;
    }
    let host = Host::new();
    host.shell("ip route replace default via 172.31.1.1 dev path0 onlink metric 100");
    let before = host.snapshot();
    let tun = host.tun();
    let setup = host.apply(&tun, SetupOptions::default()).expect("as cloud servers have it");
    assert!(host.shell("ip route show table 707000").contains("default via 172.31.1.1 dev path0"));
    setup.remove().unwrap();
    drop(tun);
    host.assert_becomes(&before);
}

#[test]
fn several_ways_of_one_route_are_several_uplinks() {
    if !is_root_or_skip("a route with several next hops") {
        return;
    }
    let host = Host::new();
    host.shell(
        "ip route del default; ip route del default
         ip route add default nexthop via 10.77.0.2 dev path0 nexthop via 10.77.1.2 dev path1",
    );
    let before = host.snapshot();
    let tun = host.tun();
    let setup = host.apply(&tun, SetupOptions::default()).expect("both");
    assert_eq!(setup.paths().len(), 2);
    assert!(host.shell("ip route show table 707001").contains("default via 10.77.1.2 dev path1"));
    setup.remove().unwrap();
    drop(tun);
    host.assert_becomes(&before);
}

/// Rules of others, with a name that a person sees and one that only the kernel does.
const FIREWALL: &str = "nft add table ip filter
    nft 'add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'
    nft add rule ip filter FORWARD counter drop
    nft add table ip6 filter
    nft 'add chain ip6 filter FORWARD { type filter hook forward priority 0; policy drop; }'";

#[test]
fn firewalls_and_strict_reverse_paths_let_the_stack_through() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    if !is_root_or_skip("firewalls") {
        return;
    }
    let host = Host::new();
    host.shell(FIREWALL);
    host.shell("for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$file; done");
    let before = host.snapshot();
    let tun = host.tun();
    let mut setup = host.apply(&tun, SetupOptions::default()).expect("set-up");
    setup.expose(8080).unwrap();
    let during = host.snapshot();
    assert!(during.contains("iifname \"polypath0\" accept comment \"polypath0\""), "{during}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let stack = polypath_stack::Stack::tun(&tun, polypath_mptcp::HostConfig::default()).expect("a stack");
        let server = polypath_stack::engine::KernelEngine::new().in_namespace(host.testbed.server.clone());
        let options = |local: Option<IpAddr>| polypath_stack::engine::ConnectOptions {
            local: local.map(|addr| (addr, 0).into()),
            timeout: Some(std::time::Duration::from_secs(20)),
            ..Default::default()
        };
        // Out by either path, by its own address.
        for path in 0..2 {
            let listener = server.listen((Testbed::server_v4(0), 0).into()).unwrap();
            let to = listener.local_addr().unwrap();
            let from = options(setup.paths()[path].stack_v4.map(IpAddr::V4));
            let (out, accepted) = tokio::join!(stack.connect(to, &from), listener.accept());
            let (mut out, (mut accepted, peer)) = (out.expect("a connection"), accepted.unwrap());
            assert_eq!(peer.ip(), IpAddr::from(Testbed::client_v4(path as u8)));
            out.write_all(b"out").await.unwrap();
            accepted.read_exact(&mut [0; 3]).await.unwrap();
        }
        // In by either path.
        let listener = stack.listen(([0, 0, 0, 0], 8080).into()).unwrap();
        for path in 0..2 {
            let to = (Testbed::client_v4(path), 8080).into();
            let options = options(None);
            let (sent, accepted) = tokio::join!(server.connect(to, &options), listener.accept());
            let (mut sent, (mut accepted, _)) = (sent.expect("a connection"), accepted.unwrap());
            sent.write_all(b"in").await.unwrap();
            accepted.read_exact(&mut [0; 2]).await.unwrap();
        }
    });
    drop(runtime);
    setup.remove().unwrap();
    drop(tun);
    let without_counts = |text: String| {
        let lines = text.lines().filter(|line| !line.contains("counter"));
        lines.map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(without_counts(host.snapshot()), without_counts(before));
}

#[test]
fn neighbours_find_no_router_and_no_way_to_the_stack_past_its_ports() {
    if !is_root_or_skip("neighbours") {
        return;
    }
    let host = Host::new();
    host.shell(
        "ip link add lan type veth peer name far; ip link set far up; ip addr add 10.55.0.1/24 dev lan; ip link set lan up
         ip neigh add 10.55.0.2 lladdr 02:00:00:00:00:01 dev lan",
    );
    // A neighbour on the second uplink sends its packets for the network behind this host, and for the stack, to it.
    let reach = "ip route add 10.55.0.0/24 via 10.77.1.1; ip route add 198.18.0.0/16 via 10.77.1.1";
    host.testbed.server.run(|| Command::new("sh").args(["-ec", reach]).status()).unwrap().unwrap();
    let forwarded = |host: &Host, to: [u8; 4]| {
        let sent = |device: &str| host.shell(&format!("nft reset counter inet seen {device} | grep packets"));
        host.testbed
            .server
            .run(|| std::net::UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"hop", (Ipv4Addr::from(to), 9)))
            .unwrap()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        ["lan", "polypath0"].map(|device| !sent(device).contains("packets 0 "))
    };
    // Behind every chain that forwards, what leaves by either device is counted.
    host.shell(
        "nft add table inet seen; nft add counter inet seen lan; nft add counter inet seen polypath0
         nft 'add chain inet seen out { type filter hook postrouting priority 300; }'
         nft add rule inet seen out oifname lan udp dport 9 counter name lan
         nft add rule inet seen out oifname polypath0 udp dport 9 counter name polypath0",
    );
    let tun = host.tun();
    let mut setup = host.apply(&tun, SetupOptions::default()).expect("set-up");
    let beside = host.apply(&host.tun(), SetupOptions::default()).expect("another");
    setup.expose(80).unwrap();
    assert_eq!(forwarded(&host, [10, 55, 0, 2]), [false, false]);
    assert_eq!(forwarded(&host, [198, 18, 0, 1]), [false, false]);
    beside.remove().unwrap();
    setup.remove().unwrap();
    // One that is a router already stays one, and the stack is out of its neighbours' reach all the same.
    host.shell("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
    let setup = host.apply(&tun, SetupOptions::default()).expect("set-up");
    assert_eq!(forwarded(&host, [10, 55, 0, 2]), [true, false]);
    assert_eq!(forwarded(&host, [198, 18, 0, 1]), [false, false]);
    setup.remove().unwrap();
    assert_eq!(host.shell("cat /proc/sys/net/ipv4/ip_forward"), "1\n");
}

#[test]
fn a_path_that_is_reached_elsewhere_is_told() {
    if !is_root_or_skip("a new address") {
        return;
    }
    let host = Host::new();
    let tun = host.tun();
    let mut setup = host.apply(&tun, SetupOptions::default()).unwrap();
    // As after a new lease.
    host.shell("ip -4 addr flush dev path1; ip addr add 10.77.1.9/24 dev path1; ip route add default via 10.77.1.2 dev path1 metric 101");
    let changes = setup.update().unwrap();
    assert!(changes.added.is_empty() && changes.removed.is_empty(), "{changes:?}");
    let outer: Vec<_> = changes.readdressed.iter().map(|path| path.outer_address(true)).collect();
    assert_eq!(outer, [Some([10, 77, 1, 9].into())]);
    assert_eq!(setup.update().unwrap(), PathChanges::default());
}
