//! Firewalls that let the system forward nothing, as Docker, ufw and firewalld set them up: another table can't overrule
//! them, so the stack's device is let through at the head of their own chains.

use std::io;

use serde::Deserialize;
use serde_json::{Value, json};

use super::nft::{list, run};

/// A chain that decides whether a packet is forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ForwardChain {
    family: String,
    table: String,
    name: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    hook: String,
    /// What happens to packets that no rule decides about.
    #[serde(default)]
    policy: String,
}

impl ForwardChain {
    /// Whether packets may be lost in it.
    fn decides(&self) -> bool {
        let sees_ip = ["ip", "ip6", "inet"].contains(&&*self.family);
        let is_ours = self.table.starts_with("polypath");
        self.kind == "filter" && self.hook == "forward" && sees_ip && !is_ours
    }

    fn accept(&self, tun: &str, direction: &str, comment: &str) -> Value {
        json!({"insert": {"rule": {
            "family": self.family, "table": self.table, "chain": self.name, "comment": comment,
            "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": direction}}, "right": tun}},
                {"accept": null},
            ],
        }}})
    }

    /// The handles of the rules in it that have a comment.
    fn rules_of(&self, comment: &str) -> io::Result<Vec<u64>> {
        let rules = list(&["list", "chain", &self.family, &self.table, &self.name], "rule")?;
        let ours = rules.into_iter().filter(|rule| rule["comment"] == json!(comment));
        Ok(ours.filter_map(|rule| rule["handle"].as_u64()).collect())
    }
}

/// The chains of others that decide what is forwarded.
fn chains() -> io::Result<Vec<ForwardChain>> {
    let chains = list(&["list", "chains"], "chain")?;
    let chains = chains.into_iter().filter_map(|chain| serde_json::from_value(chain).ok());
    Ok(chains.filter(ForwardChain::decides).collect())
}

/// Lets a device through, where it isn't yet, by rules with this comment.
pub(super) fn allow(tun: &str, comment: &str) -> io::Result<()> {
    let mut commands = Vec::new();
    for chain in chains()? {
        if chain.rules_of(comment)?.is_empty() {
            commands.extend(["iifname", "oifname"].map(|direction| chain.accept(tun, direction, comment)));
        }
    }
    if commands.is_empty() { Ok(()) } else { run(&json!({"nftables": commands})) }
}

/// The same, as a person would type it.
pub(super) fn text(tun: &str, comment: &str) -> io::Result<String> {
    let mut text = String::new();
    for ForwardChain { family, table, name, .. } in chains()? {
        for direction in ["iifname", "oifname"] {
            text += &format!(
                "\nnft insert rule {family} {table} {name} {direction} {tun} accept comment {comment}",
            );
        }
    }
    Ok(text)
}

/// Takes the rules with this comment out again.
pub(super) fn remove(comment: &str) -> io::Result<()> {
    let mut commands = Vec::new();
    for chain in chains()? {
        let (family, table, name) = (&chain.family, &chain.table, &chain.name);
        commands.extend(chain.rules_of(comment)?.into_iter().map(|handle| {
            json!({"delete": {"rule": {"family": family, "table": table, "chain": name, "handle": handle}}})
        }));
    }
    if commands.is_empty() { Ok(()) } else { run(&json!({"nftables": commands})) }
}
