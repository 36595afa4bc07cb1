//! Address translation, in one nftables table per instance, which is replaced as a whole: a change is seen whole or not at
//! all, and removing it leaves nothing behind.

use std::fmt::Write;
use std::io;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::plan::PathPlan;

/// The program that the nftables library talks through.
const PROGRAM: &str = "nft";

/// Name of an instance's table.
pub(super) fn table_name(slot: u8) -> String {
    format!("polypath{slot}")
}

/// What an instance translates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Translation<'a> {
    pub(super) slot: u8,
    pub(super) paths: &'a [PathPlan],
    /// TCP ports at which the stack listens.
    pub(super) exposed: &'a [u16],
}

impl Translation<'_> {
    /// Puts the table in place, instead of the one that was there.
    pub(super) fn apply(&self) -> io::Result<()> {
        run(&self.ruleset())
    }

    /// The same as a person would write it for `nft -f -`.
    pub(super) fn text(&self) -> String {
        let mut text = format!("table inet {} {{\n", table_name(self.slot));
        text += "  chain postrouting { type nat hook postrouting priority srcnat;\n";
        for (path, source) in self.sources() {
            let _ =
                writeln!(text, "    {} saddr {source} oifname \"{}\" masquerade", family(source), path.link);
        }
        text += "  }\n  chain prerouting { type nat hook prerouting priority dstnat;\n";
        for (path, target) in self.sources() {
            for port in self.exposed {
                let (link, family) = (&path.link, family(target));
                let bracketed = std::net::SocketAddr::new(target, *port);
                let _ =
                    writeln!(text, "    iifname \"{link}\" tcp dport {port} dnat {family} to {bracketed}");
            }
        }
        text + "  }\n}"
    }

    fn sources(&self) -> impl Iterator<Item = (&PathPlan, IpAddr)> {
        self.paths.iter().flat_map(|path| path.stack_addresses().map(move |addr| (path, addr)))
    }

    fn ruleset(&self) -> Value {
        let table = table_name(self.slot);
        let mut commands = vec![
            json!({"add": {"table": {"family": "inet", "name": table}}}),
            json!({"delete": {"table": {"family": "inet", "name": table}}}),
            json!({"add": {"table": {"family": "inet", "name": table}}}),
        ];
        for (chain, priority) in [("postrouting", 100), ("prerouting", -100)] {
            commands.push(json!({"add": {"chain": {
                "family": "inet", "table": table, "name": chain,
                "type": "nat", "hook": chain, "prio": priority, "policy": "accept",
            }}}));
        }
        let mut rule = |chain: &str, expr: Value| {
            commands.push(json!({"add": {"rule": {
                "family": "inet", "table": table, "chain": chain, "expr": expr,
            }}}));
        };
        let equals = |left: Value, right: Value| json!({"match": {"op": "==", "left": left, "right": right}});
        for (path, addr) in self.sources() {
            let source = json!({"payload": {"protocol": family(addr), "field": "saddr"}});
            rule(
                "postrouting",
                json!([
                    equals(source, json!(addr)),
                    equals(json!({"meta": {"key": "oifname"}}), json!(path.link)),
                    {"masquerade": null},
                ]),
            );
            for port in self.exposed {
                let nfproto = if addr.is_ipv4() { "ipv4" } else { "ipv6" };
                rule(
                    "prerouting",
                    json!([
                        equals(json!({"meta": {"key": "nfproto"}}), json!(nfproto)),
                        equals(json!({"meta": {"key": "iifname"}}), json!(path.link)),
                        equals(json!({"payload": {"protocol": "tcp", "field": "dport"}}), json!(port)),
                        {"dnat": {"family": family(addr), "addr": addr, "port": port}},
                    ]),
                );
            }
        }
        json!({"nftables": commands})
    }
}

fn family(addr: IpAddr) -> &'static str {
    if addr.is_ipv4() { "ip" } else { "ip6" }
}

/// Removes an instance's table, if it is there.
pub(super) fn remove(slot: u8) -> io::Result<()> {
    let table = json!({"family": "inet", "name": table_name(slot)});
    run(&json!({"nftables": [{"add": {"table": table}}, {"delete": {"table": table}}]}))
}

fn run(ruleset: &Value) -> io::Result<()> {
    let no_arguments: [&str; 0] = [];
    nftables::helper::apply_ruleset_raw(&ruleset.to_string(), Some(PROGRAM), no_arguments).map_err(|error| match error {
        nftables::helper::NftablesError::NftExecution { inner, .. } if inner.kind() == io::ErrorKind::NotFound => {
            io::Error::new(
                io::ErrorKind::NotFound,
                "the program nft is missing, which translates addresses; install it with `apt install nftables` or the like",
            )
        }
        nftables::helper::NftablesError::NftFailed { stderr, .. } => {
            let first = stderr.lines().next().unwrap_or_default();
            io::Error::other(format!("nft refused the table of address translations: {first}"))
        }
        other => io::Error::other(format!("nft: {other}")),
    })?;
    Ok(())
}
