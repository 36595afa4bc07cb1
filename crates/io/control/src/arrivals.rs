//! When stacks start: their sockets come into directories, which the kernel watches.

use std::io;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Directories in which something may come.
#[derive(Debug)]
pub struct Arrivals {
    fd: AsyncFd<OwnedFd>,
}

impl Arrivals {
    /// Watches nothing so far. Must be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        // SAFETY: the descriptor is owned by the AsyncFd, stays open and is the same as long as that.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Self { fd })
    }

    /// Watches a directory, too; once, however often it is named. One that is not there is not watched.
    pub fn watch(&self, directory: &Path) -> io::Result<()> {
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        match inotify::add_watch(self.fd.as_fd(), directory, flags) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until something has come. May be given up at any time.
    pub async fn come(&self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            let mut ready = self.fd.readable().await?;
            // What it is does not matter; all of it is taken together.
            match rustix::io::read(self.fd.as_fd(), &mut buffer) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
