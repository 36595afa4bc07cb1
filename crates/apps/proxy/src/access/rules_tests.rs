use proptest::prelude::*;

use super::*;
use Verdict::{Allow, Deny};

const LAN: Client<'_> =
    Client { address: IpAddr::V4(Ipv4Addr::new(192, 168, 1, 7)), user: None, is_on_this_host: false };
const SELF: Client<'_> =
    Client { address: IpAddr::V4(Ipv4Addr::LOCALHOST), user: None, is_on_this_host: true };

fn to(verdict: Verdict, hosts: &[&str]) -> Rule {
    Rule { hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(), ..Rule::new(verdict) }
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

/// Asks by the name, then with its address.
fn lookup(rules: &Rules, client: &Client<'_>, name: &str, address: &str) -> Result<(), Denied> {
    let target = target(name);
    rules.check(client, &target)?;
    rules.check_address(client, &target, address.parse().unwrap())
}

#[test]
fn the_first_rule_that_fits_decides() {
    let rules = Rules::new(vec![to(Deny, &["198.51.100.7"]), to(Allow, &["198.51.100.0/24"])], Deny);
    assert_eq!(rules.check(&LAN, &target("198.51.100.7:80")), Err(Denied::Rule(0)));
    assert_eq!(rules.check(&LAN, &target("[::ffff:198.51.100.7]:80")), Err(Denied::Rule(0)));
    assert_eq!(rules.check(&LAN, &target("198.51.100.8:80")), Ok(()));
    assert_eq!(rules.check(&LAN, &target("203.0.113.1:80")), Err(Denied::Default));
    assert_eq!(Denied::Rule(0).to_string(), "rule 1 denies it");
    assert_eq!(ConnectFailure::from(Denied::Default), ConnectFailure::NotAllowed);
    let any_before = Rules::new(vec![Rule::new(Allow), to(Deny, &["198.51.100.0/24"])], Deny);
    assert_eq!(any_before.check(&LAN, &target("198.51.100.8:80")), Ok(()));
    // An address that leads there is no way around a rule.
    assert_eq!(rules.check(&LAN, &target("[64:ff9b::198.51.100.7]:80")), Err(Denied::Rule(0)));
    assert_eq!(rules.check(&LAN, &target("[64:ff9b::198.51.100.8]:80")), Ok(()));
    assert_eq!(lookup(&any_before, &LAN, "example.org:80", "198.51.100.8"), Ok(()));
}

#[test]
fn clients_users_and_ports_are_looked_at() {
    let lan_only = Rule { clients: vec!["192.168.0.0/16".parse().unwrap()], ..Rule::new(Allow) };
    let alice_only = Rule { users: vec!["alice".into(), "bob".into()], ..Rule::new(Allow) };
    let web_only = Rule { ports: vec![443.into(), "8000-8080".parse().unwrap()], ..Rule::new(Allow) };
    let elsewhere =
        Client { address: "203.0.113.9".parse().unwrap(), user: Some("carol"), is_on_this_host: false };
    let alice = Client { user: Some("alice"), ..elsewhere };
    let is_allowed = |rule: &Rule, client: &Client<'_>, port: u16| {
        let target = Target { port, ..target("198.51.100.1:1") };
        Rules::new(vec![rule.clone()], Deny).check(client, &target).is_ok()
    };
    assert!(is_allowed(&lan_only, &LAN, 80));
    assert!(!is_allowed(&lan_only, &elsewhere, 80));
    assert!(is_allowed(&alice_only, &alice, 80));
    assert!(!is_allowed(&alice_only, &elsewhere, 80));
    assert!(!is_allowed(&alice_only, &LAN, 80));
    for (port, allowed) in [(443, true), (8000, true), (8080, true), (442, false), (8081, false), (80, false)]
    {
        assert_eq!(is_allowed(&web_only, &LAN, port), allowed, "port {port}");
    }
}

#[test]
fn names_are_meant_as_they_are_written() {
    let is_meant = |pattern: &str, name: &str| {
        lookup(&Rules::new(vec![to(Allow, &[pattern])], Deny), &LAN, name, "198.51.100.1").is_ok()
    };
    assert!(is_meant("example.org", "Example.org.:80"));
    assert!(!is_meant("example.org", "www.example.org:80"));
    for below in [".example.org", "*.Example.org"] {
        assert!(is_meant(below, "www.example.org:80"));
        assert!(is_meant(below, "a.b.example.org:80"));
        assert!(!is_meant(below, "example.org:80"));
        assert!(!is_meant(below, "badexample.org:80"));
    }
}

#[test]
fn a_name_is_denied_before_it_is_looked_up_only_if_no_address_can_save_it() {
    let name = target("www.example.org:80");
    for (rules, before) in [
        (Rules::new(vec![to(Deny, &[".example.org"])], Allow), Err(Denied::Rule(0))),
        (Rules::new(vec![to(Allow, &["198.51.100.0/24"]), to(Deny, &[".example.org"])], Allow), Ok(())),
        (Rules::new(vec![to(Allow, &["198.51.100.0/24"])], Deny), Ok(())),
        (Rules::new(vec![to(Allow, &["other.example"])], Deny), Err(Denied::Default)),
        (Rules::new(vec![to(Deny, &["198.51.100.0/24"])], Deny), Err(Denied::Default)),
        (Rules::new(vec![to(Deny, &["198.51.100.0/24"])], Allow), Ok(())),
    ] {
        assert_eq!(rules.check(&LAN, &name), before, "{rules:?}");
    }
    let only_there = Rules::new(vec![to(Allow, &["198.51.100.0/24"])], Deny);
    assert_eq!(lookup(&only_there, &LAN, "www.example.org:80", "198.51.100.1"), Ok(()));
    assert_eq!(lookup(&only_there, &LAN, "www.example.org:80", "203.0.113.1"), Err(Denied::Default));
}

#[test]
fn a_name_that_leads_to_a_denied_address_is_denied() {
    for rules in [
        Rules::new(vec![to(Deny, &["10.0.0.0/8"])], Allow),
        Rules::new(vec![to(Deny, &["10.0.0.0/8"]), to(Allow, &[".example.org"])], Deny),
        Rules::new(vec![to(Allow, &[".example.org"]), to(Deny, &["10.0.0.0/8"])], Deny),
    ] {
        let denied = lookup(&rules, &LAN, "www.example.org:80", "10.1.1.1");
        assert!(matches!(denied, Err(Denied::Rule(_))), "{denied:?} by {rules:?}");
        assert_eq!(lookup(&rules, &LAN, "www.example.org:80", "198.51.100.1"), Ok(()));
    }
    let any_before =
        Rules::new(vec![to(Allow, &[".example.org"]), Rule::new(Allow), to(Deny, &["10.0.0.0/8"])], Deny);
    assert_eq!(lookup(&any_before, &LAN, "www.example.org:80", "10.1.1.1"), Ok(()));
    let rest_denied = Rules::new(vec![to(Allow, &[".example.org"]), Rule::new(Deny)], Allow);
    assert_eq!(lookup(&rest_denied, &LAN, "www.example.org:80", "10.1.1.1"), Ok(()));
    let except = Rules::new(
        vec![to(Allow, &["10.1.1.1"]), to(Allow, &[".example.org"]), to(Deny, &["10.0.0.0/8"])],
        Deny,
    );
    assert_eq!(lookup(&except, &LAN, "www.example.org:80", "10.1.1.1"), Ok(()));
}

#[test]
fn a_client_is_not_led_into_this_host() {
    let open = Rules::new(vec![Rule::new(Allow), to(Allow, &["0.0.0.0/0", "::/0", "localhost"])], Allow);
    for address in [
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "169.254.1.1",
        "169.254.169.254",
        "fd00:ec2::254",
        "fd20:ce::254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::127.0.0.1",
        "100.100.100.200",
        "fe80::1",
        "224.0.0.251",
        "ff02::fb",
        "255.255.255.255",
    ] {
        let ip: IpAddr = address.parse().unwrap();
        let there = Target { host: ip.into(), port: 80 };
        assert!(matches!(open.check(&LAN, &there), Err(Denied::Special(_))), "{address}");
        assert!(matches!(lookup(&open, &LAN, "localhost:80", address), Err(Denied::Special(_))), "{address}");
        assert_eq!(open.check(&SELF, &there), Ok(()), "{address}");
    }
    assert_eq!(open.check(&LAN, &target("198.51.100.1:80")), Ok(()));
    assert_eq!(open.check(&LAN, &target("[64:ff9b::c633:6401]:80")), Ok(()));
}

#[test]
fn a_rule_that_names_such_an_address_decides_of_it() {
    let web = Rule { ports: vec![8080.into()], ..to(Allow, &["127.0.0.1"]) };
    let rules = Rules::new(vec![web, to(Allow, &["169.254.0.0/16"])], Allow);
    assert_eq!(rules.check(&LAN, &target("127.0.0.1:8080")), Ok(()));
    assert_eq!(lookup(&rules, &LAN, "localhost:8080", "127.0.0.1"), Ok(()));
    assert!(rules.check(&LAN, &target("127.0.0.1:8081")).is_err());
    assert!(rules.check(&LAN, &target("127.0.0.2:8080")).is_err());
    assert_eq!(rules.check(&LAN, &target("169.254.1.1:80")), Ok(()));
    // The narrower one is not named by the wider.
    assert!(rules.check(&LAN, &target("169.254.169.254:80")).is_err());
    let denied = Rules::new(vec![to(Deny, &["127.0.0.0/8"]), to(Allow, &["127.0.0.1"])], Allow);
    assert_eq!(denied.check(&LAN, &target("127.0.0.1:80")), Err(Denied::Rule(0)));
    assert_eq!(denied.check(&SELF, &target("127.0.0.1:80")), Err(Denied::Rule(0)));
}

#[test]
fn what_names_no_hosts_or_ports_is_refused() {
    for text in [
        "",
        ".",
        "*",
        "*.",
        "a b",
        "*.*.org",
        "*example.org",
        "http://example.org",
        "10.0.0.0/33",
        "fe80::1%eth0",
    ] {
        assert!(text.parse::<HostPattern>().is_err(), "{text:?}");
    }
    for (text, written) in [
        ("*.a.org", "*.a.org"),
        (".a.org", "*.a.org"),
        ("A.org", "a.org"),
        ("::1", "::1"),
        ("10.0.0.0/8", "10.0.0.0/8"),
    ] {
        assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), written);
    }
    for text in ["", "0", "-1", "80-", "80-79", "65536", "+80", "80-90-100", "http"] {
        assert_eq!(text.parse::<PortRange>(), Err(PortRangeError), "{text:?}");
    }
    for text in ["80", "8000-8080"] {
        assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
    }
}

fn any_pattern() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a.org", ".a.org", "b.a.org", "198.51.100.0/24", "198.51.100.1", "0.0.0.0/0"])
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let verdict = || prop::sample::select(vec![Allow, Deny]);
    let rule = (verdict(), prop::collection::vec(any_pattern(), 0..3))
        .prop_map(|(verdict, hosts)| to(verdict, &hosts));
    (prop::collection::vec(rule, 0..6), verdict()).prop_map(|(rules, default)| Rules::new(rules, default))
}

proptest! {
    #[test]
    fn what_is_denied_by_name_is_denied_with_every_address(
        rules in any_rules(),
        name in prop::sample::select(vec!["a.org:80", "b.a.org:80", "c.org:80"]),
        address in prop::sample::select(vec!["198.51.100.1", "198.51.100.2", "203.0.113.1"]),
    ) {
        let target = target(name);
        let address: IpAddr = address.parse().unwrap();
        let by_address = rules.check_address(&LAN, &target, address);
        if rules.check(&LAN, &target).is_err() {
            prop_assert!(by_address.is_err());
        }
        // What a rule says of the address by its network holds, whatever the name is.
        let first = rules.rules.iter().find(|rule| rule.hosts.is_empty() || rule.names_network_of(address));
        if first.is_some_and(|rule| rule.verdict == Deny && !rule.hosts.is_empty()) {
            prop_assert!(by_address.is_err());
        }
    }

    #[test]
    fn any_text_is_a_pattern_or_refused(text: String) {
        if let Ok(pattern) = text.parse::<HostPattern>() {
            prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
        if let Ok(ports) = text.parse::<PortRange>() {
            prop_assert_eq!(ports.to_string().parse(), Ok(ports));
        }
    }
}
