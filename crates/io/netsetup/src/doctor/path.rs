//! What can be told of a path without sending anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polypath_system::{Link, SystemState};

use super::Finding;
use super::ask::{Offloads, variable};

/// IPv6 requires this much of every path (RFC 8200 §5).
const LEAST_MTU_BYTES: u32 = 1280;

/// Settings of an interface beyond its addresses and routes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    /// Reverse path filter for IPv4: 0 off, 1 strict, 2 loose (RFC 3704).
    pub(super) rp_filter: u8,
    pub(super) offloads: Option<Offloads>,
}

impl Settings {
    pub(super) fn read(link: &str, offloads: Option<Offloads>) -> Self {
        let value = |link: &str| {
            let value = variable(&format!("net/ipv4/conf/{link}/rp_filter"));
            value.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        // The stricter of the two counts, by ip-sysctl.
        Self { rp_filter: std::cmp::max(value("all"), value(link)), offloads }
    }
}

pub(super) fn check(state: &SystemState, link: &Link, settings: &Settings) -> Vec<Finding> {
    let up = interface(link);
    if up.level == super::Level::Blocked {
        // Addresses and routes come with the interface.
        return vec![up];
    }
    let mut findings = vec![up, address(link)];
    if link.addresses.is_empty() {
        return findings;
    }
    findings.push(route(state, link));
    findings.extend(reverse_path(state, link, settings.rp_filter));
    findings.push(translation(link));
    findings.push(mtu(link));
    findings.extend(settings.offloads.map(|offloads| offload(link, offloads)));
    findings
}

fn interface(link: &Link) -> Finding {
    let name = &link.name;
    match (link.is_up, link.is_running) {
        (true, true) => Finding::good("interface", "it is up"),
        (true, false) => Finding::blocked(
            "interface",
            "it is switched on, but has no carrier",
            "plug in the cable, or join a wireless network",
        ),
        (false, _) => Finding::blocked("interface", "it is switched off", format!("`ip link set {name} up`")),
    }
}

fn address(link: &Link) -> Finding {
    if link.addresses.is_empty() {
        return Finding::blocked(
            "address",
            "it has no address that reaches beyond the link",
            format!(
                "start a DHCP client, such as `nmcli device connect {0}`, or `ip address add ADDRESS/LENGTH dev {0}`",
                link.name
            ),
        );
    }
    let list: Vec<String> = link.addresses.iter().map(ToString::to_string).collect();
    Finding::good("address", list.join(", "))
}

fn route(state: &SystemState, link: &Link) -> Finding {
    let name = &link.name;
    let families = [(true, "IPv4"), (false, "IPv6")].map(|(is_v4, family)| {
        let has_address = link.addresses.iter().any(|addr| addr.is_ipv4() == is_v4);
        (family, has_address, state.default_route(link.index, is_v4))
    });
    let through = families.iter().filter_map(|(family, has_address, route)| {
        let route = route.filter(|_| *has_address)?;
        let by = route.gateway.map_or_else(|| "the link itself".to_string(), |gateway| gateway.to_string());
        Some(format!("{family} by {by}"))
    });
    let through: Vec<String> = through.collect();
    if through.is_empty() {
        return Finding::blocked(
            "route",
            "no default route leads out by it",
            format!("`ip route add default via GATEWAY dev {name} metric 1000`, with its gateway's address"),
        );
    }
    Finding::good("route", format!("the default route leads out by it: {}", through.join(", ")))
}

/// A strict filter drops what comes in by an interface that the way back would not take.
fn reverse_path(state: &SystemState, link: &Link, rp_filter: u8) -> Option<Finding> {
    let own = state.default_route(link.index, true)?;
    let defaults = state.routes.iter().filter(|route| route.is_default() && route.destination.0.is_ipv4());
    let is_first = defaults.min_by_key(|route| route.metric).is_some_and(|first| first.link == link.index);
    let has_rule = link.addresses.iter().any(|addr| state.rule_sources.contains(addr));
    let strict = rp_filter == 1 && !is_first && !has_rule && own.destination.0.is_ipv4();
    if !strict {
        return Some(Finding::good("rp_filter", "the reverse path filter lets answers in"));
    }
    let name = &link.name;
    Some(Finding::limited(
        "rp_filter",
        "the reverse path filter is strict, and drops answers: the way back to a peer leads by another interface",
        format!(
            "`sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{name}.rp_filter=2`, or choose --engine tun, which has rules of its own"
        ),
    ))
}

/// What an address tells of the translators before it.
fn translation(link: &Link) -> Finding {
    let kinds = link.addresses.iter().map(|addr| kind(*addr));
    match kinds.max() {
        Some(Reach::Public) => {
            Finding::good("nat", "it has a public address: peers reach it unless a firewall is in the way")
        }
        Some(Reach::Carrier) => Finding::limited(
            "nat",
            "its provider translates its address (100.64.0.0/10) and shares it among customers: peers can't reach it",
            "open connections from here; paths that are opened from here work",
        ),
        _ => Finding::limited(
            "nat",
            "its address is private, so a translator stands before other networks: peers there can't reach it",
            "open connections from here, or forward a port at the router",
        ),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Private,
    Carrier,
    Public,
}

fn kind(addr: IpAddr) -> Reach {
    match addr {
        // RFC 6598.
        IpAddr::V4(addr) if in_prefix(addr, Ipv4Addr::new(100, 64, 0, 0), 10) => Reach::Carrier,
        IpAddr::V4(addr) if addr.is_private() || addr.is_link_local() || addr.is_documentation() => {
            Reach::Private
        }
        IpAddr::V4(_) => Reach::Public,
        IpAddr::V6(addr) if is_global_unicast(addr) => Reach::Public,
        IpAddr::V6(_) => Reach::Private,
    }
}

fn in_prefix(addr: Ipv4Addr, prefix: Ipv4Addr, length: u32) -> bool {
    (addr.to_bits() ^ prefix.to_bits()) >> (32 - length) == 0
}

/// 2000::/3 (RFC 4291 §2.4).
fn is_global_unicast(addr: Ipv6Addr) -> bool {
    addr.segments()[0] & 0xe000 == 0x2000
}

fn mtu(link: &Link) -> Finding {
    let mtu = link.mtu_bytes;
    if mtu < LEAST_MTU_BYTES {
        return Finding::limited(
            "mtu",
            format!("packets of {mtu} bytes at most leave by it: IPv6 needs {LEAST_MTU_BYTES}"),
            format!("`ip link set {} mtu 1500`, if the network carries that", link.name),
        );
    }
    Finding::good("mtu", format!("packets of up to {mtu} bytes leave by it"))
}

fn offload(link: &Link, offloads: Offloads) -> Finding {
    // A virtual interface gets whole what the other end sends whole.
    let receives_large = offloads.receives_large || link.kind.is_some();
    let missing = match (offloads.sends_large, receives_large) {
        (true, true) => return Finding::good("offload", "it sends and receives large segments"),
        (false, true) => "gso on tso on",
        (true, false) => "gro on",
        (false, false) => "gso on tso on gro on",
    };
    Finding::limited(
        "offload",
        "large segments are off, so each packet costs the processor a round of its own",
        format!("`ethtool -K {} {missing}`", link.name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_tells_of_translators() {
        for (addr, expected) in [
            ("192.168.1.2", Reach::Private),
            ("10.0.0.1", Reach::Private),
            ("172.31.0.1", Reach::Private),
            ("100.63.255.255", Reach::Public),
            ("100.64.0.1", Reach::Carrier),
            ("100.127.255.255", Reach::Carrier),
            ("100.128.0.0", Reach::Public),
            ("9.9.9.9", Reach::Public),
            ("2a00::1", Reach::Public),
            ("fd00::1", Reach::Private),
        ] {
            assert_eq!(kind(addr.parse().unwrap()), expected, "{addr}");
        }
    }
}
