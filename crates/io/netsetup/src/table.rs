//! A table of nftables that is replaced as a whole: a change is seen whole or not at all, and removing it leaves nothing behind.

use std::fmt::Write;
use std::io;

use serde_json::{Value, json};

use super::forward;
use super::nft::run;
use super::rule::Rule;

/// A chain of a table.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) hook: &'static str,
    pub(super) priority: i32,
}

/// A table of the family `inet`.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) name: String,
    pub(super) chains: &'a [Chain],
    pub(super) rules: Vec<Rule<'a>>,
}

impl Table<'_> {
    /// Puts it in place, instead of the one of its name that was there.
    pub(super) fn apply(&self) -> io::Result<()> {
        run(&self.ruleset())
    }

    /// The same as a person would write it for `nft -f -`.
    pub(super) fn text(&self) -> String {
        let mut text = format!("table inet {} {{\n", self.name);
        for Chain { name, kind, hook, priority } in self.chains {
            let _ = writeln!(text, "  chain {name} {{ type {kind} hook {hook} priority {priority};");
            for rule in self.rules.iter().filter(|rule| rule.chain == *name) {
                let _ = writeln!(text, "    {rule}");
            }
            text += "  }\n";
        }
        text + "}"
    }

    fn ruleset(&self) -> Value {
        let table = &self.name;
        let mut commands = vec![
            json!({"add": {"table": {"family": "inet", "name": table}}}),
            json!({"delete": {"table": {"family": "inet", "name": table}}}),
            json!({"add": {"table": {"family": "inet", "name": table}}}),
        ];
        commands.extend(self.chains.iter().map(|Chain { name, kind, hook, priority }| {
            json!({"add": {"chain": {
                "family": "inet", "table": table, "name": name,
                "type": kind, "hook": hook, "prio": priority, "policy": "accept",
            }}})
        }));
        commands.extend(self.rules.iter().map(|rule| {
            json!({"add": {"rule": {
                "family": "inet", "table": table, "chain": rule.chain, "expr": rule.expr(),
            }}})
        }));
        json!({"nftables": commands})
    }
}

/// Removes a table and what lets its device through the chains of others, if they are there.
pub(super) fn remove(name: &str) -> io::Result<()> {
    let table = json!({"family": "inet", "name": name});
    let removed = run(&json!({"nftables": [{"add": {"table": table}}, {"delete": {"table": table}}]}));
    removed.and(forward::remove(name))
}
