//! The runtimes that serve connections, each of which stays with one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The one in which clients are let in, and others, which may have threads of their own.
#[derive(Debug, Default)]
pub(super) struct Runtimes {
    here: Arc<Load>,
    others: OnceLock<Box<[Other]>>,
}

#[derive(Debug)]
struct Other {
    runtime: Handle,
    load: Arc<Load>,
}

/// What a runtime has to do.
#[derive(Debug, Default)]
struct Load {
    connections: AtomicUsize,
    has_none: Notify,
    /// It has ended, and drops what is handed to it.
    is_gone: AtomicBool,
}

impl Load {
    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A connection that a runtime has, until this is dropped.
#[derive(Debug)]
pub(super) struct Served {
    load: Arc<Load>,
    has_begun: bool,
}

impl Served {
    fn by(load: &Arc<Load>) -> Self {
        load.connections.fetch_add(1, Ordering::SeqCst);
        Self { load: load.clone(), has_begun: false }
    }

    /// The runtime has come to it.
    pub(super) fn begin(&mut self) {
        self.has_begun = true;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !self.has_begun {
            self.load.is_gone.store(true, Ordering::Relaxed);
        }
        if self.load.connections.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.load.has_none.notify_waiters();
        }
    }
}

impl Runtimes {
    /// These serve connections, too. Only the first call counts.
    pub(super) fn add(&self, runtimes: impl IntoIterator<Item = Handle>) {
        let other = |runtime| Other { runtime, load: Arc::default() };
        let _ = self.others.set(runtimes.into_iter().map(other).collect());
    }

    /// The one that has fewest, none for the one in which clients are let in: where nobody is busy, a connection is handed to no other thread.
    pub(super) fn least_busy(&self) -> (Option<&Handle>, Served) {
        let (mut runtime, mut least) = (None, &self.here);
        let mut fewest = least.connections();
        for other in self.others().filter(|other| !other.load.is_gone.load(Ordering::Relaxed)) {
            let connections = other.load.connections();
            if connections < fewest {
                (runtime, least, fewest) = (Some(&other.runtime), &other.load, connections);
            }
        }
        (runtime, Served::by(least))
    }

    /// Until none has a connection, those included that were handed over and not come to yet.
    pub(super) async fn idle(&self) {
        for load in std::iter::once(&self.here).chain(self.others().map(|other| &other.load)) {
            loop {
                let has_none = load.has_none.notified();
                if load.connections() == 0 {
                    break;
                }
                has_none.await;
            }
        }
    }

    fn others(&self) -> impl Iterator<Item = &Other> {
        self.others.get().into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one that has begun.
    fn next(runtimes: &Runtimes) -> (bool, Served) {
        let (runtime, mut served) = runtimes.least_busy();
        served.begin();
        (runtime.is_some(), served)
    }

    #[tokio::test]
    async fn who_has_fewest_serves_the_next() {
        let runtimes = Runtimes::default();
        let alone = [next(&runtimes), next(&runtimes)];
        assert!(alone.iter().all(|(is_elsewhere, _)| !is_elsewhere), "there is no other");
        drop(alone);
        runtimes.add([Handle::current(), Handle::current()]);
        // A later call changes nothing.
        runtimes.add([]);
        let [(first, here), (second, there), (third, _elsewhere)] = [(); 3].map(|()| next(&runtimes));
        assert_eq!([first, second, third], [false, true, true]);
        let (fourth, again) = next(&runtimes);
        assert!(!fourth, "where all have as many, it stays where it came");
        drop(there);
        assert!(next(&runtimes).0);
        drop((here, again));
        assert!(!next(&runtimes).0);
    }

    #[tokio::test]
    async fn who_drops_what_it_was_given_gets_no_more() {
        let runtimes = Runtimes::default();
        runtimes.add([Handle::current()]);
        let (_, _here) = next(&runtimes);
        let (runtime, never_begun) = runtimes.least_busy();
        assert!(runtime.is_some());
        drop(never_begun);
        assert!(!next(&runtimes).0);
    }
}
