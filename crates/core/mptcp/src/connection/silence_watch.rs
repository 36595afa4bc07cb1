//! Whether the peer's data goes on coming on each subflow, and which to ask when it does not: see [`silence`](super::silence).

use alloc::vec::Vec;

use polypath_units::{Duration, Instant};

use crate::identifiers::SubflowId;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A subflow that has brought data is silent for so long before it is asked.
const PATIENCE: Duration = Duration::from_secs(2);
/// So much between two looks is a bulk transfer, whose pause is a surprise.
const BULK_BYTES: u64 = 64 << 10;
/// After so many probes without an answer, the path counts as dead.
const PROBES_UNTIL_STALE: u8 = 3;
/// Where nothing comes on any subflow, each is asked so often: over three minutes.
const MOST_PROBES: u8 = 9;
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// What is watched while data comes.
#[derive(Debug)]
pub(super) struct SilenceWatch {
    look_at: Instant,
    /// The last that came was a bulk transfer.
    after_bulk: bool,
    /// The last look saw that something had come.
    has_come: bool,
    looks: Vec<Look>,
}

/// A subflow as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) subflow: SubflowId,
    /// The peer's bytes that have come on it.
    pub(super) received_bytes: u64,
    /// When anything came last.
    pub(super) heard_at: Instant,
}

/// What the last look saw of a subflow.
#[derive(Clone, Copy, Debug)]
struct Look {
    subflow: SubflowId,
    received_bytes: u64,
    /// Those that had come when it last answered a probe, or when the watch began.
    vouched_bytes: u64,
    /// Probes without an answer.
    probes: u8,
    probed_at: Instant,
}

/// What is to be done about a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was heard since the last look.
    Heard,
    /// It is to be asked.
    Probe,
    /// The same, and that it does not answer is to be told.
    ProbeAndTell,
}

impl SilenceWatch {
    /// Data has begun to come.
    pub(super) fn new(now: Instant, subflows: &[Seen]) -> Self {
        let looks = subflows.iter().map(|seen| Look::new(*seen, seen.received_bytes)).collect();
        Self { look_at: now + INTERVAL, after_bulk: false, has_come: true, looks }
    }

    #[inline]
    pub(super) const fn next_timeout(&self) -> Instant {
        self.look_at
    }

    /// It is time to look at the subflows in use: what to do about which.
    pub(super) fn look(&mut self, now: Instant, subflows: &[Seen]) -> Vec<(SubflowId, Verdict)> {
        self.look_at = now + INTERVAL;
        self.looks.retain(|look| subflows.iter().any(|seen| seen.subflow == look.subflow));
        let came_bytes: u64 = subflows.iter().map(|seen| self.note(seen)).sum();
        self.has_come = came_bytes > 0;
        if self.has_come {
            self.after_bulk = came_bytes >= BULK_BYTES;
        }
        let is_surprise = self.has_come || self.after_bulk;
        let judge = |seen: &Seen| {
            let look = self.looks.iter_mut().find(|look| look.subflow == seen.subflow)?;
            Some((seen.subflow, look.judge(now, seen.heard_at, is_surprise)?))
        };
        subflows.iter().filter_map(judge).collect()
    }

    /// Nothing comes, and nothing is left to ask.
    pub(super) fn is_over(&self) -> bool {
        let may_probe = |look: &Look| {
            let is_pending = self.after_bulk && look.received_bytes > look.vouched_bytes;
            look.probes < MOST_PROBES && (look.probes > 0 || is_pending)
        };
        !self.has_come && !self.looks.iter().any(may_probe)
    }

    /// Brings the look at a subflow up to date; returns how much has come on it since the last one.
    fn note(&mut self, seen: &Seen) -> u64 {
        let known = self.looks.iter_mut().find(|look| look.subflow == seen.subflow);
        let before_bytes = known.as_ref().map_or(0, |look| look.received_bytes);
        match known {
            Some(look) => look.received_bytes = seen.received_bytes,
            None => self.looks.push(Look::new(*seen, 0)),
        }
        seen.received_bytes.saturating_sub(before_bytes)
    }
}

impl Look {
    const fn new(seen: Seen, vouched_bytes: u64) -> Self {
        let Seen { subflow, received_bytes, .. } = seen;
        Self { subflow, received_bytes, vouched_bytes, probes: 0, probed_at: Instant::ZERO }
    }

    fn judge(&mut self, now: Instant, heard_at: Instant, is_surprise: bool) -> Option<Verdict> {
        if self.probes > 0 && heard_at > self.probed_at {
            self.probes = 0;
            self.vouched_bytes = self.received_bytes;
        }
        let silent_for = now.since(heard_at);
        if silent_for < INTERVAL {
            return Some(Verdict::Heard);
        }
        let is_due = if self.probes == 0 {
            is_surprise && self.received_bytes > self.vouched_bytes && silent_for >= PATIENCE
        } else {
            let wait = Duration::from_nanos(INTERVAL.as_nanos() << (self.probes - 1).min(6));
            now >= self.probed_at + wait.min(MAX_PROBE_INTERVAL)
        };
        if !is_due {
            return None;
        }
        self.probes = self.probes.saturating_add(1).min(MOST_PROBES);
        self.probed_at = now;
        Some(if self.probes == PROBES_UNTIL_STALE + 1 { Verdict::ProbeAndTell } else { Verdict::Probe })
    }
}
