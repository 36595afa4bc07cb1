//! Tells all connections that they have to leave.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use tokio::sync::Notify;

/// Whether all have to leave, and who waits for that. Smaller for each of them than a channel.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    is_so: AtomicBool,
    changed: Notify,
}

impl Stopped {
    /// All have to leave, for good.
    pub(super) fn set(&self) {
        self.is_so.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// What comes of it, unless all have to leave first. What is done is done, also then.
    #[expect(clippy::manual_async_fn, reason = "an async fn has room for its arguments twice")]
    pub(super) fn unless<T>(
        &self,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        async move {
            let mut changed = pin!(self.changed.notified());
            let mut told: Option<Waker> = None;
            poll_fn(move |cx| {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Some(done));
                }
                // Those who wait are in a list of all, with a lock: it is taken once for each, not each time that something moves.
                if !told.as_ref().is_some_and(|told| told.will_wake(cx.waker())) {
                    told = Some(cx.waker().clone());
                    // Whether it is so says the flag, which is looked at after that: whatever sets it later wakes.
                    let _ = changed.as_mut().poll(cx);
                }
                if self.is_so.load(Ordering::SeqCst) { Poll::Ready(None) } else { Poll::Pending }
            })
            .await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    use super::*;

    /// How often it was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_are_told_once_it_is_so() {
        let stopped = Stopped::default();
        let (mut first, mut second) = (pin!(pending::<()>()), pin!(pending::<()>()));
        let mut early = pin!(stopped.unless(first.as_mut()));
        let mut late = pin!(stopped.unless(second.as_mut()));
        let woken: [Arc<Woken>; 2] = Default::default();
        let mut poll_early = |by: usize| {
            let waker = woken[by].clone().into();
            early.as_mut().poll(&mut Context::from_waker(&waker))
        };
        // Something moves, and it waits on, in the end in another task.
        for by in [0, 0, 1] {
            assert!(poll_early(by).is_pending());
        }
        stopped.set();
        assert_eq!([0, 1].map(|by: usize| woken[by].0.load(Ordering::Relaxed)), [0, 1]);
        assert_eq!(poll_early(1), Poll::Ready(None));
        // Who comes afterwards need not be woken.
        let mut nobody = Context::from_waker(Waker::noop());
        assert_eq!(late.as_mut().poll(&mut nobody), Poll::Ready(None));
        // What is done is done.
        let mut done = pin!(async { 7 });
        assert_eq!(pin!(stopped.unless(done.as_mut())).poll(&mut nobody), Poll::Ready(Some(7)));
    }
}
