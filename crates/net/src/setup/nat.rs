//! Address translation, in one nftables table per instance, which is replaced as a whole: a change is seen whole or not at
//! all, and removing it leaves nothing behind.

use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::forward;
use super::plan::PathPlan;

/// The program that the nftables library talks through.
const PROGRAM: &str = "nft";

/// Where it is when a user's PATH leaves out the programs of administrators.
const ADMINISTRATORS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The program by its name if PATH leads to it, else by where it is.
fn program() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_in = |directory: &Path| directory.join(PROGRAM).is_file();
        if std::env::split_paths(&path).any(|directory| is_in(&directory)) {
            return PROGRAM.into();
        }
        let beside = ADMINISTRATORS.iter().find(|directory| is_in(Path::new(directory)));
        beside.map_or(PROGRAM.into(), |directory| format!("{directory}/{PROGRAM}"))
    })
}

/// The devices of all instances.
const DEVICES: &str = "polypath*";

/// Name of an instance's table.
pub(super) fn table_name(slot: u8) -> String {
    format!("polypath{slot}")
}

/// What an instance translates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Translation<'a> {
    pub(super) slot: u8,
    /// The stack's device.
    pub(super) tun: &'a str,
    pub(super) paths: &'a [PathPlan],
    /// TCP ports at which the stack listens.
    pub(super) exposed: &'a [u16],
    /// The system forwards because of us: only what goes through a stack's device, or it would be a router for everybody.
    pub(super) is_forwarding_ours: bool,
}

impl Translation<'_> {
    /// Puts the table in place, instead of the one that was there.
    pub(super) fn apply(&self) -> io::Result<()> {
        run(&self.ruleset())?;
        forward::allow(self.tun, self.slot)
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
        for (target, uplink_addresses) in self.targets() {
            let (family, listed) = (family(target), uplink_addresses.iter().map(ToString::to_string));
            let listed = listed.collect::<Vec<_>>().join(", ");
            for port in self.exposed {
                let to = std::net::SocketAddr::new(target, *port);
                let _ = writeln!(
                    text,
                    "    {family} daddr {{ {listed} }} tcp dport {port} dnat {family} to {to}"
                );
            }
        }
        text += "  }\n  chain forward { type filter hook forward priority filter;\n";
        let tun = self.tun;
        let _ = writeln!(text, "    oifname \"{tun}\" ct state {{ established, related }} accept");
        let _ = writeln!(text, "    oifname \"{tun}\" ct status dnat accept");
        let _ = writeln!(text, "    oifname \"{tun}\" drop");
        if self.is_forwarding_ours {
            for device in [tun, DEVICES] {
                let _ = writeln!(text, "    iifname \"{device}\" accept");
                let _ = writeln!(text, "    oifname \"{device}\" accept");
            }
            text += "    drop\n";
        }
        text + "  }\n}"
    }

    /// The stack's addresses, and the uplink's that stand for them.
    fn targets(&self) -> impl Iterator<Item = (IpAddr, Vec<IpAddr>)> {
        self.sources().map(|(path, target)| {
            let same_family =
                path.uplink_addresses.iter().filter(move |addr| family(**addr) == family(target));
            (target, same_family.copied().collect())
        })
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
        commands.push(json!({"add": {"chain": {
            "family": "inet", "table": table, "name": "forward",
            "type": "filter", "hook": "forward", "prio": 0, "policy": "accept",
        }}}));
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
        }
        for (target, uplink_addresses) in self.targets() {
            let destination = json!({"payload": {"protocol": family(target), "field": "daddr"}});
            for port in self.exposed {
                rule(
                    "prerouting",
                    json!([
                        equals(destination.clone(), json!({"set": uplink_addresses})),
                        equals(json!({"payload": {"protocol": "tcp", "field": "dport"}}), json!(port)),
                        {"dnat": {"family": family(target), "addr": target, "port": port}},
                    ]),
                );
            }
        }
        for expr in self.forwarded() {
            rule("forward", expr);
        }
        json!({"nftables": commands})
    }
}

/// What may be forwarded. Nobody reaches the stack but at the ports that are translated to it, and nobody else's packets
/// are forwarded because of us. Packets of instances with other tables pass: those guard their own devices.
impl Translation<'_> {
    fn forwarded(&self) -> Vec<Value> {
        let is = |key: &str, name: &str| json!({"match": {"op": "==", "left": {"meta": {"key": key}}, "right": name}});
        let to_stack = is("oifname", self.tun);
        let state = json!({"match": {
            "op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"],
        }});
        let translated = json!({"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}});
        let mut rules = vec![
            json!([to_stack, state, {"accept": null}]),
            json!([to_stack, translated, {"accept": null}]),
            json!([to_stack, {"drop": null}]),
        ];
        if self.is_forwarding_ours {
            for device in [self.tun, DEVICES] {
                rules.push(json!([is("iifname", device), {"accept": null}]));
                rules.push(json!([is("oifname", device), {"accept": null}]));
            }
            rules.push(json!([{"drop": null}]));
        }
        rules
    }
}

fn family(addr: IpAddr) -> &'static str {
    if addr.is_ipv4() { "ip" } else { "ip6" }
}

/// Whether there is a table of an instance's name.
pub(super) fn is_there(slot: u8) -> io::Result<bool> {
    let tables = list(&["list", "tables", "inet"], "table")?;
    Ok(tables.iter().any(|table| table["name"] == json!(table_name(slot))))
}

/// Removes what an instance has in the firewall, if it is there.
pub(super) fn remove(slot: u8) -> io::Result<()> {
    let table = json!({"family": "inet", "name": table_name(slot)});
    let removed = run(&json!({"nftables": [{"add": {"table": table}}, {"delete": {"table": table}}]}));
    removed.and(forward::remove(slot))
}

/// Whether there is nft, and it may be used.
pub(crate) fn probe() -> io::Result<()> {
    list(&["list", "tables"], "table").map(drop)
}

/// Has nft do something.
pub(super) fn run(ruleset: &Value) -> io::Result<()> {
    let no_arguments: [&str; 0] = [];
    let done = nftables::helper::apply_ruleset_raw(&ruleset.to_string(), Some(program()), no_arguments);
    done.map(drop).map_err(explain)
}

/// Asks nft for objects of a kind.
pub(super) fn list(arguments: &[&str], kind: &str) -> io::Result<Vec<Value>> {
    let text = nftables::helper::get_current_ruleset_raw(Some(program()), arguments.iter().copied());
    let answer: Value = serde_json::from_str(&text.map_err(explain)?)?;
    let objects = answer["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(objects.iter().filter_map(|object| object.get(kind).cloned()).collect())
}

fn explain(error: nftables::helper::NftablesError) -> io::Error {
    match error {
        nftables::helper::NftablesError::NftExecution { inner, .. }
            if inner.kind() == io::ErrorKind::NotFound =>
        {
            io::Error::new(
                io::ErrorKind::NotFound,
                "the program nft is missing, which translates addresses; install it with `apt install nftables` or the like",
            )
        }
        nftables::helper::NftablesError::NftFailed { stderr, .. } => {
            let first = stderr.lines().next().unwrap_or_default();
            io::Error::other(format!("nft refused what it was asked for: {first}"))
        }
        other => io::Error::other(format!("nft: {other}")),
    }
}
