//! Networks with one thing wrong each, and what is found.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Command;

use polypath_stack::engine::{KernelEngine, KernelListener};
use polypath_testbed::{Testbed, is_root_or_skip};

use super::*;

/// A client with two uplinks to a server.
struct Network {
    testbed: Testbed,
    runtime: tokio::runtime::Runtime,
}

impl Network {
    fn new_or_skip(what: &str) -> Option<Self> {
        if !is_root_or_skip(what) {
            return None;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let network = Self { testbed: Testbed::new(2).expect("namespaces"), runtime: runtime.unwrap() };
        network.client(
            "ip route add default via 10.77.0.2 dev path0 metric 100
             ip route add default via 10.77.1.2 dev path1 metric 101
             ip mptcp endpoint add 10.77.1.1 dev path1 subflow",
        );
        // A stranger's filter in the new namespace's defaults would show in every test.
        network.client("for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$file; done");
        network.server("for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$file; done");
        Some(network)
    }

    fn client(&self, script: &str) {
        shell(&self.testbed.client, script);
    }

    fn server(&self, script: &str) {
        shell(&self.testbed.server, script);
    }

    /// A server that speaks Multipath TCP.
    fn listen(&self) -> (KernelListener, SocketAddr) {
        let engine = KernelEngine::new().in_namespace(self.testbed.server.clone());
        let _entered = self.runtime.enter();
        let listener = engine.listen((Ipv4Addr::UNSPECIFIED, 0).into()).expect("a listener");
        let at = (Testbed::server_v4(0), listener.local_addr().unwrap().port()).into();
        (listener, at)
    }

    fn examine(&self, peer: &[SocketAddr]) -> Report {
        let options = Options { peer: peer.to_vec(), ..Options::default() };
        examine(&self.testbed.client, &options).expect("a report")
    }
}

fn shell(namespace: &Namespace, script: &str) {
    let output = namespace.run(|| Command::new("sh").args(["-ec", script]).output()).unwrap().expect("sh");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Level and text of what was found of a subject, on an interface or else on the host and of the peer.
#[track_caller]
fn found(report: &Report, place: Option<&str>, subject: &str) -> (Level, String) {
    let is_it =
        |(interface, finding): &(Option<&str>, &Finding)| *interface == place && finding.subject == subject;
    let (_, finding) =
        report.findings().find(is_it).unwrap_or_else(|| panic!("no {subject} of {place:?} in {report:#?}"));
    assert_eq!(finding.level == Level::Good, finding.advice.is_none(), "{finding:?}");
    (finding.level, finding.text.clone())
}

/// The subjects that stand in the way.
fn blocks(report: &Report) -> Vec<(Option<&str>, &'static str)> {
    let findings = report.findings().filter(|(_, finding)| finding.level == Level::Blocked);
    findings.map(|(interface, finding)| (interface, finding.subject)).collect()
}

#[test]
fn two_paths_in_order_are_found_so() {
    let Some(network) = Network::new_or_skip("a doctor's healthy network") else { return };
    let (_listener, at) = network.listen();
    let report = network.examine(&[at]);
    assert_eq!(blocks(&report), [], "{report:#?}");
    assert!(!report.is_blocked());
    assert_eq!(report.paths.iter().map(|path| &*path.interface).collect::<Vec<_>>(), ["path0", "path1"]);
    for subject in ["paths", "kernel", "endpoints", "tun", "nft", "permission", "multipath"] {
        assert_eq!(found(&report, None, subject).0, Level::Good, "{report:#?}");
    }
    for interface in ["path0", "path1"] {
        for subject in
            ["interface", "address", "route", "rp_filter", "mtu", "offload", "peer", "multipath", "path_mtu"]
        {
            let (level, text) = found(&report, Some(interface), subject);
            assert_eq!(level, Level::Good, "{interface} {subject}: {text}");
        }
        assert_eq!(found(&report, Some(interface), "nat").0, Level::Limited, "private addresses");
    }
    assert!(found(&report, Some("path1"), "path_mtu").1.contains("1500 bytes"));
}

#[test]
fn an_interface_that_lacks_only_a_route_is_the_second_network() {
    let link = |name: &str| polypath_system::Link {
        index: 2,
        name: name.into(),
        is_up: true,
        is_running: true,
        is_loopback: false,
        kind: None,
        mtu_bytes: 1500,
        addresses: vec![[192, 0, 2, 1].into()],
    };
    let (wifi, lte) = (link("wifi"), link("lte"));
    let finding = host::paths(&[&wifi], &[&lte]);
    assert_eq!(finding.text, "only wifi leads out: lte is connected, and has no default route");
    assert!(finding.advice.is_some_and(|advice| advice.contains("default via GATEWAY dev lte")));
    let alone = host::paths(&[&wifi], &[]);
    assert!(alone.advice.is_some_and(|advice| advice.starts_with("connect a second network")));
}

#[test]
fn what_a_killed_process_has_left_is_said_with_what_removes_it() {
    assert_eq!(host::leftovers(Ok(Vec::new())), []);
    let left = |directory: &str, is_others| {
        let left = crate::LeftBehind { directory: directory.into(), is_others, pids: vec![4711, 4712] };
        host::leftovers(Ok(vec![left])).remove(0)
    };
    let of_service = left("/run/polypath-services", true);
    assert!(of_service.text.contains("4711, 4712), on file in /run/polypath-services"), "{of_service:?}");
    assert!(of_service.advice.is_some_and(|advice| advice.contains("systemctl restart polypath@NAME")));
    let of_one = left("/run/polypath-nginx", true).advice.expect("what to do");
    assert!(of_one.contains("`systemctl restart nginx`") && of_one.contains("RuntimeDirectory"), "{of_one}");
    let of_user = left("/run/user/1000/polypath", true);
    assert!(of_user.advice.is_some_and(|advice| advice.contains("by user 1000")));
    let finding = left("/run/polypath", false);
    assert!(finding.level == Level::Limited && finding.text.contains("4711, 4712"), "{finding:?}");
    assert!(finding.advice.is_some_and(|advice| advice.contains("polypath run true")));
    let refused = io::Error::other("has mode 0666");
    assert!(host::leftovers(Err(refused)).remove(0).text.contains("0666"));
}

#[test]
fn an_interface_that_is_off_or_without_carrier_is_found() {
    let Some(network) = Network::new_or_skip("a doctor's interfaces") else { return };
    network.client("ip link set path1 down");
    network.server("ip link set path0 down");
    let report = network.examine(&[]);
    assert_eq!(found(&report, Some("path1"), "interface"), (Level::Blocked, "it is switched off".into()));
    let (level, text) = found(&report, Some("path0"), "interface");
    assert!(level == Level::Blocked && text.contains("no carrier"), "{text}");
    assert_eq!(found(&report, None, "paths").0, Level::Blocked);
    assert!(report.is_blocked());
}

#[test]
fn a_missing_route_or_address_is_found() {
    let Some(network) = Network::new_or_skip("a doctor's routes") else { return };
    network.client("ip route del default dev path1; ip addr flush dev path0");
    let options = Options { interfaces: vec!["path0".into(), "path1".into()], ..Options::default() };
    let report = examine(&network.testbed.client, &options).expect("a report");
    assert_eq!(
        blocks(&report),
        [(None, "paths"), (Some("path0"), "address"), (Some("path1"), "route")],
        "{report:#?}"
    );
    let one = Options { interfaces: vec!["path9".into()], ..Options::default() };
    let error = examine(&network.testbed.client, &one).unwrap_err();
    assert_eq!(error.to_string(), "there is no interface path9; present are: path0, path1");
}

#[test]
fn a_strict_reverse_path_filter_is_found() {
    let Some(network) = Network::new_or_skip("a doctor's reverse path filter") else { return };
    network.client("echo 1 >/proc/sys/net/ipv4/conf/path1/rp_filter");
    network.client("echo 1 >/proc/sys/net/ipv4/conf/path0/rp_filter");
    let report = network.examine(&[]);
    assert_eq!(found(&report, Some("path0"), "rp_filter").0, Level::Good, "the way back leads by it");
    assert_eq!(found(&report, Some("path1"), "rp_filter").0, Level::Limited);
    network.client("ip rule add from 10.77.1.1 lookup 77; ip route add default via 10.77.1.2 table 77");
    assert_eq!(found(&network.examine(&[]), Some("path1"), "rp_filter").0, Level::Good);
}

#[test]
fn what_the_kernel_lacks_is_found() {
    let Some(network) = Network::new_or_skip("a doctor's kernel") else { return };
    network.client("ip mptcp endpoint flush");
    let (level, text) = found(&network.examine(&[]), None, "endpoints");
    assert!(level == Level::Limited && text.contains("one path"), "{text}");
    network.client("ip mptcp endpoint add 10.77.1.1 dev path1 subflow; ip mptcp limits set subflows 0");
    let (level, text) = found(&network.examine(&[]), None, "endpoints");
    assert!(level == Level::Limited && text.contains("allows 0"), "{text}");
    network.client("echo 0 >/proc/sys/net/mptcp/enabled");
    let (_listener, at) = network.listen();
    let report = network.examine(&[at]);
    let (level, text) = found(&report, None, "kernel");
    assert!(level == Level::Limited && text.contains("switched off"), "{text}");
    assert_eq!(found(&report, Some("path1"), "peer").0, Level::Good);
    assert!(report.findings().all(|(_, finding)| finding.subject != "multipath"), "{report:#?}");
}

#[test]
fn a_path_that_removes_options_is_found() {
    let Some(network) = Network::new_or_skip("a doctor's stripped options") else { return };
    let (_listener, at) = network.listen();
    network.server("iptables -t mangle -A PREROUTING -i path1 -p tcp -j TCPOPTSTRIP --strip-options 30");
    let report = network.examine(&[at]);
    assert_eq!(blocks(&report), [(Some("path1"), "multipath")], "{report:#?}");
    let (_, text) = found(&report, Some("path1"), "multipath");
    assert!(text.contains("removes the options"), "{text}");
    assert_eq!(found(&report, Some("path0"), "multipath").0, Level::Good);
    assert_eq!(found(&report, None, "multipath"), (Level::Good, "the peer speaks Multipath TCP".into()));
}

#[test]
fn a_path_that_drops_syns_with_options_is_found_without_harm() {
    let Some(network) = Network::new_or_skip("a doctor's dropped SYNs") else { return };
    let (_listener, at) = network.listen();
    network.server(
        "nft add table inet drops
         nft 'add chain inet drops in { type filter hook prerouting priority 0; }'
         nft add rule inet drops in iifname path1 tcp option mptcp exists drop",
    );
    let report = network.examine(&[at]);
    assert_eq!(blocks(&report), [(Some("path1"), "multipath")], "{report:#?}");
    let (_, text) = found(&report, Some("path1"), "multipath");
    assert!(text.contains("drops SYNs"), "{text}");
    // The kernel has not concluded that Multipath TCP is hopeless here.
    let harm = network.testbed.client.run(|| {
        [ask::counter("Blackhole"), ask::counter("MPCapableSYNTXDrop"), ask::counter("MPCapableSYNTX")]
    });
    let [blackholes, given_up, sent] = harm.unwrap();
    assert_eq!((blackholes, given_up), (0, 0));
    assert!(sent >= 3, "{sent} connections tried Multipath TCP");
}

#[test]
fn a_peer_without_multipath_is_found() {
    let Some(network) = Network::new_or_skip("a doctor's plain peer") else { return };
    let listener = network.testbed.server.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let port = listener.as_ref().unwrap().as_ref().unwrap().local_addr().unwrap().port();
    let report = network.examine(&[(Testbed::server_v4(0), port).into()]);
    assert_eq!(blocks(&report), [(None, "multipath")], "{report:#?}");
    assert!(found(&report, None, "multipath").1.contains("does not speak it"));
}

#[test]
fn a_peer_that_is_absent_is_found() {
    let Some(network) = Network::new_or_skip("a doctor's absent peer") else { return };
    let report = network.examine(&[(Testbed::server_v4(0), 9).into()]);
    assert_eq!(blocks(&report), [(None, "peer")], "{report:#?}");
    assert!(found(&report, None, "peer").1.contains("nothing listens at port 9"));
    network.server(
        "nft add table inet silent
         nft 'add chain inet silent in { type filter hook prerouting priority 0; }'
         nft add rule inet silent in meta l4proto '{ tcp, udp }' drop",
    );
    let report = network.examine(&[(Testbed::server_v4(0), 9).into()]);
    assert_eq!(blocks(&report), [(None, "peer"), (Some("path0"), "peer"), (Some("path1"), "peer")]);
    assert!(found(&report, None, "peer").1.contains("by any path"));
}

#[test]
fn a_path_that_carries_less_is_found() {
    let Some(network) = Network::new_or_skip("a doctor's path MTU") else { return };
    let (_listener, at) = network.listen();
    network.client("ip route add 10.77.0.2/32 dev path0 mtu 1300");
    let report = network.examine(&[at]);
    let (level, text) = found(&report, Some("path0"), "path_mtu");
    assert!(level == Level::Limited && text.contains("1300 bytes"), "{text}");
    assert_eq!(found(&report, Some("path1"), "path_mtu").0, Level::Good);
}

#[test]
fn an_interface_without_offloads_is_found() {
    if Command::new("ethtool").arg("--version").output().is_err() {
        eprintln!("SKIPPED a doctor's offloads: ethtool is not installed (apt-get install ethtool)");
        return;
    }
    let Some(network) = Network::new_or_skip("a doctor's offloads") else { return };
    network.client("ethtool -K path1 tso off gso off >/dev/null");
    let report = network.examine(&[]);
    assert_eq!(found(&report, Some("path0"), "offload").0, Level::Good);
    assert_eq!(found(&report, Some("path1"), "offload").0, Level::Limited);
}

#[test]
fn both_families_of_a_peer_are_tried() {
    let Some(network) = Network::new_or_skip("a doctor's IPv6") else { return };
    let engine = KernelEngine::new().in_namespace(network.testbed.server.clone());
    let _entered = network.runtime.enter();
    let listener = engine.listen((std::net::Ipv6Addr::UNSPECIFIED, 0).into()).expect("a listener");
    let port = listener.local_addr().unwrap().port();
    let peer =
        [IpAddr::V4(Testbed::server_v4(0)), Testbed::server_v6(0).into()].map(|addr| (addr, port).into());
    let report = network.examine(&peer);
    let tried = report.findings().filter(|(interface, finding)| {
        *interface == Some("path0") && finding.subject == "multipath" && finding.level == Level::Good
    });
    assert_eq!(tried.count(), 2, "{report:#?}");
}

#[test]
fn user_namespaces_need_their_switches() {
    let with = |name: &'static str, value: &'static str| {
        host::user_namespaces(&move |asked: &str| (asked == name).then(|| value.to_string())).level
    };
    assert_eq!(with("", ""), Level::Good);
    assert_eq!(with("user/max_user_namespaces", "0"), Level::Limited);
    assert_eq!(with("user/max_user_namespaces", "90000"), Level::Good);
    assert_eq!(with("kernel/unprivileged_userns_clone", "0"), Level::Limited);
    assert_eq!(with("kernel/apparmor_restrict_unprivileged_userns", "1"), Level::Limited);
}

#[test]
fn a_device_that_only_root_may_open_is_not_called_missing() {
    use std::os::unix::fs::PermissionsExt;
    let device = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(device.path(), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(host::tun_at(device.path()).level, Level::Good);
    let missing = host::tun_at(&device.path().with_extension("missing"));
    assert!(missing.advice.unwrap_or_default().contains("modprobe tun"));
    std::fs::set_permissions(device.path(), PermissionsExt::from_mode(0o000)).unwrap();
    // Root opens everything.
    if !rustix::process::geteuid().is_root() {
        let closed = host::tun_at(device.path());
        assert!(closed.text.contains("this user may not open it"), "{closed:?}");
    }
}
