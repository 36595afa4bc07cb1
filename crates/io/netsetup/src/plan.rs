//! What has to be done so that a stack behind a TUN device can use every uplink: worked out from the state of the system,
//! without touching it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polypath_system::sysctl::{FORWARD_V6, forwarding, forwarding_link, is_accept_ra};
use polypath_system::{Link, SystemState, network_contains};
use serde::Serialize;

use super::action::Action;
use super::error::SetupError;
use super::options::SetupOptions;
use super::places::{
    DEVICE_NUMBER, FIRST_MARK, FIRST_MARK_PRIORITY, FIRST_PRIORITY, FIRST_STACK_PRIORITY, FIRST_TABLE, id,
    stack_v4, stack_v6,
};

/// Uplinks of one instance.
const MOST_PATHS: u8 = 15;

/// Networks without a way out that one instance reaches beside its uplinks.
const MOST_ATTACHED: usize = 7;

/// How one uplink becomes a path of the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PathPlan {
    /// The uplink's interface.
    pub link: String,
    /// Number of the path within the instance, from 0: it stays the same when the uplink goes and comes back.
    pub number: u8,
    /// The stack's IPv4 address for this path, if the uplink has IPv4.
    pub stack_v4: Option<Ipv4Addr>,
    /// The stack's IPv6 address for this path, if the uplink has IPv6.
    pub stack_v6: Option<Ipv6Addr>,
    /// The uplink's own addresses, which peers or a NAT see.
    pub uplink_addresses: Vec<IpAddr>,
    /// Networks that the interface has routes to, beside the default route.
    pub networks: Vec<(IpAddr, u8)>,
    /// Those of the stack's addresses that reach these networks and nothing else, while others lead out.
    pub confined: Vec<IpAddr>,
    /// Largest packet, in bytes.
    pub mtu_bytes: u32,
    /// Use it only when no other works.
    pub is_backup: bool,
    /// What makes it work.
    #[serde(skip)]
    pub actions: Vec<Action>,
}

impl PathPlan {
    /// The stack's addresses for this path.
    pub(crate) fn stack_addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.stack_v4.map(IpAddr::V4).into_iter().chain(self.stack_v6.map(IpAddr::V6))
    }

    /// The address at which peers reach the stack's one of a family.
    #[must_use]
    pub(crate) fn outer_address(&self, is_v4: bool) -> Option<IpAddr> {
        self.uplink_addresses.iter().copied().find(|addr| addr.is_ipv4() == is_v4)
    }

    /// Those of the stack's addresses from which every peer may be reached: subflows are opened from them.
    pub(crate) fn open_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.stack_addresses().filter(|addr| !self.confined.contains(addr))
    }

    /// Whether it leads to its own networks only.
    pub(super) fn is_confined(&self) -> bool {
        self.open_addresses().next().is_none()
    }

    /// Length of the longest prefix of a network of this path that has the address in it.
    pub(crate) fn reaches(&self, addr: IpAddr) -> Option<u8> {
        let containing = self.networks.iter().filter(|network| network_contains(**network, addr));
        containing.map(|(_, length)| *length).max()
    }

    /// Whether it is the path that `other` was at another time.
    pub(super) fn is_same_path(&self, other: &Self) -> bool {
        (&self.link, self.number) == (&other.link, other.number)
    }

    /// Whether one of the stack's addresses is of this path.
    pub(super) fn has(&self, addr: IpAddr) -> bool {
        self.stack_addresses().any(|own| own == addr)
    }

    /// Whether an address that led everywhere leads to its own networks only by now.
    pub(super) fn confines(&self, before: &Self, addr: IpAddr) -> bool {
        self.confined.contains(&addr) && !before.confined.contains(&addr)
    }

    /// Whether subflows are opened from no other addresses than before.
    pub(super) fn opens_no_more_than(&self, before: &Self) -> bool {
        self.open_addresses().all(|addr| before.open_addresses().any(|known| known == addr))
    }
}

/// The whole plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkPlan {
    /// Number of the instance.
    pub slot: u8,
    /// What is needed once.
    pub base: Vec<Action>,
    /// What the stack's device needs; it goes with the device.
    pub device: Vec<Action>,
    /// The paths, those that lead out first.
    pub paths: Vec<PathPlan>,
    /// The system's addresses that are of no path: peers may know a listener by them all the same.
    pub other_addresses: Vec<IpAddr>,
}

impl NetworkPlan {
    /// Works out a plan for the instance `slot`, whose TUN device is `tun`. `numbers` holds the numbers of uplinks that
    /// have, or had, one.
    pub(crate) fn compute(
        state: &SystemState,
        options: &SetupOptions,
        slot: u8,
        tun: &str,
        numbers: &BTreeMap<String, u8>,
    ) -> Result<Self, SetupError> {
        let mut numbers = numbers.clone();
        let mut paths = Vec::new();
        for (link, is_attached) in interfaces(state, options, tun, &numbers)? {
            let free = (0..MOST_PATHS).find(|number| !numbers.values().any(|used| used == number));
            let Some(number) = numbers.get(&link.name).copied().or(free) else { break };
            numbers.insert(link.name.clone(), number);
            paths.push(plan_path(state, options, slot, tun, link, Place { number, is_attached }));
        }
        let base = base_actions(state, &paths);
        let other_addresses = other_addresses(state, options, &paths);
        let device = device_actions(slot, tun, has_force_forwarding(state));
        Ok(Self { slot, base, device, paths, other_addresses })
    }
}

/// The interfaces to use, usable ones only, and whether each is used for its own networks only. Some that the user named may
/// come late, or be gone for a while; an error if none of them is or was there.
fn interfaces<'a>(
    state: &'a SystemState,
    options: &SetupOptions,
    tun: &str,
    numbers: &BTreeMap<String, u8>,
) -> Result<Vec<(&'a Link, bool)>, SetupError> {
    let named = options.uplinks.iter().chain(&options.backups);
    let present = || {
        let present = state.links.iter().filter(|link| !link.is_loopback && link.name != tun);
        present.map(|link| link.name.clone()).collect()
    };
    let is_loopback = |name: &&String| state.link(name).is_some_and(|link| link.is_loopback);
    if let Some(name) = named.clone().find(is_loopback) {
        return Err(SetupError::Loopback { name: name.clone(), present: present() });
    }
    if let Some(name) = named.clone().next()
        && numbers.is_empty()
        && !named.clone().any(|name| state.link(name).is_some())
    {
        return Err(SetupError::NoSuchInterface { name: name.clone(), present: present() });
    }
    let is_named = |link: &&Link| {
        options.uplinks.is_empty()
            || options.uplinks.contains(&link.name)
            || options.backups.contains(&link.name)
    };
    let is_others = |link: &&Link| {
        !link.is_loopback && link.is_running && link.name != tun && !link.name.starts_with("polypath")
    };
    let usable = state.links.iter().filter(is_named).filter(is_others).filter(|link| state.is_attached(link));
    let (mut chosen, attached): (Vec<_>, Vec<_>) = usable.partition(|link| state.is_usable(link));
    if !options.uplinks.is_empty() || chosen.is_empty() {
        chosen.extend(attached);
        return Ok(chosen.into_iter().map(|link| (link, false)).collect());
    }
    let backups = attached.iter().filter(|link| options.backups.contains(&link.name));
    chosen.extend(backups);
    let chosen = chosen.into_iter().map(|link| (link, false));
    let attached = attached.into_iter().filter(|link| !options.backups.contains(&link.name));
    Ok(chosen.chain(attached.take(MOST_ATTACHED).map(|link| (link, true))).collect())
}

/// Where a path stands in an instance.
struct Place {
    number: u8,
    /// It is used for its own networks only.
    is_attached: bool,
}

fn plan_path(
    state: &SystemState,
    options: &SetupOptions,
    slot: u8,
    tun: &str,
    link: &Link,
    Place { number, is_attached }: Place,
) -> PathPlan {
    let stack_v4 = state.has_route(link, true).then(|| stack_v4(slot, number));
    let stack_v6 = state.has_route(link, false).then(|| stack_v6(slot, number));
    let mut plan = PathPlan {
        link: link.name.clone(),
        number,
        stack_v4,
        stack_v6,
        uplink_addresses: link.addresses.clone(),
        networks: Vec::new(),
        confined: Vec::new(),
        mtu_bytes: link.mtu_bytes,
        is_backup: options.backups.contains(&link.name),
        actions: Vec::new(),
    };
    for source in plan.stack_addresses() {
        let leads_out = |is_v4| state.default_route(link.index, is_v4).is_some();
        let has_other_way = is_attached || leads_out(true) || leads_out(false);
        if has_other_way && !leads_out(source.is_ipv4()) {
            plan.confined.push(source);
        }
        plan_address(state, link, &mut plan, source, (slot, tun));
    }
    plan
}

/// Plans what one of the stack's addresses needs.
fn plan_address(
    state: &SystemState,
    link: &Link,
    plan: &mut PathPlan,
    source: IpAddr,
    (slot, tun): (u8, &str),
) {
    let id = id(slot, plan.number);
    let (table, is_v4) = (FIRST_TABLE + id, source.is_ipv4());
    plan.actions.extend(lead_to_stack(source, tun, id));
    let through = state.routes.iter().filter(|route| {
        route.link == link.index && route.destination.0.is_ipv4() == is_v4 && is_useful(route.destination.0)
    });
    // Routes without a gateway first: the gateway is reached by one of them.
    let (near, far): (Vec<_>, Vec<_>) = through.partition(|route| route.gateway.is_none());
    let mut known = Vec::new();
    for route in near.into_iter().chain(far) {
        let is_worse = known.contains(&route.destination)
            || route.is_default() && state.default_route(link.index, is_v4) != Some(route);
        if is_worse {
            continue;
        }
        known.push(route.destination);
        plan.actions.push(Action::AddRoute {
            link: link.name.clone(),
            destination: route.destination,
            gateway: route.gateway,
            table: Some(table),
        });
    }
    plan.networks.extend(known.into_iter().filter(|(_, length)| *length > 0));
    let (mark, priority) = (FIRST_MARK + id, FIRST_MARK_PRIORITY + id);
    plan.actions.push(Action::AddMarkRule { mark, is_v4, table, priority });
    plan.actions.push(Action::AddRule { source, table, priority: FIRST_PRIORITY + id });
}

/// What leads packets for one of the stack's addresses to it.
fn lead_to_stack(addr: IpAddr, tun: &str, id: u32) -> [Action; 2] {
    let destination = (addr, if addr.is_ipv4() { 32 } else { 128 });
    [
        Action::AddRoute { link: tun.to_string(), destination, gateway: None, table: None },
        Action::AddDestinationRule { destination: addr, priority: FIRST_STACK_PRIORITY + id },
    ]
}

/// Where interfaces were named, the others' addresses are none of the stack's business.
fn other_addresses(state: &SystemState, options: &SetupOptions, paths: &[PathPlan]) -> Vec<IpAddr> {
    if !options.uplinks.is_empty() {
        return Vec::new();
    }
    let is_of_path = |addr: &IpAddr| {
        let stack = |path: &PathPlan| path.stack_addresses().any(|own| own.is_ipv4() == addr.is_ipv4());
        paths.iter().any(|path| stack(path) && path.uplink_addresses.contains(addr))
    };
    let others = state.links.iter().filter(|link| !link.name.starts_with("polypath"));
    let others = others.flat_map(|link| link.addresses.iter().copied());
    others.filter(|addr| !is_of_path(addr) && !addr.is_loopback()).collect()
}

/// The system's own clients and servers are reached by the addresses that they know each other by. From a device, the kernel
/// takes its own addresses only if told so and, with reverse paths checked, if the device has an address.
fn device_actions(slot: u8, tun: &str, has_force_forwarding: bool) -> Vec<Action> {
    let set = |(variable, value): (&str, &str)| Action::SetVariable {
        name: format!("{DEVICE_VARIABLES}{tun}/{variable}"),
        value: value.into(),
        before: "0".into(),
    };
    let addr = Action::AddAddress { link: tun.into(), addr: stack_v4(slot, DEVICE_NUMBER).into() };
    let variables = [("accept_local", "1"), ("route_localnet", "1"), ("rp_filter", "2"), ("forwarding", "1")];
    let forwards_v6 = set_forwarding(tun, false);
    std::iter::once(addr)
        .chain(variables.map(set))
        .chain(has_force_forwarding.then_some(forwards_v6))
        .collect()
}

/// Variables of an interface for IPv4.
const DEVICE_VARIABLES: &str = "net/ipv4/conf/";

/// Link-local and multicast routes lead nowhere for the stack.
fn is_useful(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(_) => true,
        IpAddr::V6(addr) => !addr.is_unicast_link_local() && !addr.is_multicast(),
    }
}

fn set_forwarding(link: &str, is_v4: bool) -> Action {
    Action::SetVariable { name: forwarding(link, is_v4), value: "1".into(), before: "0".into() }
}

/// Whether interfaces can be told one by one to forward IPv6 (Linux 6.17).
fn has_force_forwarding(state: &SystemState) -> bool {
    let mut names = state.variables.keys();
    names.any(|name| forwarding_link(name).is_some_and(|(_, is_v4)| !is_v4))
}

/// Forwarding of what comes by the paths.
fn base_actions(state: &SystemState, paths: &[PathPlan]) -> Vec<Action> {
    let links = |is_used: fn(&PathPlan) -> bool| -> Vec<&str> {
        paths.iter().filter(|path| is_used(path)).map(|path| path.link.as_str()).collect()
    };
    forwarding_actions(state, &links(|path| path.stack_v4.is_some()), &links(|path| path.stack_v6.is_some()))
}

/// Forwarding of what comes by these interfaces, where it is off: others decide about other interfaces. Where only the whole system
/// can forward IPv6, the kernel then listens to router advertisements only if told so.
pub(super) fn forwarding_actions(state: &SystemState, links_v4: &[&str], links_v6: &[&str]) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut set = |name: &str, value: &str| {
        if let Some(before) = state.variables.get(name)
            && before != value
        {
            let (name, value) = (name.to_string(), value.to_string());
            actions.push(Action::SetVariable { name, value, before: before.clone() });
        }
    };
    for link in links_v4 {
        set(&forwarding(link, true), "1");
    }
    let is_on = state.variables.get(FORWARD_V6).is_some_and(|value| value == "1");
    for link in links_v6.iter().filter(|_| !is_on) {
        set(&forwarding(link, false), "1");
    }
    if !links_v6.is_empty() && !has_force_forwarding(state) {
        // On every interface, those that come later too: the kernel forgets the default routes of the others at once.
        for (variable, _) in
            state.variables.iter().filter(|(name, value)| is_accept_ra(name) && *value == "1")
        {
            set(variable, "2");
        }
        set(FORWARD_V6, "1");
    }
    actions
}
