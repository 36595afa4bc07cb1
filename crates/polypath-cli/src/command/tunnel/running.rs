//! A tunnel that runs: what its threads share, and how it takes another file while it runs.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use polypath_system::Netlink;
use polypath_tunnel::driver::{Driver, Handle, SocketId};
use polypath_tunnel::{Engine, FlowPolicy, Network, PeerConfig, PeerId, Rule, Rules};

use super::super::Failure;
use super::super::history::now_s;
use super::budgets::Budgets;
use super::changes;
use super::endpoints::is_name;
use super::file::{File, PeerPlan, Plan};
use super::follower::Follower;
use super::pinned;
use super::routes::{self, Led, Through};
use super::uplinks::Wanted;

/// What the threads of a tunnel share.
pub(super) struct Running {
    /// The tunnel's file.
    pub(super) file: PathBuf,
    pub(super) is_quiet: bool,
    /// Rung when the file was taken anew.
    pub(super) changed: tokio::sync::Notify,
    /// Rung when it is to end.
    pub(super) ending: tokio::sync::Notify,
    state: Mutex<State>,
    /// What leads through the device. Taken before the state, if both are.
    led: Mutex<Led>,
}

/// What changes while it runs.
pub(super) struct State {
    pub(super) plan: Plan,
    /// The engine's names of the plan's peers, in their order.
    pub(super) peers: Vec<PeerId>,
    pub(super) follower: Follower<SocketId>,
    pub(super) budgets: Budgets,
    /// Peers whose names were found. The others' networks do not lead through the device yet.
    pub(super) known: BTreeSet<PeerId>,
    /// Interfaces whose budgets are spent, as was told.
    spent: BTreeSet<String>,
    /// Whether what has gone of budgets could not be kept the last time.
    keeps_nothing: bool,
    /// What was told of packets that are pinned to a path.
    pinned: pinned::Told,
}

/// What a look at a tunnel has found.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Peers with names of whom nothing comes, by any path.
    pub(super) silent: Vec<PeerId>,
    /// A budget is spent, or a day has begun: interfaces are for something else now.
    pub(super) budgets_changed: bool,
    /// What is to be told.
    pub(super) told: Vec<String>,
}

/// What the engine is told of a peer.
pub(super) fn peer_config(plan: &Plan, peer: &PeerPlan) -> PeerConfig {
    PeerConfig {
        public_key: peer.public_key,
        preshared_key: peer.preshared_key.clone(),
        allowed_ips: peer.allowed_ips.clone(),
        rules: Rules::new(plan.rules.clone()),
    }
}

fn not_kept(error: &io::Error) -> String {
    format!("what has gone of budgets can't be kept: {error}")
}

impl Running {
    /// Of an engine that has the plan's peers.
    pub(super) fn new(file: &Path, plan: Plan, engine: &Engine, is_quiet: bool) -> Result<Self, Failure> {
        let peers: Vec<PeerId> =
            plan.peers.iter().filter_map(|peer| engine.peer_by_key(&peer.public_key)).collect();
        let mut budgets = Budgets::default();
        if plan.uplinks.budgets().next().is_some() {
            budgets.keep(&plan.name, now_s())?;
        }
        let state = Mutex::new(State {
            plan,
            peers,
            follower: Follower::new(),
            budgets,
            known: BTreeSet::new(),
            spent: BTreeSet::new(),
            keeps_nothing: false,
            pinned: pinned::Told::default(),
        });
        let file = std::path::absolute(file).map_err(Failure::run)?;
        Ok(Self {
            file,
            is_quiet,
            changed: tokio::sync::Notify::new(),
            ending: tokio::sync::Notify::new(),
            state,
            led: Mutex::default(),
        })
    }

    /// Nobody asks the driver's thread for something while holding it: that thread takes it, too.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn led(&self) -> MutexGuard<'_, Led> {
        self.led.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leads the networks of peers that are known through the device, as far as that can be. Returns what is to be told.
    pub(super) fn lead(&self) -> Vec<String> {
        let mut led = self.led();
        let (name, wanted) = {
            let state = self.state();
            (state.plan.name.clone(), state.led_networks())
        };
        if !led.differs(&wanted) {
            return Vec::new();
        }
        match Netlink::new() {
            Ok(netlink) => led.lead(&mut Through::new(&netlink, &name), &wanted),
            Err(error) => led.fail(vec![error.to_string()]),
        }
    }

    /// Something does not lead through the device that should.
    pub(super) fn lacks_routes(&self) -> bool {
        self.led().has_failed()
    }

    /// Takes the file as it is now. Returns what has changed, or what is wrong with it: then all stays as it was.
    pub(super) fn reload(
        self: &std::sync::Arc<Self>,
        handle: &Handle<Driver>,
    ) -> Result<Vec<String>, String> {
        let plan = File::read(&self.file).and_then(|file| file.plan(&self.file)).map_err(Failure::message)?;
        self.check_routes(&plan).map_err(|error| format!("{}: {error}", self.file.display()))?;
        let running = std::sync::Arc::clone(self);
        let told = handle.ask(move |driver| running.state().take_plan(driver, plan));
        let mut told = told.map_err(|error| error.to_string())??;
        told.extend(self.lead());
        self.changed.notify_one();
        Ok(told)
    }

    /// Whether what another plan wants can lead through the device.
    fn check_routes(&self, plan: &Plan) -> io::Result<()> {
        let led = self.led();
        let (name, wanted) = {
            let state = self.state();
            // It has the addresses that it had.
            (state.plan.name.clone(), routes::wanted(&state.plan.addresses, &plan.peers))
        };
        led.check(&mut Through::new(&Netlink::new()?, &name), &wanted)
    }
}

impl State {
    /// The peers, with what the plan says of each.
    pub(super) fn peers(&self) -> impl Iterator<Item = (PeerId, &PeerPlan)> {
        self.peers.iter().copied().zip(&self.plan.peers)
    }

    /// What leads through the device now.
    fn led_networks(&self) -> BTreeSet<Network> {
        let is_led = |(id, peer): &(PeerId, &PeerPlan)| {
            self.known.contains(id) || !peer.endpoints.iter().any(|text| is_name(text))
        };
        routes::wanted(&self.plan.addresses, self.peers().filter(is_led).map(|(_, peer)| peer))
    }

    /// Another plan for the same device. Sessions of peers that stay go on.
    fn take_plan(&mut self, driver: &mut Driver, plan: Plan) -> Result<Vec<String>, String> {
        let mut told = Vec::new();
        // What went until now is of the budgets of before.
        if let Err(error) = self.count(driver) {
            told.push(not_kept(&error));
        }
        if plan.uplinks.budgets().next().is_some() {
            self.budgets.keep(&self.plan.name, now_s()).map_err(Failure::message)?;
        }
        for what in self.plan.fixed_differences(&plan) {
            told.push(format!("{what}: takes effect when the tunnel begins anew"));
        }
        let (engine, _) = driver.engine();
        let changes = engine.set_peers(plan.peers.iter().map(|peer| peer_config(&plan, peer)).collect());
        let gone = self.peers().filter(|(id, _)| changes.removed.contains(id));
        told.extend(gone.map(|(_, peer)| format!("{} is gone", peer.label())));
        let peers: Vec<PeerId> =
            plan.peers.iter().filter_map(|peer| engine.peer_by_key(&peer.public_key)).collect();
        for (id, peer) in peers.iter().zip(&plan.peers) {
            let before = self.peers().find(|(before, _)| before == id).map(|(_, peer)| peer);
            if changes.added.contains(id) {
                told.push(format!("{} is new", peer.label()));
            } else if before.is_some_and(|before| before != peer) {
                told.push(format!("{} has changed", peer.label()));
            }
        }
        for id in changes.removed {
            self.follower.forget(id);
            self.pinned.forget(id);
        }
        self.peers = peers;
        told.extend(changes::of_rules(&self.plan.rules, &plan.rules));
        told.extend(plan.uplinks.differences(&self.plan.uplinks));
        self.plan.take(plan);
        let budgets: Vec<_> = self.plan.uplinks.budgets().collect();
        self.budgets.forget_others(&budgets);
        self.spent.retain(|name| budgets.iter().any(|budget| budget.interface == *name));
        if told.is_empty() {
            told.push("nothing has changed".into());
        }
        Ok(told)
    }

    /// Makes the driver's paths those that are wanted.
    pub(super) fn follow(&mut self, driver: &mut Driver, wanted: &[Wanted]) -> Vec<String> {
        let is_there = |want: &&Wanted| self.peers.contains(&want.peer);
        let wanted: Vec<Wanted> = wanted.iter().filter(is_there).cloned().collect();
        self.follower.follow(driver, &wanted)
    }

    /// Looks at what has gone over the interfaces, and at who is silent.
    pub(super) fn look(&mut self, driver: &mut Driver) -> Seen {
        let mut seen = Seen::default();
        // Told once, and once it is over.
        let kept = self.count(driver);
        let kept_nothing = std::mem::replace(&mut self.keeps_nothing, kept.is_err());
        match kept {
            Err(error) if !kept_nothing => seen.told.push(not_kept(&error)),
            Ok(()) if kept_nothing => seen.told.push("what has gone of budgets is kept again".into()),
            _ => {}
        }
        self.look_at_budgets(&mut seen);
        self.look_at_pinned(driver, &mut seen);
        let (engine, now) = driver.engine();
        for (id, _) in self.peers().filter(|(_, peer)| peer.endpoints.iter().any(|text| is_name(text))) {
            let status = engine.peer_status(now, id);
            let lives = status.is_some_and(|status| {
                let is_stock = status.keys_age.is_some() && !status.knows_paths;
                is_stock || status.paths.iter().any(|path| path.is_usable || path.is_closed)
            });
            if !lives {
                seen.silent.push(id);
            }
        }
        seen
    }

    /// Adds what has gone over interfaces with a budget since the last time. It is on file before anything follows from it.
    pub(super) fn count(&mut self, driver: &mut Driver) -> io::Result<()> {
        // Without a budget too: one that comes later begins with what goes then.
        let bytes = self.follower.take_bytes(driver);
        self.budgets.begin_day(now_s());
        for budget in self.plan.uplinks.budgets() {
            self.budgets.add(&budget, bytes.get(&budget.interface).copied().unwrap_or(0));
        }
        self.budgets.save()
    }

    /// Whose rules drop packets.
    fn look_at_pinned(&mut self, driver: &mut Driver, seen: &mut Seen) {
        let is_pinned = |rule: &Rule| matches!(rule.policy, FlowPolicy::Pinned(_));
        let rules = &self.plan.rules;
        if !rules.iter().any(is_pinned) {
            return;
        }
        let (engine, now) = driver.engine();
        for (id, peer) in self.peers.iter().copied().zip(&self.plan.peers) {
            let Some(status) = engine.peer_status(now, id) else { continue };
            seen.told.extend(self.pinned.look((id, &peer.label()), rules, &status));
        }
    }

    /// Which budgets are spent, or new, since this was asked last.
    fn look_at_budgets(&mut self, seen: &mut Seen) {
        let budgets: Vec<_> = self.plan.uplinks.budgets().collect();
        for budget in &budgets {
            let is_spent = self.budgets.used_bytes(budget) >= budget.bytes;
            let was_spent = self.spent.contains(&budget.interface);
            if is_spent == was_spent {
                continue;
            }
            seen.budgets_changed = true;
            seen.told.push(budget.told(is_spent));
            if is_spent {
                self.spent.insert(budget.interface.clone());
            } else {
                self.spent.remove(&budget.interface);
            }
        }
    }
}
