//! What the kernel's connections carry: asked for now and then, since a subflow that goes takes its counters with it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polypath_mptcp::FallbackReason;
use polypath_wire::FourTuple;

use super::stream_info::StreamInfo;
use crate::tally::{Fallback, Tally};

/// How often a connection that moves is asked.
const INTERVAL: Duration = Duration::from_millis(200);

/// What all connections of an engine have carried.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTally(Arc<Mutex<Tally>>);

impl SharedTally {
    pub(super) fn read(&self) -> Tally {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a new connection from now on.
    pub(super) fn meter(&self, wants_multipath: bool) -> Meter {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).connections += 1;
        Meter { tally: self.clone(), wants_multipath, was_multipath: false, known: Vec::new(), next: None }
    }
}

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct Meter {
    tally: SharedTally,
    wants_multipath: bool,
    was_multipath: bool,
    known: Vec<(FourTuple, u64)>,
    next: Option<Instant>,
}

impl Meter {
    /// Whether the connection is to be asked now.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.next.is_none_or(|next| now >= next);
        if is_due {
            self.next = Some(now + INTERVAL);
        }
        is_due
    }

    /// Counts what has changed. A connection of which nothing is told any more changes nothing.
    pub(super) fn note(&mut self, info: io::Result<StreamInfo>) {
        let Ok(info) = info else { return };
        let mut tally = self.tally.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = info.subflows.iter().any(|subflow| subflow.established);
        if !info.is_multipath && self.wants_multipath && is_open {
            self.wants_multipath = false;
            tally.note_fallback(match self.was_multipath {
                true => Fallback::Later,
                false => Fallback::Reason(FallbackReason::PeerLacksMptcp),
            });
        }
        self.was_multipath |= info.is_multipath;
        for subflow in &info.subflows {
            let bytes = subflow.tcp.bytes_acked + subflow.tcp.bytes_received;
            let known = self.known.iter_mut().find(|(tuple, _)| *tuple == subflow.tuple);
            let before = match known {
                Some((_, known)) => std::mem::replace(known, bytes),
                None => {
                    self.known.push((subflow.tuple, bytes));
                    0
                }
            };
            tally.add(subflow.tuple.local.addr.to_canonical(), bytes.saturating_sub(before));
        }
        // No more than there are: who opens and loses subflows without end fills no memory.
        self.known.retain(|(tuple, _)| info.subflows.iter().any(|subflow| subflow.tuple == *tuple));
    }
}
