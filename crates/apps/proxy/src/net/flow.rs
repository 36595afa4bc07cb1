//! What one connection of a client has moved.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

/// Bytes that a client and its server have exchanged, for those who move them and those who look.
#[derive(Debug)]
pub struct Flow {
    begun: Instant,
    to_server: AtomicU64,
    to_client: AtomicU64,
    /// Milliseconds from the beginning until something moved last.
    moved_last: AtomicU64,
}

/// Octets each way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// To servers.
    pub to_server_bytes: u64,
    /// To clients.
    pub to_client_bytes: u64,
}

impl Carried {
    pub(super) fn add(&mut self, other: Self) {
        self.to_server_bytes = self.to_server_bytes.saturating_add(other.to_server_bytes);
        self.to_client_bytes = self.to_client_bytes.saturating_add(other.to_client_bytes);
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

impl Flow {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { begun: Instant::now(), to_server: zero(), to_client: zero(), moved_last: zero() }
    }

    /// When it began.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Bytes that went to the server.
    #[must_use]
    pub fn to_server_bytes(&self) -> u64 {
        self.to_server.load(Ordering::Relaxed)
    }

    /// Bytes that went to the client.
    #[must_use]
    pub fn to_client_bytes(&self) -> u64 {
        self.to_client.load(Ordering::Relaxed)
    }

    pub(super) fn carried(&self) -> Carried {
        Carried { to_server_bytes: self.to_server_bytes(), to_client_bytes: self.to_client_bytes() }
    }

    /// Bytes are there, and a limit lets none pass.
    pub(super) fn is_held_back(&self) {
        self.touch();
    }

    /// What comes of it, unless nothing moves for so long before. It is pinned already: a future that is handed on by value is twice in the one that
    /// has it.
    #[expect(clippy::manual_async_fn, reason = "an async fn has room for its arguments twice")]
    pub(super) fn unless_idle<T>(
        &self,
        limit: Option<Duration>,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        async move {
            let Some(limit) = limit else { return Some(work.await) };
            let mut waiting = pin!(sleep_until((self.moved_last() + limit).into()));
            poll_fn(move |cx| {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Some(done));
                }
                while waiting.as_mut().poll(cx).is_ready() {
                    let next = self.moved_last() + limit;
                    if next <= Instant::now() {
                        return Poll::Ready(None);
                    }
                    waiting.as_mut().reset(next.into());
                }
                Poll::Pending
            })
            .await
        }
    }

    pub(super) fn moved(&self, way: Way, count: usize) {
        let counter = match way {
            Way::ToServer => &self.to_server,
            Way::ToClient => &self.to_client,
        };
        counter.fetch_add(count as u64, Ordering::Relaxed);
        self.touch();
    }

    /// Something is said, though it counts no bytes.
    pub(super) fn touch(&self) {
        let since = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_last.store(since, Ordering::Relaxed);
    }

    /// When something moved last.
    fn moved_last(&self) -> Instant {
        self.begun + Duration::from_millis(self.moved_last.load(Ordering::Relaxed))
    }
}
