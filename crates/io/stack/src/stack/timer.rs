use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use polypath_units::{Duration, Instant};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// One timer with the kernel's resolution: tokio's own counts milliseconds, and pacing needs microseconds.
#[derive(Debug)]
pub(super) struct Timer {
    fd: AsyncFd<OwnedFd>,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the descriptor stays open and the same as long as the AsyncFd, which owns it.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register(fd)? };
        Ok(Self { fd })
    }

    /// Fires `after` from now, instead of whenever it was to fire before.
    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would switch it off.
        let nanos = after.as_nanos().max(1);
        let value = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Ready when it fired, once.
    pub(super) fn poll_fired(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            let mut count = [0; 8];
            match rustix::io::read(guard.get_inner(), &mut count) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

/// When the timer is to fire, as last told to the kernel.
#[derive(Debug)]
pub(super) struct Armed(Instant);

impl Armed {
    pub(super) const NEVER: Self = Self(Instant::FAR_FUTURE);

    /// The timer fired.
    pub(super) fn fired(&mut self) {
        *self = Self::NEVER;
    }

    /// True if the timer must be set for `deadline`: it would fire later, or never. One that fires too early is let be.
    pub(super) fn must_set(&mut self, deadline: Instant) -> bool {
        let earlier = deadline < self.0;
        if earlier {
            self.0 = deadline;
        }
        earlier
    }
}
