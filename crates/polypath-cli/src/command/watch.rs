//! What becomes of paths while a command transfers something: which of them carry, which were lost, which never came to be.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, IsTerminal};
use std::mem;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polypath_mptcp::{ConnectionId, Event, SubflowError, SubflowInfo};
use polypath_stack::{Engine, Stack, Tally};
use polypath_system::{Namespace, Netlink, SystemState, console};
use polypath_wire::FourTuple;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::interfaces::{Asked, Budget};
use super::words::amount;
use super::{complain, harmless};

/// Between two looks at what was carried.
const INTERVAL: Duration = Duration::from_millis(250);

/// So many of them are between two looks at the interfaces, where no event tells that one is down.
const LOOKS_PER_LINK_LOOK: u32 = 4;

/// A path is in use for the whole of a transfer if it carries in so much of its time.
const WHOLE: f64 = 0.9;

/// Fewer looks with something new don't tell.
const LEAST_LOOKS: u32 = 4;

/// What is known so far. It ends with this.
#[derive(Debug)]
pub(super) struct Watch {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// What was seen of paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
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
    /// Interfaces that went down under their subflows, with the bytes that had come and gone by then.
    down: BTreeMap<String, u64>,
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

/// How it is said that a path is lost, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Not at all.
    Silent,
    /// On a terminal over a progress bar, which is drawn again below; elsewhere as a line.
    OverBar,
    /// As a line.
    Line,
}

impl Telling {
    pub(super) fn tell(self, line: &str) {
        match self {
            Self::Silent => {}
            Self::OverBar if io::stderr().is_terminal() && !console::is_held_back() => {
                console::tell(format_args!("\r\u{1b}[2Kpolypath: {}", harmless(line)));
            }
            Self::OverBar | Self::Line => complain(line),
        }
    }
}

impl Watch {
    /// Watches an engine from now on, and tells when a path is lost, when it is back, and when its budget is used up.
    pub(super) fn start(engine: &Engine, telling: Telling, asked: Asked) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (shared, engine) = (seen.clone(), engine.clone());
        let task = tokio::spawn(async move { follow(&engine, &shared, telling, &asked).await });
        Self { seen, task }
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(engine: &Engine, seen: &Mutex<Seen>, telling: Telling, asked: &Asked) {
    let stack = match engine {
        Engine::Stack(stack) => Some(stack),
        _ => None,
    };
    let mut events = stack.map(Stack::subscribe);
    if let Some(stack) = stack {
        let paths = stack.known_paths();
        let mut seen = lock(seen);
        paths.iter().for_each(|path| drop(seen.name(stack, path.endpoint.addr)));
    }
    let outlives_interfaces = stack.is_some_and(Stack::outlives_interfaces);
    let mut looks = 0_u32;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = async {
            match &mut events {
                Some(events) => events.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = ticks.tick() => {
                looks = looks.wrapping_add(1);
                let running = match outlives_interfaces && looks.is_multiple_of(LOOKS_PER_LINK_LOOK) {
                    true => running().await,
                    false => None,
                };
                let mut seen = lock(seen);
                seen.handle_tally(&engine.tally());
                let back = running.map_or(Vec::new(), |running| seen.handle_links(&running));
                back.iter().for_each(|line| telling.tell(line));
                let Some(stack) = stack else { continue };
                seen.note_joining(stack);
                let used = |own| stack.budget_used_bytes(own).unwrap_or(0);
                let has_others = stack.known_paths().iter().any(|path| !path.is_withheld);
                let lines = seen.note_budgets(asked, used, has_others);
                // Nothing will come, for those either that were opened since.
                if seen.is_all_spent(asked) && !stack.connections().is_empty() {
                    stack.abort_connections();
                }
                let carrying = seen.carrying(stack);
                let lost = seen.take_due(&carrying);
                drop(seen);
                lost.iter().chain(&lines).for_each(|line| telling.tell(line));
            }
            event = event => match (event, stack) {
                (Ok((_, id, event)), Some(stack)) => {
                    let line = lock(seen).handle_event(stack, id, &event);
                    line.iter().for_each(|line| telling.tell(line));
                }
                (Err(RecvError::Closed), _) => events = None,
                _ => {}
            },
        }
    }
}

/// The interfaces that are up and have a carrier; none if that can't be read.
async fn running() -> Option<BTreeSet<String>> {
    let look = || Namespace::current()?.run(|| SystemState::read(&Netlink::new()?))?;
    let state = tokio::task::spawn_blocking(look).await.ok()?.ok()?;
    Some(state.links.into_iter().filter(|link| link.is_running).map(|link| link.name).collect())
}

impl Seen {
    /// Of interfaces that went down under their subflows, those that carry again.
    fn handle_links(&mut self, running: &BTreeSet<String>) -> Vec<String> {
        let bytes = |seen: &Self, name: &str| -> u64 {
            let named = seen.names.iter().filter(|(_, known)| *known == name);
            named.filter_map(|(own, _)| seen.carried.get(own)).sum()
        };
        let went: Vec<String> = self.joined.difference(running).cloned().collect();
        // Others are addresses, of which the system says nothing here.
        let is_interface = |name: &String| self.names.values().any(|known| known == name);
        let went: Vec<String> =
            went.into_iter().filter(|name| is_interface(name) && !self.lost.contains(name)).collect();
        for name in went {
            self.was_disturbed = true;
            self.down.insert(name.clone(), bytes(self, &name));
            self.handle_lost(name);
        }
        let carries = |(name, before): (&String, &u64)| running.contains(name) && bytes(self, name) > *before;
        let back: Vec<String> =
            self.down.iter().filter(|entry| carries(*entry)).map(|(name, _)| name.clone()).collect();
        back.iter().filter_map(|name| self.handle_joined(name)).collect()
    }

    fn handle_tally(&mut self, tally: &Tally) {
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

    fn handle_event(&mut self, stack: &Stack, id: ConnectionId, event: &Event) -> Option<String> {
        match event {
            Event::Connected | Event::Accepted { .. } => {
                let subflows = stack.connection(id)?.subflows;
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
    fn carrying(&mut self, stack: &Stack) -> Vec<String> {
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
        names.into_iter().filter(|name| !self.down.contains_key(name)).collect()
    }

    fn note_joining(&mut self, stack: &Stack) {
        for (_, info) in stack.connections() {
            for subflow in info.subflows.iter().filter(|subflow| !subflow.established) {
                let name = self.name(stack, subflow.tuple.local.addr);
                self.joining.insert(name);
            }
        }
    }

    /// Which budgets have been used up since the last look; `has_others` says that there is an interface which may be used.
    fn note_budgets(
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
    fn is_all_spent(&self, asked: &Asked) -> bool {
        let is_spent = |name: &String| {
            let is_hard = asked.budgets.iter().any(|budget| budget.is_hard && budget.name == *name);
            is_hard && self.spent.contains(name)
        };
        !asked.only.is_empty() && asked.only.iter().chain(&asked.backups).all(is_spent)
    }

    /// Its name now or, if it has gone, before.
    fn name(&mut self, stack: &Stack, own: IpAddr) -> String {
        if let Some(name) = stack.path_name(own) {
            self.names.insert(own, name);
        }
        self.names.get(&own).cloned().unwrap_or_else(|| own.to_string())
    }

    fn handle_joined(&mut self, name: &str) -> Option<String> {
        self.failed.remove(name);
        self.down.remove(name);
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
    fn take_due(&mut self, carrying: &[String]) -> Vec<String> {
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
    pub(super) fn gone(&self, stack: &Stack, budgets: &[Budget]) -> Vec<String> {
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
    pub(super) fn was_used_throughout(&self, addresses: &[IpAddr]) -> bool {
        if self.was_disturbed {
            return false;
        }
        let most = addresses.iter().filter_map(|own| self.busy_by_address.get(own)).max();
        self.busy < LEAST_LOOKS || f64::from(most.copied().unwrap_or(0)) >= WHOLE * f64::from(self.busy)
    }

    /// Which interface has no subflow, and why.
    pub(super) fn failed(&self) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    /// What is told after the next looks.
    fn told(seen: &mut Seen, carrying: &[&str]) -> Option<String> {
        let carrying = names(carrying);
        assert!(seen.take_due(&carrying).is_empty(), "it waits for what may go with it");
        let mut lines = seen.take_due(&carrying);
        assert!(lines.len() < 2 && seen.take_due(&carrying).is_empty(), "{lines:?}");
        lines.pop()
    }

    #[test]
    fn a_path_is_lost_once_and_comes_back_once() {
        let mut seen = Seen::default();
        assert_eq!(seen.handle_joined("wifi"), None);
        assert_eq!(seen.handle_joined("lte"), None);
        let end = |seen: &mut Seen, others: &[&str]| {
            seen.handle_ended("wifi", SubflowError::Local, &names(others), false);
            told(seen, others)
        };
        assert_eq!(end(&mut seen, &["lte", "wifi"]), None, "it has another subflow");
        assert_eq!(end(&mut seen, &["lte"]).as_deref(), Some("wifi is lost; lte goes on"));
        assert_eq!(end(&mut seen, &["lte"]), None);
        assert_eq!(seen.handle_joined("wifi").as_deref(), Some("wifi is back"));
        seen.handle_ended("wifi", SubflowError::Local, &names(&["lte"]), true);
        assert_eq!(seen.handle_joined("wifi"), None, "it was back before anybody knew");
        assert_eq!(told(&mut seen, &["lte", "wifi"]), None);
        seen.handle_ended("lte", SubflowError::TimedOut, &[], false);
        assert_eq!(told(&mut seen, &[]), None, "the end of all");
    }

    #[test]
    fn an_interface_that_goes_down_under_its_subflows_is_lost_until_it_carries_again() {
        let (wifi, lte) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut seen = Seen::default();
        seen.names.extend([(wifi, "wifi".to_string()), (lte, "lte".to_string())]);
        seen.handle_joined("wifi");
        seen.handle_joined("lte");
        let running = |list: &[&str]| names(list).into_iter().collect::<BTreeSet<_>>();
        let both = running(&["wifi", "lte", "lo"]);
        let carry = |seen: &mut Seen, bytes| {
            let mut tally = Tally::default();
            tally.paths.push(polypath_stack::PathTally { own: lte, name: None, bytes });
            seen.handle_tally(&tally);
        };
        carry(&mut seen, 10);
        assert!(seen.handle_links(&both).is_empty() && seen.untold.is_empty());
        assert!(seen.handle_links(&running(&["wifi"])).is_empty());
        assert_eq!(told(&mut seen, &["wifi"]).as_deref(), Some("lte is lost; wifi goes on"));
        assert!(seen.handle_links(&running(&["wifi"])).is_empty() && seen.untold.is_empty());
        assert!(seen.handle_links(&both).is_empty(), "it is up, and carries nothing yet");
        carry(&mut seen, 11);
        assert_eq!(seen.handle_links(&both), ["lte is back"]);
        assert!(seen.handle_links(&both).is_empty() && seen.untold.is_empty());
    }

    #[test]
    fn of_paths_that_are_lost_together_none_goes_on() {
        let mut seen = Seen::default();
        seen.handle_joined("wifi");
        seen.handle_joined("lte");
        seen.handle_ended("wifi", SubflowError::Local, &names(&["lte"]), true);
        seen.handle_ended("lte", SubflowError::Local, &[], true);
        assert!(seen.take_due(&[]).is_empty());
        assert_eq!(seen.take_due(&[]), ["wifi is lost", "lte is lost"]);
        for name in ["wifi", "lte"] {
            assert_eq!(seen.handle_joined(name), Some(format!("{name} is back")));
        }
        // Where both fall silent it may be the peer.
        seen.handle_stale("wifi", &names(&["lte"]));
        seen.handle_stale("lte", &[]);
        assert_eq!(told(&mut seen, &[]), None);
        assert_eq!(seen.handle_recovered("wifi"), None);
    }

    #[test]
    fn a_path_that_stops_carrying_is_told_once_and_comes_back_once() {
        let mut seen = Seen::default();
        seen.handle_joined("wifi");
        seen.handle_joined("lte");
        let stale = |seen: &mut Seen, others: &[&str]| {
            seen.handle_stale("wifi", &names(others));
            told(seen, others)
        };
        assert_eq!(stale(&mut seen, &["lte", "wifi"]), None, "another subflow carries");
        assert_eq!(stale(&mut seen, &[]), None, "it may be the peer");
        let line = "wifi carries nothing; lte goes on";
        assert_eq!(stale(&mut seen, &["lte"]).as_deref(), Some(line));
        assert_eq!(stale(&mut seen, &["lte"]), None);
        assert_eq!(seen.handle_recovered("wifi").as_deref(), Some("wifi is back"));
        assert_eq!(seen.handle_recovered("wifi"), None);
        // One that ends afterwards is told no second time.
        assert_eq!(stale(&mut seen, &["lte"]).as_deref(), Some(line));
        seen.handle_ended("wifi", SubflowError::TimedOut, &names(&["lte"]), false);
        assert_eq!(told(&mut seen, &["lte"]), None);
        assert_eq!(seen.handle_joined("wifi").as_deref(), Some("wifi is back"));
        assert_eq!(seen.handle_joined("wifi"), None);
    }

    #[test]
    fn a_budget_that_is_used_up_is_told_once() {
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut seen = Seen::default();
        seen.names.extend([(one, "lte".to_string()), (other, "dsl".to_string())]);
        let budget = |name: &str, is_hard| Budget { name: name.into(), bytes: 10_000_000, is_hard };
        let asked = |only: &[&str]| Asked {
            only: names(only),
            budgets: vec![budget("lte", true), budget("dsl", false)],
            ..Asked::default()
        };
        let budgets = asked(&["lte", "dsl"]);
        let used = |lte, dsl| move |own| if own == one { lte } else { dsl };
        assert!(seen.note_budgets(&budgets, used(9_999_999, 0), true).is_empty());
        let (mut alone, seen_before) = (seen.clone(), seen.clone());
        let told = seen.note_budgets(&budgets, used(10_000_000, 0), true);
        assert_eq!(told, ["lte has used its budget of 10 MB and is left out"]);
        let told = seen.note_budgets(&budgets, used(10_000_000, 11_000_000), true);
        assert_eq!(told, ["dsl has used its budget of 10 MB and is a backup from now on"]);
        assert!(seen.note_budgets(&budgets, used(12_000_000, 12_000_000), true).is_empty());
        alone.handle_joined("lte");
        alone.handle_ended("lte", SubflowError::Local, &[], true);
        assert!(alone.take_due(&[]).is_empty());
        let told = alone.note_budgets(&budgets, used(10_000_000, 0), false);
        let end = "is left out; no other is there: what is open ends in a minute, unless one comes";
        assert_eq!(told, [format!("lte has used its budget of 10 MB and {end}")]);
        assert!(alone.take_due(&[]).is_empty(), "its end is no other news");
        assert!(!alone.is_all_spent(&budgets), "the other one may come");
        let mut only = seen_before;
        let told = only.note_budgets(&asked(&["lte"]), used(10_000_000, 0), false);
        assert!(told.len() == 1 && told[0].contains("what is open ends now"), "{told:?}");
        assert!(only.is_all_spent(&asked(&["lte"])));
    }

    #[test]
    fn what_never_came_to_be_has_a_cause() {
        let mut seen = Seen::default();
        for (error, cause) in [
            (SubflowError::JoinStripped, "lte: something on the way strips options of Multipath TCP"),
            (SubflowError::Reset(None), "lte: its subflow was refused"),
            (SubflowError::TimedOut, "lte: its subflow was never answered"),
        ] {
            seen.handle_ended("lte", error, &names(&["wifi"]), false);
            assert_eq!(seen.failed().as_deref(), Some(cause));
        }
        seen.handle_joined("lte");
        assert_eq!(seen.failed(), None);
        seen.joining.extend(names(&["lte", "dsl"]));
        assert_eq!(seen.failed().as_deref(), Some("dsl: its subflow was not answered in time"));
    }

    #[test]
    fn a_path_is_in_use_throughout_if_it_carries_all_the_time() {
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut seen = Seen::default();
        assert!(seen.was_used_throughout(&[one]), "too short to tell");
        let mut bytes = [0, 0];
        for look in 0..20_u64 {
            // The other one comes after a while, and nothing at all moves at some looks.
            bytes[0] += look % 3;
            bytes[1] += if look > 6 { look % 3 } else { 0 };
            let mut tally = Tally::default();
            for (own, bytes) in [one, other].into_iter().zip(bytes) {
                tally.paths.push(polypath_stack::PathTally { own, name: None, bytes });
            }
            seen.handle_tally(&tally);
        }
        assert!(seen.was_used_throughout(&[one]) && seen.was_used_throughout(&[other, one]));
        assert!(!seen.was_used_throughout(&[other]));
        // Where all were lost at once, none carried while another did not.
        seen.handle_joined("lte");
        seen.handle_ended("lte", SubflowError::TimedOut, &[], false);
        assert!(!seen.was_used_throughout(&[one]));
    }
}
