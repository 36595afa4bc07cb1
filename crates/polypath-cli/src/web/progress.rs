//! A limit to how long a connection may stand still.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use polypath_stack::engine::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::throttled::Rests;

/// Pieces that are shorter are written together.
const MOST_JOINED_BYTES: usize = 16 << 10;

/// How often within the limit somebody who waits looks whether something has moved below: silence is noticed so much late at
/// most.
const LOOKS_WITHIN_LIMIT: u32 = 16;

/// A connection that can tell what its network has carried.
pub(super) trait CountsBytes {
    /// A number that changes when bytes are acknowledged or received. What was written may still be on its way when
    /// nothing more can be read or written.
    fn carried(&self) -> u64;

    /// The same of what was acknowledged alone.
    fn acknowledged(&self) -> u64;
}

impl CountsBytes for Stream {
    fn carried(&self) -> u64 {
        self.info().map_or(0, |info| info.bytes_carried())
    }

    fn acknowledged(&self) -> u64 {
        let Ok(info) = self.info() else { return 0 };
        info.subflows.iter().map(|subflow| subflow.tcp.bytes_acked).fold(0, u64::wrapping_add)
    }
}

/// Says that the fields of an answer are all there.
#[derive(Clone, Debug, Default)]
pub(super) struct Answered(Arc<AtomicBool>);

impl Answered {
    pub(super) fn tell(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_told(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] when somebody has waited for it and nothing has moved for the
/// limit. Until the fields of the answer are all there, what comes does not count: whoever sends them byte by byte, or
/// says for ever that it goes on, is as good as silent. Whoever does not read or write may take any time.
#[derive(Debug)]
pub(super) struct ProgressLimit<S> {
    inner: S,
    limit: Duration,
    answered: Answered,
    /// What it was when it was last asked.
    was_answered: bool,
    /// Since when somebody waits.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    carried: u64,
}

impl<S: CountsBytes> ProgressLimit<S> {
    pub(super) fn new(inner: S, limit: Duration) -> Self {
        let answered = Answered::default();
        Self { inner, limit, answered, was_answered: false, since: None, timer: None, carried: 0 }
    }

    /// Has to be told.
    pub(super) fn answered(&self) -> Answered {
        self.answered.clone()
    }

    fn carried(&self) -> u64 {
        if self.was_answered { self.inner.carried() } else { self.inner.acknowledged() }
    }

    /// Somebody waits: ready once it is in vain.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.since.get_or_insert_with(Instant::now);
        if self.timer.is_none() {
            self.was_answered = self.answered.is_told();
            self.carried = self.carried();
            self.timer = Some(Box::pin(sleep_until(self.next_look())));
        }
        loop {
            if let Some(timer) = &mut self.timer {
                ready!(timer.as_mut().poll(cx));
            }
            self.look();
            if self.is_due() {
                return Poll::Ready(self.silence());
            }
            let next = self.next_look();
            if let Some(timer) = &mut self.timer {
                timer.as_mut().reset(next);
            }
        }
    }

    /// When to look at what has moved: at the limit, and often enough before that it is known at about what time it did.
    fn next_look(&self) -> Instant {
        // The clock of a year ahead is far enough for whoever wants no limit.
        let after = |start: Instant, wait| start.checked_add(wait).unwrap_or_else(far_future);
        let now = Instant::now();
        let due = after(self.since.unwrap_or(now), self.limit);
        due.min(after(now, self.limit / LOOKS_WITHIN_LIMIT))
    }

    fn is_due(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= self.limit)
    }

    /// If something has moved since the last look, the wait begins anew.
    fn look(&mut self) {
        let is_news = !self.was_answered && self.answered.is_told();
        self.was_answered |= is_news;
        let carried = self.carried();
        if carried != self.carried || is_news {
            (self.carried, self.since) = (carried, Some(Instant::now()));
        }
    }

    /// Whether no answer has begun within the limit, whatever else comes.
    fn is_unanswered(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now);
        if self.is_due() {
            self.look();
        }
        self.is_due()
    }

    fn silence(&self) -> io::Error {
        let what = if self.was_answered { "nothing has moved" } else { "no answer has come" };
        let problem = format!("the peer is silent: {what} for {:?}", self.limit);
        io::Error::new(io::ErrorKind::TimedOut, problem)
    }

    fn after<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        is_read: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        match polled {
            // What comes before an answer is none.
            Poll::Ready(Ok(_)) if is_read && !self.answered.is_told() && self.is_unanswered() => {
                Poll::Ready(Err(self.silence()))
            }
            Poll::Ready(result) if is_read && !self.answered.is_told() => Poll::Ready(result),
            Poll::Ready(result) => {
                // Whoever waits to read waits on while it can write, and the wait begins anew.
                self.since = self.since.filter(|_| !is_read).map(|_| Instant::now());
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_stalled(cx).map(Err),
        }
    }
}

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(365 * 86_400)
}

impl<S: AsyncRead + CountsBytes + Unpin> AsyncRead for ProgressLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.after(polled, true, cx)
    }
}

impl<S: AsyncWrite + CountsBytes + Unpin> AsyncWrite for ProgressLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.after(polled, false, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A stream whose peer has to take at least so many bytes in each period in which somebody waits to write. Reading is
/// limited elsewhere: by the time for the fields of a request, and by the rate of a body.
#[derive(Debug)]
pub(super) struct SlowReaderLimit<S> {
    inner: S,
    period: Duration,
    least_bytes: u64,
    /// The end of the period, if somebody waits.
    timer: Option<Pin<Box<Sleep>>>,
    /// Written since its beginning, and carried at its beginning, which is asked only of those that are slow: it costs.
    written: u64,
    carried: Option<u64>,
}

impl<S: CountsBytes> SlowReaderLimit<S> {
    pub(super) fn new(inner: S, period: Duration, least_bytes: u64) -> Self {
        Self { inner, period, least_bytes, timer: None, written: 0, carried: None }
    }

    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.timer.is_none() {
            (self.written, self.carried) = (0, None);
        }
        loop {
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.period)));
            ready!(timer.as_mut().poll(cx));
            let carried = self.inner.carried();
            let moved = self.carried.map(|before| self.written.max(carried.saturating_sub(before)));
            if moved.is_some_and(|moved| moved < self.least_bytes) {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the peer takes too little"));
            }
            (self.written, self.carried) = (0, Some(carried));
            timer.as_mut().reset(Instant::now() + self.period);
        }
    }
}

impl<S> Rests for SlowReaderLimit<S> {
    fn rest(&mut self) {
        self.timer = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SlowReaderLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + CountsBytes + Unpin> AsyncWrite for SlowReaderLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.inner).poll_write(cx, buf) {
            Poll::Ready(Ok(bytes)) => {
                self.written += bytes as u64;
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(failed) => Poll::Ready(failed),
            Poll::Pending => self.poll_too_slow(cx).map(Err),
        }
    }

    /// Several pieces, such as the fields of an answer and the beginning of its body, leave in one packet if they fit, and
    /// large ones are not copied.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = pieces.iter().find(|piece| !piece.is_empty()).map_or(&[][..], |piece| piece);
        if first.len() >= MOST_JOINED_BYTES || pieces.len() < 2 {
            return self.poll_write(cx, first);
        }
        let mut joined = [0; MOST_JOINED_BYTES];
        let mut length = 0;
        for piece in pieces {
            let bytes = piece.len().min(joined.len() - length);
            joined[length..length + bytes].copy_from_slice(&piece[..bytes]);
            length += bytes;
        }
        self.poll_write(cx, &joined[..length])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // All is on its way: nobody waits any more.
        self.timer = None;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// One end of a pipe, with a network that tells what it likes.
    struct Pipe(DuplexStream, Arc<AtomicU64>);

    impl CountsBytes for Pipe {
        fn carried(&self) -> u64 {
            self.1.load(Ordering::Relaxed)
        }

        fn acknowledged(&self) -> u64 {
            self.carried()
        }
    }

    impl AsyncRead for Pipe {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Pipe {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    fn pair() -> (ProgressLimit<Pipe>, DuplexStream, Arc<AtomicU64>) {
        let (near, far) = duplex(16);
        let carried = Arc::new(AtomicU64::new(0));
        let near = ProgressLimit::new(Pipe(near, carried.clone()), LIMIT);
        near.answered().tell();
        (near, far, carried)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_to_be_there_within_the_limit() {
        let (near, mut far) = duplex(16);
        let mut near = ProgressLimit::new(Pipe(near, Arc::default()), LIMIT);
        let answered = near.answered();
        let trickle = async {
            while far.write_all(b"x").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        };
        let reading = async {
            let began = Instant::now();
            let error = loop {
                if let Err(error) = near.read_u8().await {
                    break error;
                }
            };
            assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
            assert!(error.to_string().contains("no answer has come"), "{error}");
            // What comes of a body counts, as slow as it is.
            answered.tell();
            for _ in 0..3 * LIMIT.as_secs() {
                near.read_u8().await.expect("a byte");
            }
        };
        tokio::select! {
            () = trickle => panic!("it ended"),
            () = reading => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_an_error_after_the_limit_and_not_before() {
        let (mut near, _far, _) = pair();
        let began = Instant::now();
        assert_eq!(near.read_u8().await.expect_err("silence").kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
        // A peer that sends a byte now and then is none.
        let (mut near, mut far, _) = pair();
        for _ in 0..5 {
            let slow = async {
                sleep(LIMIT - Duration::from_secs(1)).await;
                far.write_all(b"x").await
            };
            let (read, written) = tokio::join!(near.read_u8(), slow);
            assert!(read.is_ok() && written.is_ok());
        }
        // Nor is anybody late who did not wait.
        sleep(LIMIT * 10).await;
        let soon = async {
            sleep(Duration::from_secs(1)).await;
            far.write_all(b"x").await
        };
        assert!(tokio::join!(near.read_u8(), soon).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_silent_too() {
        let (mut near, _far, _) = pair();
        assert_eq!(near.write_all(&[0; 17]).await.expect_err("no room").kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_below_is_progress() {
        let (mut near, _far, carried) = pair();
        let network = async {
            for _ in 0..20 {
                sleep(LIMIT / 2).await;
                carried.fetch_add(1, Ordering::Relaxed);
            }
        };
        let began = Instant::now();
        let (read, ()) = tokio::join!(near.read_u8(), network);
        assert_eq!(read.expect_err("silence in the end").kind(), io::ErrorKind::TimedOut);
        let took = began.elapsed();
        assert!((LIMIT * 11..=LIMIT * 11 + LIMIT / 10).contains(&took), "{took:?}");
        assert!(timeout(LIMIT / 2, near.read_u8()).await.is_ok(), "it stays so");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_the_last_that_moved() {
        // An answer that breaks off soon after its fields, and one that comes for a while.
        for pieces in [1, 7, 100] {
            let (near, mut far) = duplex(16);
            let carried = Arc::new(AtomicU64::new(0));
            let mut near = ProgressLimit::new(Pipe(near, carried.clone()), LIMIT);
            let answered = near.answered();
            let coming = async {
                for _ in 0..pieces {
                    sleep(LIMIT / 50).await;
                    carried.fetch_add(1, Ordering::Relaxed);
                    far.write_all(b"x").await.expect("room");
                }
                Instant::now()
            };
            let reading = async {
                loop {
                    match near.read_u8().await {
                        Ok(_) => answered.tell(),
                        Err(error) => break (error, Instant::now()),
                    }
                }
            };
            let (last, (error, given_up)) = tokio::join!(coming, reading);
            assert!(error.to_string().contains("nothing has moved for 60s"), "{error}");
            let silence = given_up - last;
            assert!((LIMIT..=LIMIT + LIMIT / 10).contains(&silence), "{pieces}: {silence:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_too_little_is_let_go() {
        for (bytes_a_second, is_served) in [(50, false), (200, true)] {
            let (near, mut far) = duplex(16);
            let mut near = SlowReaderLimit::new(Pipe(near, Arc::default()), Duration::from_secs(30), 3_000);
            let reading = async {
                for _ in 0..bytes_a_second * 100 / 10 {
                    sleep(Duration::from_millis(10_000 / bytes_a_second)).await;
                    if far.read_exact(&mut [0; 10]).await.is_err() {
                        return;
                    }
                }
            };
            let content = vec![0; usize::try_from(bytes_a_second * 100).expect("few")];
            let began = Instant::now();
            let writing = async {
                let written = near.write_all(&content).await;
                drop(near);
                written
            };
            let (written, ()) = tokio::join!(writing, reading);
            assert_eq!(written.is_ok(), is_served, "{bytes_a_second} bytes a second");
            assert!(is_served || began.elapsed() < Duration::from_secs(65), "{:?}", began.elapsed());
        }
    }
}
