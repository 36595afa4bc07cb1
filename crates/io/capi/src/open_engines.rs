//! The engines with a stack of their own that are open: descriptors belong to one of them, or to the kernel.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use polypath_relay::{CarriedConnection, Relay};
use socket2::{Protocol, SockRef};

use crate::failure::number;

/// The engines that a process has opened itself.
#[derive(Debug)]
struct OpenEngines {
    process: u32,
    /// It is a child of fork, and its parent had some.
    is_heir: bool,
    relays: Mutex<Vec<Arc<Relay>>>,
    /// How many are being freed, which the end of the program waits for.
    ending: Mutex<usize>,
    ended: Condvar,
}

/// An engine that is being freed.
struct Ending(&'static OpenEngines);

impl Drop for Ending {
    fn drop(&mut self) {
        *self.0.ending() -= 1;
        self.0.ended.notify_all();
    }
}

/// Those of the process that has opened one last. In a child of fork they are its parent's, whose locks may be held for ever by
/// threads that it hasn't: it takes none of them, and gets a list of its own with its first engine. None is ever freed.
static ENGINES: AtomicPtr<OpenEngines> = AtomicPtr::new(std::ptr::null_mut());
static CLEANING: Once = Once::new();

/// How long calls under way may take to return when an engine ends.
const RETURNING: Duration = Duration::from_secs(1);
/// How long the end of a program waits for the list of engines.
const LOCKED: Duration = Duration::from_secs(1);
/// How long the end of a program waits for engines that other threads free: what was written has a minute.
const FREEING: Duration = Duration::from_secs(75);

impl OpenEngines {
    fn relays(&self) -> MutexGuard<'_, Vec<Arc<Relay>>> {
        self.relays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ending(&self) -> MutexGuard<'_, usize> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until no other thread frees an engine any more.
    fn wait_for_ending(&self) {
        // The thread may have been ended in the middle.
        let waited = self.ended.wait_timeout_while(self.ending(), FREEING, |ending| *ending > 0);
        drop(waited);
    }

    fn find(&self, is_it: impl Fn(&Relay) -> bool) -> Option<Arc<Relay>> {
        self.relays().iter().find(|relay| is_it(relay)).cloned()
    }
}

fn latest() -> Option<&'static OpenEngines> {
    // SAFETY: null, or one that was leaked.
    unsafe { ENGINES.load(Ordering::Acquire).as_ref() }
}

/// Those of this process, if it has opened any.
fn own() -> Option<&'static OpenEngines> {
    latest().filter(|engines| engines.process == std::process::id())
}

/// The same, with an empty list if there is none yet.
fn own_or_new() -> &'static OpenEngines {
    let process = std::process::id();
    loop {
        let before = ENGINES.load(Ordering::Acquire);
        if let Some(own) = own() {
            return own;
        }
        let new = OpenEngines {
            process,
            is_heir: !before.is_null(),
            relays: Mutex::default(),
            ending: Mutex::default(),
            ended: Condvar::new(),
        };
        let new = Box::into_raw(Box::new(new));
        if ENGINES.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: made just now, and nobody else knows it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// From now on it is found, and it ends with the program if it isn't freed before.
pub(crate) fn add(relay: Arc<Relay>) -> io::Result<()> {
    let mut result = 0;
    // SAFETY: the function takes nothing, and a library that is unloaded runs it first.
    CLEANING.call_once(|| result = unsafe { libc::atexit(end_all) });
    own_or_new().relays().push(relay);
    if result == 0 { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
}

/// A program's end, other than by a signal.
extern "C" fn end_all() {
    let Some(own) = own() else { return };
    // Other threads hold it for a moment only, unless one was ended in a call.
    let relays = lock_within(&own.relays, LOCKED);
    let ended = relays.map(|mut relays| std::mem::take(&mut *relays)).unwrap_or_default();
    if !ended.is_empty() {
        // What this thread had of its own is gone by now, so another one does it.
        let ending = std::thread::Builder::new().spawn(move || ended.into_iter().for_each(end));
        let _ = ending.map(std::thread::JoinHandle::join);
    }
    own.wait_for_ending();
}

/// A lock, if it is free within some time.
fn lock_within<T>(mutex: &Mutex<T>, patience: Duration) -> Option<MutexGuard<'_, T>> {
    let began = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if began.elapsed() > patience => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Ends an engine of this process; of another one there is nothing here but memory, and no thread to end it with.
pub(crate) fn free(relay: &Weak<Relay>) {
    let Some(own) = own() else { return };
    let is_it = |engine: &mut Arc<Relay>| std::ptr::eq(Arc::as_ptr(engine), relay.as_ptr());
    let mut relays = own.relays();
    let Some(relay) = relays.extract_if(.., is_it).next() else { return };
    // Before the program's end could find neither.
    *own.ending() += 1;
    let ending = Ending(own);
    drop(relays);
    end(relay);
    drop(ending);
}

/// Ends an engine that was taken out. Calls that wait in it return first, or one that returns later ends it.
fn end(mut relay: Arc<Relay>) {
    let began = Instant::now();
    while began.elapsed() < RETURNING {
        // Another connection may have begun meanwhile.
        relay.abandon();
        match Arc::try_unwrap(relay) {
            Ok(relay) => return drop(relay),
            Err(shared) => relay = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An engine that connects and listens: one of this process, which has not been freed.
pub(crate) fn usable(relay: &Weak<Relay>, process: u32) -> io::Result<Arc<Relay>> {
    if process != std::process::id() {
        return Err(number(
            libc::EINVAL,
            "the engine is the parent process's; expected one that this process opened after fork",
        ));
    }
    own()
        .and_then(|own| own.find(|engine| std::ptr::eq(engine, relay.as_ptr())))
        .ok_or_else(|| number(libc::EINVAL, "the engine has ended"))
}

/// The relay of this process whose listener this descriptor is. A child of fork has a copy of its parent's, which it may
/// close: that is nothing to the relay.
pub(crate) fn own_listening(fd: BorrowedFd<'_>) -> Option<Arc<Relay>> {
    own()?.find(|relay| relay.listens_at(fd).is_some())
}

/// The same; an error if it is the parent's.
pub(crate) fn listening(fd: BorrowedFd<'_>) -> io::Result<Option<Arc<Relay>>> {
    known_or_inherited(fd, own_listening(fd))
}

/// The relay of this process that has a connection behind a descriptor; an error if it is the parent's.
pub(crate) fn carrying(fd: BorrowedFd<'_>) -> io::Result<Option<Arc<Relay>>> {
    known_or_inherited(fd, own().and_then(|own| own.find(|relay| relay.find(fd).is_some())))
}

/// The connection of a relay of this process behind a descriptor; an error if it is the parent's.
pub(crate) fn carried(fd: BorrowedFd<'_>) -> io::Result<Option<Arc<CarriedConnection>>> {
    known_or_inherited(fd, own().and_then(|own| own.relays().iter().find_map(|relay| relay.find(fd))))
}

fn known_or_inherited<T>(fd: BorrowedFd<'_>, known: Option<T>) -> io::Result<Option<T>> {
    if known.is_none() && is_inherited(fd) {
        return Err(number(
            libc::EINVAL,
            "the descriptor's engine is the parent process's, which alone knows; expected one of an engine that this process opened after fork",
        ));
    }
    Ok(known)
}

/// Whether an engine of the parent process has opened a descriptor. Only the parent knows its own, but all of them are at the
/// loopback interface, and not of the kernel's Multipath TCP.
pub(crate) fn is_inherited(fd: BorrowedFd<'_>) -> bool {
    let is_child = latest().is_some_and(|latest| latest.is_heir || latest.process != std::process::id());
    is_child && is_at_loopback(&SockRef::from(&fd))
}

fn is_at_loopback(socket: &SockRef<'_>) -> bool {
    let local = socket.local_addr().ok().and_then(|local| local.as_socket());
    local.is_some_and(|local| local.ip().to_canonical().is_loopback())
        && socket.protocol().is_ok_and(|protocol| protocol == Some(Protocol::TCP))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_lock_that_another_thread_has_for_a_moment_is_waited_for() {
        let mutex = Arc::new(Mutex::new(1));
        let (is_held, held) = mpsc::channel();
        let holder = std::thread::spawn({
            let mutex = mutex.clone();
            move || {
                let _guard = mutex.lock();
                is_held.send(()).expect("the test waits");
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        held.recv().expect("the thread has it");
        assert!(lock_within(&mutex, Duration::ZERO).is_none());
        assert_eq!(lock_within(&mutex, Duration::from_secs(60)).as_deref(), Some(&1));
        holder.join().expect("it ends");
    }
}
