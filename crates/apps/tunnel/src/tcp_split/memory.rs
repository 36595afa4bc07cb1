//! What the flows of all peers hold together, and each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polypath_units::Duration;

/// What a flow may have in any case, however short memory is: a receive window on either side, and what waits for either side.
const LEAST_WINDOW_BYTES: u64 = 256 << 10;
const LEAST_QUEUED_BYTES: u64 = 64 << 10;
const LEAST_BYTES: u64 = 2 * LEAST_WINDOW_BYTES + 2 * LEAST_QUEUED_BYTES;

/// Bounds of TCP flows that end here, and are carried by Multipath TCP ([`FlowPolicy::SplitTcp`](crate::FlowPolicy::SplitTcp)).
///
/// A flow that no bound has room for is carried as it is, packet by packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSplitConfig {
    /// What the flows of all peers may hold together, in bytes of their data. A flow counts for 640 KB at least. Default 768 MiB.
    pub max_bytes: u64,
    /// Most flows with one peer. A quarter of them may be half-open. Default 1024.
    pub max_flows_of_peer: usize,
    /// A flow that is not open after so long is given up. Default 60 s.
    pub open_timeout: Duration,
    /// A host that says nothing for so long is asked whether it still lives, four times in two minutes; without an answer its flow ends.
    /// Default 10 minutes.
    pub idle_timeout: Duration,
}

impl Default for TcpSplitConfig {
    fn default() -> Self {
        Self {
            max_bytes: 768 << 20,
            max_flows_of_peer: 1_024,
            open_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(600),
        }
    }
}

/// What the flows of all peers hold.
#[derive(Debug)]
pub(crate) struct SplitMemory {
    config: TcpSplitConfig,
    taken_bytes: AtomicU64,
    flows: AtomicU64,
}

impl SplitMemory {
    pub(crate) fn new(config: TcpSplitConfig) -> Arc<Self> {
        Arc::new(Self { config, taken_bytes: AtomicU64::new(0), flows: AtomicU64::new(0) })
    }

    pub(crate) fn config(&self) -> &TcpSplitConfig {
        &self.config
    }

    fn left_bytes(&self) -> u64 {
        self.config.max_bytes.saturating_sub(self.taken_bytes.load(Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Whether another flow may begin.
    pub(super) fn has_room(&self) -> bool {
        self.left_bytes() >= LEAST_BYTES
    }

    /// Most of one kind that a flow may hold now: while memory is plentiful, what it needs, and then an equal share.
    fn most_bytes(&self, own_bytes: u64) -> u64 {
        let (left, max) = (self.left_bytes(), self.config.max_bytes);
        // None takes all that is left at once.
        if left >= max / 2 {
            return own_bytes + left / 4;
        }
        let possible = own_bytes + left;
        let flows = self.flows.load(Ordering::Relaxed).max(1);
        possible.min(max / flows / 4)
    }
}

/// What a flow holds of it. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    memory: Arc<SplitMemory>,
    /// Beyond what it may have in any case.
    more_bytes: u64,
    /// That the host inside was promised.
    window_bytes: u64,
    /// Came from inside since the window grew.
    passed_bytes: u64,
    /// What waits for the peer's counterpart, and for the host inside.
    queued_bytes: [u64; 2],
}

impl Share {
    pub(super) fn new(memory: &Arc<SplitMemory>) -> Self {
        memory.flows.fetch_add(1, Ordering::Relaxed);
        memory.taken_bytes.fetch_add(LEAST_BYTES, Ordering::Relaxed);
        let (window_bytes, queued_bytes) = (LEAST_WINDOW_BYTES, [0; 2]);
        Self { memory: Arc::clone(memory), more_bytes: 0, window_bytes, passed_bytes: 0, queued_bytes }
    }

    /// The receive window of the host inside.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// How much more may wait, where `queued_bytes` wait.
    pub(super) fn room_bytes(&mut self, queue: Queue, queued_bytes: u64) -> u64 {
        self.note_queued(queue, queued_bytes);
        self.memory.most_bytes(queued_bytes).max(LEAST_QUEUED_BYTES).saturating_sub(queued_bytes)
    }

    /// So much waited last.
    pub(super) fn queued_bytes(&self, queue: Queue) -> u64 {
        self.queued_bytes[queue as usize]
    }

    /// So much waits.
    pub(super) fn note_queued(&mut self, queue: Queue, queued_bytes: u64) {
        self.queued_bytes[queue as usize] = queued_bytes;
        self.settle();
    }

    /// So much came from inside. The window grows with what comes, as far as there is memory: then, the new one.
    pub(super) fn grow_window(&mut self, passed_bytes: u64, most_bytes: u64) -> Option<u64> {
        self.passed_bytes += passed_bytes;
        if self.passed_bytes < self.window_bytes || self.window_bytes >= most_bytes {
            return None;
        }
        self.passed_bytes = 0;
        let grown = (2 * self.window_bytes).min(most_bytes).min(self.memory.most_bytes(self.window_bytes));
        (grown > self.window_bytes).then(|| {
            self.window_bytes = grown;
            self.settle();
            grown
        })
    }

    fn settle(&mut self) {
        let queued = self.queued_bytes.iter().map(|bytes| bytes.saturating_sub(LEAST_QUEUED_BYTES));
        let more_bytes = queued.sum::<u64>() + (self.window_bytes - LEAST_WINDOW_BYTES);
        let taken = &self.memory.taken_bytes;
        taken.fetch_add(more_bytes, Ordering::Relaxed);
        taken.fetch_sub(self.more_bytes, Ordering::Relaxed);
        self.more_bytes = more_bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.flows.fetch_sub(1, Ordering::Relaxed);
        self.memory.taken_bytes.fetch_sub(LEAST_BYTES + self.more_bytes, Ordering::Relaxed);
    }
}

/// For whom data waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Across,
    Inside,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_share_what_there_is_and_give_it_back() {
        let memory = SplitMemory::new(TcpSplitConfig { max_bytes: 16 << 20, ..TcpSplitConfig::default() });
        let mut shares = Vec::new();
        while memory.has_room() && shares.len() < 100 {
            let mut share = Share::new(&memory);
            // Each takes all that it is given.
            for queue in [Queue::Across, Queue::Inside] {
                let room = share.room_bytes(queue, 0).min(16 << 20);
                share.note_queued(queue, room);
            }
            while share.grow_window(64 << 20, 4 << 20).is_some() {}
            shares.push(share);
        }
        let taken = memory.taken_bytes.load(Ordering::Relaxed);
        assert!(taken <= 16 << 20, "{taken}");
        drop(shares);
        assert_eq!((memory.left_bytes(), memory.flows.load(Ordering::Relaxed)), (16 << 20, 0));
    }
}
