//! Paths that wait to be known: a table of fixed size in which no source takes the places of others.

use std::collections::HashMap;

use polypath_units::Instant;

use super::address::PathId;
use super::datagram::{CHALLENGE_BYTES, OVERHEAD_BYTES};
use super::route::{CHALLENGE_INTERVAL, Route};

/// Paths that wait, in sets. A network of sources has one of the sets, in which the newest takes the place of the oldest.
#[derive(Debug)]
pub(super) struct Waiting {
    /// All sets, one after the other. Empty until a path waits: most ends are never reached.
    slots: Vec<Option<Slot>>,
    /// For each set, where its oldest is.
    oldest: Vec<u16>,
    index: HashMap<PathId, usize>,
    sets: usize,
    set_len: usize,
}

#[derive(Debug)]
struct Slot {
    path: PathId,
    route: Route,
    /// What may still be sent by the route: what came by it, less what left, with the headers around each datagram.
    room_bytes: usize,
    challenged_at: Option<Instant>,
}

impl Waiting {
    /// A table for `paths`, `of_source` of them in a set.
    pub(super) fn new(paths: usize, of_source: usize) -> Self {
        let set_len = of_source.clamp(1, usize::from(u16::MAX));
        let sets = (paths / set_len).max(1);
        Self { slots: Vec::new(), oldest: Vec::new(), index: HashMap::new(), sets, set_len }
    }

    /// How many wait.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The route by which a path came, if it waits.
    pub(super) fn route(&self, path: PathId) -> Option<Route> {
        Some(self.slots.get(*self.index.get(&path)?)?.as_ref()?.route)
    }

    /// A path whose source belongs to `place` came with a datagram of `len_bytes` by a route. True if it is to be challenged: at once, and
    /// again after an interval, if that leaves room for `reserved_bytes`.
    pub(super) fn note(
        &mut self,
        now: Instant,
        place: u64,
        (path, route): (PathId, Route),
        len_bytes: usize,
        reserved_bytes: usize,
    ) -> bool {
        if let Some(slot) = self.slot_mut(path).filter(|slot| slot.route == route) {
            slot.room_bytes = slot.room_bytes.saturating_add(len_bytes + OVERHEAD_BYTES);
            return slot.take_challenge(now, reserved_bytes);
        }
        self.remove(path);
        if self.slots.is_empty() {
            self.slots.resize_with(self.sets * self.set_len, || None);
            self.oldest.resize(self.sets, 0);
        }
        let set = (place % self.sets as u64) as usize;
        let within = usize::from(self.oldest[set]);
        self.oldest[set] = ((within + 1) % self.set_len) as u16;
        let at = set * self.set_len + within;
        let mut slot = Slot { path, route, room_bytes: len_bytes + OVERHEAD_BYTES, challenged_at: None };
        let is_due = slot.take_challenge(now, reserved_bytes);
        if let Some(before) = self.slots[at].replace(slot) {
            self.index.remove(&before.path);
        }
        self.index.insert(path, at);
        is_due
    }

    /// The route of a path, if `len_bytes` may be sent there.
    pub(super) fn spend(&mut self, path: PathId, len_bytes: usize) -> Option<Route> {
        let slot = self.slot_mut(path)?;
        slot.spend(len_bytes).then_some(slot.route)
    }

    /// A path waits no more.
    pub(super) fn remove(&mut self, path: PathId) {
        if let Some(at) = self.index.remove(&path) {
            self.slots[at] = None;
        }
    }

    fn slot_mut(&mut self, path: PathId) -> Option<&mut Slot> {
        self.slots.get_mut(*self.index.get(&path)?)?.as_mut()
    }
}

impl Slot {
    /// Whether a challenge is due, and there is room for it beside a datagram of `reserved_bytes`, if that is not zero.
    fn take_challenge(&mut self, now: Instant, reserved_bytes: usize) -> bool {
        let is_late = self.challenged_at.is_none_or(|at| now.since(at) >= CHALLENGE_INTERVAL);
        let reserved_bytes = if reserved_bytes > 0 { reserved_bytes + OVERHEAD_BYTES } else { 0 };
        let is_due = is_late
            && self.room_bytes >= CHALLENGE_BYTES + OVERHEAD_BYTES + reserved_bytes
            && self.spend(CHALLENGE_BYTES);
        if is_due {
            self.challenged_at = Some(now);
        }
        is_due
    }

    /// Whether there is room for a datagram of `len_bytes`. If so, it is taken.
    fn spend(&mut self, len_bytes: usize) -> bool {
        let left = self.room_bytes.checked_sub(len_bytes.saturating_add(OVERHEAD_BYTES));
        self.room_bytes = left.unwrap_or(self.room_bytes);
        left.is_some()
    }
}
