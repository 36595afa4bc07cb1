//! What becomes of paths while a command transfers something: which of them carry, which were lost, which never came to be.

mod copies;
mod links;
mod seen;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polypath_stack::{Engine, Stack, Tally};
use polypath_system::console;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::interfaces::Asked;
use super::rates::Rates;
use super::{complain, harmless};

pub(super) use self::seen::Seen;

/// Between two looks at what was carried.
const INTERVAL: Duration = Duration::from_millis(250);

/// So many of them are between two looks at the interfaces, where no event tells that one is down.
const LOOKS_PER_LINK_LOOK: u32 = 4;

/// What is known so far. It ends with this.
#[derive(Debug)]
pub(super) struct Watch {
    seen: Arc<Mutex<Seen>>,
    rates: Arc<Mutex<Rates>>,
    task: JoinHandle<()>,
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
        let mut rates = Rates::new();
        count(&mut rates, &engine.tally());
        let rates = Arc::new(Mutex::new(rates));
        let (shared, counted, engine) = (seen.clone(), rates.clone(), engine.clone());
        let task = tokio::spawn(async move { follow(&engine, &shared, &counted, telling, &asked).await });
        Self { seen, rates, task }
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// How fast bytes went so far, with what there is now, by this end's addresses.
    pub(super) fn rates(&self, tally: &Tally) -> Rates {
        let mut rates = lock(&self.rates);
        count(&mut rates, tally);
        rates.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What goes to this machine itself goes over no interface.
fn count(rates: &mut Rates, tally: &Tally) {
    let paths = tally.paths.iter().filter(|path| !path.own.is_loopback());
    let totals: Vec<(String, u64)> = paths.map(|path| (path.own.to_string(), path.bytes)).collect();
    rates.count(totals.iter().map(|(own, bytes)| (own.as_str(), *bytes)));
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(engine: &Engine, seen: &Mutex<Seen>, rates: &Mutex<Rates>, telling: Telling, asked: &Asked) {
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
                    true => links::running().await,
                    false => None,
                };
                let mut seen = lock(seen);
                // No subflow ends with the last of the others, so that no event tells of it.
                let there = stack.filter(|_| !outlives_interfaces).map(|stack| seen.there(stack));
                let running = running.or(there);
                let tally = engine.tally();
                count(&mut lock(rates), &tally);
                seen.handle_tally(&tally);
                let back = running.map_or(Vec::new(), |running| seen.handle_links(&running));
                back.iter().for_each(|line| telling.tell(line));
                let Some(stack) = stack else { continue };
                let connections = stack.connections();
                seen.note_joining(stack, &connections);
                seen.note_arrived(&connections);
                let used = |own| stack.budget_used_bytes(own).unwrap_or(0);
                let has_others = stack.known_paths().iter().any(|path| !path.is_withheld);
                let lines = seen.note_budgets(asked, used, has_others);
                // Nothing will come, for those either that were opened since.
                if seen.is_all_spent(asked) && !connections.is_empty() {
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
