//! What is planned, from the state of a system that is not there.

use std::net::Ipv4Addr;

use polypath_system::{Link, Route};
use polypath_testbed::is_root_or_skip;

use super::super::*;
use super::{Host, addr};

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
            ("net/ipv4/conf/eth0/forwarding", "0"),
            ("net/ipv4/conf/wlan0/forwarding", "0"),
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
            "sysctl -w net.ipv4.conf.eth0.forwarding=1",
            "sysctl -w net.ipv4.conf.wlan0.forwarding=1",
            "sysctl -w net.ipv6.conf.default.accept_ra=2",
            "sysctl -w net.ipv6.conf.eth0.accept_ra=2",
            "sysctl -w net.ipv6.conf.wlan0.accept_ra=2",
            "sysctl -w net.ipv6.conf.all.forwarding=1",
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
fn a_network_of_another_address_is_reached_with_that_one() {
    let mut state = state();
    state.links[2].addresses.push(addr("10.9.0.2"));
    let route = Route { destination: (addr("10.9.0.0"), 24), gateway: None, link: 3, metric: 600 };
    state.routes.push(route);
    let plan = NetworkPlan::compute(&state, &SetupOptions::default(), 0, "polypath0", &BTreeMap::new());
    let plan = plan.unwrap();
    let text = translation(&plan, &Limits::of(&plan.base, |_| false)).text();
    let of_wlan0 = "    ip saddr 198.18.0.2 oifname \"wlan0\" ";
    let rules: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(of_wlan0)).collect();
    let expected =
        ["ct mark set 0x70700001", "ip daddr 10.9.0.0/24 snat ip to 10.9.0.2", "snat ip to 192.168.1.5"];
    assert_eq!(rules, expected);
}

fn default_plan() -> NetworkPlan {
    NetworkPlan::compute(&state(), &SetupOptions::default(), 0, "polypath0", &BTreeMap::new()).unwrap()
}

/// An address whose uplink is gone.
const AWAY: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::new(198, 18, 0, 9))];

/// For a stack that listens at one port.
fn translation<'a>(plan: &'a NetworkPlan, limits: &'a Limits) -> Translation<'a> {
    Translation {
        slot: 0,
        tun: "polypath0",
        paths: &plan.paths,
        away: &AWAY,
        others: &plan.other_addresses,
        exposed: &[443],
        held: &[],
        limits,
    }
}

#[test]
fn what_a_person_would_type_is_what_is_done() {
    if !is_root_or_skip("rules in two languages") {
        return;
    }
    let host = Host::new();
    let plan = default_plan();
    let limits = Limits::of(&plan.base, |_| false);
    let list = || host.shell("nft list table inet polypath0; nft delete table inet polypath0");
    host.testbed.client.run(|| translation(&plan, &limits).apply()).unwrap().expect("nft takes it");
    let done = list();
    host.shell(&format!("nft -f - <<END\n{}\nEND", translation(&plan, &limits).text()));
    assert_eq!(list(), done);
    // Each rule is there.
    let rules = translation(&plan, &limits).text().lines().filter(|line| line.starts_with("    ")).count();
    let listed = done.lines().filter(|line| line.starts_with("\t\t") && !line.contains(" hook ")).count();
    assert!(rules > 10 && rules == listed, "{rules} rules:\n{done}");
}

#[test]
fn listeners_are_reached_at_the_hosts_own_addresses_only() {
    let plan = default_plan();
    let limits = Limits::of(&plan.base, |_| false);
    let text = translation(&plan, &limits).text();
    for line in [
        "ip saddr 198.18.0.1 oifname \"eth0\" ct mark set 0x70700000\n",
        "ip saddr 198.18.0.1 oifname \"eth0\" snat ip to 192.0.2.10\n",
        "ip6 saddr fd70:6f6c:7970::1 oifname \"eth0\" snat ip6 to 2001:db8::10\n",
        // The uplink of this one is gone.
        "iifname \"polypath0\" ip saddr 198.18.0.9 oifname != \"polypath*\" drop\n",
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
        "iifname \"eth0\" meta nfproto ipv4 drop",
        "    meta nfproto ipv6 drop",
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
fn a_name_may_be_that_of_an_interface_that_comes_late_or_has_gone() {
    let uplinks = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
    let links = |options: &SetupOptions, numbers: &BTreeMap<String, u8>| -> Vec<String> {
        let plan = NetworkPlan::compute(&state(), options, 0, "polypath0", numbers).unwrap();
        plan.paths.into_iter().map(|path| path.link).collect()
    };
    let options = SetupOptions { uplinks: uplinks(&["eth9", "wlan0"]), ..SetupOptions::default() };
    assert_eq!(links(&options, &BTreeMap::new()), ["wlan0"]);
    let options = SetupOptions { uplinks: uplinks(&["eth9"]), ..SetupOptions::default() };
    let gone = BTreeMap::from([("eth9".to_string(), 0)]);
    assert!(links(&options, &gone).is_empty(), "what was not named is not used instead");
    let options = SetupOptions { backups: uplinks(&["eth9"]), ..options };
    assert!(links(&options, &gone).is_empty());
}

#[test]
fn a_slot_whose_numbers_are_in_use_is_passed_over() {
    let free = |change: &dyn Fn(&mut SystemState)| {
        let mut state = state();
        change(&mut state);
        places::is_slot_free(&state, 1)
    };
    assert!(free(&|_| {}));
    assert!(!free(&|state| assert!(state.tables.insert(707_016))));
    assert!(!free(&|state| assert!(state.rule_priorities.insert(17_031))));
    assert!(!free(&|state| state.links[1].addresses.push(addr("198.18.1.77"))));
}
