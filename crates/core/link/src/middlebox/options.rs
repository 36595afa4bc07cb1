//! What several boxes do to options.

use polypath_wire::{MptcpOption, Options, Packet, SackBlock, SeqNumber, TcpOption};

/// True if there is any Multipath TCP option.
pub(super) fn has_mptcp(options: &Options) -> bool {
    options.dss.is_some() || options.mptcp().next().is_some()
}

/// Takes all Multipath TCP options out.
pub(super) fn remove_mptcp(options: &mut Options) {
    options.dss = None;
    options.rest.retain(|option| !matches!(option, TcpOption::Mptcp(_)));
}

/// Changes every sequence number in the SACK options.
pub(super) fn map_sack(options: &mut Options, map: impl Fn(SeqNumber) -> SeqNumber) {
    let map_block = |block: &mut SackBlock| {
        block.start = map(block.start);
        block.end = map(block.end);
    };
    options.sack.iter_mut().for_each(map_block);
    for option in &mut options.rest {
        if let TcpOption::Sack(blocks) = option {
            blocks.iter_mut().for_each(map_block);
        }
    }
}

/// Takes all SACK options out.
pub(super) fn remove_sack(options: &mut Options) {
    options.sack.clear();
    options.rest.retain(|option| !matches!(option, TcpOption::Sack(_)));
}

/// True if the segment ends the use of Multipath TCP on its subflow: an infinite mapping (RFC 8684 §3.7).
pub(super) fn has_infinite_mapping(options: &Options) -> bool {
    let infinite = |dss: &polypath_wire::Dss| dss.mapping.is_some_and(|mapping| mapping.len == 0);
    options.dss.as_ref().is_some_and(infinite)
        || options.mptcp().any(|option| matches!(option, MptcpOption::Dss(dss) if infinite(dss)))
}

/// The flow and sequence number in an ICMP error about TCP, for boxes that change either.
pub(super) fn icmp_quote(packet: &mut Packet) -> Option<(&mut polypath_wire::FourTuple, &mut SeqNumber)> {
    use polypath_wire::{IcmpMessage, Transport};
    match &mut packet.transport {
        Transport::Icmp(
            IcmpMessage::PacketTooBig { flow, seq, .. } | IcmpMessage::Unreachable { flow, seq, .. },
        ) => Some((flow, seq)),
        _ => None,
    }
}
