//! Rules, as a tunnel's file has them.

use std::ops::RangeInclusive;

use polypath_tunnel::{FlowPolicy, PathId, Rule};
use serde::{Deserialize, Serialize};

use super::dscp::Dscp;

/// What a packet must be like, and what is done with it then.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RuleText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dscp: Option<Dscp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ports: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// What is done with TCP, in place of a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tcp: Option<String>,
    #[serde(default)]
    fec: bool,
}

impl RuleText {
    /// What it means; the message names the key that is wrong.
    pub(super) fn parse(&self) -> Result<Rule, String> {
        let network = self.network.as_deref().map(str::parse).transpose();
        let protocol = self.protocol.as_deref().map(parse_protocol).transpose()?;
        let (policy, protocol) = match (&self.policy, &self.tcp) {
            (Some(policy), None) => (parse_policy(policy)?, protocol),
            (None, Some(tcp)) => (parse_tcp(tcp, protocol)?, Some(TCP)),
            (Some(_), Some(_)) => return Err("policy, tcp: a rule has one of them".into()),
            (None, None) => return Err("expected a policy, or tcp = \"split\"".into()),
        };
        if self.fec && !matches!(policy, FlowPolicy::Aggregate | FlowPolicy::LowLatency) {
            let policy = self.policy.as_deref().unwrap_or("tcp = \"split\"");
            return Err(format!("fec: not with the policy {policy}: expected aggregate or low-latency"));
        }
        Ok(Rule {
            dscp: self.dscp.map(Dscp::number),
            protocol,
            ports: self.ports.as_deref().map(parse_ports).transpose()?,
            network: network.map_err(|error: polypath_tunnel::NetworkError| error.to_string())?,
            policy,
            fec: self.fec,
        })
    }
}

/// IP's number of TCP.
const TCP: u8 = 6;

fn parse_tcp(text: &str, protocol: Option<u8>) -> Result<FlowPolicy, String> {
    match (text, protocol) {
        ("split", None | Some(TCP)) => Ok(FlowPolicy::SplitTcp),
        ("split", _) => Err("tcp: the rule's protocol is another".into()),
        _ => Err(format!("tcp: {text:?} is none: expected split")),
    }
}

fn parse_protocol(text: &str) -> Result<u8, String> {
    match text {
        "tcp" => Ok(TCP),
        "udp" => Ok(17),
        "icmp" => Ok(1),
        "icmpv6" => Ok(58),
        "sctp" => Ok(132),
        _ => text.parse().map_err(|_| {
            format!("protocol: {text:?} is none: expected tcp, udp, icmp, icmpv6, sctp or a number")
        }),
    }
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let mistake = || format!("ports: {text:?} are none: expected a port or two, like 443 or 5000-5100");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse(), last.trim().parse());
    let (Ok(first), Ok(last)) = (first, last) else { return Err(mistake()) };
    if first > last { Err(mistake()) } else { Ok(first..=last) }
}

fn parse_policy(text: &str) -> Result<FlowPolicy, String> {
    match text {
        "aggregate" => Ok(FlowPolicy::Aggregate),
        "low-latency" => Ok(FlowPolicy::LowLatency),
        "redundant" => Ok(FlowPolicy::Redundant),
        _ => text
            .strip_prefix("pinned:")
            .and_then(|number| PathId::new(number.parse().ok()?))
            .map(FlowPolicy::Pinned)
            .ok_or_else(|| {
                format!("policy: {text:?} is none: expected aggregate, low-latency, redundant, or pinned: and a path's number")
            }),
    }
}
