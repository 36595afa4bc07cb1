//! Runtimes of tokio for programs whose descriptors may run out.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use tokio::runtime::{Builder, Runtime};

/// Most descriptors that a runtime takes: epoll's and a second one of it, its waker's, and three that tell of signals.
const RUNTIME_DESCRIPTORS: usize = 6;

/// Builds a runtime, or gives the system's error (`EMFILE`, `ENFILE`) where too few descriptors are free: tokio itself panics there,
/// which ends a program that called us from C.
pub fn build_runtime(builder: &mut Builder) -> io::Result<Runtime> {
    expect_free(RUNTIME_DESCRIPTORS)?;
    builder.build()
}

fn expect_free(count: usize) -> io::Result<()> {
    let opened: Result<Vec<OwnedFd>, _> = (0..count).map(|_| eventfd(0, EventfdFlags::CLOEXEC)).collect();
    opened?;
    Ok(())
}
