//! Whether paths are judged by what they bring, and how they were: see [`crate::reception`].

use alloc::boxed::Box;

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use crate::identifiers::SubflowId;
use crate::reception::{JoinsAs, JudgePaths, PathArrival, PathKey, Reception, Verdict};

/// The judge, where there is one.
#[derive(Debug, Default)]
pub(super) struct PathJudge {
    /// From the second subflow on.
    reception: Option<Box<Reception>>,
    sender: Sender,
}

/// What the peer shows to be when it sends data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sender {
    /// It has sent none.
    #[default]
    Unknown,
    Ours,
    Foreign,
}

impl PathJudge {
    /// Paths are judged.
    #[inline]
    pub(super) fn judges(&self, policy: JudgePaths) -> bool {
        match policy {
            JudgePaths::Never => false,
            JudgePaths::Foreign => self.sender != Sender::Ours,
            JudgePaths::Always => true,
        }
    }

    /// They are from now on; true if they were not before.
    pub(super) fn start(&mut self, now: Instant, next: DataSeq) -> bool {
        let is_new = self.reception.is_none();
        if is_new {
            self.reception = Some(Box::new(Reception::new(now, next)));
        }
        is_new
    }

    /// The peer's first mapping shows what it is; true if nothing is judged any more, though something may have been.
    #[inline]
    pub(super) fn handle_number_len(&mut self, policy: JudgePaths, is_long: bool) -> bool {
        if self.sender != Sender::Unknown {
            return false;
        }
        self.sender = if is_long { Sender::Foreign } else { Sender::Ours };
        let stops = !self.judges(policy);
        if stops {
            self.reception = None;
        }
        stops
    }

    /// Something is measured.
    #[inline]
    pub(super) fn is_measuring(&self) -> bool {
        self.reception.is_some()
    }

    /// See [`Reception::add`].
    pub(super) fn add(
        &mut self,
        now: Instant,
        id: SubflowId,
        key: PathKey,
        rtt: Duration,
        joins_as: JoinsAs,
    ) {
        if let Some(reception) = &mut self.reception {
            reception.add(now, id, key, rtt, joins_as);
        }
    }

    /// A subflow ended.
    pub(super) fn remove(&mut self, now: Instant, id: SubflowId) {
        if let Some(reception) = &mut self.reception {
            reception.remove(now, id);
        }
    }

    /// Data came over a subflow.
    pub(super) fn handle_arrival(&mut self, arrival: PathArrival) {
        if let Some(reception) = &mut self.reception {
            reception.on_arrival(arrival);
        }
    }

    /// True if it was due.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let due = self.reception.as_mut().filter(|reception| reception.next_timeout() <= now);
        due.map(|reception| reception.handle_timeout(now)).is_some()
    }

    /// What follows from what was measured.
    #[inline]
    pub(super) fn poll(&mut self) -> Option<Verdict> {
        self.reception.as_mut()?.poll()
    }

    /// What a subflow held up so far: for how long, and in byte seconds.
    pub(super) fn held_up(&self, id: SubflowId) -> (Duration, f64) {
        self.reception.as_ref().map_or((Duration::ZERO, 0.0), |reception| reception.held_up(id))
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Instant {
        self.reception.as_ref().map_or(Instant::FAR_FUTURE, |reception| reception.next_timeout())
    }
}
