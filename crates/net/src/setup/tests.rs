//! Set-up in namespaces: what is there before is there afterwards, and nothing else.

use std::net::Ipv4Addr;
use std::process::Command;

use super::*;
use crate::testbed::{Testbed, is_root_or_skip};
use crate::{Tun, TunConfig};

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An interface with an IPv4 address and a default route.
fn state() -> SystemState {
    let link = |index: u32, name: &str, addresses: &[&str]| Link {
        index,
        name: name.to_string(),
        is_up: true,
        is_running: true,
        is_loopback: name == "lo",
        kind: None,
        mtu_bytes: 1500,
        addresses: addresses.iter().map(|text| addr(text)).collect(),
    };
    let route = |destination: &str, length, gateway: Option<&str>, link, metric| Route {
        destination: (addr(destination), length),
        gateway: gateway.map(addr),
        link,
        metric,
    };
    SystemState {
        links: vec![
            link(1, "lo", &[]),
            link(2, "eth0", &["192.0.2.10", "2001:db8::10"]),
            link(3, "wlan0", &["192.168.1.5"]),
            link(4, "tun0", &["10.8.0.2"]),
        ],
        routes: vec![
            route("0.0.0.0", 0, Some("192.0.2.1"), 2, 100),
            route("192.0.2.0", 24, None, 2, 100),
            route("::", 0, Some("fe80::1"), 2, 1024),
            route("0.0.0.0", 0, Some("192.168.1.1"), 3, 600),
            route("0.0.0.0", 0, Some("192.168.1.2"), 3, 700),
            route("192.168.1.0", 24, None, 3, 600),
        ],
        tables: [253, 254, 255].into(),
        rule_priorities: [0, 32_766, 32_767].into(),
        rule_sources: [].into(),
        variables: [
            ("net/ipv4/ip_forward", "0"),
            ("net/ipv6/conf/all/forwarding", "0"),
            ("net/ipv6/conf/eth0/accept_ra", "1"),
            ("net/ipv6/conf/wlan0/accept_ra", "1"),
            ("net/ipv6/conf/tun0/accept_ra", "0"),
            ("net/ipv6/conf/default/accept_ra", "1"),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into(),
    }
}

fn lines(plan: &NetworkPlan) -> Vec<String> {
    let actions = plan.base.iter().chain(plan.paths.iter().flat_map(|path| &path.actions));
    actions.map(ToString::to_string).collect()
}

#[test]
fn each_uplink_gets_an_address_a_table_and_a_rule() {
    let plan =
        NetworkPlan::compute(&state(), &SetupOptions::default(), 2, "polypath0", &BTreeMap::new()).unwrap();
    assert_eq!(
        lines(&plan),
        [
            "sysctl -w net.ipv6.conf.default.accept_ra=2",
            "sysctl -w net.ipv6.conf.eth0.accept_ra=2",
            "sysctl -w net.ipv6.conf.wlan0.accept_ra=2",
            "sysctl -w net.ipv6.conf.all.forwarding=1",
            "sysctl -w net.ipv4.ip_forward=1",
            "ip route add 198.18.2.1/32 dev polypath0",
            "ip rule add to 198.18.2.1 lookup main priority 14432",
            "ip route add 192.0.2.0/24 dev eth0 table 707032",
            "ip route add default via 192.0.2.1 dev eth0 onlink table 707032",
            "ip rule add fwmark 0x70700020 lookup 707032 priority 15532",
            "ip rule add from 198.18.2.1 lookup 707032 priority 17032",
            "ip -6 route add fd70:6f6c:7970:2::1/128 dev polypath0",
            "ip -6 rule add to fd70:6f6c:7970:2::1 lookup main priority 14432",
            "ip -6 route add default via fe80::1 dev eth0 onlink table 707032",
            "ip -6 rule add fwmark 0x70700020 lookup 707032 priority 15532",
            "ip -6 rule add from fd70:6f6c:7970:2::1 lookup 707032 priority 17032",
            "ip route add 198.18.2.2/32 dev polypath0",
            "ip rule add to 198.18.2.2 lookup main priority 14433",
            "ip route add 192.168.1.0/24 dev wlan0 table 707033",
            "ip route add default via 192.168.1.1 dev wlan0 onlink table 707033",
            "ip rule add fwmark 0x70700021 lookup 707033 priority 15533",
            "ip rule add from 198.18.2.2 lookup 707033 priority 17033",
        ]
    );
}

#[test]
fn a_network_without_a_gateway_is_a_path_to_its_own_hosts_only() {
    let mut state = state();
    state.routes.push(Route { destination: (addr("10.8.0.0"), 24), gateway: None, link: 4, metric: 0 });
    let compute = |state: &SystemState, options: &SetupOptions| {
        NetworkPlan::compute(state, options, 0, "polypath0", &BTreeMap::new()).unwrap().paths
    };
    let attached = compute(&state, &SetupOptions::default()).pop().unwrap();
    assert_eq!((&*attached.link, attached.number, attached.is_confined()), ("tun0", 2, true));
    let lengths = ["10.8.0.9", "10.9.0.9", "::1"].map(|text| attached.reaches(addr(text)));
    assert_eq!(lengths, [Some(24), None, None]);
    // Whoever names it wants it used.
    let options = SetupOptions { uplinks: vec!["eth0".into(), "tun0".into()], ..SetupOptions::default() };
    assert!(compute(&state, &options).iter().all(|path| !path.is_confined()));
    // So it is where nothing leads out.
    state.routes.retain(|route| !route.is_default());
    let paths = compute(&state, &SetupOptions::default());
    assert_eq!(paths.iter().map(|path| &*path.link).collect::<Vec<_>>(), ["eth0", "wlan0", "tun0"]);
    assert!(paths.iter().all(|path| !path.is_confined()));
}

#[test]
fn an_uplink_keeps_its_number_and_others_are_left_alone() {
    let numbers = BTreeMap::from([("eth0".to_string(), 0), ("wlan0".to_string(), 1)]);
    let options = SetupOptions { uplinks: vec!["wlan0".to_string()], ..SetupOptions::default() };
    let plan = NetworkPlan::compute(&state(), &options, 0, "polypath0", &numbers).unwrap();
    assert_eq!(
        plan.paths.iter().map(|path| path.stack_v4).collect::<Vec<_>>(),
        [Some(Ipv4Addr::new(198, 18, 0, 2))]
    );
    let mut down = state();
    down.links[2].is_running = false;
    assert!(NetworkPlan::compute(&down, &options, 0, "polypath0", &numbers).unwrap().paths.is_empty());
}

#[test]
fn other_interfaces_hear_router_advertisements_as_before() {
    let options = SetupOptions { uplinks: vec!["eth0".to_string()], ..SetupOptions::default() };
    let plan = NetworkPlan::compute(&state(), &options, 0, "polypath0", &BTreeMap::new()).unwrap();
    let line = "sysctl -w net.ipv6.conf.wlan0.accept_ra=2".to_string();
    assert!(lines(&plan).contains(&line), "forwarding would take wlan0's default route");
}

#[test]
fn listeners_are_reached_at_the_hosts_own_addresses_only() {
    let plan =
        NetworkPlan::compute(&state(), &SetupOptions::default(), 0, "polypath0", &BTreeMap::new()).unwrap();
    let translation = Translation {
        slot: 0,
        tun: "polypath0",
        paths: &plan.paths,
        others: &plan.other_addresses,
        exposed: &[443],
        held: &[],
        is_forwarding_ours: true,
    };
    let text = translation.text();
    for line in [
        // Of no path is the third interface's: it is the host's all the same.
        "ip daddr { 192.0.2.10, 10.8.0.2 } tcp dport 443 dnat ip to 198.18.0.1:443",
        "iifname \"wlan0\" ip daddr { 192.0.2.10, 10.8.0.2, 192.168.1.5 } tcp dport 443 ct mark set 0x70700001",
        "iifname \"polypath0\" ct mark 0x70700001 meta mark set 0x70700001",
        "iifname \"polypath0\" ip saddr 198.18.0.2 ct direction original oifname != \"wlan0\" oifname != \"polypath*\" drop",
        "ip6 daddr { 2001:db8::10 } tcp dport 443 dnat ip6 to [fd70:6f6c:7970::1]:443",
        "ip daddr { 192.168.1.5 } tcp dport 443 dnat ip to 198.18.0.2:443",
        "oifname \"polypath0\" ct status dnat accept",
        "oifname \"polypath0\" drop",
        "iifname \"polypath*\" accept",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[test]
fn a_name_that_is_no_interface_is_an_error_with_the_choices() {
    let options = SetupOptions { uplinks: vec!["eth9".to_string()], ..SetupOptions::default() };
    let error = NetworkPlan::compute(&state(), &options, 0, "polypath0", &BTreeMap::new()).unwrap_err();
    assert_eq!(error.to_string(), "there is no interface eth9; present are: eth0, wlan0, tun0");
}

#[test]
fn a_slot_whose_numbers_are_in_use_is_passed_over() {
    let free = |change: &dyn Fn(&mut SystemState)| {
        let mut state = state();
        change(&mut state);
        plan::is_slot_free(&state, 1)
    };
    assert!(free(&|_| {}));
    assert!(!free(&|state| assert!(state.tables.insert(707_016))));
    assert!(!free(&|state| assert!(state.rule_priorities.insert(17_031))));
    assert!(!free(&|state| state.links[1].addresses.push(addr("198.18.1.77"))));
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
            "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding",
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
        NetworkSetup::apply_with(&self.testbed.client, tun.name(), options, self.directory.path())
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
        "masquerade",
        "dnat ip to 198.18.0.1:80",
        "lookup 707001",
    ] {
        assert!(during.contains(part), "{part} is missing in\n{during}");
    }
    first.remove().expect("removes everything");
    let forwarding = "cat /proc/sys/net/ipv4/ip_forward";
    assert_eq!(host.shell(forwarding), "1\n", "the second needs it still");
    drop(second);
    drop((first_tun, second_tun));
    host.assert_becomes(&before);
}

#[test]
fn what_a_crash_left_goes_at_the_next_start() {
    if !is_root_or_skip("leftovers of a crash") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let tun = host.tun();
    let setup = host.apply(&tun, SetupOptions::default()).expect("set-up");
    // As if the process had died: nothing is undone, and its record names a process that is not there.
    std::mem::forget(setup);
    host.pretend_death();
    drop(tun);
    assert_ne!(host.snapshot(), before);
    let tun = host.tun();
    let next = host.apply(&tun, SetupOptions::default()).expect("the next start");
    assert_eq!(next.slot(), 0);
    next.remove().unwrap();
    drop(tun);
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
    drop(tun);
    assert_eq!(host.snapshot(), before);
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
    assert_eq!(host.snapshot(), before);
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
    assert_eq!(host.snapshot(), before);
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
        let stack = crate::Stack::tun(&tun, polypath_mptcp::HostConfig::default()).expect("a stack");
        let server = crate::engine::KernelEngine::new().in_namespace(host.testbed.server.clone());
        let options = |local: Option<IpAddr>| crate::engine::ConnectOptions {
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
fn a_record_that_others_may_write_or_that_leads_elsewhere_is_refused() {
    if !is_root_or_skip("records") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let host = Host::new();
    let tun = host.tun();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let error = || host.apply(&tun, SetupOptions::default()).unwrap_err().to_string();
    mode(host.directory.path(), 0o777);
    assert!(
        error().contains("has mode 0777; expected user 0, and that nobody else may write"),
        "{}",
        error()
    );
    mode(host.directory.path(), 0o755);
    let namespace = host.testbed.client.run(record::namespace).unwrap().unwrap();
    let path = host.directory.path().join(format!("setup-{namespace}-0.json"));
    let record = |name: &str| {
        format!(
            r#"{{"pid": 4194305, "started": 1, "slot": 0, "actions":
                [{{"set_variable": {{"name": "{name}", "value": "1", "before": "0"}}}}]}}"#
        )
    };
    std::fs::write(&path, record("net/ipv4/ip_forward")).unwrap();
    mode(&path, 0o666);
    assert!(error().contains("has mode 0666"), "{}", error());
    mode(&path, 0o600);
    for name in
        ["net/ipv6/conf/../../../../tmp/accept_ra", "kernel/core_pattern", "net/ipv6/conf/../accept_ra"]
    {
        std::fs::write(&path, record(name)).unwrap();
        assert!(error().contains("is nothing that set-up does"), "{}", error());
    }
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/proc/self/mounts", &path).unwrap();
    assert!(error().contains("setup-"), "{}", error());
    std::fs::remove_file(&path).unwrap();
    host.apply(&tun, SetupOptions::default()).expect("set-up").remove().unwrap();
}

#[test]
fn a_start_in_another_namespace_keeps_what_a_crash_left_here_on_file() {
    if !is_root_or_skip("leftovers in another namespace") {
        return;
    }
    let host = Host::new();
    let before = host.snapshot();
    let tun = host.tun();
    std::mem::forget(host.apply(&tun, SetupOptions::default()).expect("set-up"));
    host.pretend_death();
    drop(tun);
    let elsewhere = Host { directory: host.directory, ..Host::new() };
    let tun = elsewhere.tun();
    elsewhere.apply(&tun, SetupOptions::default()).expect("elsewhere").remove().unwrap();
    let host = Host { testbed: host.testbed, directory: elsewhere.directory };
    let tun = host.tun();
    host.apply(&tun, SetupOptions::default()).expect("the next start").remove().unwrap();
    drop(tun);
    host.assert_becomes(&before);
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
