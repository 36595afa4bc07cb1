//! The file of one end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use polypath_tunnel::key::{PresharedKey, PrivateKey, PublicKey};
use polypath_tunnel::{EngineConfig, Network, Rule};
use serde::{Deserialize, Deserializer, Serialize};

use super::super::configuration::{InterfaceSetting, number};
use super::super::{Failure, harmless, interfaces};
use super::endpoints::{PORT, check_endpoint};
use super::rule_text::RuleText;
use super::uplinks::Uplinks;

/// The device.
pub(super) const NAME: &str = "polypath-vpn";

/// As it is written. Without `Debug`, as are its parts with secrets: they are plain text here.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) interface: Interface,
    // Of new files it is empty.
    #[serde(default, skip_serializing)]
    pub(super) uplinks: UplinksText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forward: Option<Forward>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) peers: Vec<Peer>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) rules: Vec<RuleText>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Interface {
    pub(super) private_key: String,
    pub(super) addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "port")]
    pub(super) listen_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "mtu")]
    pub(super) mtu: Option<u32>,
    /// Where `add-peer` tells peers to call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) endpoints: Vec<String>,
}

/// As `interfaces` of the other files.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct UplinksText {
    #[serde(default)]
    interfaces: Vec<InterfaceSetting>,
}

/// What passes between the tunnel and other interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Forward {
    /// Interfaces of hosts that use the tunnel.
    #[serde(default)]
    pub(super) lan: Vec<String>,
    /// Peers leave by this host.
    #[serde(default)]
    pub(super) internet: bool,
    /// With this host's address.
    #[serde(default = "yes")]
    pub(super) masquerade: bool,
}

// What is derived names the type of a number that does not fit, and not its bounds.
fn port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    number(deserializer, "a port: 1 to 65535").map(Some)
}

fn mtu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    number(deserializer, "1280 to 9000").map(Some)
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Peer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) public_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) preshared_key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) endpoints: Vec<String>,
    #[serde(default)]
    pub(super) allowed_ips: Vec<String>,
}

/// An address inside, and how many bits its network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) address: IpAddr,
    pub(super) prefix_bits: u8,
}

/// A peer, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerPlan {
    pub(super) name: Option<String>,
    pub(super) public_key: PublicKey,
    pub(super) preshared_key: PresharedKey,
    pub(super) endpoints: Vec<String>,
    pub(super) allowed_ips: Vec<Network>,
}

/// The file, understood.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) private_key: PrivateKey,
    pub(super) name: String,
    pub(super) addresses: Vec<Address>,
    pub(super) listen_port: Option<u16>,
    pub(super) mtu_bytes: u32,
    pub(super) uplinks: Uplinks,
    pub(super) forward: Option<Forward>,
    pub(super) peers: Vec<PeerPlan>,
    pub(super) rules: Vec<Rule>,
}

impl PeerPlan {
    /// What people call it.
    pub(super) fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.public_key.to_string())
    }
}

impl Plan {
    /// What differs of that which a tunnel keeps as long as it runs.
    pub(super) fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let pairs = [
            ("interface.private-key", self.private_key.public_key() == other.private_key.public_key()),
            ("interface.name", self.name == other.name),
            ("interface.addresses", self.addresses == other.addresses),
            ("interface.listen-port", self.listen_port == other.listen_port),
            ("interface.mtu", self.mtu_bytes == other.mtu_bytes),
            ("forward", self.forward == other.forward),
        ];
        pairs.into_iter().filter(|(_, is_same)| !is_same).map(|(what, _)| what).collect()
    }

    /// Takes the rest from another one.
    pub(super) fn take(&mut self, other: Self) {
        self.peers = other.peers;
        self.rules = other.rules;
        self.uplinks = other.uplinks;
    }

    /// There is IPv6 inside.
    pub(super) fn has_v6(&self) -> bool {
        let networks = self.networks();
        self.addresses.iter().any(|own| own.address.is_ipv6())
            || networks.iter().any(|network| network.address().is_ipv6())
    }

    /// All of IPv4 goes through the tunnel, and IPv6 does not.
    pub(super) fn leaves_out_v6(&self) -> bool {
        let networks = self.networks();
        // Some write all of it in two halves.
        let has_all = |is_v4: bool| {
            networks.iter().any(|network| network.prefix_bits() <= 1 && network.address().is_ipv4() == is_v4)
        };
        has_all(true) && !has_all(false)
    }

    /// The networks that lead to peers.
    pub(super) fn networks(&self) -> BTreeSet<Network> {
        self.peers.iter().flat_map(|peer| peer.allowed_ips.iter().copied()).collect()
    }
}

impl File {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        Self::parse(&text, path)
    }

    /// What stands in the file at `path`.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.as_bytes().get(..span.start)).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            // A name that is quoted may have several lines.
            let message = harmless(error.message());
            Failure::Input(format!("{}, line {line}: {message}", path.display()))
        })
    }

    /// What it means; the message says what is wrong and where.
    pub(super) fn plan(self, path: &Path) -> Result<Plan, Failure> {
        let at = |place: &str, error: &dyn std::fmt::Display| {
            Failure::Input(format!("{}, {place}: {error}", path.display()))
        };
        let interface = self.interface;
        let private_key =
            interface.private_key.parse().map_err(|error| at("interface.private-key", &error))?;
        let addresses: Vec<_> = interface
            .addresses
            .iter()
            .map(|text| parse_address(text).ok_or_else(|| at("interface.addresses", &not_an_address(text))))
            .collect::<Result<_, _>>()?;
        let mtu_bytes = interface.mtu.unwrap_or(EngineConfig::MTU_BYTES as u32);
        if !(1280..=9000).contains(&mtu_bytes) {
            return Err(at("interface.mtu", &format!("{mtu_bytes} is not possible: expected 1280 to 9000")));
        }
        let name = interface.name.unwrap_or_else(|| NAME.to_owned());
        if !is_device(&name) {
            let expected = "expected up to 15 letters, digits and -_.";
            return Err(at("interface.name", &format!("{name:?} is no name of a device: {expected}")));
        }
        if self.forward.is_some() && !name.starts_with("polypath") {
            // Rules that let a device through are made for those of this name.
            return Err(at("interface.name", &"with [forward]: expected one that begins with polypath"));
        }
        for text in &interface.endpoints {
            check_endpoint(text).map_err(|error| at("interface.endpoints", &error))?;
        }
        check_calls(interface.listen_port, &interface.endpoints, &self.peers)
            .map_err(|error| at("interface.listen-port", &error))?;
        let mut uplinks: Vec<interfaces::Interface> = Vec::new();
        for (number, setting) in self.uplinks.interfaces.iter().enumerate() {
            let place = format!("uplinks.interfaces[{number}]");
            let uplink = setting.interface().map_err(|error| at(&place, &error))?;
            if let Some(first) = uplinks.iter().position(|known| known.name == uplink.name) {
                let name = &uplink.name;
                return Err(at(
                    &place,
                    &format!("{name:?} is uplinks.interfaces[{first}], too: expected each once"),
                ));
            }
            uplinks.push(uplink);
        }
        let mut peers = Vec::new();
        let (mut keys, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for (number, peer) in self.peers.into_iter().enumerate() {
            let place = |field: &str| format!("peers[{number}].{field}");
            let preshared_key = peer.preshared_key.as_deref().map(str::parse).transpose();
            let allowed_ips = peer.allowed_ips.iter().map(|text| text.parse()).collect::<Result<_, _>>();
            for text in &peer.endpoints {
                check_endpoint(text).map_err(|error| at(&place("endpoints"), &error))?;
            }
            let peer = PeerPlan {
                public_key: peer.public_key.parse().map_err(|error| at(&place("public-key"), &error))?,
                preshared_key: preshared_key
                    .map_err(|error| at(&place("preshared-key"), &error))?
                    .unwrap_or_default(),
                allowed_ips: allowed_ips.map_err(|error| at(&place("allowed-ips"), &error))?,
                endpoints: peer.endpoints,
                name: peer.name,
            };
            if let Some(other) = keys.insert(peer.public_key, number) {
                let said = format!("{} is that of peers[{other}], too: expected each once", peer.public_key);
                return Err(at(&place("public-key"), &said));
            }
            for network in &peer.allowed_ips {
                let owner = *owners.entry(*network).or_insert(number);
                if owner != number {
                    let said = format!("{network} leads to peers[{owner}] already: expected one peer for it");
                    return Err(at(&place("allowed-ips"), &said));
                }
            }
            peers.push(peer);
        }
        let rules = self.rules.iter().enumerate();
        let rules = rules
            .map(|(number, rule)| rule.parse().map_err(|error| at(&format!("rules[{number}]"), &error)))
            .collect::<Result<_, _>>()?;
        Ok(Plan {
            private_key,
            name,
            addresses,
            listen_port: interface.listen_port,
            mtu_bytes,
            uplinks: Uplinks::new(uplinks),
            forward: self.forward,
            peers,
            rules,
        })
    }
}

/// Whether those who are to call this end have where to.
fn check_calls(listen_port: Option<u16>, endpoints: &[String], peers: &[Peer]) -> Result<(), String> {
    let expected = format!("expected a port at which peers call, like {PORT}");
    let caller = peers.iter().position(|peer| peer.endpoints.is_empty());
    match (listen_port, caller) {
        (Some(0), _) => Err(format!("0 is none: {expected}")),
        (Some(_), _) => Ok(()),
        (None, Some(number)) => Err(format!("none, and peers[{number}] has no endpoints: {expected}")),
        (None, None) if endpoints.is_empty() => Ok(()),
        (None, None) => Err(format!("none, and interface.endpoints says where peers call: {expected}")),
    }
}

fn is_device(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..16).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('.')
}

fn not_an_address(text: &str) -> String {
    format!("{text:?} is no address with a prefix: expected one like 10.99.0.1/24")
}

pub(super) fn parse_address(text: &str) -> Option<Address> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix_bits) = (address.parse().ok()?, prefix.parse().ok()?);
    Network::new(address, prefix_bits)?;
    Some(Address { address, prefix_bits })
}

#[cfg(test)]
mod tests {
    use polypath_tunnel::key::PrivateKey;
    use polypath_tunnel::{FlowPolicy, Rule};

    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        file.plan(Path::new("t.toml")).map_err(|failure| match failure {
            Failure::Input(message) | Failure::Run(message) => message,
            Failure::Exit(_) => String::new(),
        })
    }

    const KEY: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";

    #[test]
    fn a_whole_file_is_understood() {
        let text = format!(
            "[interface]\nprivate-key = \"{KEY}\"\naddresses = [\"10.99.0.2/24\", \"fd77::2/64\"]\n\
             [uplinks]\ninterfaces = [\"wlan0\", \"wwan0,backup,budget=500MB/day\"]\n\
             [forward]\nlan = [\"eth1\"]\n\
             [[peers]]\npublic-key = \"{KEY}\"\nendpoints = [\"vpn.example.org\", \"[2001:db8::1]:9\"]\nallowed-ips = [\"0.0.0.0/0\"]\n\
             [[rules]]\nports = \"5000-5100\"\nprotocol = \"udp\"\npolicy = \"redundant\"\n\
             [[rules]]\ndscp = 46\npolicy = \"low-latency\"\nfec = true\n\
             [[rules]]\ntcp = \"split\"\n"
        );
        let plan = plan(&text).unwrap();
        assert_eq!(plan.rules[2], Rule { protocol: Some(6), ..Rule::all(FlowPolicy::SplitTcp) });
        assert_eq!((plan.mtu_bytes, plan.addresses.len(), plan.name.as_str()), (1400, 2, NAME));
        assert_eq!((plan.rules[0].ports.clone(), plan.rules[0].fec), (Some(5000..=5100), false));
        assert_eq!((plan.rules[1].policy, plan.rules[1].fec), (FlowPolicy::LowLatency, true));
        assert_eq!(plan.uplinks.budget_of("wwan0").map(|budget| budget.bytes), Some(500_000_000));
        assert_eq!(
            plan.forward,
            Some(Forward { lan: vec!["eth1".into()], internet: false, masquerade: true })
        );
        assert_eq!(plan.peers[0].endpoints, ["vpn.example.org", "[2001:db8::1]:9"]);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let interface = format!("[interface]\nprivate-key = \"{KEY}\"\naddresses = [\"10.0.0.1/24\"]\n");
        let peer = |number: u8, network: &str| {
            let key = PrivateKey::from_random([number; 32]).public_key();
            format!(
                "[[peers]]\npublic-key = \"{key}\"\nendpoints = [\"vpn.test\"]\nallowed-ips = [\"{network}\"]\n"
            )
        };
        for (text, expected) in [
            ("[interface]\nprivate-key = \"abc\"\naddresses = []\n".to_owned(), "interface.private-key"),
            (interface.replace("/24", ""), "interface.addresses"),
            (format!("{interface}mtu = 100\n"), "interface.mtu"),
            (format!("{interface}mtu = -1\n"), "integer `-1`, expected 1280 to 9000"),
            (format!("{interface}listen-port = 70000\n"), "integer `70000`, expected a port: 1 to 65535"),
            (
                format!("{interface}[uplinks]\ninterfaces = [{{ name = \"wwan0\", priority = 256 }}]\n"),
                "integer `256`, expected 0 to 255, the smaller the better",
            ),
            (format!("{interface}[[rules]]\ndscp = 64\n"), "integer `64`, expected a DSCP: 0 to 63"),
            (
                format!("{interface}listen-port = 1\n[[peers]]\npublic-key = \"x\"\n"),
                "peers[0].public-key: expected a key",
            ),
            (format!("{interface}listen-port = 0\n"), "interface.listen-port: 0 is none: expected a port"),
            (
                format!("{interface}[[peers]]\npublic-key = \"{KEY}\"\n"),
                "interface.listen-port: none, and peers[0] has no endpoints: expected a port",
            ),
            (
                format!("{interface}endpoints = [\"vpn.test\"]\n"),
                "interface.listen-port: none, and interface.endpoints says where peers call",
            ),
            (
                format!("{interface}listen-port = 1\nendpoints = [\"foo bar\"]\n"),
                "interface.endpoints: \"foo bar\" is no endpoint",
            ),
            (
                format!("{interface}{}{}", peer(1, "10.1.0.0/16"), peer(1, "10.2.0.0/16")),
                "peers[1].public-key: ",
            ),
            (
                format!("{interface}{}{}", peer(1, "10.1.0.0/16"), peer(2, "10.1.2.3/16")),
                "peers[1].allowed-ips: 10.1.0.0/16 leads to peers[0] already: expected one peer for it",
            ),
            (
                format!("{interface}[uplinks]\ninterfaces = [\"wlan0\", \"eth0\", \"wlan0,backup\"]\n"),
                "uplinks.interfaces[2]: \"wlan0\" is uplinks.interfaces[0], too: expected each once",
            ),
            (format!("{interface}[[rules]]\npolicy = \"fast\"\n"), "rules[0]"),
            (
                format!("{interface}[[rules]]\npolicy = \"redundant\"\nfec = true\n"),
                "rules[0]: fec: not with the policy redundant",
            ),
            (format!("{interface}[[rules]]\nports = \"80\"\n"), "rules[0]: expected a policy, or tcp"),
            (format!("{interface}[[rules]]\ntcp = \"join\"\n"), "\"join\" is none: expected split"),
            (format!("{interface}[[rules]]\ntcp = \"split\"\nprotocol = \"udp\"\n"), "protocol is another"),
            (format!("{interface}[[rules]]\ntcp = \"split\"\npolicy = \"aggregate\"\n"), "one of them"),
            (format!("{interface}colour = 1\n"), "unknown field `colour`"),
            (format!("{interface}name = \"../vpn\"\n"), "interface.name: \"../vpn\" is no name"),
            (format!("{interface}name = \"vpn\"\n[forward]\ninternet = true\n"), "begins with polypath"),
            (
                format!("{interface}[uplinks]\ninterfaces = [\"wwan0,budget=500/day\"]\n"),
                "uplinks.interfaces[0]: budget: \"500\" has no unit",
            ),
            (
                format!("{interface}[uplinks]\ninterfaces = [\"wlan0\", \"ncb,metred\"]\n"),
                "t.toml, uplinks.interfaces[1]: \"metred\" is unknown; expected NAME, then any of backup, metered,",
            ),
        ] {
            let message = plan(&text).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
