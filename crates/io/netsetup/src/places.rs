//! Where instances and their paths have their place in the system: addresses, tables, rules and marks that nobody else uses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polypath_system::SystemState;

/// The devices of all instances.
pub(super) const DEVICES: &str = "polypath*";

/// Instances that one system can have.
pub(super) const SLOTS: u8 = 64;

/// Tables and rules of slot s and path p have this number plus 16 s + p: far from what people and distributions choose.
pub(super) const FIRST_TABLE: u32 = 707_000;
/// Before the main table's rule (32766), after the local one (0).
pub(super) const FIRST_PRIORITY: u32 = 17_000;
/// Before those: answers leave by the uplink that the connection came in by.
pub(super) const FIRST_MARK_PRIORITY: u32 = 15_500;
/// Before all of them: what is for a stack of this system goes to it, whoever sends it.
pub(super) const FIRST_STACK_PRIORITY: u32 = 14_400;
/// Packets and connections of slot s and path p have this mark plus 16 s + p: bits that no known program masks.
pub(super) const FIRST_MARK: u32 = 0x7070_0000;

/// The device's own address stands behind those of the paths.
pub(super) const DEVICE_NUMBER: u8 = 253;

pub(super) fn id(slot: u8, number: u8) -> u32 {
    16 * u32::from(slot) + u32::from(number)
}

/// The mark of connections that came in by a path, and of the answers to them.
pub(super) fn mark(slot: u8, number: u8) -> u32 {
    FIRST_MARK + id(slot, number)
}

/// From 198.18.0.0/15, which is set aside for benchmarks (RFC 2544 §C.2.2) and routed nowhere: home networks, companies
/// and carriers use the private ranges and 100.64.0.0/10. The addresses never leave the machine.
pub(super) fn stack_v4(slot: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, slot, number + 1)
}

/// A unique local prefix (RFC 4193) of ours.
const STACK_PREFIX_V6: [u16; 3] = [0xfd70, 0x6f6c, 0x7970];

/// From our prefix; it never leaves the machine either.
pub(super) fn stack_v6(slot: u8, number: u8) -> Ipv6Addr {
    let [a, b, c] = STACK_PREFIX_V6;
    Ipv6Addr::new(a, b, c, slot.into(), 0, 0, 0, u16::from(number) + 1)
}

/// All addresses that stacks have, and the length of their prefix.
pub(super) const STACKS_V4: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 18);
pub(super) const STACKS_V6: (IpAddr, u8) = {
    let [a, b, c] = STACK_PREFIX_V6;
    (IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), 48)
};

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
    let firsts = [FIRST_PRIORITY, FIRST_MARK_PRIORITY, FIRST_STACK_PRIORITY];
    firsts.iter().any(|first| (*first..first + 16 * u32::from(SLOTS)).contains(&priority))
}

/// Whether a mark is one of ours.
pub(super) fn is_mark(mark: u32) -> bool {
    (FIRST_MARK..FIRST_MARK + 16 * u32::from(SLOTS)).contains(&mark)
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
