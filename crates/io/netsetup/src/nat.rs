//! Address translation, in one nftables table per instance.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use polypath_system::network_contains;
use serde_json::json;

use super::forward;
use super::limits::Limits;
use super::nft::{list, table_name};
use super::places::{DEVICES, mark};
use super::plan::PathPlan;
use super::rule::{Match, Rule, Then, family};
use super::table::{self, Chain, Table};

/// What an instance translates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Translation<'a> {
    pub(super) slot: u8,
    /// The stack's device.
    pub(super) tun: &'a str,
    pub(super) paths: &'a [PathPlan],
    /// The stack's addresses whose uplinks are gone for now.
    pub(super) away: &'a [IpAddr],
    /// The system's addresses beside those of the paths.
    pub(super) others: &'a [IpAddr],
    /// TCP ports at which the stack listens.
    pub(super) exposed: &'a [u16],
    /// Those of them at which a socket of the kernel listens too.
    pub(super) held: &'a [u16],
    /// The system forwards because of us: only what goes through a stack's device, or it would be a router for everybody.
    pub(super) limits: &'a Limits,
}

const CHAINS: [Chain; 5] = [
    Chain { name: "postrouting", kind: "nat", hook: "postrouting", priority: 100 },
    Chain { name: "prerouting", kind: "nat", hook: "prerouting", priority: -100 },
    Chain { name: "output", kind: "nat", hook: "output", priority: -100 },
    Chain { name: "answers", kind: "filter", hook: "prerouting", priority: -150 },
    Chain { name: "forward", kind: "filter", hook: "forward", priority: 0 },
];

impl Translation<'_> {
    /// Puts the table in place, instead of the one that was there.
    pub(super) fn apply(&self) -> io::Result<()> {
        self.table().apply()?;
        forward::allow(self.tun, &table_name(self.slot))
    }

    /// The same as a person would write it for `nft -f -`.
    pub(super) fn text(&self) -> String {
        self.table().text()
    }

    fn table(&self) -> Table<'_> {
        Table { name: table_name(self.slot), chains: &CHAINS, rules: self.rules() }
    }

    fn rules(&self) -> Vec<Rule<'_>> {
        let mut rules = Vec::new();
        for (path, addr) in self.sources() {
            self.leave(path, addr, &mut rules);
        }
        for port in self.exposed {
            self.expose(*port, &mut rules);
        }
        rules.extend(self.answers());
        rules.extend(self.forwarded());
        rules
    }

    /// What the stack sends from one of its addresses leaves with one of the uplink's: that of the destination's network, or else
    /// the first. The connection gets the path's mark, by which it is found when the uplink has another address.
    fn leave<'a>(&self, path: &'a PathPlan, from: IpAddr, rules: &mut Vec<Rule<'a>>) {
        let mut own = path.uplink_addresses.iter().copied().filter(|addr| family(*addr) == family(from));
        let Some(first) = own.next() else { return };
        let leaving = || vec![Match::From(from), Match::Out(&path.link)];
        let mut add = |matches, then| rules.push(Rule { chain: "postrouting", matches, then });
        add(leaving(), Then::MarkConnection(mark(self.slot, path.number)));
        for other in own {
            let networks = path.networks.iter().copied();
            let of_other =
                |network: &_| network_contains(*network, other) && !network_contains(*network, first);
            for network in networks.filter(of_other) {
                let matches = leaving().into_iter().chain([Match::ToNetwork(network)]).collect();
                add(matches, Then::From(other));
            }
        }
        add(leaving(), Then::From(first));
    }

    /// Leads to the stack what is for a port at which it listens. Whoever comes by an uplink is answered by that uplink.
    fn expose<'a>(&'a self, port: u16, rules: &mut Vec<Rule<'a>>) {
        let targets = self.targets();
        for (path, addr) in self.sources() {
            let own = targets.iter().filter(|(target, _)| family(*target) == family(addr));
            let own = own.flat_map(|(_, addresses)| addresses.iter().copied()).collect();
            let matches = vec![Match::In(&path.link), Match::To(own), Match::Port(port)];
            let then = Then::MarkConnection(mark(self.slot, path.number));
            rules.push(Rule { chain: "prerouting", matches, then });
        }
        let leads = |chain, mut matches: Vec<_>, addresses: Vec<IpAddr>, target| {
            matches.extend([Match::To(addresses), Match::Port(port)]);
            Rule { chain, matches, then: Then::Redirect(SocketAddr::new(target, port)) }
        };
        let first_v4 = targets.iter().map(|(target, _)| *target).find(IpAddr::is_ipv4);
        let loopback: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into()];
        for (target, addresses) in &targets {
            rules.push(leads("prerouting", vec![], addresses.clone(), *target));
        }
        // Clients that have stacks like this one, on this system.
        rules.extend(
            first_v4.map(|target| leads("prerouting", vec![Match::In(DEVICES)], loopback.clone(), target)),
        );
        // The system's own clients, unless there is a socket for them.
        if !self.held.contains(&port) {
            let redirected =
                targets.iter().map(|(target, own)| leads("output", vec![], own.clone(), *target));
            rules.extend(redirected);
            rules.extend(first_v4.map(|target| leads("output", vec![], loopback.clone(), target)));
        }
    }

    /// The stack's addresses, and the system's that stand for them: the first of a family for those of no path, too.
    fn targets(&self) -> Vec<(IpAddr, Vec<IpAddr>)> {
        let mut others: Vec<IpAddr> = self.others.to_vec();
        let addresses = self.sources().map(|(path, target)| {
            let is_same = |addr: &IpAddr| family(*addr) == family(target);
            let own = path.uplink_addresses.iter().copied().filter(is_same);
            (target, own.chain(others.extract_if(.., |addr| is_same(addr))).collect())
        });
        addresses.collect()
    }

    fn sources(&self) -> impl Iterator<Item = (&PathPlan, IpAddr)> {
        self.paths.iter().flat_map(|path| path.stack_addresses().map(move |addr| (path, addr)))
    }

    /// What the stack sends gets its connection's mark, which decides about its way.
    fn answers(&self) -> impl Iterator<Item = Rule<'_>> {
        self.paths.iter().map(|path| {
            let mark = mark(self.slot, path.number);
            let matches = vec![Match::In(self.tun), Match::Marked(mark)];
            Rule { chain: "answers", matches, then: Then::Mark(mark) }
        })
    }

    /// What may be forwarded. Nobody reaches the stack but at the ports that are translated to it, what it begins leaves by
    /// its uplink or not at all, and nobody else's packets are forwarded because of us. Packets of instances with other tables
    /// pass: those guard their own devices.
    fn forwarded(&self) -> Vec<Rule<'_>> {
        let rule = |matches, then| Rule { chain: "forward", matches, then };
        let mut rules: Vec<Rule<'_>> = self
            .sources()
            .map(|(path, addr)| {
                let elsewhere = [Match::NotOut(&path.link), Match::NotOut(DEVICES)];
                let begun = [Match::In(self.tun), Match::From(addr), Match::Original];
                rule(begun.into_iter().chain(elsewhere).collect(), Then::Drop)
            })
            .collect();
        let away = self.away.iter().map(|addr| {
            rule(vec![Match::In(self.tun), Match::From(*addr), Match::NotOut(DEVICES)], Then::Drop)
        });
        rules.extend(away);
        let to_stack = || Match::Out(self.tun);
        rules.extend([
            rule(vec![to_stack(), Match::Answering], Then::Accept),
            rule(vec![to_stack(), Match::Translated], Then::Accept),
            rule(vec![to_stack()], Then::Drop),
        ]);
        for device in [self.tun, DEVICES] {
            rules.push(rule(vec![Match::In(device)], Then::Accept));
            rules.push(rule(vec![Match::Out(device)], Then::Accept));
        }
        rules.extend(self.limits.rules("forward"));
        rules
    }
}

/// Whether there is a table of an instance's name.
pub(super) fn is_there(slot: u8) -> io::Result<bool> {
    let tables = list(&["list", "tables", "inet"], "table")?;
    Ok(tables.iter().any(|table| table["name"] == json!(table_name(slot))))
}

/// Removes what an instance has in the firewall, if it is there.
pub(super) fn remove(slot: u8) -> io::Result<()> {
    table::remove(&table_name(slot))
}
