//! What path managers share: announcing addresses, following those that go, and opening again, with backoff, what was lost.

use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::Endpoint;

use super::pairs::Pair;
use super::{LocalEndpoint, PathAction, PathEvent, PathView, SubflowSummary};
use crate::identifiers::{AddressId, SubflowId};
use crate::rare_list::RareList;

/// Keeps a number of subflows over each wanted pair of addresses.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    lost: Vec<Lost>,
    /// Local addresses that went away.
    gone: Vec<IpAddr>,
    stale: RareList<Stale>,
}

/// A subflow on which nothing is acknowledged, or comes. A translator that has forgotten it may drop its packets for good, where it would
/// take a new one.
#[derive(Clone, Copy, Debug)]
struct Stale {
    subflow: SubflowId,
    /// When another one over the pair is tried.
    replace_at: Instant,
}

/// A pair whose subflow ended.
#[derive(Clone, Copy, Debug)]
struct Lost {
    local: IpAddr,
    remote: Endpoint,
    attempts: u32,
    retry_at: Instant,
}

/// Wait before the first attempt to re-establish; doubles up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// Probes have so long to find the path back, before a new subflow is tried beside a stale one.
const PATIENCE_WITH_STALE: Duration = Duration::from_secs(10);

/// Attempts after which a pair is given up that never worked, or does not any more.
const MAX_ATTEMPTS: u32 = 6;

/// Pairs that are remembered: bounded, since the peer can announce any number of addresses.
const MAX_LOST: usize = 32;

impl Stale {
    /// It is about `subflow`, and another one may be tried by now.
    fn is_due(&self, subflow: SubflowId, now: Instant) -> bool {
        self.subflow == subflow && self.replace_at <= now
    }
}

impl Upkeep {
    /// Does what an event asks for whatever subflows are wanted; returns whether it is time to open those that are missing.
    pub(super) fn follow(
        &mut self,
        event: &PathEvent,
        view: &PathView<'_>,
        actions: &mut Vec<PathAction>,
    ) -> bool {
        match *event {
            PathEvent::Established => {
                announce(view, view.endpoints.iter(), false, actions);
                true
            }
            PathEvent::Announced(address) => {
                // What was refused before may not be any more.
                self.lost
                    .retain(|lost| lost.remote.addr != address.addr || lost.retry_at != Instant::FAR_FUTURE);
                true
            }
            PathEvent::Wake => true,
            PathEvent::LocalAdded(addr) => {
                self.lost.retain(|lost| lost.local != addr);
                let was_gone = self.is_gone(addr);
                self.gone.retain(|gone| *gone != addr);
                let added = view.endpoints.iter().filter(|endpoint| endpoint.addr == addr);
                announce(view, added, was_gone, actions);
                true
            }
            PathEvent::LocalRemoved(addr) => {
                if self.gone.len() < MAX_LOST && !self.gone.contains(&addr) {
                    self.gone.push(addr);
                }
                withdraw(view, addr, actions);
                false
            }
            PathEvent::LocalChanged(addr) => {
                follow_flags(view, addr, actions);
                false
            }
            PathEvent::SubflowEstablished { subflow } => {
                if let Some(up) = view.subflow(subflow) {
                    self.lost.retain(|lost| (lost.local, lost.remote) != (up.local, up.remote));
                    self.close_replaced(view, up, actions);
                }
                false
            }
            PathEvent::SubflowClosed { local, remote, was_established, may_return } => {
                // Its identifier may be another's one day.
                self.stale.retain(|stale| view.subflow(stale.subflow).is_some());
                self.remember(view, (local, remote), was_established, may_return, actions);
                false
            }
            PathEvent::SubflowStale { subflow } => {
                if view.is_client && view.may_join {
                    self.stale.push_back(Stale { subflow, replace_at: view.now + PATIENCE_WITH_STALE });
                }
                true
            }
            PathEvent::SubflowRecovered { subflow } => {
                let was_due = self.stale.iter().any(|stale| stale.is_due(subflow, view.now));
                self.stale.retain(|stale| stale.subflow != subflow);
                // What was tried in vain meanwhile met a dead path. When it dies again, it is tried anew.
                if let Some(back) = view.subflow(subflow) {
                    self.lost.retain(|lost| (lost.local, lost.remote) != (back.local, back.remote));
                    if was_due {
                        close_replacement(view, back, actions);
                    }
                }
                false
            }
            // The connection sees for itself whether subflows to the address still work.
            PathEvent::Withdrawn { .. } => false,
        }
    }

    /// A subflow came up where stale ones were to be replaced.
    fn close_replaced(&self, view: &PathView<'_>, up: &SubflowSummary, actions: &mut Vec<PathAction>) {
        let is_replaced = |other: &&SubflowSummary| {
            other.id != up.id
                && (other.local, other.remote) == (up.local, up.remote)
                && self.is_to_be_replaced(view, other)
        };
        let replaced = view.subflows.iter().filter(is_replaced);
        actions.extend(replaced.map(|other| PathAction::Close { subflow: other.id }));
    }

    fn is_to_be_replaced(&self, view: &PathView<'_>, subflow: &SubflowSummary) -> bool {
        subflow.stale && self.stale.iter().any(|stale| stale.is_due(subflow.id, view.now))
    }

    /// Opens what is missing of `per_pair` subflows over each of `wanted`, up to the limit. Only the client opens: a server is
    /// mostly behind nothing, a client behind a NAT.
    pub(super) fn open_missing(
        &mut self,
        view: &PathView<'_>,
        wanted: &[Pair],
        per_pair: usize,
        actions: &mut Vec<PathAction>,
    ) {
        if !view.is_client || !view.may_join {
            return;
        }
        // With the initial subflow gone, its place is free for another.
        let mut free = (usize::from(view.limits.subflows) + 1).saturating_sub(view.subflows.len());
        // One over each pair first, then the second over each.
        for round in 0..per_pair {
            for pair in wanted {
                let is_there = |subflow: &&SubflowSummary| {
                    (subflow.local, subflow.remote) == pair.addresses()
                        && !self.is_to_be_replaced(view, subflow)
                };
                if free == 0
                    || view.subflows.iter().filter(is_there).count() > round
                    || !self.may_open(view, pair)
                {
                    continue;
                }
                free -= 1;
                actions.push(open(pair, pair.local.backup));
            }
        }
        self.wake(view, actions);
    }

    /// Neither is the local address gone, nor does the pair wait to be tried again.
    pub(super) fn may_open(&self, view: &PathView<'_>, pair: &Pair) -> bool {
        let waits = |lost: &Lost| (lost.local, lost.remote) == pair.addresses() && lost.retry_at > view.now;
        !self.gone.contains(&pair.local.addr) && !self.lost.iter().any(waits)
    }

    pub(super) fn is_gone(&self, addr: IpAddr) -> bool {
        self.gone.contains(&addr)
    }

    /// Asks to be woken when the next pair may be tried again.
    pub(super) fn wake(&self, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        let lost = self.lost.iter().map(|lost| lost.retry_at);
        let replaced = self.stale.iter().map(|stale| stale.replace_at);
        if let Some(next) = lost.chain(replaced).filter(|at| *at > view.now).min()
            && next != Instant::FAR_FUTURE
        {
            actions.push(PathAction::WakeAt(next));
        }
    }

    /// The subflow over a pair ended: how long to wait before it is tried again.
    pub(super) fn remember(
        &mut self,
        view: &PathView<'_>,
        (local, remote): (IpAddr, Endpoint),
        was_established: bool,
        may_return: bool,
        actions: &mut Vec<PathAction>,
    ) {
        let known = self.lost.iter().position(|lost| (lost.local, lost.remote) == (local, remote));
        let attempts = match known {
            Some(at) if !was_established => self.lost.swap_remove(at).attempts + 1,
            Some(at) => {
                self.lost.swap_remove(at);
                0
            }
            None => u32::from(!was_established),
        };
        let wait = Duration::from_nanos(FIRST_RETRY.as_nanos() << attempts.min(6));
        let retry_at = match attempts {
            _ if !may_return => Instant::FAR_FUTURE,
            MAX_ATTEMPTS.. if !is_stale_there(view, (local, remote)) => Instant::FAR_FUTURE,
            _ => view.now + if wait > MAX_RETRY { MAX_RETRY } else { wait },
        };
        if self.lost.len() < MAX_LOST {
            self.lost.push(Lost { local, remote, attempts, retry_at });
        }
        if view.is_client && view.may_join && retry_at != Instant::FAR_FUTURE {
            actions.push(PathAction::WakeAt(retry_at));
        }
    }
}

/// A subflow works again for which another was to come, over the same path: that one, if it is yet to be established, carries nothing.
fn close_replacement(view: &PathView<'_>, back: &SubflowSummary, actions: &mut Vec<PathAction>) {
    let is_replacement = |other: &&SubflowSummary| {
        !other.established && (other.local, other.remote) == (back.local, back.remote)
    };
    let replacement = view.subflows.iter().find(is_replacement);
    actions.extend(replacement.map(|other| PathAction::Close { subflow: other.id }));
}

/// An established subflow over the pair waits to be replaced: the pair did work, and its path may come back at any time.
fn is_stale_there(view: &PathView<'_>, pair: (IpAddr, Endpoint)) -> bool {
    let is_stale = |subflow: &&SubflowSummary| subflow.established && subflow.stale;
    view.subflows.iter().filter(is_stale).any(|subflow| (subflow.local, subflow.remote) == pair)
}

pub(super) fn open(pair: &Pair, backup: bool) -> PathAction {
    PathAction::Open { local: pair.local.addr, local_id: pair.local.id, remote: pair.remote, backup }
}

/// Announces what is to be. The peer knows the initial address, under 0, and hears of it only after it was withdrawn.
fn announce<'a>(
    view: &PathView<'_>,
    endpoints: impl Iterator<Item = &'a LocalEndpoint>,
    was_withdrawn: bool,
    actions: &mut Vec<PathAction>,
) {
    for endpoint in endpoints.filter(|endpoint| endpoint.signal) {
        let is_initial = (endpoint.addr, endpoint.port) == (view.initial_local, None);
        let addr = match endpoint.announced_as {
            _ if is_initial && !was_withdrawn => continue,
            Some(_) if view.is_client => continue,
            translated => translated.unwrap_or(endpoint.addr),
        };
        let id = if is_initial { AddressId::INITIAL } else { endpoint.id };
        actions.push(PathAction::Announce { id, addr, port: endpoint.port });
    }
}

/// Withdraws an address under all identifiers that the peer knows it by: the initial subflow's is 0 (RFC 8684 §3.4.2). With
/// nothing else to say it on, the peer cannot be told, and the subflows stay, as the address may come back.
fn withdraw(view: &PathView<'_>, addr: IpAddr, actions: &mut Vec<PathAction>) {
    if !view.subflows.iter().any(|subflow| subflow.established && subflow.local != addr) {
        return;
    }
    let used = view.subflows.iter().filter(|subflow| subflow.local == addr).map(|subflow| subflow.local_id);
    let id = |endpoint: &LocalEndpoint| {
        if addr == view.initial_local && endpoint.port.is_none() { AddressId::INITIAL } else { endpoint.id }
    };
    let announced = view.endpoint(addr).filter(|endpoint| endpoint.signal);
    let mut ids: Vec<AddressId> = used.chain(announced.map(id)).collect();
    ids.sort_unstable();
    ids.dedup();
    // An identifier may have gone to another address meanwhile, which would go with it.
    ids.retain(|id| !view.subflows.iter().any(|other| other.local != addr && other.local_id == *id));
    actions.extend(ids.into_iter().map(|id| PathAction::Withdraw { id }));
}

/// A connection that began over a backup, as nothing else answered, says so to the peer: MP_CAPABLE has no flag for it.
pub(super) fn mark_initial(event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
    if *event == PathEvent::Established && view.is_client {
        follow_flags(view, view.initial_local, actions);
    }
}

/// The subflows of an endpoint become backups, or regular ones, as it did.
pub(super) fn follow_flags(view: &PathView<'_>, addr: IpAddr, actions: &mut Vec<PathAction>) {
    let Some(endpoint) = view.endpoint(addr) else { return };
    let other = |subflow: &&SubflowSummary| {
        subflow.local == addr && subflow.established && subflow.backup_local != endpoint.backup
    };
    let changed = view.subflows.iter().filter(other);
    actions.extend(
        changed.map(|subflow| PathAction::SetBackup { subflow: subflow.id, backup: endpoint.backup }),
    );
}

#[cfg(test)]
mod tests {
    use super::super::tests::{addr, initial_subflow, opened, remote, view};
    use super::*;

    /// A client with one subflow, and what its upkeep knows.
    #[derive(Default)]
    struct Client {
        upkeep: Upkeep,
        now: Instant,
    }

    impl Client {
        /// The pairs that are opened after an event, while `subflows` are there.
        fn opens(&mut self, event: PathEvent, subflows: &[SubflowSummary]) -> usize {
            let endpoints = [LocalEndpoint::subflow(addr(1), 1)];
            let view = PathView { now: self.now, ..view(&endpoints, subflows) };
            let mut actions = Vec::new();
            if self.upkeep.follow(&event, &view, &mut actions) {
                let wanted = [Pair { local: endpoints[0], remote: remote(100, 80) }];
                self.upkeep.open_missing(&view, &wanted, 1, &mut actions);
            }
            opened(&actions).len()
        }

        fn wakes_after(&mut self, wait: Duration, subflows: &[SubflowSummary]) -> usize {
            self.now += wait;
            self.opens(PathEvent::Wake, subflows)
        }

        /// Nobody answers another subflow beside `stale`, `attempts` times in a row.
        fn tries_in_vain(&mut self, attempts: u32, stale: SubflowSummary) {
            for attempt in 0..attempts {
                let opens = self.wakes_after(MAX_RETRY, &[stale]);
                assert_eq!(opens, 1, "attempt {attempt}");
                self.opens(closed(false), &[stale]);
                assert_eq!(self.wakes_after(Duration::from_nanos(1), &[stale]), 0, "it waits");
            }
        }
    }

    const fn became_stale(id: u8) -> PathEvent {
        PathEvent::SubflowStale { subflow: SubflowId(id) }
    }

    fn closed(was_established: bool) -> PathEvent {
        PathEvent::SubflowClosed {
            local: addr(1),
            remote: remote(100, 80),
            was_established,
            may_return: true,
        }
    }

    fn stale() -> SubflowSummary {
        SubflowSummary { stale: true, ..initial_subflow() }
    }

    #[test]
    fn a_stale_subflow_is_replaced_however_long_its_path_was_dead() {
        let mut client = Client::default();
        assert_eq!(client.opens(became_stale(0), &[stale()]), 0, "probes come first");
        client.tries_in_vain(3 * MAX_ATTEMPTS, stale());
    }

    #[test]
    fn a_pair_is_tried_anew_at_its_next_loss_once_its_subflow_has_recovered() {
        let mut client = Client::default();
        client.opens(became_stale(0), &[stale()]);
        client.tries_in_vain(MAX_ATTEMPTS - 1, stale());
        assert_eq!(
            client.opens(PathEvent::SubflowRecovered { subflow: SubflowId(0) }, &[initial_subflow()]),
            0
        );
        assert_eq!(client.wakes_after(MAX_RETRY, &[initial_subflow()]), 0, "nothing is missing");
        client.opens(became_stale(0), &[stale()]);
        assert_eq!(client.wakes_after(PATIENCE_WITH_STALE, &[stale()]), 1, "with no wait of before");
    }

    #[test]
    fn a_pair_that_never_worked_is_given_up() {
        let mut client = Client::default();
        for _ in 0..MAX_ATTEMPTS {
            client.opens(closed(false), &[]);
            client.now += MAX_RETRY;
        }
        assert_eq!(client.wakes_after(MAX_RETRY, &[]), 0);
    }

    #[test]
    fn who_has_the_identifier_of_a_stale_subflow_that_ended_is_not_replaced_at_once() {
        let mut client = Client::default();
        client.opens(became_stale(0), &[stale()]);
        client.opens(closed(true), &[]);
        client.now += PATIENCE_WITH_STALE;
        assert!(client.upkeep.stale.is_empty(), "it has ended");
        assert_eq!(client.opens(became_stale(0), &[stale()]), 0, "probes come first");
        // Another path is not touched.
    }
}
