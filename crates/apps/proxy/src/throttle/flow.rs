//! Limits and flows together.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use polypath_units::Instant;

use super::lane::{Answer, LONGEST_WAIT, Lane, Period};
use super::lanes::Lanes;
use super::limit::{FlowKey, Limit, Moment};
use super::turns::FlowId;
use crate::access::ClientKey;

/// What a flow may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Move this many octets, no more than it asked for. They count as moved: what was not is given back by [`Flow::give_back`].
    Octets(u64),
    /// Nothing. It asks again at this time; its turn is kept until shortly after. Or sooner, when it is woken.
    Wait(Instant),
}

/// What a limit is and does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// What it is.
    pub limit: Limit,
    /// How many flows it is of.
    pub flows: usize,
    /// How many of them wait for it.
    pub waiting: usize,
    /// Datagrams that it had no place for, or that waited for too long.
    pub dropped_datagrams: u64,
    /// Clients that it knows of, if each has it for itself.
    pub clients: Option<usize>,
    /// Octets of the budget that are used in the period that runs; of each client's together.
    pub used: u64,
    /// When that period ends; the last, of each client's.
    pub ends: Option<Instant>,
}

/// What was used of a budget, in a period that ends at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// The limit that has the budget.
    pub limit: Arc<str>,
    /// Whose it is, if each client has one: an address of it.
    pub client: Option<IpAddr>,
    /// So much of it.
    pub octets: u64,
    /// When another one begins.
    pub ends: Instant,
}

#[derive(Debug)]
struct Entry {
    key: FlowKey,
    client: ClientKey,
    limits: Vec<Arc<str>>,
    /// Whether there are any, for the flow itself, which looks without the table's lock.
    is_limited: Arc<AtomicBool>,
    /// Once it has asked. Boxed: most flows have no limits, and never ask.
    asked: Option<Box<Asked>>,
}

/// What came of it when a flow asked last.
#[derive(Debug, Default)]
struct Asked {
    /// What was given, and those that counted it, with the budget that it used.
    granted: u64,
    charged: Vec<(Arc<str>, Option<Period>)>,
    /// Those that it was told to wait for.
    waits_for: Vec<Arc<str>>,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Table {
    lanes: BTreeMap<Arc<str>, Lanes>,
    /// Boxed: a map has places that are free, and there are two flows for each connection.
    flows: BTreeMap<FlowId, Box<Entry>>,
    next: u64,
}

/// Where a client's flows stand with a limit.
fn lane_of<'a>(
    lanes: &'a mut BTreeMap<Arc<str>, Lanes>,
    name: &str,
    client: ClientKey,
) -> Option<&'a mut Lane> {
    lanes.get_mut(name).and_then(|lanes| lanes.of(client))
}

impl Table {
    /// Which limits are of the flow.
    fn sort_in(&mut self, flow: FlowId) {
        let Some(entry) = self.flows.get_mut(&flow) else { return };
        entry.limits.clear();
        for (name, lanes) in &mut self.lanes {
            let is_member = lanes.limit().flows.fits(&entry.key);
            lanes.set_member(flow, entry.client, is_member);
            if is_member {
                entry.limits.push(name.clone());
            }
        }
        entry.is_limited.store(!entry.limits.is_empty(), Ordering::Relaxed);
    }

    /// Limits have changed: these are to ask again.
    #[must_use]
    fn sort_all(&mut self) -> Vec<Waker> {
        let flows: Vec<FlowId> = self.flows.keys().copied().collect();
        flows.into_iter().for_each(|flow| self.sort_in(flow));
        self.flows.values_mut().filter_map(|entry| entry.asked.as_mut()?.waker.take()).collect()
    }

    fn ask(&mut self, moment: Moment, flow: FlowId, wanted: u64, waker: &Waker) -> Grant {
        let Some(entry) = self.flows.get_mut(&flow) else { return Grant::Octets(wanted) };
        let asked = entry.asked.get_or_insert_default();
        asked.granted = wanted;
        asked.charged.clear();
        asked.waits_for.clear();
        let mut ready_last = None;
        for name in &entry.limits {
            let Some(lane) = lane_of(&mut self.lanes, name, entry.client) else {
                continue;
            };
            match lane.ask(moment, flow, wanted) {
                Answer::Free => {}
                Answer::Octets(most) => {
                    asked.granted = asked.granted.min(most);
                    asked.charged.push((name.clone(), None));
                }
                Answer::Wait(ready) => {
                    let ready = ready.min(moment.now + LONGEST_WAIT);
                    lane.wait(flow, wanted, ready);
                    asked.waits_for.push(name.clone());
                    ready_last = ready_last.max(Some(ready));
                }
            }
        }
        if let Some(ready) = ready_last {
            // Its turn is kept where it has to wait, and where it has not it stands in nobody's way.
            for (name, _) in asked.charged.drain(..) {
                if let Some(lane) = lane_of(&mut self.lanes, &name, entry.client) {
                    lane.leave_queue(flow);
                }
            }
            asked.granted = 0;
            asked.waker = Some(waker.clone());
            return Grant::Wait(ready);
        }
        for (name, used) in &mut asked.charged {
            let lane = lane_of(&mut self.lanes, name, entry.client);
            *used = lane.and_then(|lane| lane.take(moment.now, flow, asked.granted));
        }
        asked.waker = None;
        Grant::Octets(asked.granted)
    }

    fn give_back(&mut self, flow: FlowId, octets: u64) {
        let Some(entry) = self.flows.get_mut(&flow) else { return };
        let Some(asked) = &mut entry.asked else { return };
        let octets = octets.min(asked.granted);
        asked.granted -= octets;
        for (name, used) in &asked.charged {
            if let Some(lane) = lane_of(&mut self.lanes, name, entry.client) {
                lane.give_back(flow, octets, *used);
            }
        }
    }

    fn drops(&mut self, flow: FlowId) {
        let Some(entry) = self.flows.get(&flow) else { return };
        let Some(asked) = &entry.asked else { return };
        for name in &asked.waits_for {
            if let Some(lane) = lane_of(&mut self.lanes, name, entry.client) {
                lane.drops();
            }
        }
    }

    fn gives_up(&mut self, flow: FlowId) {
        let Some(entry) = self.flows.get_mut(&flow) else { return };
        let Some(asked) = &mut entry.asked else { return };
        asked.waker = None;
        for name in asked.waits_for.drain(..) {
            if let Some(lane) = lane_of(&mut self.lanes, &name, entry.client) {
                lane.leave_queue(flow);
            }
        }
    }

    fn close(&mut self, flow: FlowId) {
        let Some(entry) = self.flows.remove(&flow) else { return };
        for name in &entry.limits {
            if let Some(lanes) = self.lanes.get_mut(name) {
                lanes.set_member(flow, entry.client, false);
            }
        }
    }
}

/// Limits by name, and the flows that they are of. Copies are of the same.
#[derive(Clone, Debug, Default)]
pub struct Throttle(Arc<Mutex<Table>>);

impl Throttle {
    /// Without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a limit. One of the same name is changed; what was used of its budget stays used.
    pub fn set(&self, now: Instant, limit: Limit) {
        let mut table = self.table();
        match table.lanes.get_mut(&*limit.name) {
            Some(lanes) => lanes.set_limit(now, limit),
            None => {
                let name = Arc::from(&*limit.name);
                table.lanes.insert(name, Lanes::new(now, limit));
            }
        }
        let waiting = table.sort_all();
        drop(table);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// What was used of a budget before, such as by a process that ended meanwhile.
    pub fn set_used(&self, now: Instant, used: &Used) {
        let mut table = self.table();
        let lanes = table.lanes.get_mut(&*used.limit);
        if let Some(lane) = lanes.and_then(|lanes| lanes.begin_for(used.client.map(Into::into))) {
            lane.set_used(now, used.octets, used.ends);
        }
    }

    /// What is used of budgets whose periods run.
    #[must_use]
    pub fn used(&self, now: Instant) -> Vec<Used> {
        let table = self.table();
        let of_limit = |(name, lanes): (&Arc<str>, &'_ Lanes)| {
            let used = lanes.by_client().filter_map(|(client, lane)| {
                let ends = lane.ends().filter(|ends| *ends > now)?;
                Some(Used { limit: name.clone(), client: client.map(Into::into), octets: lane.used(), ends })
            });
            used.collect::<Vec<_>>()
        };
        table.lanes.iter().flat_map(of_limit).collect()
    }

    /// Removes a limit, and says whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        let mut table = self.table();
        if table.lanes.remove(name).is_none() {
            return false;
        }
        let waiting = table.sort_all();
        drop(table);
        waiting.into_iter().for_each(Waker::wake);
        true
    }

    /// All limits, by name.
    #[must_use]
    pub fn limits(&self) -> Vec<LimitState> {
        let state = |lanes: &Lanes| LimitState {
            limit: lanes.limit().clone(),
            flows: lanes.iter().map(Lane::flows).sum(),
            waiting: lanes.iter().map(Lane::waiting).sum(),
            dropped_datagrams: lanes.iter().map(Lane::dropped).sum(),
            clients: lanes.limit().is_of_each_client.then(|| lanes.iter().count()),
            used: lanes.iter().map(Lane::used).fold(0, u64::saturating_add),
            ends: lanes.iter().filter_map(Lane::ends).max(),
        };
        self.table().lanes.values().map(state).collect()
    }

    /// A flow. It has the limits that are of it as long as it is kept.
    #[must_use]
    pub fn open(&self, key: FlowKey) -> Flow {
        let is_limited = Arc::new(AtomicBool::new(false));
        let client = key.client.into();
        let entry = Entry { key, client, limits: Vec::new(), is_limited: is_limited.clone(), asked: None };
        let entry = Box::new(entry);
        let mut table = self.table();
        let id = FlowId(table.next);
        table.next += 1;
        table.flows.insert(id, entry);
        table.sort_in(id);
        Flow { throttle: self.clone(), id, is_limited }
    }

    /// Whoever panicked with it left it whole enough: at worst some octets are not counted.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One direction of one connection, until it is dropped.
#[derive(Debug)]
pub struct Flow {
    throttle: Throttle,
    id: FlowId,
    is_limited: Arc<AtomicBool>,
}

impl Flow {
    /// Whether limits are of it. One that has none may move what it likes without asking: this takes no lock and no clock.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// How much of what is wanted may be moved now. While it may not, a change of limits wakes.
    #[must_use]
    pub fn poll_grant(&mut self, moment: Moment, wanted: u64, waker: &Waker) -> Grant {
        self.throttle.table().ask(moment, self.id, wanted, waker)
    }

    /// So many octets of what was granted last were not moved, and may be by others.
    pub fn give_back(&mut self, octets: u64) {
        self.throttle.table().give_back(self.id, octets);
    }

    /// A datagram was dropped that had to wait.
    pub(super) fn drops(&self) {
        self.throttle.table().drops(self.id);
    }

    /// It waits for nothing any more.
    pub(super) fn gives_up(&mut self) {
        self.throttle.table().gives_up(self.id);
    }

    /// The names of the limits that are of it, whether they hold at this hour or not.
    #[must_use]
    pub fn limits(&self) -> Vec<Arc<str>> {
        self.throttle.table().flows.get(&self.id).map(|entry| entry.limits.clone()).unwrap_or_default()
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.throttle.table().close(self.id);
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
