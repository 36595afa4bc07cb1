//! What was seen of paths, and what is to be told of it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::net::IpAddr;

use polypath_mptcp::{ConnectionId, ConnectionInfo, Event, SubflowError, SubflowInfo};
use polypath_stack::{Stack, Tally};
use polypath_wire::FourTuple;

use super::copies::{Arrived, Copies};
use super::links::Links;
use crate::command::interfaces::{Asked, Budget};
use crate::command::words::amount;

/// A path is in use for the whole of a transfer if it carries in so much of its time.
const WHOLE: f64 = 0.9;

/// Fewer looks with something new don't tell.
const LEAST_LOOKS: u32 = 4;

/// What was seen of paths.
#[derive(Clone, Debug, Default)]
pub(in crate::command) struct Seen {
    /// Bytes at the look before, by this end's address.
    carried: BTreeMap<IpAddr, u64>,
    /// Looks at which there was something new, and those of each address.
    busy: u32,
    busy_by_address: BTreeMap<IpAddr, u32>,
    /// Names of addresses, which stay known when their interface has gone.
    names: HashMap<IpAddr, String>,
    joined: BTreeSet<String>,
    lost: BTreeSet<String>,
    /// Where nothing is acknowledged any more, although the subflows have not ended.
    silent: BTreeSet<String>,
    /// What was lost since the look before: another may go with it, such as both of one router.
    untold: Vec<Untold>,
    /// A path was lost, or carried nothing for a while.
    was_disturbed: bool,
    /// Where a subflow was begun.
    joining: BTreeSet<String>,
    /// Why a subflow never came to be, by interface.
    failed: BTreeMap<String, SubflowError>,
    /// Interfaces whose budget is used up, which was told.
    spent: BTreeSet<String>,
    links: Links,
    copies: Copies,
}

/// An interface whose end is to be told at the next look but one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Untold {
    name: String,
    /// Its subflows ended; otherwise nothing is acknowledged on them.
    has_ended: bool,
    /// A look was taken since.
    is_due: bool,
}

impl Seen {
    /// The interfaces that the stack uses now, or would if their budgets were not used up.
    pub(super) fn there(&mut self, stack: &Stack) -> BTreeSet<String> {
        let own = stack.known_paths().into_iter().map(|path| path.endpoint.addr);
        own.map(|own| self.name(stack, own)).collect()
    }

    /// Of interfaces that went down under their subflows, those that carry again.
    pub(super) fn handle_links(&mut self, running: &BTreeSet<String>) -> Vec<String> {
        // Others are addresses, of which the system says nothing here.
        let is_interface = |name: &&String| self.names.values().any(|known| known == *name);
        let bytes = |name: &String| -> u64 {
            let named = self.names.iter().filter(|(_, known)| *known == name);
            named.filter_map(|(own, _)| self.carried.get(own)).sum()
        };
        let in_use: BTreeMap<String, u64> =
            self.joined.iter().filter(is_interface).map(|name| (name.clone(), bytes(name))).collect();
        for name in self.links.went_down(&in_use, running, &self.lost) {
            self.was_disturbed = true;
            self.handle_lost(name);
        }
        let back = self.links.carrying_again(&in_use, running);
        back.iter().filter_map(|name| self.handle_joined(name)).collect()
    }

    pub(super) fn handle_tally(&mut self, tally: &Tally) {
        let mut is_new = false;
        for path in &tally.paths {
            let before = self.carried.insert(path.own, path.bytes).unwrap_or(0);
            if path.bytes > before {
                is_new = true;
                *self.busy_by_address.entry(path.own).or_default() += 1;
            }
        }
        self.busy += u32::from(is_new);
    }

    pub(super) fn handle_event(&mut self, stack: &Stack, id: ConnectionId, event: &Event) -> Option<String> {
        match event {
            Event::Connected | Event::Accepted { .. } => {
                let info = stack.connection(id)?;
                self.copies.look(id, Arrived::by(&info));
                let subflows = info.subflows;
                let mut line = None;
                for FourTuple { local, remote } in subflows.iter().map(|subflow| subflow.tuple) {
                    let name = self.name(stack, local.addr);
                    tracing::info!("{}: over {name}", stack.peer_at(remote.into()));
                    line = self.handle_joined(&name).or(line);
                }
                line
            }
            Event::SubflowEstablished { tuple, .. } => {
                let name = self.name(stack, tuple.local.addr);
                // By the peer's address that the connection was opened to, as far as there is a subflow to it.
                let subflows = stack.connection(id).map(|info| info.subflows).unwrap_or_default();
                let remote = subflows.first().map_or(tuple.remote, |first| first.tuple.remote);
                tracing::info!("{}: over {name} too", stack.peer_at(remote.into()));
                self.handle_joined(&name)
            }
            Event::SubflowClosed { tuple, error: Some(error), .. } => {
                let name = self.name(stack, tuple.local.addr);
                let others = self.others(stack, tuple, |_| true);
                let is_gone = !has_endpoint(stack, tuple.local.addr);
                self.handle_ended(&name, *error, &others, is_gone);
                None
            }
            Event::SubflowStale { tuple, .. } => {
                let name = self.name(stack, tuple.local.addr);
                let others = self.others(stack, tuple, works);
                self.handle_stale(&name, &others);
                None
            }
            Event::SubflowRecovered { tuple, .. } => {
                let name = self.name(stack, tuple.local.addr);
                self.handle_recovered(&name)
            }
            _ => None,
        }
    }

    /// The interfaces of all subflows that are there but one.
    fn others(
        &mut self,
        stack: &Stack,
        but: &FourTuple,
        counts: impl Fn(&SubflowInfo) -> bool,
    ) -> Vec<String> {
        let connections = stack.connections();
        let subflows = connections.iter().flat_map(|(_, info)| &info.subflows);
        let others =
            subflows.filter(|subflow| subflow.established && subflow.tuple != *but && counts(subflow));
        others.map(|subflow| self.name(stack, subflow.tuple.local.addr)).collect()
    }

    /// The interfaces over which data can go: they are there, and what was sent over them is acknowledged.
    pub(super) fn carrying(&mut self, stack: &Stack) -> Vec<String> {
        // Most looks have nothing to tell.
        if self.untold.is_empty() {
            return Vec::new();
        }
        let connections = stack.connections();
        let subflows = connections.iter().flat_map(|(_, info)| &info.subflows);
        let own = subflows.filter(|subflow| subflow.established && works(subflow));
        let own: Vec<IpAddr> = own.map(|subflow| subflow.tuple.local.addr).collect();
        let own = own.into_iter().filter(|own| has_endpoint(stack, *own));
        let names: Vec<String> = own.map(|own| self.name(stack, own)).collect();
        names.into_iter().filter(|name| !self.links.is_down(name)).collect()
    }

    pub(super) fn note_joining(&mut self, stack: &Stack, connections: &[(ConnectionId, ConnectionInfo)]) {
        for (_, info) in connections {
            for subflow in info.subflows.iter().filter(|subflow| !subflow.established) {
                let name = self.name(stack, subflow.tuple.local.addr);
                self.joining.insert(name);
            }
        }
    }

    /// Which budgets have been used up since the last look; `has_others` says that there is an interface which may be used.
    pub(super) fn note_budgets(
        &mut self,
        asked: &Asked,
        used_bytes: impl Fn(IpAddr) -> u64,
        has_others: bool,
    ) -> Vec<String> {
        let names = &self.names;
        let is_spent = |budget: &&Budget| {
            let mut addresses = names.iter().filter(|(_, name)| **name == budget.name);
            addresses.any(|(own, _)| used_bytes(*own) >= budget.bytes)
        };
        let mut lines = Vec::new();
        let spent: Vec<&Budget> = asked.budgets.iter().filter(is_spent).collect();
        for Budget { name, bytes, is_hard } in spent {
            if self.spent.insert(name.clone()) {
                let what = match (is_hard, has_others) {
                    (false, _) => "is a backup from now on",
                    (true, true) => "is left out",
                    (true, false) if self.is_all_spent(asked) => {
                        "is left out; no other was asked for, so that what is open ends now (the next command counts anew)"
                    }
                    (true, false) => {
                        "is left out; no other is there: what is open ends in a minute, unless one comes"
                    }
                };
                lines.push(format!("{name} has used its budget of {} and {what}", amount(*bytes)));
            }
        }
        lines
    }

    /// No interface that was asked for may be used any more, and no other will be.
    pub(super) fn is_all_spent(&self, asked: &Asked) -> bool {
        let is_spent = |name: &String| {
            let is_hard = asked.budgets.iter().any(|budget| budget.is_hard && budget.name == *name);
            is_hard && self.spent.contains(name)
        };
        !asked.only.is_empty() && asked.only.iter().chain(&asked.backups).all(is_spent)
    }

    /// Its name now or, if it has gone, before.
    pub(super) fn name(&mut self, stack: &Stack, own: IpAddr) -> String {
        if let Some(name) = stack.path_name(own) {
            self.names.insert(own, name);
        }
        self.names.get(&own).cloned().unwrap_or_else(|| own.to_string())
    }

    fn handle_joined(&mut self, name: &str) -> Option<String> {
        self.failed.remove(name);
        self.links.forget(name);
        self.joined.insert(name.to_string());
        let was_told = self.forget_untold(name);
        let was_silent = self.silent.remove(name);
        ((self.lost.remove(name) || was_silent) && was_told).then(|| format!("{name} is back"))
    }

    /// Nothing is acknowledged on a subflow; `others` are the interfaces of those that carry. If there are none, it may be the peer.
    fn handle_stale(&mut self, name: &str, others: &[String]) {
        self.was_disturbed = true;
        if others.is_empty()
            || others.iter().any(|other| other == name)
            || self.lost.contains(name)
            || !self.silent.insert(name.to_string())
        {
            return;
        }
        self.untold.push(Untold { name: name.to_string(), has_ended: false, is_due: false });
    }

    fn handle_recovered(&mut self, name: &str) -> Option<String> {
        let was_told = self.forget_untold(name);
        (self.silent.remove(name) && was_told).then(|| format!("{name} is back"))
    }

    /// A subflow ended out of order; `others` are the interfaces of those that are there. Without any, it is the end of all, unless
    /// the interface itself is gone.
    fn handle_ended(&mut self, name: &str, error: SubflowError, others: &[String], is_gone: bool) {
        if !self.joined.contains(name) {
            self.failed.insert(name.to_string(), error);
            return;
        }
        self.was_disturbed = true;
        if others.is_empty() && !is_gone
            || others.iter().any(|other| other == name)
            || self.lost.contains(name)
        {
            return;
        }
        self.handle_lost(name.to_string());
    }

    fn handle_lost(&mut self, name: String) {
        self.lost.insert(name.clone());
        let was_told = self.forget_untold(&name);
        // That it carries nothing was told.
        if self.silent.remove(&name) && was_told {
            return;
        }
        self.untold.push(Untold { name, has_ended: true, is_due: false });
    }

    /// Whether nothing was left to tell of it.
    fn forget_untold(&mut self, name: &str) -> bool {
        let before = self.untold.len();
        self.untold.retain(|untold| untold.name != name);
        self.untold.len() == before
    }

    /// What is to be told now of the interfaces that were lost before the last look; `carrying` are those over which data can go.
    pub(super) fn take_due(&mut self, carrying: &[String]) -> Vec<String> {
        let mut lines = Vec::new();
        for untold in mem::take(&mut self.untold) {
            let Untold { name, has_ended, is_due } = untold;
            if !is_due {
                self.untold.push(Untold { name, has_ended, is_due: true });
                continue;
            }
            // That its budget is used up was told.
            if has_ended && self.spent.contains(&name) {
                continue;
            }
            match (has_ended, carrying.iter().find(|other| **other != name)) {
                (true, Some(other)) => lines.push(format!("{name} is lost; {other} goes on")),
                (true, None) => lines.push(format!("{name} is lost")),
                (false, Some(other)) => lines.push(format!("{name} carries nothing; {other} goes on")),
                // It may be the peer.
                (false, None) => {
                    self.silent.remove(&name);
                }
            }
        }
        lines
    }

    /// Which paths are there no more, and why.
    pub(in crate::command) fn gone(&self, stack: &Stack, budgets: &[Budget]) -> Vec<String> {
        let there: Vec<IpAddr> = stack.known_paths().iter().map(|path| path.endpoint.addr).collect();
        let there: Vec<&String> = there.iter().filter_map(|own| self.names.get(own)).collect();
        let mut gone = BTreeSet::new();
        for (own, name) in self.names.iter().filter(|(_, name)| !there.contains(name)) {
            let budget = budgets.iter().find(|budget| budget.is_hard && budget.name == *name);
            let used = stack.budget_used_bytes(*own).unwrap_or(0);
            gone.insert(match budget {
                Some(budget) if used >= budget.bytes => format!("the budget of {name} is spent"),
                _ => format!("{name} is down"),
            });
        }
        gone.into_iter().collect()
    }

    /// What went over these addresses came in all of the transfer's time, as far as that is long enough to tell. Where all paths were lost
    /// at once there was no other to compare with, either.
    pub(in crate::command) fn was_used_throughout(&self, addresses: &[IpAddr]) -> bool {
        if self.was_disturbed {
            return false;
        }
        let most = addresses.iter().filter_map(|own| self.busy_by_address.get(own)).max();
        self.busy < LEAST_LOOKS || f64::from(most.copied().unwrap_or(0)) >= WHOLE * f64::from(self.busy)
    }

    /// The peer sends over one path what it sends over others, so that bytes on the paths are clearly more than what arrives.
    pub(in crate::command) fn has_copies(&self) -> bool {
        self.copies.are_there()
    }

    /// Takes note of what has arrived on connections.
    pub(super) fn note_arrived(&mut self, connections: &[(ConnectionId, ConnectionInfo)]) {
        connections.iter().for_each(|(id, info)| self.copies.look(*id, Arrived::by(info)));
        self.copies.keep(connections.iter().map(|(id, _)| *id));
    }

    /// Which interface has no subflow, and why.
    pub(in crate::command) fn failed(&self) -> Option<String> {
        let Some((name, error)) = self.failed.iter().next() else {
            let name = self.joining.difference(&self.joined).next()?;
            return Some(format!("{name}: its subflow was not answered in time"));
        };
        let why = match error {
            SubflowError::Reset(_) => "its subflow was refused",
            SubflowError::TimedOut => "its subflow was never answered",
            SubflowError::JoinStripped | SubflowError::Middlebox => {
                "something on the way strips options of Multipath TCP"
            }
            SubflowError::WrongHmac => "something on the way changes options of Multipath TCP",
            SubflowError::Local => return None,
        };
        Some(format!("{name}: {why}"))
    }
}

/// What was sent is acknowledged.
fn works(subflow: &SubflowInfo) -> bool {
    !subflow.multipath.as_ref().is_some_and(|multipath| multipath.stale)
}

/// The stack uses this address, whose interface is up then.
fn has_endpoint(stack: &Stack, own: IpAddr) -> bool {
    stack.known_paths().iter().any(|path| path.endpoint.addr == own)
}
