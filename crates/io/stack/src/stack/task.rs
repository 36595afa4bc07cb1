//! The tasks that read from the driver and wait for the timer.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use polypath_wire::Packet;

use super::driver::Receive;
use super::ended::StackEnded;
use super::state::StackShared;

/// Starts one task per receiver. The first one waits for the timer too.
pub(super) fn spawn<R: Receive + 'static>(
    runtime: &tokio::runtime::Handle,
    shared: &Arc<StackShared>,
    receive: impl IntoIterator<Item = R>,
) {
    for (index, receive) in receive.into_iter().enumerate() {
        runtime.spawn(run(Ending(shared.clone()), receive, index == 0));
    }
}

/// A task's share in the stack. When the task goes before the stack is over, it went with its runtime: whoever still holds the
/// stack is told, and so are peers. The task may go before it has run at all.
struct Ending(Arc<StackShared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(StackEnded::Runtime);
    }
}

async fn run<R: Receive>(ending: Ending, mut receive: R, has_timer: bool) {
    let Ending(shared) = &ending;
    let mut packets = Vec::new();
    let stopped = shared.stopping.notified();
    let mut stopped = pin!(stopped);
    let result = poll_fn(|cx| {
        if shared.is_over() {
            return Poll::Ready(Ok(()));
        }
        // The last handle went: connections that are still closing are waited for.
        while stopped.as_mut().poll(cx).is_ready() {
            stopped.set(shared.stopping.notified());
        }
        poll_once(shared, &mut receive, has_timer, &mut packets, cx)
    });
    if let Err(why) = result.await {
        shared.end(why);
    }
}

/// Handles a batch of packets or a timeout, if there is one, and asks to be polled again: applications get their turn
/// between batches.
fn poll_once<R: Receive>(
    shared: &StackShared,
    receive: &mut R,
    has_timer: bool,
    packets: &mut Vec<Packet>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), StackEnded>> {
    let received = poll_driver(|| receive.poll_receive(cx, packets))?.is_ready();
    let timer = || if has_timer { shared.timer.poll_fired(cx) } else { Poll::Pending };
    let fired = poll_driver(timer)?.is_ready();
    if !received && !fired {
        return Poll::Pending;
    }
    let handled = shared.with(|state, now| {
        state.check()?;
        if fired {
            state.timer_fired();
            state.host.handle_timeout(now);
        }
        for packet in packets.drain(..) {
            state.receive(now, packet);
        }
        Ok::<_, io::Error>(())
    });
    // An error tells that the stack has ended, for a cause that it knows.
    handled.flatten().map_err(|error| StackEnded::by_driver(&error))?;
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// What the program's driver, or its runtime, has to say. It may panic, as any code of a program may.
fn poll_driver(poll: impl FnOnce() -> Poll<io::Result<()>>) -> Poll<Result<(), StackEnded>> {
    // A panic ends the stack, and nobody asks again.
    catch_unwind(AssertUnwindSafe(poll))
        .map_err(|panic| StackEnded::by_panic(&*panic))?
        .map_err(|error| StackEnded::by_driver(&error))
}
