//! HTTP/2, for those who ask for it inside TLS.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Body;
use super::limits::{BODY_LIMIT, HEADER_LIMIT};
use crate::places::Request;

/// Requests of one connection at a time. Each may hold its fields, so that all of them hold about what a connection of
/// HTTP/1.1 does.
const MOST_STREAMS: u32 = 16;
/// What the fields of a request may have, with 32 bytes more for each.
const FIELDS_BYTES: u32 = 16 << 10;
/// Requests that were taken back before anybody had looked at them. Whoever has more of them makes work only (rapid reset,
/// CVE-2023-44487), and the connection ends.
const MOST_RESETS: usize = 20;
/// Streams that this end resets for the client's mistakes, before the connection ends.
const MOST_MISTAKES: usize = 256;
/// What a client may send ahead of what is read, of a body and of all of a connection's together.
const WINDOW_BYTES: u32 = 1 << 20;
/// What is taken of a body ahead of what the client lets pass.
const SEND_BUFFER_BYTES: usize = 256 << 10;
/// Bodies go in such pieces, so that it is seen whether the client takes any.
const PIECE_BYTES: usize = 8 << 10;
/// How often that is looked at.
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// With bounds to all that a client can make this end hold.
pub(super) fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(FIELDS_BYTES)
        .max_pending_accept_reset_streams(MOST_RESETS)
        .max_local_error_reset_streams(MOST_MISTAKES)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES);
    builder
}

/// Room for requests that are answered at a time: each connection has one, and all together some more, for which there are
/// descriptors.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

impl Slots {
    pub(super) fn new(shared: Arc<Semaphore>) -> Self {
        Self { own: Arc::new(Semaphore::new(1)), shared }
    }

    /// Waits for the next. None of them is ever closed.
    pub(super) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            slot = self.own.clone().acquire_owned() => slot.ok(),
            slot = self.shared.clone().acquire_owned() => slot.ok(),
        }
    }
}

/// What moves on a connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    begun: AtomicU64,
    /// Those on their way.
    bodies: Mutex<Vec<BodySeen>>,
    /// This end has kept the client waiting.
    held_up: Arc<AtomicBool>,
}

impl Activity {
    pub(super) fn new(held_up: Arc<AtomicBool>) -> Self {
        Self { held_up, ..Self::default() }
    }

    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
}

/// A body on its way, and what was seen of it.
#[derive(Debug)]
struct BodySeen {
    pieces: Arc<AtomicU64>,
    /// When it was looked at last.
    seen: u64,
    /// For how long the client has taken nothing of it.
    stuck: Duration,
}

impl Activity {
    fn bodies(&self) -> MutexGuard<'_, Vec<BodySeen>> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the client has taken nothing of a body for too long, though it takes others. Looked at after `passed`.
    fn is_stuck(&self, passed: Duration) -> bool {
        let was_held_up = self.held_up.swap(false, Ordering::Relaxed);
        let mut is_stuck = false;
        for body in &mut *self.bodies() {
            let pieces = body.pieces.load(Ordering::Relaxed);
            let has_moved = was_held_up || pieces != body.seen;
            body.seen = pieces;
            body.stuck = if has_moved { Duration::ZERO } else { body.stuck + passed };
            is_stuck |= body.stuck >= BODY_LIMIT;
        }
        is_stuck
    }
}

/// What is to be done with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Leave,
    /// Nobody has asked for anything.
    Finish,
    /// The client takes nothing of something that it has asked for, or does not go although it was told to.
    End,
}

/// Finds out what HTTP/1.1 has timers for. Windows are the client's, so that one that never opens them looks, from below, like
/// one that has all it wants.
#[derive(Debug, Default)]
pub(super) struct Watch {
    idle: Duration,
    is_finishing: bool,
    begun: u64,
}

impl Watch {
    /// What has come of the last `passed`, with so many requests under way now.
    pub(super) fn look(&mut self, passed: Duration, under_way: usize, activity: &Activity) -> Verdict {
        let begun = activity.begun.load(Ordering::Relaxed);
        let is_idle = under_way == 0 && begun == self.begun;
        self.begun = begun;
        self.idle = if is_idle { self.idle + passed } else { Duration::ZERO };
        if activity.is_stuck(passed) {
            return Verdict::End;
        }
        if self.idle < HEADER_LIMIT {
            return Verdict::Leave;
        }
        self.idle = Duration::ZERO;
        if std::mem::replace(&mut self.is_finishing, true) { Verdict::End } else { Verdict::Finish }
    }
}

/// A body in pieces, which are counted, and a part of its request until the last of it is on its way.
pub(super) struct Pieces {
    body: Body,
    rest: Bytes,
    activity: Arc<Activity>,
    pieces: Arc<AtomicU64>,
    _answering: (Request, Option<OwnedSemaphorePermit>),
}

impl Pieces {
    pub(super) fn of(
        body: Body,
        activity: Arc<Activity>,
        answering: (Request, Option<OwnedSemaphorePermit>),
    ) -> Body {
        let pieces = Arc::new(AtomicU64::new(0));
        activity.bodies().push(BodySeen { pieces: pieces.clone(), seen: 0, stuck: Duration::ZERO });
        Self { body, rest: Bytes::new(), activity, pieces, _answering: answering }.boxed()
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.activity.bodies().retain(|body| !Arc::ptr_eq(&body.pieces, &self.pieces));
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        self.pieces.fetch_add(1, Ordering::Relaxed);
        let bytes = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(bytes);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Requests;
    use crate::web::full;

    #[test]
    fn who_asks_for_nothing_is_told_to_go_and_then_goes() {
        let (mut watch, activity) = (Watch::default(), Activity::default());
        let mut verdicts =
            |under_way| (0..4).map(|_| watch.look(LOOK, under_way, &activity)).collect::<Vec<_>>();
        use Verdict::{End, Finish, Leave};
        assert_eq!(verdicts(1), [Leave; 4], "a request is under way");
        assert_eq!(verdicts(0), [Leave, Leave, Leave, Finish]);
        assert_eq!(verdicts(0), [Leave, Leave, Leave, End]);
        activity.begin();
        let (mut watch, mut asked) = (Watch::default(), 0);
        for _ in 0..100 {
            // One that came and went between two looks.
            activity.begin();
            asked += u32::from(watch.look(LOOK, 0, &activity) == Leave);
        }
        assert_eq!(asked, 100);
    }

    #[tokio::test]
    async fn who_takes_nothing_of_a_body_is_let_go_and_who_takes_little_is_not() {
        let (mut watch, activity) = (Watch::default(), Arc::new(Activity::default()));
        let requests = Requests::default();
        let content: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        let mut body = Pieces::of(full(content.clone()), activity.clone(), (requests.begin(), None));
        assert_eq!(body.size_hint().exact(), Some(100_000));
        let looks = BODY_LIMIT.as_secs() / LOOK.as_secs();
        let mut taken = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.expect("no error").into_data().expect("data");
            assert!(piece.len() <= PIECE_BYTES);
            taken.extend_from_slice(&piece);
            for _ in 0..looks {
                assert_eq!(watch.look(LOOK, 1, &activity), Verdict::Leave, "after {}", taken.len());
            }
        }
        assert!(taken == content && body.is_end_stream());
        assert_eq!(watch.look(LOOK, 1, &activity), Verdict::End);
        drop(body);
        assert_eq!(
            Watch::default().look(BODY_LIMIT, 1, &activity),
            Verdict::Leave,
            "a body that is none any more"
        );
    }

    #[tokio::test]
    async fn a_body_that_moves_hides_none_that_is_stuck() {
        let (mut watch, activity) = (Watch::default(), Arc::new(Activity::default()));
        let requests = Requests::default();
        let body = || Pieces::of(full(vec![0; 1 << 20]), activity.clone(), (requests.begin(), None));
        let (mut moving, stuck) = (body(), body());
        let looks = BODY_LIMIT.as_secs() / LOOK.as_secs();
        for look in 1..=looks {
            moving.frame().await.expect("more").expect("no error");
            let wanted = if look < looks { Verdict::Leave } else { Verdict::End };
            assert_eq!(watch.look(LOOK, 2, &activity), wanted, "at look {look}");
        }
        drop(stuck);
        assert_eq!(watch.look(LOOK, 1, &activity), Verdict::Leave);
    }

    #[tokio::test]
    async fn each_connection_has_a_slot_of_its_own() {
        let shared = Arc::new(Semaphore::new(2));
        let (greedy, honest) = (Slots::new(shared.clone()), Slots::new(shared.clone()));
        let held = [greedy.take().await, greedy.take().await, greedy.take().await];
        assert_eq!(shared.available_permits(), 0);
        let first = honest.take().await.expect("its own");
        let mut second = Box::pin(honest.take());
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        assert!(second.await.is_some());
        drop(held);
        assert_eq!(shared.available_permits(), 2);
    }
}
