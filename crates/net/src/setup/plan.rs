//! What has to be done so that a stack behind a TUN device can use every uplink: worked out from the state of the system,
//! without touching it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::SetupError;
use super::action::Action;
use super::state::{Link, SystemState, is_accept_ra};

/// Whether the system forwards IPv4.
pub(super) const FORWARD_V4: &str = "net/ipv4/ip_forward";
/// Whether the system forwards IPv6.
pub(super) const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";

/// Instances that one system can have.
pub(super) const SLOTS: u8 = 64;

/// Uplinks of one instance.
const MOST_PATHS: u8 = 15;

/// Tables and rules of slot s and path p have this number plus 16 s + p: far from what people and distributions choose.
const FIRST_TABLE: u32 = 707_000;
/// Before the main table's rule (32766), after the local one (0).
const FIRST_PRIORITY: u32 = 17_000;

/// What the user wants.
#[derive(Clone, Debug, Default)]
pub struct SetupOptions {
    /// The uplinks, by the names of their interfaces; all interfaces with an address and a default route if none is named.
    pub uplinks: Vec<String>,
    /// Interfaces that are used only when no other works.
    pub backups: Vec<String>,
    /// TCP ports at which the stack listens, reached at every uplink's address.
    pub exposed_ports: Vec<u16>,
}

/// How one uplink becomes a path of the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathPlan {
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
    pub fn stack_addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.stack_v4.map(IpAddr::V4).into_iter().chain(self.stack_v6.map(IpAddr::V6))
    }

    /// The address at which peers reach the stack's one of a family.
    #[must_use]
    pub fn outer_address(&self, is_v4: bool) -> Option<IpAddr> {
        self.uplink_addresses.iter().copied().find(|addr| addr.is_ipv4() == is_v4)
    }

    /// Whether a stack could tell the two apart.
    pub(super) fn is_same_to_stack(&self, other: &Self) -> bool {
        let known = |path: &Self| (path.number, path.stack_v4, path.stack_v6, path.is_backup);
        self.link == other.link && known(self) == known(other)
    }
}

/// The whole plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPlan {
    /// Number of the instance.
    pub slot: u8,
    /// What is needed once.
    pub base: Vec<Action>,
    /// The paths.
    pub paths: Vec<PathPlan>,
}

impl NetworkPlan {
    /// Works out a plan for the instance `slot`, whose TUN device is `tun`. `numbers` holds the numbers of uplinks that
    /// have, or had, one.
    pub fn compute(
        state: &SystemState,
        options: &SetupOptions,
        slot: u8,
        tun: &str,
        numbers: &BTreeMap<String, u8>,
    ) -> Result<Self, SetupError> {
        let mut numbers = numbers.clone();
        let mut paths = Vec::new();
        for link in uplinks(state, options, tun)? {
            let free = (0..MOST_PATHS).find(|number| !numbers.values().any(|used| used == number));
            let Some(number) = numbers.get(&link.name).copied().or(free) else { break };
            numbers.insert(link.name.clone(), number);
            paths.push(plan_path(state, options, slot, tun, link, number));
        }
        let base = base_actions(state, &paths);
        Ok(Self { slot, base, paths })
    }
}

/// The interfaces to use: usable ones only, but an error if one that the user named can't be used at all.
fn uplinks<'a>(
    state: &'a SystemState,
    options: &SetupOptions,
    tun: &str,
) -> Result<Vec<&'a Link>, SetupError> {
    for name in options.uplinks.iter().chain(&options.backups) {
        if state.link(name).is_none() {
            let present = state.links.iter().filter(|link| !link.is_loopback && link.name != tun);
            let present = present.map(|link| link.name.clone()).collect();
            return Err(SetupError::NoSuchInterface { name: name.clone(), present });
        }
    }
    let is_wanted = |link: &&Link| {
        let is_named = options.uplinks.is_empty()
            || options.uplinks.contains(&link.name)
            || options.backups.contains(&link.name);
        is_named && !link.is_loopback && link.name != tun && !link.name.starts_with("polypath")
    };
    let usable: Vec<&Link> =
        state.links.iter().filter(is_wanted).filter(|link| state.is_usable(link)).collect();
    Ok(usable)
}

fn plan_path(
    state: &SystemState,
    options: &SetupOptions,
    slot: u8,
    tun: &str,
    link: &Link,
    number: u8,
) -> PathPlan {
    let has = |is_v4: bool| {
        let has_address = link.addresses.iter().any(|addr| addr.is_ipv4() == is_v4);
        has_address && state.default_route(link.index, is_v4).is_some()
    };
    let stack_v4 = has(true).then(|| stack_v4(slot, number));
    let stack_v6 = has(false).then(|| stack_v6(slot, number));
    let id = 16 * u32::from(slot) + u32::from(number);
    let (table, priority) = (FIRST_TABLE + id, FIRST_PRIORITY + id);
    let mut plan = PathPlan {
        link: link.name.clone(),
        number,
        stack_v4,
        stack_v6,
        uplink_addresses: link.addresses.clone(),
        mtu_bytes: link.mtu_bytes,
        is_backup: options.backups.contains(&link.name),
        actions: Vec::new(),
    };
    for source in plan.stack_addresses() {
        let length = if source.is_ipv4() { 32 } else { 128 };
        let to_stack = Action::AddRoute {
            link: tun.to_string(),
            destination: (source, length),
            gateway: None,
            table: None,
        };
        plan.actions.push(to_stack);
        let through = state.routes.iter().filter(|route| {
            route.link == link.index
                && route.destination.0.is_ipv4() == source.is_ipv4()
                && is_useful(route.destination.0)
        });
        // Routes without a gateway first: the gateway is reached by one of them.
        let (near, far): (Vec<_>, Vec<_>) = through.partition(|route| route.gateway.is_none());
        let mut known = Vec::new();
        for route in near.into_iter().chain(far) {
            let is_worse = known.contains(&route.destination)
                || route.is_default() && state.default_route(link.index, source.is_ipv4()) != Some(route);
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
        plan.actions.push(Action::AddRule { source, table, priority });
    }
    plan
}

/// Link-local and multicast routes lead nowhere for the stack.
fn is_useful(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(_) => true,
        IpAddr::V6(addr) => !addr.is_unicast_link_local() && !addr.is_multicast(),
    }
}

/// From 198.18.0.0/15, which is set aside for benchmarks (RFC 2544 §C.2.2) and routed nowhere: home networks, companies
/// and carriers use the private ranges and 100.64.0.0/10. The addresses never leave the machine.
fn stack_v4(slot: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, slot, number + 1)
}

/// A unique local prefix (RFC 4193) of ours.
const STACK_PREFIX_V6: [u16; 3] = [0xfd70, 0x6f6c, 0x7970];

/// From our prefix; it never leaves the machine either.
fn stack_v6(slot: u8, number: u8) -> Ipv6Addr {
    let [a, b, c] = STACK_PREFIX_V6;
    Ipv6Addr::new(a, b, c, slot.into(), 0, 0, 0, u16::from(number) + 1)
}

/// Forwarding, where it is off. With it on, the kernel listens to router advertisements only if told so.
fn base_actions(state: &SystemState, paths: &[PathPlan]) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut set = |name: &str, value: &str| {
        if let Some(before) = state.variables.get(name)
            && before != value
        {
            let (name, value) = (name.to_string(), value.to_string());
            actions.push(Action::SetVariable { name, value, before: before.clone() });
        }
    };
    if paths.iter().any(|path| path.stack_v6.is_some()) {
        // On every interface, those that come later too: the kernel forgets the default routes of the others at once.
        for (variable, _) in
            state.variables.iter().filter(|(name, value)| is_accept_ra(name) && *value == "1")
        {
            set(variable, "2");
        }
        set(FORWARD_V6, "1");
    }
    set(FORWARD_V4, "1");
    actions
}

/// Whether an address is one of those that stacks have.
pub(super) fn is_stack_address(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => addr.octets()[..2] == [198, 18] && addr.octets()[2] < SLOTS,
        IpAddr::V6(addr) => {
            let segments = addr.segments();
            segments[..3] == STACK_PREFIX_V6 && segments[3] < SLOTS.into()
        }
    }
}

/// Whether a table is one of ours.
pub(super) fn is_table(table: u32) -> bool {
    (FIRST_TABLE..FIRST_TABLE + 16 * u32::from(SLOTS)).contains(&table)
}

/// Whether a rule's priority is one of ours.
pub(super) fn is_priority(priority: u32) -> bool {
    (FIRST_PRIORITY..FIRST_PRIORITY + 16 * u32::from(SLOTS)).contains(&priority)
}

/// The first instance number whose addresses, tables and rules nothing uses.
pub(super) fn is_slot_free(state: &SystemState, slot: u8) -> bool {
    let first = 16 * u32::from(slot);
    let ours = |addr: &IpAddr| match addr {
        IpAddr::V4(addr) => addr.octets()[..3] == [198, 18, slot],
        IpAddr::V6(addr) => addr.segments()[..3] == STACK_PREFIX_V6 && addr.segments()[3] == u16::from(slot),
    };
    let tables = FIRST_TABLE + first..FIRST_TABLE + first + 16;
    let priorities = FIRST_PRIORITY + first..FIRST_PRIORITY + first + 16;
    state.tables.range(tables).next().is_none()
        && state.rule_priorities.range(priorities).next().is_none()
        && !state.links.iter().flat_map(|link| &link.addresses).any(ours)
        && !state.routes.iter().any(|route| ours(&route.destination.0))
}
