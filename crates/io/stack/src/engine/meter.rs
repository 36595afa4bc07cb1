//! What the kernel's connections carry: asked for now and then, since a subflow that goes takes its counters with it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polypath_mptcp::{Carried, FallbackReason, SubflowInfo};
use polypath_wire::FourTuple;

use super::stream_info::StreamInfo;
use crate::stack::{Figures, PathFigures};
use crate::tally::{Fallback, MOST_ADDRESSES, Tally};

/// How often a connection that moves is asked.
const INTERVAL: Duration = Duration::from_millis(200);

/// What all connections of an engine have carried.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTally(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    tally: Tally,
    /// By the address of this end.
    carried: Vec<(IpAddr, Carried)>,
    /// How many connections are open.
    open: usize,
    /// Their subflows, of those that were asked, as they were then.
    subflows: BTreeMap<u64, Vec<SubflowInfo>>,
    next: u64,
}

impl Counts {
    fn add(&mut self, own: IpAddr, more: Carried) {
        if more == Carried::default() {
            return;
        }
        if let Some((_, carried)) = self.carried.iter_mut().find(|(known, _)| *known == own) {
            carried.add(more);
        } else if self.carried.len() < MOST_ADDRESSES {
            self.carried.push((own, more));
        }
    }
}

impl SharedTally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> Tally {
        self.lock().tally.clone()
    }

    /// Numbers that only grow.
    pub(super) fn figures(&self) -> Figures {
        let counts = self.lock();
        let paths = counts.carried.iter().map(|(address, carried)| PathFigures {
            address: *address,
            name: None,
            carried: *carried,
        });
        Figures { paths: paths.collect(), fallbacks: counts.tally.fallbacks.clone() }
    }

    /// How many connections are open, and their subflows.
    pub(super) fn open(&self) -> (usize, Vec<SubflowInfo>) {
        let counts = self.lock();
        (counts.open, counts.subflows.values().flatten().cloned().collect())
    }

    /// Counts a new connection from now on.
    pub(super) fn meter(&self, wants_multipath: bool) -> Meter {
        let mut counts = self.lock();
        counts.tally.connections += 1;
        counts.next += 1;
        let number = counts.next;
        counts.open += 1;
        Meter {
            tally: self.clone(),
            number,
            wants_multipath,
            was_multipath: false,
            known: Vec::new(),
            // Subflows are looked at as soon as something moves; a short connection of TCP is asked at its end alone.
            next: if wants_multipath { Instant::now() } else { Instant::now() + INTERVAL },
        }
    }
}

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct Meter {
    tally: SharedTally,
    number: u64,
    wants_multipath: bool,
    was_multipath: bool,
    known: Vec<(FourTuple, Seen)>,
    next: Instant,
}

/// What a subflow had counted when it was asked last.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    bytes: u64,
    carried: Carried,
}

impl Seen {
    /// `was_ready`: the subflow has been ready for data before, and is counted as such.
    fn of(subflow: &SubflowInfo, was_ready: bool) -> Self {
        let tcp = &subflow.tcp;
        Self {
            bytes: tcp.bytes_acked + tcp.bytes_received,
            carried: Carried {
                sent_bytes: tcp.bytes_sent,
                received_bytes: tcp.bytes_received,
                acknowledged_bytes: tcp.bytes_acked,
                retransmitted_bytes: tcp.bytes_retrans,
                retransmitted_segments: tcp.retransmits,
                // One that has ended is no longer established, but what it carried says that it was.
                subflows: u64::from(
                    was_ready || subflow.established || tcp.bytes_acked + tcp.bytes_received > 0,
                ),
            },
        }
    }
}

fn since(now: Carried, before: Carried) -> Carried {
    Carried {
        sent_bytes: now.sent_bytes.saturating_sub(before.sent_bytes),
        received_bytes: now.received_bytes.saturating_sub(before.received_bytes),
        acknowledged_bytes: now.acknowledged_bytes.saturating_sub(before.acknowledged_bytes),
        retransmitted_bytes: now.retransmitted_bytes.saturating_sub(before.retransmitted_bytes),
        retransmitted_segments: now.retransmitted_segments.saturating_sub(before.retransmitted_segments),
        subflows: now.subflows.saturating_sub(before.subflows),
    }
}

impl Meter {
    /// Whether the connection is to be asked now.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        is_due
    }

    /// Counts what has changed. A connection of which nothing is told any more changes nothing.
    pub(super) fn note(&mut self, info: io::Result<StreamInfo>) {
        let Ok(info) = info else { return };
        let mut counts = self.tally.lock();
        let is_open = info.subflows.iter().any(|subflow| subflow.established);
        if !info.is_multipath && self.wants_multipath && is_open {
            self.wants_multipath = false;
            counts.tally.note_fallback(match self.was_multipath {
                true => Fallback::Later,
                false => Fallback::Reason(FallbackReason::PeerLacksMptcp),
            });
        }
        self.was_multipath |= info.is_multipath;
        for subflow in &info.subflows {
            let known = self.known.iter_mut().find(|(tuple, _)| *tuple == subflow.tuple);
            let before = known.as_ref().map_or_else(Seen::default, |(_, seen)| *seen);
            let now = Seen::of(subflow, before.carried.subflows > 0);
            match known {
                Some((_, seen)) => *seen = now,
                None => self.known.push((subflow.tuple, now)),
            }
            let own = subflow.tuple.local.addr.to_canonical();
            counts.tally.add(own, now.bytes.saturating_sub(before.bytes));
            counts.add(own, since(now.carried, before.carried));
        }
        // No more than there are: who opens and loses subflows without end fills no memory.
        self.known.retain(|(tuple, _)| info.subflows.iter().any(|subflow| subflow.tuple == *tuple));
        counts.subflows.insert(self.number, info.subflows);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let mut counts = self.tally.lock();
        counts.open -= 1;
        counts.subflows.remove(&self.number);
    }
}
