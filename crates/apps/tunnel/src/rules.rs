//! Which packets are treated how.

use std::ops::RangeInclusive;

use crate::allowed_ips::Network;
use crate::inner_packet::{ICMP, ICMP_V6, InnerPacket};
use crate::noise::PathId;

/// How a flow's packets are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FlowPolicy {
    /// Over all paths, and in order.
    #[default]
    Aggregate,
    /// Over the path with the least delay, before everything else.
    LowLatency,
    /// Over each path; the first copy counts.
    Redundant,
    /// Over one path alone, by its number at the initiator.
    Pinned(PathId),
    /// TCP that ends here and goes on by Multipath TCP, where the peer takes that; all else as [`FlowPolicy::Aggregate`].
    SplitTcp,
}

/// One rule: everything that it names must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Either port.
    pub ports: Option<RangeInclusive<u16>>,
    /// The network at either end.
    pub network: Option<Network>,
    /// What is done.
    pub policy: FlowPolicy,
    /// What is lost is rebuilt from repair packets, where paths lose something; with the first two policies.
    pub fec: bool,
}

impl Rule {
    /// A rule that fits everything.
    #[must_use]
    pub const fn all(policy: FlowPolicy) -> Self {
        Self { dscp: None, protocol: None, ports: None, network: None, policy, fec: false }
    }

    fn fits(&self, packet: &InnerPacket) -> bool {
        self.dscp.is_none_or(|dscp| dscp == packet.dscp)
            && self.protocol.is_none_or(|protocol| protocol == packet.protocol)
            && self.network.is_none_or(|net| net.contains(packet.destination) || net.contains(packet.source))
            && self.ports.as_ref().is_none_or(|ports| {
                packet.ports.is_some_and(|(from, to)| ports.contains(&from) || ports.contains(&to))
            })
    }
}

/// Rules, of which the first that fits counts.
#[derive(Clone, Debug)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// These, before those that are there by default.
    #[must_use]
    pub fn new(mut rules: Vec<Rule>) -> Self {
        rules.extend(by_default());
        Self(rules)
    }

    /// The policy for a packet, and whether it is protected.
    pub(crate) fn find(&self, packet: &InnerPacket) -> (FlowPolicy, bool) {
        let rule = self.0.iter().find(|rule| rule.fits(packet));
        rule.map_or((FlowPolicy::Aggregate, false), |rule| (rule.policy, rule.fec))
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// Pings, names, time, and what is marked as expedited (RFC 3246) or network control (RFC 4594).
fn by_default() -> impl Iterator<Item = Rule> {
    const UDP: u8 = 17;
    let low = Rule::all(FlowPolicy::LowLatency);
    let by_protocol = [ICMP, ICMP_V6].map(|protocol| Rule { protocol: Some(protocol), ..low.clone() });
    let by_port = [53, 123].map(|port| Rule { protocol: Some(UDP), ports: Some(port..=port), ..low.clone() });
    let by_mark = [46, 48].map(|dscp| Rule { dscp: Some(dscp), ..low.clone() });
    by_protocol.into_iter().chain(by_port).chain(by_mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, ports: Option<(u16, u16)>, dscp: u8) -> InnerPacket {
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 9, 0, 2].into());
        InnerPacket { source, destination, protocol, ports, dscp, len_bytes: 100 }
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let voice = Rule { ports: Some(5_000..=5_100), ..Rule::all(FlowPolicy::Redundant) };
        let office = Rule {
            network: Some("10.9.0.0/16".parse().unwrap()),
            protocol: Some(6),
            fec: true,
            ..Rule::all(FlowPolicy::LowLatency)
        };
        let rules = Rules::new(vec![voice, office]);
        assert_eq!(rules.find(&packet(17, Some((5_050, 9)), 0)), (FlowPolicy::Redundant, false));
        assert_eq!(rules.find(&packet(6, Some((1, 2)), 0)), (FlowPolicy::LowLatency, true));
        assert_eq!(rules.find(&packet(17, Some((1, 2)), 0)), (FlowPolicy::Aggregate, false));
    }

    #[test]
    fn pings_names_and_marked_packets_go_first() {
        let rules = Rules::default();
        for urgent in [packet(1, None, 0), packet(17, Some((4_000, 53)), 0), packet(6, Some((1, 2)), 46)] {
            assert_eq!(rules.find(&urgent), (FlowPolicy::LowLatency, false));
        }
        assert_eq!(rules.find(&packet(6, Some((1, 53)), 0)).0, FlowPolicy::Aggregate);
    }
}
