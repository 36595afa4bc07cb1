//! What interfaces that were named are good for now, said before anything waits for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polypath_system::{Link, Namespace, Netlink, Route, SystemState};

use super::Failure;
use super::words::and;

/// What interfaces that were named are wanted for.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) named: Vec<String>,
    /// The peers' addresses, one list for each; none if nobody knows them yet.
    pub(super) peers: &'a [Vec<IpAddr>],
    /// A program connects to peers that only it knows.
    pub(super) is_for_anybody: bool,
    /// Sockets of the system are bound to the interfaces: routes count in whatever table they stand.
    pub(super) has_all_tables: bool,
}

/// Addresses that stand for all those without a route of their own.
const ANYWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// Looks at the interfaces; the lines that somebody should read, or why none of them will do.
pub(super) fn look(wanted: &Wanted<'_>) -> Result<Vec<String>, Failure> {
    let looked = Namespace::current().and_then(|namespace| {
        namespace.run(|| {
            let netlink = Netlink::new()?;
            let state = SystemState::read(&netlink)?;
            // What can't be found out is no reason to complain.
            let leads_to = |link: &Link, addr| {
                state.leads_to(link.index, addr)
                    || wanted.has_all_tables && netlink.leads_to(link.index, addr).unwrap_or(true)
            };
            Ok(missing(&state, &wanted.named)
                .and_then(|line| Ok(line.into_iter().chain(cut_off(&state, wanted, leads_to)?).collect())))
        })?
    });
    looked.map_err(Failure::run)?.map_err(Failure::Input)
}

/// Those that no interface has the name of, which is an error if all of them are such.
fn missing(state: &SystemState, named: &[String]) -> Result<Option<String>, String> {
    let missing: Vec<&str> =
        named.iter().map(String::as_str).filter(|name| state.link(name).is_none()).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let is_others = |link: &&Link| !link.is_loopback && !link.name.starts_with("polypath");
    let present: Vec<&str> = state.links.iter().filter(is_others).map(|link| link.name.as_str()).collect();
    let present = if present.is_empty() { "none".into() } else { present.join(", ") };
    let names = and(&missing);
    let is_one = missing.len() == 1;
    if missing.len() == named.len() {
        let what = if is_one { "is no interface" } else { "are no interfaces" };
        return Err(format!("there {what} {names}; present are: {present}"));
    }
    let (are, they, come) = if is_one { ("is", "it is", "comes") } else { ("are", "they are", "come") };
    let it = if is_one { "it" } else { "they" };
    Ok(Some(format!("{names} {are} not there now (present are: {present}); {they} used when {it} {come}")))
}

/// Those that have no route to the peers, which is an error if all of them are such.
fn cut_off(
    state: &SystemState,
    wanted: &Wanted<'_>,
    leads_to: impl Fn(&Link, IpAddr) -> bool,
) -> Result<Vec<String>, String> {
    let links: Vec<&Link> = wanted.named.iter().filter_map(|name| state.link(name)).collect();
    // What is down or has no address is used when that has changed.
    let links = || links.iter().copied().filter(|link| link.is_running && !link.addresses.is_empty());
    for peer in wanted.peers.iter().filter(|peer| is_elsewhere(state, peer)) {
        let lines: Vec<String> = links()
            .filter(|link| !peer.iter().any(|addr| leads_to(link, *addr)))
            .filter_map(|link| {
                // Of another family it has nothing, and a route would not help.
                let addr = peer.iter().find(|addr| has_family(link, addr))?;
                Some(format!("{} has no route to {addr}; {}", link.name, remedy(state, link, addr)))
            })
            .collect();
        if !lines.is_empty() {
            return if lines.len() == wanted.named.len() { Err(lines.join("; ")) } else { Ok(lines) };
        }
    }
    // Where nothing leads out, nothing is meant to.
    if !wanted.is_for_anybody || !state.routes.iter().any(Route::is_default) {
        return Ok(Vec::new());
    }
    let leads_out = |link: &Link| ANYWHERE.iter().any(|addr| has_family(link, addr) && leads_to(link, *addr));
    let cut_off = links().filter(|link| !leads_out(link)).filter_map(|link| {
        let addr = ANYWHERE.iter().find(|addr| has_family(link, addr))?;
        Some(format!(
            "{} has no default route, and reaches its own networks alone; {}",
            link.name,
            remedy(state, link, addr)
        ))
    });
    Ok(cut_off.collect())
}

fn has_family(link: &Link, addr: &IpAddr) -> bool {
    link.addresses.iter().any(|own| own.is_ipv4() == addr.is_ipv4())
}

/// It is not this machine, and an address says by itself where it is.
fn is_elsewhere(state: &SystemState, peer: &[IpAddr]) -> bool {
    !peer.is_empty()
        && peer.iter().all(|addr| {
            let is_here = addr.is_loopback()
                || addr.is_unspecified()
                || state.links.iter().any(|link| link.addresses.contains(addr));
            let is_of_link = matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
            !is_here && !is_of_link
        })
}

/// The command for a default route that is taken after all others.
fn remedy(state: &SystemState, link: &Link, addr: &IpAddr) -> String {
    let family = |route: &&Route| route.destination.0.is_ipv4() == addr.is_ipv4();
    let metrics = state.routes.iter().filter(|route| route.is_default()).filter(family);
    let metric = metrics.map(|route| route.metric).max().unwrap_or(0).saturating_add(100);
    let ip = if addr.is_ipv4() { "ip" } else { "ip -6" };
    format!("add one with: {ip} route add default via GATEWAY dev {} metric {metric}", link.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.into(),
            is_up: true,
            is_running: true,
            is_loopback: name == "lo",
            kind: None,
            mtu_bytes: 1500,
            addresses: Vec::new(),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    #[test]
    fn what_is_missing_is_said_and_an_error_if_nothing_else_was_named() {
        let links = vec![link(1, "lo"), link(2, "eth0"), link(3, "wlan0"), link(4, "polypath0")];
        let state = SystemState { links, ..SystemState::default() };
        let missing = |named: &[&str]| missing(&state, &names(named));
        assert_eq!(missing(&["eth0", "wlan0"]), Ok(None));
        assert_eq!(
            missing(&["eth0", "typo0"]).unwrap().as_deref(),
            Some("typo0 is not there now (present are: eth0, wlan0); it is used when it comes")
        );
        assert_eq!(
            missing(&["a", "eth0", "b"]).unwrap().as_deref(),
            Some("a and b are not there now (present are: eth0, wlan0); they are used when they come")
        );
        assert_eq!(missing(&["a"]).unwrap_err(), "there is no interface a; present are: eth0, wlan0");
        assert_eq!(
            missing(&["a", "b"]).unwrap_err(),
            "there are no interfaces a and b; present are: eth0, wlan0"
        );
    }
    /// Two interfaces with networks of their own; one of them leads out.
    fn two() -> SystemState {
        let links = [(1, "lo"), (2, "wlan0"), (3, "wwan0"), (4, "usb0")].map(|(index, name)| Link {
            addresses: vec![IpAddr::from([10, 0, index as u8, 2])],
            ..link(index, name)
        });
        let route = |link, destination, metric| Route { destination, gateway: None, link, metric };
        let own = |link| route(link, (IpAddr::from([10, 0, link as u8, 0]), 24), 0);
        let routes = vec![own(2), own(3), own(4), route(2, (IpAddr::from([0; 4]), 0), 600)];
        SystemState { links: links.into(), routes, ..SystemState::default() }
    }

    #[test]
    fn an_interface_without_a_route_to_the_peer_is_told_with_what_brings_one() {
        let peer = |peer: [u8; 4]| vec![vec![IpAddr::from(peer)]];
        let look = |named: &[&str], peers: &[Vec<IpAddr>]| {
            let state = two();
            let named = names(named);
            let wanted = Wanted { named, peers, is_for_anybody: peers.is_empty(), has_all_tables: false };
            cut_off(&state, &wanted, |link, addr| state.leads_to(link.index, addr))
        };
        let far = peer([192, 0, 2, 80]);
        let remedy = |name| format!("add one with: ip route add default via GATEWAY dev {name} metric 700");
        let line = format!("wwan0 has no route to 192.0.2.80; {}", remedy("wwan0"));
        assert_eq!(look(&["wwan0"], &far), Err(line.clone()));
        assert_eq!(look(&["wlan0", "wwan0"], &far), Ok(vec![line.clone()]));
        assert_eq!(look(&["wwan0", "typo0"], &far), Ok(vec![line.clone()]), "that one may come");
        let both = format!("{line}; usb0 has no route to 192.0.2.80; {}", remedy("usb0"));
        assert_eq!(look(&["wwan0", "usb0"], &far), Err(both));
        for near in [[10, 0, 3, 9], [10, 0, 4, 2], [127, 0, 0, 1]] {
            assert_eq!(look(&["wwan0"], &peer(near)), Ok(Vec::new()), "{near:?}");
        }
        let other_family = vec![vec!["2001:db8::80".parse().unwrap()]];
        assert_eq!(look(&["wwan0"], &other_family), Ok(Vec::new()));
        let line =
            format!("wwan0 has no default route, and reaches its own networks alone; {}", remedy("wwan0"));
        assert_eq!(look(&["wwan0"], &[]), Ok(vec![line]));
        assert_eq!(look(&["wlan0"], &[]), Ok(Vec::new()));
    }
}
