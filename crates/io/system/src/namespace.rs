//! Network namespaces: hosts of their own on one machine.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::{io, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
#[cfg(feature = "netlink")]
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::in_context::in_context;

/// A network namespace. It has no name and vanishes with the last handle, process and socket in it, so that nothing
/// stays behind whatever happens.
#[derive(Clone, Debug)]
pub struct Namespace {
    handle: Arc<OwnedFd>,
}

impl Namespace {
    /// A new namespace, with its loopback interface up. Needs CAP_SYS_ADMIN (in a user namespace, at least).
    #[cfg(feature = "netlink")]
    pub fn create() -> io::Result<Self> {
        let namespace = thread::scope(|scope| {
            let created = scope.spawn(|| {
                // SAFETY: only UnshareFlags::FILES could pull file descriptors away from other code; NEWNET changes
                // nothing but the namespace of this thread's future sockets.
                #[allow(unsafe_code)]
                unsafe {
                    unshare_unsafe(UnshareFlags::NEWNET)?;
                }
                Self::current()
            });
            created.join().unwrap_or_else(|_| Err(io::Error::other("the thread that made a namespace died")))
        })?;
        namespace.run(|| super::Netlink::new()?.set_up("lo"))??;
        Ok(namespace)
    }

    /// The namespace that this thread is in.
    pub fn current() -> io::Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// The namespace behind a file like `/proc/PID/ns/net` or `/run/netns/NAME`.
    pub fn open(path: &str) -> io::Result<Self> {
        let file = File::open(path)
            .map_err(|error| in_context(format!("can't open the network namespace {path}"), error))?;
        Ok(Self { handle: Arc::new(file.into()) })
    }

    /// Moves this thread, and what it starts from now on, into the namespace.
    ///
    /// To stay where one is needs no privileges.
    pub fn enter(&self) -> io::Result<()> {
        let (here, there) =
            (rustix::fs::fstat(Self::current()?.handle.as_fd())?, rustix::fs::fstat(&self.handle)?);
        if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino) {
            return Ok(());
        }
        Ok(move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` on a thread in the namespace and waits for it. Sockets made there stay there, and child processes
    /// started there live there.
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let running = scope.spawn(|| self.enter().map(|()| work()));
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `work` on a thread in the namespace, without waiting.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<io::Result<T>> {
        let namespace = self.clone();
        thread::spawn(move || namespace.enter().map(|()| work()))
    }

    /// Sets a variable of the namespace, for example `("net/ipv4/ip_forward", "1")`.
    pub fn set_variable(&self, name: &str, value: &str) -> io::Result<()> {
        self.run(|| {
            std::fs::write(format!("/proc/sys/{name}"), value)
                .map_err(|error| io::Error::new(error.kind(), format!("/proc/sys/{name}: {error}")))
        })?
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use polypath_testbed::is_root_or_skip;

    use super::*;

    #[test]
    fn a_namespace_that_is_not_there_is_told_by_its_path() {
        let error = Namespace::open("/nowhere/blue").expect_err("it is not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("can't open the network namespace /nowhere/blue: "), "{error}");
    }

    #[test]
    fn a_thread_enters_another_namespace_and_its_own() {
        let here = Namespace::current().expect("this one");
        here.enter().expect("nothing to do");
        assert_eq!(here.run(|| 7).expect("nothing to do"), 7);
        if !is_root_or_skip("entering another namespace") {
            return;
        }
        let other = Namespace::create().expect("a namespace");
        let inode = || std::fs::read_link("/proc/thread-self/ns/net").expect("a link");
        assert_ne!(other.run(inode).expect("enters"), inode());
    }
}
