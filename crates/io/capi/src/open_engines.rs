//! The engines with a stack of their own that are open: descriptors belong to one of them, or to the kernel.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use polypath_relay::{CarriedConnection, Relay};
use socket2::SockRef;

use crate::failure::number;

/// One, and the process that has its threads.
#[derive(Debug)]
struct OpenEngine {
    relay: Arc<Relay>,
    process: u32,
}

static ENGINES: Mutex<Vec<OpenEngine>> = Mutex::new(Vec::new());
static CLEANING: Once = Once::new();
/// The process that has opened one last. In a child of fork that has none of its own, locks may be held by threads that it
/// hasn't.
static OPENER: AtomicU32 = AtomicU32::new(0);

/// How long calls under way may take to return when the program ends.
const RETURNING: Duration = Duration::from_secs(1);

fn engines() -> MutexGuard<'static, Vec<OpenEngine>> {
    ENGINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on it is found, and it ends with the program if it isn't freed before.
pub(crate) fn add(relay: Arc<Relay>) -> io::Result<()> {
    let mut result = 0;
    // SAFETY: the function takes nothing, and a library that is unloaded runs it first.
    CLEANING.call_once(|| result = unsafe { libc::atexit(end_all) });
    let process = std::process::id();
    engines().push(OpenEngine { relay, process });
    OPENER.store(process, Ordering::Relaxed);
    if result == 0 { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
}

/// A program's end, other than by a signal.
extern "C" fn end_all() {
    let own = std::process::id();
    let ended: Vec<_> = match ENGINES.try_lock() {
        Ok(mut engines) => engines.extract_if(.., |engine| engine.process == own).collect(),
        // Left so by another thread at a fork, or by one that ended in a call.
        Err(_) => return,
    };
    if ended.is_empty() {
        return;
    }
    // What this thread had of its own is gone by now, so another one does it.
    let ending = std::thread::Builder::new().spawn(move || ended.into_iter().for_each(end));
    let _ = ending.map(std::thread::JoinHandle::join);
}

fn end(OpenEngine { mut relay, .. }: OpenEngine) {
    relay.abandon();
    let began = Instant::now();
    while began.elapsed() < RETURNING {
        match Arc::try_unwrap(relay) {
            Ok(relay) => return drop(relay),
            Err(shared) => relay = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An engine that connects and listens: one of this process, which has not been freed.
pub(crate) fn usable(relay: &Weak<Relay>) -> io::Result<Arc<Relay>> {
    let own = std::process::id();
    let engines = engines();
    let engine = engines.iter().find(|engine| std::ptr::eq(Arc::as_ptr(&engine.relay), relay.as_ptr()));
    match engine {
        Some(engine) if engine.process == own => Ok(engine.relay.clone()),
        Some(_) => Err(number(
            libc::EINVAL,
            "the engine is the parent process's; expected one that this process opened after fork",
        )),
        None => Err(number(libc::EINVAL, "the engine has ended")),
    }
}

/// Takes out an engine, which ends when what is given is dropped; none in another process than its own.
pub(crate) fn take(relay: &Weak<Relay>) -> Option<Arc<Relay>> {
    let own = own_process()?;
    let is_it = |engine: &mut OpenEngine| {
        engine.process == own && std::ptr::eq(Arc::as_ptr(&engine.relay), relay.as_ptr())
    };
    engines().extract_if(.., is_it).next().map(|engine| engine.relay)
}

/// This process, if it has opened an engine itself.
fn own_process() -> Option<u32> {
    Some(std::process::id()).filter(|own| *own == OPENER.load(Ordering::Relaxed))
}

/// The relay of this process whose listener this descriptor is. A child of fork has a copy of its parent's, which it may
/// close: that is nothing to the relay.
pub(crate) fn own_listening(fd: BorrowedFd<'_>) -> Option<Arc<Relay>> {
    let own = own_process()?;
    let engines = engines();
    let mut relays = engines.iter().filter(|engine| engine.process == own).map(|engine| &engine.relay);
    relays.find(|relay| relay.listens_at(fd).is_some()).cloned()
}

/// The relay whose listener this descriptor is.
pub(crate) fn listening(fd: BorrowedFd<'_>) -> Option<Arc<Relay>> {
    engines().iter().map(|engine| &engine.relay).find(|relay| relay.listens_at(fd).is_some()).cloned()
}

/// The relay that has a connection behind a descriptor.
pub(crate) fn carrying(fd: BorrowedFd<'_>) -> Option<Arc<Relay>> {
    engines().iter().map(|engine| &engine.relay).find(|relay| relay.find(fd).is_some()).cloned()
}

/// As [`carried`], for what asks the stack. In a child of fork, locks of its parent's engines may be held for ever, so none is taken: what leads to
/// the loopback interface, as all connections of engines do, is taken for one of them.
pub(crate) fn carried_here(fd: BorrowedFd<'_>) -> io::Result<Option<Arc<CarriedConnection>>> {
    let Some(own) = own_process() else {
        let is_of_parent = OPENER.load(Ordering::Relaxed) != 0 && leads_to_loopback(fd);
        return if is_of_parent { Err(of_parent()) } else { Ok(None) };
    };
    let engines = engines();
    let found =
        engines.iter().filter(|engine| engine.process == own).find_map(|engine| engine.relay.find(fd));
    let has_others = engines.iter().any(|engine| engine.process != own);
    if found.is_none() && has_others && leads_to_loopback(fd) { Err(of_parent()) } else { Ok(found) }
}

fn of_parent() -> io::Error {
    number(
        libc::EINVAL,
        "the connection's engine is the parent process's, which alone knows; expected one that this process opened after fork",
    )
}

fn leads_to_loopback(fd: BorrowedFd<'_>) -> bool {
    let peer = SockRef::from(&fd).peer_addr().ok().and_then(|peer| peer.as_socket());
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

/// The connection of a relay behind a descriptor.
pub(crate) fn carried(fd: BorrowedFd<'_>) -> Option<Arc<CarriedConnection>> {
    engines().iter().find_map(|engine| engine.relay.find(fd))
}
