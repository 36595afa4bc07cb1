//! Carries the TCP connections of an unmodified, dynamically linked program over Multipath TCP. Loaded by `LD_PRELOAD`.
//!
//! With the kernel's engine it replaces `socket` alone: an IPv4 or IPv6 stream socket for TCP is made with
//! `IPPROTO_MPTCP`, or as asked where the kernel has none. Everything after that is the kernel's.
//!
//! With Polypath's own stack the program keeps its sockets too. A process beside it, the keeper, has the stack
//! ([`polypath_relay::keeper`]). Connecting a socket is left to it: it connects the socket over the loopback interface
//! to itself. A socket that listens gets the stack's connections beside those of the kernel. Since these are the program's
//! own sockets, whatever it does with them works, and the kernel ends them when the program ends, however that happens;
//! only what tells of addresses, and why connecting failed, is replaced too. Connections to loopback addresses are left alone.
//!
//! Where the stack can't do what an option asks for, the program is told: `TCP_FASTOPEN_CONNECT` is `EOPNOTSUPP`, as with a
//! kernel whose `tcp_fastopen` is off. Sending with `MSG_FASTOPEN` connects first, as a kernel without a cookie does.
//!
//! `POLYPATH_PRELOAD_OPTIONS` is what `polypath_open` takes, `engine=kernel` if there is nothing.

#![allow(unsafe_code)]

mod carrier;
mod opening;
mod system;

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{sockaddr, socklen_t};
use polypath_relay::keeper::Seen;
use polypath_relay::{EngineChoice, errno};

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
    // SAFETY: the caller promises what the system call asks for.
    let remote = unsafe { system::ip_address(to, length) };
    // SAFETY: the same.
    ours(|| opening::open(fd, remote?)).unwrap_or_else(|| unsafe { system::connect(fd, to, length) })
}

/// `listen(2)`, at our stack too for a TCP socket that others may reach.
#[unsafe(no_mangle)]
pub extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let result = system::listen(fd, backlog);
    if result != 0 {
        return result;
    }
    let relayed = || {
        let program = borrow(fd).filter(|_| carrier::takes_connections() && system::is_tcp(fd))?;
        let local = system::own_address(fd).filter(|at| !at.ip().is_loopback())?;
        let listening =
            carrier::keeper().and_then(|keeper| keeper.listen(program, local, carrier::launch_keeper));
        Some(listening.inspect_err(carrier::complain))
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
        let program = borrow(accepted).filter(|_| carrier::takes_connections() && is_of_keeper(accepted))?;
        let seen = carrier::keeper().ok()?.accepted(program)?;
        // SAFETY: the kernel has filled the address in, for a socket of this family.
        unsafe { system::write_address(seen.remote, system::is_v6(accepted), peer, length, room) };
        Some(Ok(()))
    });
    accepted
}

/// A TCP socket that may be connected to the keeper, as far as the kernel tells.
fn is_of_keeper(fd: c_int) -> bool {
    carrier::is_relayed()
        && system::is_tcp(fd)
        && system::peer_address(fd).is_some_and(|peer| peer.ip().is_loopback())
}

/// What the keeper knows of a socket, if it is connected to it.
fn find(fd: c_int) -> Option<Seen> {
    let program = borrow(fd).filter(|_| is_of_keeper(fd))?;
    carrier::keeper().ok()?.find(program)
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
            let seen = find(fd)?;
            // SAFETY: the kernel has filled the address in, for a socket of this family.
            unsafe { system::write_address(seen.remote, system::is_v6(fd), peer, length, room) };
            Some(Ok(()))
        });
    }
    result
}

/// `getsockname(2)`, which tells this end of a connection of our stack as its peer sees it.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, local: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller promises what the system call asks for, so a length can be read.
    let room = unsafe { length.as_ref() }.copied().unwrap_or(0);
    // SAFETY: the caller promises what the system call asks for.
    let result = unsafe { system::getsockname(fd, local, length) };
    if result == 0 {
        ours(|| {
            let own = find(fd)?.local?;
            // SAFETY: the kernel has filled the address in, for a socket of this family.
            unsafe { system::write_address(own, system::is_v6(fd), local, length, room) };
            Some(Ok(()))
        });
    }
    result
}

/// `setsockopt(2)`. What concerns the connection behind a socket reaches our stack.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) {
        let refused =
            || (carrier::is_relayed() && system::is_tcp(fd)).then(|| Err(io::ErrorKind::Unsupported.into()));
        if let Some(result) = ours(refused) {
            return result;
        }
    }
    // SAFETY: the caller promises what the system call asks for.
    let result = unsafe { system::setsockopt(fd, level, name, value, length) };
    if result == 0 && is_of_connection(level, name) {
        ours(|| {
            let program = borrow(fd).filter(|_| is_of_keeper(fd))?;
            // The kernel's part is done. What the keeper can't read it can't follow.
            let _ = carrier::keeper().ok()?.options_changed(program);
            Some(Ok(()))
        });
    }
    result
}

/// Options that the stack must know.
fn is_of_connection(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_KEEPALIVE
                | libc::SO_SNDBUF
                | libc::SO_RCVBUF
                | libc::SO_SNDBUFFORCE
                | libc::SO_RCVBUFFORCE
        ),
        libc::IPPROTO_TCP => matches!(
            name,
            libc::TCP_USER_TIMEOUT | libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT
        ),
        _ => false,
    }
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
            if seen != Some(libc::ECONNRESET) || !carrier::is_relayed() {
                return None;
            }
            let reason = carrier::keeper().ok()?.find(borrow(fd)?)?.error?;
            // SAFETY: the kernel has just written a number there.
            unsafe { failure.write_unaligned(reason) };
            Some(Ok(()))
        });
    }
    result
}
