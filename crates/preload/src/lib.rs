//! Carries the TCP connections of an unmodified, dynamically linked program over Multipath TCP. Loaded by `LD_PRELOAD`.
//!
//! With the kernel's engine it replaces `socket` alone: an IPv4 or IPv6 stream socket for TCP is made with
//! `IPPROTO_MPTCP`, or as asked where the kernel has none. Everything after that is the kernel's.
//!
//! With Polypath's own stack the program keeps its sockets. Connecting one is left to [`polypath_net::relay`], which
//! connects it over the loopback interface to a thread of ours, and a socket that listens gets the stack's connections
//! beside those of the kernel. Since these are the program's own sockets, whatever it does with them works; only what tells
//! of the peer, and why connecting failed, is replaced too. Connections to loopback addresses are left alone.
//!
//! `POLYPATH_PRELOAD_OPTIONS` is what `polypath_open` takes, `engine=kernel` if there is nothing.

#![allow(unsafe_code)]

mod carrier;
mod system;

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{sockaddr, socklen_t};
use polypath_net::engine::ConnectOptions;
use polypath_net::relay::{EngineChoice, errno};

fn is_tcp(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    let kind = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    (domain == libc::AF_INET || domain == libc::AF_INET6)
        && kind == libc::SOCK_STREAM
        && (protocol == 0 || protocol == libc::IPPROTO_TCP)
}

/// The descriptor of a call that is under way.
fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not -1, and the program keeps it open during the call. One that was never open makes system calls fail.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Runs our part of a call: none if it is the kernel's business, or a panic, which must not enter C. Leaves errno as it
/// was, but for a failure, which sets it.
fn ours(call: impl FnOnce() -> Option<io::Result<()>>) -> Option<c_int> {
    let before = system::errno();
    let result = catch_unwind(AssertUnwindSafe(call)).ok().flatten();
    system::set_errno(before);
    Some(match result? {
        Ok(()) => 0,
        Err(error) => {
            system::set_errno(errno(&error));
            -1
        }
    })
}

fn is_relayed() -> bool {
    matches!(carrier::choice(), Some(EngineChoice::Relay(_)))
}

/// An address that is reached by the network.
fn is_outward(address: &SocketAddr) -> bool {
    !address.ip().is_loopback() && !address.ip().is_unspecified()
}

/// `socket(2)`, with Multipath TCP of the kernel where TCP is asked for, if that is chosen. Without usable options such a
/// socket is refused with `EPROTONOSUPPORT`: plain TCP behind the caller's back would be worse.
// SAFETY: the name and the signature are those of the C library's function, which this one replaces on purpose. The same
// goes for those below.
#[unsafe(no_mangle)]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if !is_tcp(domain, kind, protocol) {
        return system::socket(domain, kind, protocol);
    }
    match catch_unwind(carrier::choice).ok().flatten() {
        None => {
            system::set_errno(libc::EPROTONOSUPPORT);
            -1
        }
        Some(EngineChoice::Kernel) => {
            let before = system::errno();
            let socket = system::socket(domain, kind, libc::IPPROTO_MPTCP);
            let has_none =
                matches!(system::errno(), libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EINVAL);
            if socket < 0 && has_none {
                // A call that succeeds leaves the variable as it was.
                system::set_errno(before);
                return system::socket(domain, kind, protocol);
            }
            socket
        }
        Some(_) => system::socket(domain, kind, protocol),
    }
}

/// `connect(2)`, over our stack where a TCP socket is to be connected to another machine.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    let relayed = || {
        // SAFETY: the caller promises what the system call asks for.
        let remote = unsafe { system::ip_address(to, length) }.filter(is_outward)?;
        let program = borrow(fd).filter(|_| is_relayed() && system::is_tcp(fd))?;
        let relay = match carrier::relay() {
            Ok(relay) => relay,
            Err(error) => return Some(Err(error)),
        };
        // The kernel knows what to say of a socket that is connecting, or connected.
        if relay.find(program).is_some_and(|carried| carried.error().is_none()) {
            return None;
        }
        Some(relay.connect(program, remote, ConnectOptions::default()))
    };
    // SAFETY: the caller promises what the system call asks for.
    ours(relayed).unwrap_or_else(|| unsafe { system::connect(fd, to, length) })
}

/// `listen(2)`, at our stack too for a TCP socket that others may reach.
#[unsafe(no_mangle)]
pub extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let result = system::listen(fd, backlog);
    if result != 0 {
        return result;
    }
    let relayed = || {
        let takes =
            matches!(carrier::choice(), Some(EngineChoice::Relay(choices)) if choices.takes_connections());
        let program = borrow(fd).filter(|_| takes && system::is_tcp(fd))?;
        let local = system::own_address(fd).filter(|at| !at.ip().is_loopback())?;
        let relay = match carrier::relay() {
            Ok(relay) => relay,
            Err(error) => return Some(Err(error)),
        };
        if relay.listens_at(program).is_some() {
            return None;
        }
        let listening = relay.listen(program, local, true).map(drop);
        Some(listening.inspect_err(|error| carrier::say(&error.to_string())))
    };
    ours(relayed).unwrap_or(result)
}

/// `accept(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, peer: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    unsafe { accept4(fd, peer, length, 0) }
}

/// `accept4(2)`, which tells the peer of a connection of our stack.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    peer: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller promises what the system call asks for, so a length can be read.
    let room = unsafe { length.as_ref() }.copied().unwrap_or(0);
    // SAFETY: the caller promises what the system call asks for.
    let accepted = unsafe { system::accept4(fd, peer, length, flags) };
    if accepted < 0 {
        return accepted;
    }
    ours(|| {
        let (listener, program) = (borrow(fd)?, borrow(accepted)?);
        if !is_relayed() || !system::is_tcp(accepted) {
            return None;
        }
        let relay = carrier::running().filter(|relay| relay.listens_at(listener).is_some())?;
        let carried = relay.accepted(program)?;
        // SAFETY: the kernel has filled the address in, for a socket of this family.
        unsafe { system::write_address(carried.remote(), system::is_v6(accepted), peer, length, room) };
        Some(Ok(()))
    });
    accepted
}

/// `getpeername(2)`, which tells the peer of a connection of our stack.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, peer: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller promises what the system call asks for, so a length can be read.
    let room = unsafe { length.as_ref() }.copied().unwrap_or(0);
    // SAFETY: the caller promises what the system call asks for.
    let result = unsafe { system::getpeername(fd, peer, length) };
    if result == 0 {
        ours(|| {
            let program = borrow(fd)?;
            if !is_relayed() || !system::is_tcp(fd) {
                return None;
            }
            let carried = carrier::running()?.find(program)?;
            // SAFETY: the kernel has filled the address in, for a socket of this family.
            unsafe { system::write_address(carried.remote(), system::is_v6(fd), peer, length, room) };
            Some(Ok(()))
        });
    }
    result
}

/// `getsockopt(2)`, which tells why connecting failed.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller promises what the system call asks for.
    let result = unsafe { system::getsockopt(fd, level, name, value, length) };
    if result == 0 && level == libc::SOL_SOCKET && name == libc::SO_ERROR {
        let failure = value.cast::<c_int>();
        ours(|| {
            // SAFETY: the kernel has written the length, and as much of a number, which need not be aligned.
            let seen = unsafe { (*length as usize == size_of::<c_int>()).then(|| failure.read_unaligned()) };
            // A socket of ours can only be reset.
            if seen != Some(libc::ECONNRESET) || !is_relayed() {
                return None;
            }
            let reason = carrier::running()?.find(borrow(fd)?)?.error()?;
            // SAFETY: the kernel has just written a number there.
            unsafe { failure.write_unaligned(reason) };
            Some(Ok(()))
        });
    }
    result
}
